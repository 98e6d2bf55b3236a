package outside

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawHTTP2 is a connection of HTTP/2 that says whatever it is told to. It is not safe for
// concurrent use.
type rawHTTP2 struct {
	net.Conn
	frames *http2.Framer
	next   uint32 // stream
}

// rawHTTP2 connects from an address and shakes hands.
func (s *site) rawHTTP2(ctx context.Context, from string) (*rawHTTP2, error) {
	conn, err := s.dial(ctx, from)
	if err != nil {
		return nil, err
	}
	c := &rawHTTP2{Conn: conn, frames: http2.NewFramer(conn, conn), next: 1}
	c.frames.AllowIllegalWrites = true
	c.frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return nil, err
	}
	return c, c.frames.WriteSettings()
}

// open begins a request: pairs of names and values, byte for byte.
func (c *rawHTTP2) open(complete bool, fields ...string) (stream uint32, err error) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i+1 < len(fields); i += 2 {
		if err := encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return 0, err
		}
	}
	stream, c.next = c.next, c.next+2
	return stream, c.frames.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: complete,
	})
}

// status waits for the answer to a request, and takes what else comes before. A request
// that is reset has none: 0.
func (c *rawHTTP2) status(stream uint32, within time.Duration) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return 0, err
	}
	for {
		frame, err := c.frames.ReadFrame()
		if err != nil {
			return 0, err
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				if err := c.frames.WriteSettingsAck(); err != nil {
					return 0, err
				}
			}
		case *http2.MetaHeadersFrame:
			if f.StreamID == stream {
				return strconv.Atoi(f.PseudoValue("status"))
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return 0, nil
			}
		}
	}
}
