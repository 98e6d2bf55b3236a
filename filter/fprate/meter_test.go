package fprate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// numbers is a [filter.Source] of the IDs "0" to n-1.
type numbers int

func (n numbers) IDs(_ context.Context, yield func(string) error) error {
	for i := range int(n) {
		if err := yield(strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return nil
}

// rebuilding is a growth by four times, with n IDs to rescan.
func rebuilding(n int) *filter.Growth {
	return &filter.Growth{AtFill: 1, By: 4, Rescan: func(ctx context.Context, add func(string) error) error {
		return numbers(n).IDs(ctx, add)
	}}
}

// expired is a [filter.Window] that does not hold.
type expired struct{}

func (expired) Holds() bool { return false }

// metered is a filter with a meter that runs, and what is logged of the two.
type metered struct {
	*filter.Filter
	meter *Meter
	log   *bedtest.Log
}

// newMetered returns one that is ready with n IDs, "0" and so on.
func newMetered(t *testing.T, n int, opts filter.Options, m Options) *metered {
	t.Helper()
	log := &bedtest.Log{}
	opts.Logger = slog.New(slog.NewTextHandler(log, nil))
	opts.Now = time.Now // the time of a synctest bubble
	m.Logger = opts.Logger
	if opts.Capacity == 0 {
		opts.Capacity = 10_000
	}
	f, err := filter.New("orders", opts)
	if err == nil {
		err = f.Load(t.Context(), numbers(n))
	}
	if err != nil {
		t.Fatal(err)
	}
	meter := New(f, m)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = meter.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return &metered{f, meter, log}
}

// probe asks for absent IDs as a gate does that sees what the backend answers, and
// returns how many passed.
func (m *metered) probe(t *testing.T, prefix string, n int) (passed int) {
	t.Helper()
	for i := range n {
		id := fmt.Sprint(prefix, "-", i)
		switch m.MayContain(id) {
		case presence.Absent:
			m.meter.OnAbsent(id)
		case presence.Maybe:
			passed++
			m.meter.OnNotFound(id)
		case presence.Unknown:
			m.meter.OnNotFound(id)
		}
		if i%1000 == 999 {
			synctest.Wait() // until they have been looked at again
		}
	}
	synctest.Wait()
	return passed
}

// after lets so much time pass.
func after(d time.Duration) {
	time.Sleep(d) // the time of a bubble
	synctest.Wait()
}

// TestMeterMeasures compares what is measured with the formula of the bits.
func TestMeterMeasures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, 1000, filter.Options{Capacity: 1000, FalsePositiveRate: 0.05}, Options{})
		if !math.IsNaN(m.meter.Rate()) {
			t.Error("a rate of nothing")
		}
		passed := m.probe(t, "a", 20_000)
		m.probe(t, "a", 20_000) // once more: each counts once
		after(sampleEvery)
		if got, want := m.meter.Rate(), float64(passed)/20_000; math.Abs(got-want) > 0.03*want {
			t.Errorf("measured %g, %d of 20,000 passed", got, passed)
		}
		if got, want := m.meter.Rate(), m.meter.EstimatedRate(); math.Abs(got-want) > 0.15*want {
			t.Errorf("measured %g, estimated %g", got, want)
		}
		if got := m.meter.PassedButMissing(); got != uint64(2*passed) {
			t.Errorf("%d passed, want %d", got, 2*passed)
		}
		// An hour later nobody knows.
		after(windowLength + slotLength)
		if !math.IsNaN(m.meter.Rate()) {
			t.Errorf("measured %g of what was long ago", m.meter.Rate())
		}
	})
}

