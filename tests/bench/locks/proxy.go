package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// proxy stands between a candidate and Redis and counts the commands that go
// by. Redis's own statistics can't tell: they count what scripts call as well.
// It costs time, so it is used in rounds of their own that nobody times.
type proxy struct {
	listener net.Listener
	target   string
	requests atomic.Int64
	wg       sync.WaitGroup

	mu     sync.Mutex // guards all below
	conns  map[net.Conn]struct{}
	closed bool

	before int64 // requests at start
}

// newProxy starts a proxy on a free port of loopback. Close it.
func newProxy(target string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the counting proxy: %w", err)
	}
	p := &proxy{listener: listener, target: target, conns: make(map[net.Conn]struct{})}
	p.wg.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// close ends all connections and waits for what handles them.
func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// start and stop make a meter of the proxy.
func (p *proxy) start(context.Context) error {
	p.before = p.requests.Load()
	return nil
}

func (p *proxy) stop(_ context.Context, ops int, s benchmark.Sample) error {
	s[requests] = float64(p.requests.Load()-p.before) / float64(ops)
	return nil
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close() // which the client will report
			continue
		}
		if !p.keep(client, server) {
			return
		}
		p.wg.Go(func() {
			defer p.drop(client, server)
			_, _ = io.Copy(client, server) // it ends when either side does
		})
		p.wg.Go(func() {
			defer p.drop(client, server)
			// Counted first, so that whoever has an answer finds its command counted.
			_, _ = io.Copy(io.MultiWriter(&counter{count: &p.requests}, server), client)
		})
	}
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.closed {
			c.Close()
		} else {
			p.conns[c] = struct{}{}
		}
	}
	return !p.closed
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(p.conns, c)
	}
}

// counter counts the commands that are written to it, each an array of bulk
// strings (Redis serialization protocol specification, "Sending commands to a
// Redis server"). A command counts once the header of its last string is there.
// A write fails on anything else.
type counter struct {
	count *atomic.Int64
	line  []byte // a header that has begun
	parts int    // strings to come, the one that is skipped not included
	skip  int    // bytes of a string
}

func (c *counter) Write(chunk []byte) (int, error) {
	for rest := chunk; len(rest) > 0; {
		if c.skip > 0 {
			n := min(c.skip, len(rest))
			c.skip, rest = c.skip-n, rest[n:]
			continue
		}
		c.line, rest = append(c.line, rest[0]), rest[1:]
		if c.line[len(c.line)-1] != '\n' {
			continue
		}
		if err := c.header(); err != nil {
			return 0, err
		}
		c.line = c.line[:0]
	}
	return len(chunk), nil
}

// header reads "*3" before a command and "$5" before each string of it.
func (c *counter) header() error {
	kind := byte('*')
	if c.parts > 0 {
		kind = '$'
	}
	n, err := strconv.Atoi(string(bytes.TrimSuffix(c.line[1:], []byte("\r\n"))))
	switch {
	case c.line[0] != kind || err != nil || n < 0:
		return fmt.Errorf("%q is not the beginning of a command", c.line)
	case c.parts == 0:
		c.parts = n
		return nil
	}
	c.skip = n + len("\r\n")
	if c.parts--; c.parts == 0 {
		c.count.Add(1)
	}
	return nil
}
