package tests

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// trickled is a request whose body comes in parts.
type trickled struct {
	t    testing.TB
	body *io.PipeWriter
	done chan answer
}

// trickle begins a settlement, and waits until Envoy and ordergate have its beginning. A
// content type "" is none.
func (s *stack) trickle(path, contentType string, http2, trailers bool) *trickled {
	s.t.Helper()
	body, w := io.Pipe()
	r := &trickled{t: s.t, body: w, done: make(chan answer, 1)}
	req, err := http.NewRequestWithContext(s.t.Context(), "POST", s.url+path, body)
	must(s.t, err)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if trailers {
		req.Trailer = http.Header{"X-Checksum": {"1"}}
	}
	transport := &http.Transport{DisableKeepAlives: true, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	s.t.Cleanup(func() {
		_ = w.Close()
		transport.CloseIdleConnections()
	})
	before := s.active()
	go func() {
		resp, err := transport.RoundTrip(req)
		if err != nil {
			s.t.Log(err)
			r.done <- answer{}
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		r.done <- answer{status: resp.StatusCode, verdict: resp.Header.Get(gate.HeaderVerdict), body: string(text)}
	}()
	r.send(`{"note":`)
	bedtest.Eventually(s.t, "Envoy has the request", func() bool { return s.active() > before })
	s.must("GET", "/orders/1", "").want(s.t, 200, "") // a round trip, in which a lock would have been asked for
	return r
}

func (r *trickled) send(part string) {
	r.t.Helper()
	_, err := io.WriteString(r.body, part)
	must(r.t, err)
}

// end sends the end, and returns the answer.
func (r *trickled) end() answer {
	r.send(`"x"}`)
	_ = r.body.Close()
	return <-r.done
}

// active returns how many requests Envoy has under way.
func (s *stack) active() int64 {
	stats, err := s.envoy.Stats(s.t.Context(), "http.orders.downstream_rq_active")
	must(s.t, err)
	return stats["http.orders.downstream_rq_active"]
}

// TestTrickledBodies sends the beginning of a settlement, and its rest later. Nothing is
// locked meanwhile: the rest could come when the lease has ended, beside another settlement.
func TestTrickledBodies(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	for _, profile := range []string{"strict", "tomcat"} {
		s := newStack(t, settings{backend: b.addr(), orders: 100, gate: func(yaml string) string {
			return "backend: " + profile + "\n" + yaml
		}})
		id := 0
		for _, contentType := range []string{"", jsonBody, "text/plain", "application/octet-stream"} {
			for _, framing := range []string{"HTTP/1.1", "HTTP/2", "HTTP/2 with trailers"} {
				id++
				t.Run(fmt.Sprintf("%s/%q by %s", profile, contentType, framing), func(t *testing.T) {
					path := fmt.Sprintf("/orders/%d/settle", id)
					before := b.arrived(path)
					r := s.trickle(path, contentType, framing != "HTTP/1.1", framing == "HTTP/2 with trailers")
					if key := fmt.Sprintf("order:lock:%d", id); slices.Contains(s.keys(), key) { // that of the test before may be there
						t.Errorf("%s is locked before the request is there", key)
					}
					s.must("POST", path, "").want(t, 200, "")
					if n := b.arrived(path) - before; n != 1 {
						t.Errorf("%d settlements at the backend, want the second one only", n)
					}
					r.end().want(t, 200, "")
				})
			}
		}
	}
}

// lostSoon has leases that are soon held for their maximum.
func lostSoon(t testing.TB) func(string) string {
	return both(shortLease, edit(t, settleAction, "settle: {lock: settlement, max_hold: 1s}"))
}

// TestLostCallEnds has a call hold its lock for longer than it may: it is ended, and its
// lock is held.
func TestLostCallEnds(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: lostSoon(t)})
	a := s.must("POST", "/orders/1/settle?do=hang", "")
	a.want(t, 503, "lost")
	if a.header.Get("x-ordergate-lease-lost") != "true" {
		t.Error("the client is not told that the lease was lost")
	}
	bedtest.Eventually(t, "Envoy drops it", func() bool { return b.dropped("/orders/1/settle") })
	s.wantFate("1", held)
	s.must("POST", "/orders/2/settle", "").want(t, 200, "")
	if n := s.metric(`ordergate_lock_lost_total{lock="settlement"}`); n != "0" {
		t.Errorf("%s leases are counted as lost", n)
	}
}

// TestStreamedCallEnds has an answer last for longer than its call may hold the lock: it is broken
// off, and the lock is held.
func TestStreamedCallEnds(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: lostSoon(t)})
	for i, query := range []string{"?do=stream", "?do=stream&status=500"} {
		path, id := fmt.Sprintf("/orders/%d/settle", i+1), strconv.Itoa(i+1)
		t.Run(query, func(t *testing.T) {
			resp, err := http.Post(s.url+path+query, "", http.NoBody)
			must(t, err)
			defer resp.Body.Close()
			if text, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("the answer ends, after %q", text)
			}
			s.wantFate(id, held)
		})
	}
	if n := s.metric(`ordergate_lock_lost_total{lock="settlement"}`); n != "0" {
		t.Errorf("%s leases are counted as lost", n)
	}
}

// TestLostCallIsNeverSent has a call wait within Envoy for a connection to the backend.
func TestLostCallIsNeverSent(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: lostSoon(t), envoy: edit(t,
		"  - name: backend-writes\n    type: STATIC\n    connect_timeout: 1s\n    circuit_breakers:\n      thresholds: [{ max_connections: 10000,",
		"  - name: backend-writes\n    type: STATIC\n    connect_timeout: 1s\n    circuit_breakers:\n      thresholds: [{ max_connections: 1,")})
	first := s.hang(b, "PUT", "/elsewhere", "")
	s.must("POST", "/orders/1/settle", "").want(t, 503, "lost")
	s.wantFate("1", held)
	b.goOn()
	first.wantAnswer(t)
	s.must("POST", "/orders/2/settle", "").want(t, 200, "")
	if n := b.arrived("/orders/1/settle"); n != 0 {
		t.Error("the backend has a settlement that was ended before it was sent")
	}
}

// TestLostLeaseEndsItsCall has somebody delete the lock of a call that runs.
func TestLostLeaseEndsItsCall(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: edit(t, "lease: 90s", "lease: 1s")})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	done := make(chan answer, 1)
	go func() {
		a, _ := s.send(ctx, "POST", "/orders/1/settle?do=hang", "")
		done <- a
	}()
	bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived("/orders/1/settle") == 1 })
	must(t, s.redis.Del(t.Context(), "order:lock:1").Err())
	(<-done).want(t, 503, "lost")
	bedtest.Eventually(t, "Envoy drops it", func() bool { return b.dropped("/orders/1/settle") })
	s.must("POST", "/orders/1/settle", "").want(t, 200, "")
	if n := s.metric(`ordergate_lock_lost_total{lock="settlement"}`); n != "1" {
		t.Errorf("%s leases are counted as lost, want 1", n)
	}
}
