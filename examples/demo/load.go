package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// requestLimit bounds one request. It is longer than the timeout of the
	// route (30s), so that whoever is slow is named by Envoy's answer.
	requestLimit = 40 * time.Second
	// maxBody bounds what is read of an answer; an order has some 60 bytes.
	maxBody = 64 << 10
)

// exchange is a request and what came of it.
type exchange struct {
	method, path, body string
	key                string // the Idempotency-Key; "": none

	status  int    // 0 when err is set
	verdict string // x-ordergate-verdict; empty on an answer of the service
	answer  string
	took    time.Duration // from before connecting until the last byte
	err     error
}

// client makes requests to one URL, over connections that are kept for the
// next one. It is safe for concurrent use; close it.
type client struct {
	url       string
	transport *http.Transport
}

// newClient returns a client for so many requests at the same time.
func newClient(url string, concurrent int) *client {
	return &client{url: url, transport: &http.Transport{
		MaxIdleConnsPerHost: concurrent,
		DisableCompression:  true,
	}}
}

func (c *client) close() { c.transport.CloseIdleConnections() }

// send makes the request of an exchange and fills in the rest.
func (c *client) send(ctx context.Context, x *exchange) {
	start := time.Now()
	x.status, x.verdict, x.answer, x.err = c.roundTrip(ctx, x)
	x.took = time.Since(start)
}

func (c *client) roundTrip(ctx context.Context, x *exchange) (status int, verdict, answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, x.method, c.url+x.path, strings.NewReader(x.body))
	if err != nil {
		return 0, "", "", err
	}
	if x.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if x.key != "" {
		req.Header.Set("Idempotency-Key", strconv.Quote(x.key))
	}
	resp, err := c.transport.RoundTrip(req) // there is no redirect or cookie to follow
	if err != nil {
		return 0, "", "", err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	err = errors.Join(err, resp.Body.Close())
	if err != nil {
		return 0, "", "", err
	}
	return resp.StatusCode, resp.Header.Get("x-ordergate-verdict"), string(text), nil
}

// sendAll makes the requests, at most concurrent at the same time, and waits for
// all of them. It returns the reason why ctx ended, if it did meanwhile.
func (c *client) sendAll(ctx context.Context, concurrent int, exchanges []*exchange) error {
	atOnce(concurrent, len(exchanges), func(i int) {
		if ctx.Err() == nil {
			c.send(ctx, exchanges[i])
		}
	})
	return context.Cause(ctx)
}

// atOnce calls f for 0 to n-1, at most concurrent at the same time, and returns
// after the last call. The calls begin when all goroutines are there, so with
// concurrent = n they are as simultaneous as the machine allows.
func atOnce(concurrent, n int, f func(i int)) {
	jobs := make(chan int, n)
	for i := range n {
		jobs <- i
	}
	close(jobs)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for range concurrent {
		wg.Go(func() {
			<-begin
			for i := range jobs {
				f(i)
			}
		})
	}
	close(begin)
	wg.Wait()
}

// percentile returns the smallest of the values that at least p percent of them
// do not exceed (the nearest-rank method), 0 if there are none. It needs
// 0 < p <= 100.
func percentile(values []time.Duration, p int) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := (p*len(sorted) + 99) / 100 // rounded up
	return sorted[rank-1]
}

// describe says what came of a request, for a line that names the first bad one.
func (x *exchange) describe() string {
	request := x.method + " " + x.path
	if x.err != nil {
		return fmt.Sprintf("%s: %v", request, x.err)
	}
	if x.verdict != "" {
		return fmt.Sprintf("%s: %d %s", request, x.status, x.verdict)
	}
	return fmt.Sprintf("%s: %d", request, x.status)
}
