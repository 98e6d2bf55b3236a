package outside

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
)

// Types of streams and frames of HTTP/3 (RFC 9114, 6.2 and 7.2).
const (
	streamControl = 0x0
	frameData     = 0x0
	frameHeaders  = 0x1
	frameSettings = 0x4
)

// rawHTTP3 is a connection of HTTP/3 that says whatever it is told to.
type rawHTTP3 struct{ *quic.Conn }

// begin opens the control stream. It sends no settings: answers refer to no dynamic table.
func (c *rawHTTP3) begin() error {
	control, err := c.OpenUniStream()
	if err != nil {
		return err
	}
	_, err = control.Write(append([]byte{streamControl}, frame(frameSettings, nil)...))
	return err
}

// open begins a request: pairs of names and values, byte for byte. It is complete when the
// stream is closed.
func (c *rawHTTP3) open(fields ...string) (*quic.Stream, error) {
	stream, err := c.OpenStream()
	if err != nil {
		return nil, err
	}
	var block bytes.Buffer
	encoder := qpack.NewEncoder(&block)
	for i := 0; i+1 < len(fields); i += 2 {
		if err := encoder.WriteField(qpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return nil, err
		}
	}
	_, err = stream.Write(frame(frameHeaders, block.Bytes()))
	return stream, err
}

// frame returns a frame with that payload.
func frame(kind uint64, payload []byte) []byte {
	f := quicvarint.Append(nil, kind)
	return append(quicvarint.Append(f, uint64(len(payload))), payload...)
}

// status waits for the answer to a request. One that is reset has none: 0 and an error.
func (c *rawHTTP3) status(stream *quic.Stream) (int, error) {
	if err := stream.SetReadDeadline(time.Now().Add(35 * time.Second)); err != nil { // longer than any route of the example
		return 0, err
	}
	r := quicvarint.NewReader(stream)
	for {
		kind, err := quicvarint.Read(r)
		if err != nil {
			return 0, err
		}
		size, err := quicvarint.Read(r)
		if err != nil {
			return 0, err
		}
		payload := make([]byte, size)
		if _, err := io.ReadFull(r, payload); err != nil {
			return 0, err
		}
		if kind != frameHeaders {
			continue
		}
		field, err := qpack.NewDecoder().Decode(payload)()
		if err != nil {
			return 0, err
		}
		if field.Name != ":status" {
			return 0, fmt.Errorf("the answer begins with %q", field.Name)
		}
		return strconv.Atoi(field.Value)
	}
}