// TestMeterInEveryState has lookups pass that no bits let pass, since the filter is
// loading or no window holds: they must not look like false positives.
func TestMeterInEveryState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, 1000, filter.Options{
			Capacity: 1000, FalsePositiveRate: 0.05,
			Window: func() filter.Window { return expired{} },
		}, Options{Alert: 0.2})
		passed := m.probe(t, "a", 2000)
		after(sampleEvery)
		if got, want := m.meter.Rate(), float64(passed)/2000; passed == 0 || math.Abs(got-want) > 0.1*want {
			t.Errorf("measured %g, bits let %d of 2000 pass", got, passed)
		}
		if m.meter.PassedButMissing() != uint64(passed) || m.meter.Alarmed() {
			t.Errorf("%d passed, want %d; alarm %v", m.meter.PassedButMissing(), passed, m.meter.Alarmed())
		}
	})
}

// TestMeterWithoutAnswers is a proxy that does not tell what the backend answers: a
// rate of 0 would be a lie.
func TestMeterWithoutAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, 1000, filter.Options{Capacity: 100, FalsePositiveRate: 0.05}, Options{Alert: 0.01})
		for i := range 5000 {
			m.meter.OnAbsent(fmt.Sprint(i))
		}
		after(sampleEvery)
		if !math.IsNaN(m.meter.Rate()) || m.meter.Alarmed() {
			t.Errorf("measured %g", m.meter.Rate())
		}
	})
}

// TestMeterExpands has a filter that lets too much pass grow, once.
func TestMeterExpands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, 1000, filter.Options{
			Capacity: 1000, FalsePositiveRate: 0.05, Growth: rebuilding(1000),
		}, Options{Alert: 0.01, Grow: true})
		m.probe(t, "a", 5000)
		after(2 * sampleEvery)
		if m.Capacity() != 4000 || m.Expansion().Generation != 2 {
			t.Fatalf("capacity %d, generation %d", m.Capacity(), m.Expansion().Generation)
		}
		if state, reason := m.State(); state != filter.StateReady || !strings.Contains(reason, "of the absent IDs pass, alert_false_positive_rate is 1%") || !m.meter.Alarmed() {
			t.Errorf("state %s, %q", state, reason)
		}
		m.probe(t, "b", 5000)
		after(2 * sampleEvery)
		if rate := m.meter.Rate(); !(rate < 0.005) {
			t.Errorf("measured %g after that", rate)
		}
		if _, reason := m.State(); reason != "" || m.meter.Alarmed() {
			t.Errorf("it is well, and still says %q", reason)
		}
		m.says(t, map[string]int{"more absent orders pass": 1, "filter is expanded": 1, "as rarely as they should": 1, "level=ERROR": 0})
	})
}

// says checks how many lines of the log have a text.
func (m *metered) says(t *testing.T, want map[string]int) {
	t.Helper()
	for what, n := range want {
		if got := strings.Count(m.log.String(), what); got != n {
			t.Errorf("%d lines say %q, want %d", got, what, n)
		}
	}
}

// TestMeterDoesNotExpand has orders asked for that the backend has deleted: growing
// would not help, however long that goes on.
func TestMeterDoesNotExpand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, 5000, filter.Options{
			Capacity: 10_000, FalsePositiveRate: 0.001, Growth: rebuilding(5000),
		}, Options{Alert: 0.01, Grow: true})
		for hour := range 4 {
			for i := range 500 {
				m.meter.OnNotFound(fmt.Sprint(i))
			}
			m.probe(t, fmt.Sprint(hour), 1000)
			after(windowLength / 2)
		}
		if m.Capacity() != 10_000 || !m.meter.Alarmed() {
			t.Errorf("capacity %d, alarm %v", m.Capacity(), m.meter.Alarmed())
		}
		m.says(t, map[string]int{"more absent orders pass": 1, "filter is not expanded": 1})
	})
}

