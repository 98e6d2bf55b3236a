package filter

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// MeterOptions are the settings of a [Meter]. The zero value measures, and no more.
type MeterOptions struct {
	// Alert is the share of absent IDs that pass from which on the filter complains,
	// above 0 and below 1; 0: never.
	Alert float64
	// Grow has the filter expanded then, once. It is for a filter that is built anew
	// to grow: another layer lets no less pass.
	Grow bool
	Now  func() time.Time // default: as Options.Now
}

// Meter measures which share of the absent IDs that are asked for passes a filter,
// from what the backend says of those that did. All methods are safe for concurrent
// use.
//
// An absent ID is one that was answered Absent, or of which the backend said that
// there is no such order. Of the latter those count as passed that the bits take for
// known; the others were let through for another reason (the filter was loading, or
// could not be certain), and say as much of the bits as if they had been stopped. So
// the measure holds in every state of the filter.
type Meter struct {
	filter *Filter
	opts   MeterOptions
	log    *slog.Logger
	seed   maphash.Seed // nobody can make IDs that spoil a sketch with it

	window  window
	heard   atomic.Bool
	missing chan string
	passed  atomic.Uint64

	reading  atomic.Pointer[reading]
	alarmed  atomic.Bool
	alarm    alarm // used by Run only
	version  uint64
	estimate estimate
}

const (
	// meterTick is how often the window is looked at: 0.1 ms of work.
	meterTick = time.Second
	// mostMissing bounds the IDs that wait to be looked at once more. More than come
	// in a second only where nothing is stopped at all.
	mostMissing = 4096
	// lookAgain bounds one of those looks, if it is a question to a [Remote].
	lookAgain = time.Second
	// estimateAge is how old an estimate may be: reading all bits of 360 MB takes
	// 35 to 75 ms.
	estimateAge = 30 * time.Second
)

// NewMeter returns a meter of a filter, of which there must be one at most. Keep
// [Meter.Run] running.
func NewMeter(f *Filter, opts MeterOptions) *Meter {
	if opts.Now == nil {
		opts.Now = f.opts.Now
	}
	m := &Meter{
		filter: f, opts: opts, log: f.log, seed: maphash.MakeSeed(),
		missing: make(chan string, mostMissing),
		alarm:   alarm{threshold: opts.Alert},
	}
	m.window.restart(opts.Now())
	m.version = m.bits()
	m.reading.Store(&reading{})
	return m
}

// Absent notes that an ID was answered Absent. It does not block and does not
// allocate.
func (m *Meter) Absent(id string) { m.window.stop(maphash.String(m.seed, id)) }

// Missing notes that the backend has no order of this ID, which it was asked for
// since nobody had answered Absent. It does not block. The ID is copied.
//
// Whether the filter had taken it for known is found out by asking it again: what it
// said before would have to be carried through Envoy in a header, which is as
// trustworthy as the proxy's configuration. Bits are never cleared, so the second
// answer is the first one, but for an order that was created in between.
func (m *Meter) Missing(id string) {
	m.heard.Store(true)
	select {
	case m.missing <- strings.Clone(id):
	default: // there are enough to judge by
	}
}

// passes returns what the bits say of an ID, whatever state they are in. It needs
// no window: an ID that is yet to be brought is one that exists.
func (f *Filter) passes(ctx context.Context, id string) Answer {
	a := f.memory.look(id)
	if a != Absent || f.opts.Remote == nil {
		return a
	}
	if f.recent.has(id) {
		return Maybe
	}
	a, err := f.opts.Remote.Ask(ctx, id)
	if err != nil {
		return Unknown
	}
	return a
}

// PassedButMissing returns how many lookups passed the filter for an order that the
// backend does not have.
func (m *Meter) PassedButMissing() uint64 { return m.passed.Load() }

// Rate returns the share of absent IDs that pass, of those that were asked for
// within the last hour: each counts once, however often it is asked for. It is NaN
// as long as it cannot be told, since there were fewer than 100 or nobody has told
// yet what the backend answers.
func (m *Meter) Rate() float64 { return m.reading.Load().rate() }

// Alarmed reports whether the rate exceeds the threshold.
func (m *Meter) Alarmed() bool { return m.alarmed.Load() }

