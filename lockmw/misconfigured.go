package lockmw

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/recurring"
)

// attributeCheck is whether Envoy tells what an outcome is read off (response_attributes).
type attributeCheck struct {
	seen    atomic.Bool // of some answer
	missing *recurring.Problem
}

// checkAttributes looks at an answer's headers. Where Envoy is to count attempts in a header instead,
// an answer of its own may have none: that is not enough to say that it tells nothing.
func (s *Server) checkAttributes(call *gate.Call, r *gate.Response) {
	o := &s.attributes
	if !r.LacksAttributes() {
		if !o.seen.Load() {
			o.seen.Store(true)
		}
		return
	}
	if !r.HasServiceTime && o.seen.Load() {
		return
	}
	if !call.Observed() {
		s.opts.AttributesMissing()
	}
	o.missing.Note(call.LogArgs()...)
}

// cutOffWaits finds out whether Envoy gives ordergate less time than the wait for a lock may
// take (message_timeout). Its stream ends just as that of a client who leaves, as measured
// with Envoy 1.40: EOF, and no message of its answer. But each ends after the same time.
type cutOffWaits struct {
	cut *recurring.Problem

	mu    sync.Mutex
	after time.Duration // that the last one ended
	at    time.Time     // when it did
	same  int           // how many in a row did so after the same time
}

const (
	// minSameWaits in a row are no chance.
	minSameWaits = 5
	// minInterval is the least time between two that count: those that began together may
	// have ended with their connection.
	minInterval = 20 * time.Millisecond
	// minWait is shorter than any sensible timeout.
	minWait = 100 * time.Millisecond
)

// note takes the end of a call that waited for its lock since then.
func (c *cutOffWaits) note(call *gate.Call, now, since time.Time) {
	after := now.Sub(since)
	if c.isSame(now, after) {
		c.cut.Note(append(call.LogArgs(), "after", after.Round(time.Millisecond))...)
	}
}

// isSame reports whether several waits in a row, this one included, took the same time as
// the one before: give or take a tenth, and 50 ms, for a machine that is busy.
func (c *cutOffWaits) isSame(now time.Time, after time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if after < minWait || now.Sub(c.at) < minInterval {
		return false
	}
	if difference := (after - c.after).Abs(); difference > c.after/10+50*time.Millisecond {
		c.same = 0
	}
	c.after, c.at = after, now
	c.same++
	return c.same >= minSameWaits
}