// TestMeterLeavesAlone has a filter that does what it was made for.
func TestMeterLeavesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, 990, filter.Options{
			Capacity: 1000, FalsePositiveRate: 0.001, Growth: rebuilding(1000),
		}, Options{Alert: 0.005, Grow: true})
		m.probe(t, "a", 50_000)
		after(time.Minute)
		if _, reason := m.State(); reason != "" || m.meter.Alarmed() || m.Capacity() != 1000 || strings.Count(m.log.String(), "level=WARN") != 0 {
			t.Errorf("%q, alarm %v, capacity %d", reason, m.meter.Alarmed(), m.Capacity())
		}
		if rate := m.meter.Rate(); !(rate > 0.0003 && rate < 0.002) {
			t.Errorf("measured %g", rate)
		}
	})
}

// TestWindowForgets moves through the parts of a window.
func TestWindowForgets(t *testing.T) {
	var w slidingWindow
	noon := time.Date(2028, 2, 28, 12, 0, 0, 0, time.UTC)
	w.reset(noon)
	w.addStopped(1)
	w.addPassed(2)
	for step := range slots - 1 {
		w.advance(noon.Add(time.Duration(step+1) * slotLength))
		w.addStopped(1) // it counts once
		w.addStopped(uint64(step) + 10)
		if stopped, passed := w.counts(); stopped != uint64(step)+2 || passed != 1 {
			t.Errorf("step %d: %d and %d", step, stopped, passed)
		}
	}
	w.advance(noon.Add(slots * slotLength))
	if stopped, passed := w.counts(); stopped != slots || passed != 0 {
		t.Errorf("after an hour: %d and %d", stopped, passed)
	}
	w.advance(noon.Add(10 * windowLength))
	if stopped, passed := w.counts(); stopped != 0 || passed != 0 {
		t.Errorf("after ten: %d and %d", stopped, passed)
	}
}

func BenchmarkMeterAbsent(b *testing.B) {
	f, err := filter.New("orders", filter.Options{Capacity: 1000})
	if err != nil {
		b.Fatal(err)
	}
	m := New(f, Options{})
	ids := make([]string, 1<<16)
	for i := range ids {
		ids[i] = fmt.Sprintf("%019d", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.OnAbsent(ids[i&(1<<16-1)])
	}
}

// noLog is a [filter.Appender] that a test without creates never calls.
type noLog struct{ filter.Appender }

// remote contains the IDs that begin with "9". A query for one that begins with "?" fails.
type remote struct{ queries atomic.Int64 }

func (r *remote) Query(_ context.Context, id string) (presence.Answer, error) {
	r.queries.Add(1)
	switch id[0] {
	case '9':
		return presence.Maybe, nil
	case '?':
		return presence.Unknown, errors.New("away")
	}
	return presence.Absent, nil
}
func (r *remote) Add(context.Context, ...string) error { return nil }
func (r *remote) State() (state, reason string)        { return filter.StateReady, "" }
func (r *remote) Expand(context.Context) error         { return nil }
func (r *remote) AtMax() bool                          { return false }
func (r *remote) EverComplete() bool                   { return true }
func (r *remote) Size() filter.RemoteSize              { return filter.RemoteSize{Capacity: 1000} }

// TestMeterOfRemote has the bits elsewhere: they are asked once more, but not for
// what they were found to have lately. What they cannot tell counts for nothing.
func TestMeterOfRemote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := &remote{}
		m := newMetered(t, 0, filter.Options{Remote: set, Appender: noLog{}}, Options{})
		for i := range 200 {
			m.meter.OnNotFound(fmt.Sprint("1-", i))
			m.meter.OnNotFound(fmt.Sprint("?-", i))
			if id := fmt.Sprint("9-", i); i%4 == 0 && m.Query(t.Context(), id) == presence.Maybe {
				m.meter.OnNotFound(id)
			}
		}
		after(sampleEvery)
		if got := m.meter.Rate(); math.Abs(got-0.2) > 0.01 || m.meter.PassedButMissing() != 50 {
			t.Errorf("measured %g, %d passed; want 0.2 and 50", got, m.meter.PassedButMissing())
		}
		// Of the 50 that it has one may have taken the place of another.
		if n := set.queries.Load(); n < 450 || n > 455 {
			t.Errorf("asked %d times", n)
		}
	})
}