// Run measures until ctx ends, and returns nil.
func (m *Meter) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { m.lookAgain(ctx) })
	tick := time.NewTicker(meterTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if m.judge() {
			wg.Go(func() { m.grow(ctx) })
		}
	}
}

// lookAgain asks for the IDs that the backend does not have once more.
func (m *Meter) lookAgain(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-m.missing:
			m.sort(ctx, id)
		}
	}
}

func (m *Meter) sort(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, lookAgain)
	defer cancel()
	switch m.filter.passes(ctx, id) {
	case Maybe:
		m.passed.Add(1)
		m.window.pass(maphash.String(m.seed, id))
	case Absent:
		m.window.stop(maphash.String(m.seed, id))
	}
}

// judge looks at the window, and reports whether the filter is to grow.
func (m *Meter) judge() bool {
	now := m.opts.Now()
	m.window.advance(now)
	if bits := m.bits(); bits != m.version {
		// What was measured was other bits.
		m.version = bits
		m.window.restart(now)
		m.estimate.forget()
	}
	r := reading{heard: m.heard.Load()}
	r.stopped, r.passed = m.window.count()
	m.reading.Store(&r)
	if m.opts.Alert == 0 {
		return false
	}
	changed := m.alarm.judge(r, now)
	if changed {
		m.tell(r)
	}
	m.complain(r)
	grows := m.opts.Grow && m.alarm.grow(r, now)
	return grows
}

// bits returns a number that changes when the bits are replaced by others.
func (m *Meter) bits() uint64 {
	if m.filter.opts.Remote != nil {
		return m.filter.opts.Remote.Size().Capacity
	}
	if !m.opts.Grow { // layers and days come and go, and the others stay
		return 0
	}
	return uint64(m.filter.Expansion().Generation)
}

// tell writes a line when the alarm goes on or off.
func (m *Meter) tell(r reading) {
	m.alarmed.Store(m.alarm.on)
	if m.alarm.on {
		m.log.Warn("more absent orders pass the filter than alert_false_positive_rate allows",
			"rate", percent(r.rate()), "allowed", percent(m.opts.Alert), "passed", r.passed, "absent", r.ids(),
			"expected", percent(m.EstimatedRate()))
		return
	}
	m.log.Info("absent orders pass the filter as rarely as they should, or are not asked for any more",
		"rate", percent(r.rate()), "allowed", percent(m.opts.Alert), "passed", r.passed, "absent", r.ids())
}

// complain has the filter's state say so.
func (m *Meter) complain(r reading) {
	if !m.alarm.on {
		m.filter.complaint.Store(nil)
		return
	}
	if math.IsNaN(r.rate()) { // nothing newer is known
		return
	}
	text := fmt.Sprintf("%s of the absent IDs pass, alert_false_positive_rate is %s", percent(r.rate()), percent(m.opts.Alert))
	m.filter.complaint.Store(&text)
}

// grow expands the filter, if its bits are to blame. If not, it would be of no use:
// the backend has lost orders that exist for the filter, or somebody knows the
// secret that the bits are keyed with.
func (m *Meter) grow(ctx context.Context) {
	expected := m.filter.EstimatedFalsePositiveRate()
	if expected < m.opts.Alert/2 {
		m.log.Warn("filter is not expanded: its bits do not explain that so many absent orders pass, but orders do that were deleted",
			"expected", percent(expected))
		return
	}
	m.log.Info("filter is expanded: too many absent orders pass", "expected", percent(expected))
	if err := m.filter.Expand(ctx); err != nil && ctx.Err() == nil {
		m.log.Error("filter did not grow", "error", err)
	}
}

// percent shows a share with two digits that count.
func percent(share float64) string {
	if math.IsNaN(share) {
		return "unknown"
	}
	return fmt.Sprintf("%.2g%%", 100*share)
}

// EstimatedRate returns what [Filter.EstimatedFalsePositiveRate] did half a minute
// ago at most.
func (m *Meter) EstimatedRate() float64 {
	return m.estimate.of(m.filter.EstimatedFalsePositiveRate, m.opts.Now())
}

// estimate keeps a number that takes long to find.
type estimate struct {
	mu    sync.Mutex
	value float64
	until time.Time
}

func (e *estimate) of(find func() float64, now time.Time) float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !now.Before(e.until) {
		e.value, e.until = find(), now.Add(estimateAge)
	}
	return e.value
}

func (e *estimate) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.until = time.Time{}
}
