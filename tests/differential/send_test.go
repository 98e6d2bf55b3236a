package differential

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// answerLimit bounds one request: longer than Envoy's own limits for what
// ordergate and the backend may take, on a busy machine.
const answerLimit = 20 * time.Second

// answer is what became of a request.
type answer struct {
	status  int    // 0: the connection was closed without an answer
	verdict string // x-ordergate-verdict
	hung    bool   // nothing within answerLimit
	err     error  // the machine's, not the server's: no connection could be made
}

// sendAll sends requests over some connections at a time and returns the answer
// to each. It blocks until all are answered, or the context ends.
func sendAll(ctx context.Context, addr string, requests []request, connections int) []answer {
	answers := make([]answer, len(requests))
	next := make(chan int)
	var workers sync.WaitGroup
	for range connections {
		workers.Go(func() {
			c := &client{addr: addr}
			defer c.close()
			for i := range next {
				answers[i] = c.send(ctx, requests[i])
			}
		})
	}
	for i := range requests {
		if ctx.Err() != nil {
			answers[i].err = ctx.Err()
			continue
		}
		next <- i
	}
	close(next)
	workers.Wait()
	return answers
}

// client sends requests as they are, one after the other, on a connection that
// it keeps for as long as the server does.
type client struct {
	addr   string
	conn   net.Conn
	reader *bufio.Reader
}

// send sends one request and reads its answer. A connection that was kept may
// have been closed by the server meanwhile: then there is a second try.
func (c *client) send(ctx context.Context, r request) answer {
	if r.http2 != nil {
		return c.overHTTP2(ctx, r)
	}
	if r.alone {
		c.close()
	}
	kept := c.conn != nil
	a, err := c.try(ctx, r)
	if kept && err != nil && !a.hung {
		a, err = c.try(ctx, r)
	}
	if err != nil || r.alone {
		c.close()
	}
	return a
}

func (c *client) try(ctx context.Context, r request) (answer, error) {
	if c.conn == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.addr)
		if err != nil {
			return answer{err: err}, err
		}
		c.conn, c.reader = conn, bufio.NewReader(conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(answerLimit)); err != nil {
		c.close()
		return answer{err: err}, err
	}
	// A server may refuse before it has read everything: there is an answer then
	// although the request could not be written.
	_, _ = io.WriteString(c.conn, r.raw)
	a, keep, err := c.read(r.method)
	if err != nil || !keep {
		c.close()
	}
	a.hung = errors.Is(err, os.ErrDeadlineExceeded)
	return a, err
}

// read reads an answer, past the informational ones before it, and tells
// whether the connection can be used again.
func (c *client) read(method string) (a answer, keep bool, err error) {
	for a.status < 200 {
		resp, err := http.ReadResponse(c.reader, &http.Request{Method: method})
		if err != nil {
			return answer{}, false, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		a = answer{status: resp.StatusCode, verdict: resp.Header.Get("x-ordergate-verdict")}
		if err != nil {
			return a, false, err
		}
		keep = !resp.Close && c.reader.Buffered() == 0
	}
	return a, keep, nil
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}
