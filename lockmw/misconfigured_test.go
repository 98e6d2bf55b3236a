package lockmw

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestCutWaits has waits end after the times given, one every so often.
func TestCutWaits(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		after []time.Duration
		every time.Duration
		want  int // of them are the same as those before
	}{
		"none":                  {nil, time.Second, 0},
		"four":                  {[]time.Duration{200 * ms, 200 * ms, 200 * ms, 200 * ms}, time.Second, 0},
		"five":                  {[]time.Duration{200 * ms, 201 * ms, 253 * ms, 210 * ms, 219 * ms}, time.Second, 1},
		"six of a busy one":     {[]time.Duration{5000 * ms, 5500 * ms, 5001 * ms, 5100 * ms, 5000 * ms, 5430 * ms}, time.Second, 2},
		"one between":           {[]time.Duration{200 * ms, 200 * ms, 200 * ms, 900 * ms, 200 * ms, 200 * ms, 200 * ms}, time.Second, 0},
		"short":                 {[]time.Duration{10 * ms, 10 * ms, 10 * ms, 10 * ms, 10 * ms, 10 * ms}, time.Second, 0},
		"a lost connection's":   {[]time.Duration{200 * ms, 200 * ms, 200 * ms, 200 * ms, 200 * ms, 200 * ms, 200 * ms}, ms, 0},
		"clients, each its own": {[]time.Duration{200 * ms, 300 * ms, 250 * ms, 1000 * ms, 800 * ms, 700 * ms, 150 * ms}, time.Second, 0},
	} {
		var c cutOffWaits
		now, got := time.Now(), 0
		for _, after := range tt.after {
			now = now.Add(tt.every)
			if c.isSame(now, after) {
				got++
			}
		}
		if got != tt.want {
			t.Errorf("%s: %d are the same, want %d", name, got, tt.want)
		}
	}
}

// TestEndsMissing has calls end without the end of an answer. Clients that leave before their answers
// are no reason to be unready.
func TestEndsMissing(t *testing.T) {
	b := newBed(t)
	var missing atomic.Int32
	b.server.opts.EndsMissing = func() { missing.Add(1) }
	end := func(answers bool) {
		before := len(b.did.Lines())
		b.lock.Grants <- nil
		s := b.open()
		s.say(settle())
		if answers {
			s.say(answered("200", "via_upstream"))
		}
		s.leave()
		bedtest.Eventually(t, "the lock is held", func() bool { return len(b.did.Lines()) == before+2 })
	}
	for range minWithoutEnd + 1 {
		end(false)
	}
	if n := missing.Load(); n != 0 {
		t.Errorf("%d calls without an answer count", n)
	}
	end(true)
	if n := missing.Load(); n != 1 {
		t.Errorf("%d calls count, want that whose answer has begun", n)
	}
}
