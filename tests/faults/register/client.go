package register

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
)

// ErrRefused says that a greater fence has been seen.
var ErrRefused = errors.New("a greater fence was seen")

// Client asks a server for one worker. It is not safe for concurrent use.
type Client struct {
	worker int
	conn   net.Conn
	in     *json.Decoder
	out    *json.Encoder
}

// Dial connects to a server. The worker is a number for the history.
func Dial(ctx context.Context, addr string, worker int) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connecting to the register: %w", err)
	}
	return &Client{worker: worker, conn: conn, in: json.NewDecoder(conn), out: json.NewEncoder(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() { c.conn.Close() }

// Read returns a number and opens a section, which is to be given to Write. It
// returns [ErrRefused] for a fence that is too small.
func (c *Client) Read(key string, fence int64) (value, section int64, err error) {
	a, err := c.ask(request{Worker: c.worker, Key: key, Fence: fence})
	if err != nil {
		return 0, 0, fmt.Errorf("reading %s: %w", key, err)
	}
	return a.Value, a.Section, nil
}

// Write gives the number of a section a new, unique value and closes the section.
// It returns [ErrRefused] for a fence that is too small by now.
func (c *Client) Write(section int64) error {
	if _, err := c.ask(request{Worker: c.worker, Section: section}); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

func (c *Client) ask(q request) (a response, err error) {
	if err := c.out.Encode(q); err != nil {
		return a, err
	}
	if err := c.in.Decode(&a); err != nil {
		return a, err
	}
	if !a.OK {
		return a, ErrRefused
	}
	return a, nil
}
