package redisset

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestShared(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, d *deployment) {
		a, b := d.node(), d.node()
		a.ready(t)
		b.ready(t)
		a.works(t)
		b.works(t)
		must(t, a.learn(t.Context(), "new-5"))
		if got := b.settled(t, "new-5"); got != presence.Maybe {
			t.Errorf("a new ID is %v elsewhere", got)
		}
		bedtest.Eventually(t, "its size is known", func() bool { return b.Size().Count > 2_900 })
		if s := b.Size(); s.Count > 3_100 || s.Capacity < 10_000 || s.FillRatio <= 0 || s.Bytes == 0 {
			t.Errorf("size %+v", s)
		}
	})
}

// TestLost deletes what is in Redis, bit by bit and as a whole. Nothing is absent
// then but what never was there, and it is filled again.
func TestLost(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *deployment) {
		a, b := d.node(), d.node()
		a.ready(t)
		b.ready(t)
		must(t, a.learn(t.Context(), "new-5"))
		for range 3 {
			keys := keysOf(t, a)
			must(t, a.client.Del(t.Context(), keys[rand.IntN(len(keys))]).Err())
			d.neverAbsent(t, a, b)
			a.whole(t)
			a.works(t)
		}
		d.server.flush(t, a.client)
		d.neverAbsent(t, a, b)
		a.whole(t)
		b.works(t)
		c := d.node() // which has another secret, where it is kept in Redis
		c.whole(t)
		c.works(t)
	})
}

// TestLostSecret has the secret that is kept in Redis be lost, when nobody runs who knows it.
func TestLostSecret(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, d *deployment) {
		a := d.node()
		a.ready(t)
		a.stop()
		must(t, a.client.Del(t.Context(), "ordergate:{"+d.opts.Name+"}:secret").Err())
		b := d.node()
		d.neverAbsent(t, b)
		b.ready(t)
		b.works(t)
	})
}

// TestTrust has others fill a set.
func TestTrust(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, alone(t), Options{Bits: redisbf.Options{Kind: redisbf.Redisson}})
	java := d.idle(d.server.connect(t))
	_, err := java.refresh(t.Context())
	must(t, err)
	must(t, java.fill(t.Context()))
	d.opts.Fill, d.opts.LeaderLock = nil, nil
	d.opts.Bits.Capacity = 0
	must(t, java.view.Load().current.unmark(t.Context()))
	n := d.node()
	bedtest.Eventually(t, "it waits to be trusted", func() bool { s, _ := n.State(); return s == filter.StateUnknown })
	d.neverAbsent(t, n)
	if a := n.ask(t, "nobody"); a != presence.Unknown {
		t.Errorf("nobody is %v", a)
	}
	d.neverAbsent(t, n)
	if err := n.Trust(t.Context(), []string{"source-1", "nobody"}); !errors.Is(err, ErrLacks) {
		t.Errorf("trusted, and it lacks an order: %v", err)
	}
	if err := n.Trust(t.Context(), nil); !errors.Is(err, ErrNoneKnown) {
		t.Errorf("trusted without a trial: %v", err)
	}
	d.neverAbsent(t, n)
	must(t, n.Trust(t.Context(), []string{"source-1"}))
	n.ready(t)
	n.works(t)
}

// TestCanonicalForms adds IDs of two forms, and fills a set with one.
func TestCanonicalForms(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, alone(t), Options{CanonicalForms: func(id string) (string, []string) {
		if lower := strings.ToLower(id); lower != id {
			return lower, []string{id}
		}
		return id, nil
	}})
	d.source = append(d.source, "FILLED")
	n := d.node()
	n.ready(t)
	must(t, n.learn(t.Context(), "ADDED"))
	for _, id := range []string{"FILLED", "filled", "ADDED", "added"} {
		if a := n.settled(t, id); a != presence.Maybe {
			t.Errorf("%s is %v", id, a)
		}
	}
	n.works(t)
}

// TestDaysTurn has days go by.
func TestDaysTurn(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(time.Now().Unix())
	today := func() time.Time { return time.Unix(now.Load(), 0) }
	// An ID is a day before or after the first, and a number.
	first := today()
	day := func(id string) (time.Time, bool) {
		var offset, n int
		_, err := fmt.Sscanf(id, "%d:%d", &offset, &n)
		return first.AddDate(0, 0, offset), err == nil
	}
	d := newDeployment(t, alone(t), Options{Segments: &filter.Segments{Keep: 2, Day: day, Older: presence.Absent}, Now: today})
	d.source = nil
	for offset := -4; offset <= 6; offset++ {
		for i := range 50 {
			d.source = append(d.source, fmt.Sprintf("%d:%d", offset, i))
		}
	}
	a, b := d.node(), d.node()
	a.ready(t)
	b.ready(t)
	kept := func(from, to int) {
		t.Helper()
		for _, n := range []*node{a, b} {
			for offset := from; offset <= to; offset++ {
				for i := range 50 {
					if got := n.settled(t, fmt.Sprintf("%d:%d", offset, i)); got != presence.Maybe {
						t.Fatalf("%d:%d is %v", offset, i, got)
					}
				}
			}
			if got := n.settled(t, "0:77"); got != presence.Absent {
				t.Fatalf("one of today that was never added is %v", got)
			}
		}
	}
	kept(-4, 6) // the oldest are strays, as they were read
	reads := a.idsRead.Load() + b.idsRead.Load()
	for passed := 1; passed <= 4; passed++ {
		now.Add(24 * 60 * 60)
		for _, n := range []*node{a, b} {
			bedtest.Eventually(t, "tomorrow is made", func() bool {
				v := n.view.Load()
				lacking, err := v.current.incomplete(t.Context())
				return err == nil && len(lacking) == 0 && v.LastDay == int(filter.DayOf(today())+1)
			})
		}
		must(t, a.learn(t.Context(), fmt.Sprintf("%d:60", passed)))
		kept(passed-2, 6)
		if got := b.settled(t, fmt.Sprintf("%d:60", passed)); got != presence.Maybe {
			t.Errorf("a new one of day %d is %v", passed, got)
		}
	}
	if n := a.idsRead.Load() + b.idsRead.Load(); n != reads {
		t.Errorf("%d IDs were read for days that nobody can have had IDs of", n-reads)
	}
	for _, key := range keysOf(t, a) {
		for offset := range 1 {
			if old := d.opts.Bits.Key + ":" + (filter.DayOf(first) + filter.Day(offset)).String(); len(key) > len(old) && key[:len(old)] == old {
				t.Errorf("%s is left", key)
			}
		}
	}
	// All were away for days: tomorrow is not the one segment that lacks.
	a.stop()
	b.stop()
	now.Add(3 * 24 * 60 * 60)
	c := d.node()
	c.whole(t)
	for i := range 50 {
		if got := c.settled(t, fmt.Sprintf("6:%d", i)); got != presence.Maybe {
			t.Fatalf("6:%d is %v", i, got)
		}
	}
	if c.idsRead.Load() == 0 {
		t.Error("days that nobody kept were declared whole")
	}
}
