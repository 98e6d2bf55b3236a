// Package fprate measures the rate of false positives of a filter from the answers of the
// backend. It raises an alert, and lets the filter grow, when the rate is too high.
//
// Start with [New], and keep [Meter.Run] running. docs/filters-cli.md describes the metrics.
package fprate

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

// Options are the settings of a [Meter]. The zero value only measures.
type Options struct {
	// Alert is the share of absent IDs that pass above which there is an alert, above 0
	// and below 1; 0: never.
	Alert float64
	// Grow expands the filter then, once. It is for a filter that is rebuilt to grow:
	// one more layer lets no fewer IDs pass.
	Grow   bool
	Logger *slog.Logger // default: none
}

// Meter measures the share of absent IDs that pass a filter. All methods are safe for
// concurrent use.
//
// An absent ID is one with the answer Absent, or one that the backend does not have. Of
// the latter, those that the bits contain count as passed. The filter forwarded the
// others for another reason: it was loading, or not certain. They count as stopped. So
// the measure holds in every state of the filter.
type Meter struct {
	filter *filter.Filter
	opts   Options
	seed   maphash.Seed // secret: a client cannot choose IDs that spoil a sketch

	window     slidingWindow
	hasAnswers atomic.Bool
	notFound   chan string
	passed     atomic.Uint64

	sample   atomic.Pointer[sample]
	alarmed  atomic.Bool
	alarm    alarm // used by Run only
	version  uint64
	estimate estimate
}

const (
	// sampleEvery is the time between two samples of the window. One takes 0.1 ms.
	sampleEvery = time.Second
	// maxNotFound bounds the IDs that wait for the second query. More than this arrive
	// within a second only if the filter stops nothing.
	maxNotFound = 4096
	// queryTimeout bounds a second query, which may go to a [filter.Remote].
	queryTimeout = time.Second
	// estimateAge is the greatest age of an estimate: reading all bits of 360 MB takes
	// 35 to 75 ms.
	estimateAge = 30 * time.Second
)

// New returns a meter of a filter. A filter has at most one. Keep [Meter.Run] running.
func New(f *filter.Filter, opts Options) *Meter {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	m := &Meter{
		filter: f, opts: opts, seed: maphash.MakeSeed(),
		notFound: make(chan string, maxNotFound),
		alarm:    alarm{threshold: opts.Alert},
	}
	m.window.reset(time.Now())
	m.version = f.BitsVersion()
	m.sample.Store(&sample{})
	return m
}

// OnAbsent counts an ID with the answer Absent. It does not block and does not allocate.
func (m *Meter) OnAbsent(id string) { m.window.addStopped(maphash.String(m.seed, id)) }

// OnNotFound counts an ID of a forwarded lookup that the backend does not have. It does
// not block. It copies the ID.
//
// Run queries the filter again to find out whether its bits contain the ID. A header
// through Envoy could carry the first answer, but it is only as trustworthy as the
// proxy's configuration. Bits are never cleared, so both answers are the same, unless
// the order was created in between.
func (m *Meter) OnNotFound(id string) {
	m.hasAnswers.Store(true)
	select {
	case m.notFound <- strings.Clone(id):
	default: // the others are enough for a rate
	}
}

// PassedButMissing returns how many lookups passed the filter for an order that the
// backend does not have.
func (m *Meter) PassedButMissing() uint64 { return m.passed.Load() }

// Rate returns the share of absent IDs that passed, of the lookups of the last hour. Each
// ID counts once. The rate is NaN while it is unknown: there were fewer than 100 IDs, or
// no answer of the backend yet.
func (m *Meter) Rate() float64 { return m.sample.Load().rate() }

// Alarmed reports whether the rate exceeds the threshold.
func (m *Meter) Alarmed() bool { return m.alarmed.Load() }

// Run measures until ctx ends, and returns nil.
func (m *Meter) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { m.classifyLoop(ctx) })
	for range wait.Every(ctx, sampleEvery) {
		if m.takeSample() {
			wg.Go(func() { m.grow(ctx) })
		}
	}
	return nil
}

// classifyLoop classifies the IDs that the backend does not have.
func (m *Meter) classifyLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-m.notFound:
			m.classify(ctx, id)
		}
	}
}

// classify counts an absent ID as passed or stopped. It does not count one that a remote
// set gives no answer for.
func (m *Meter) classify(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	switch m.filter.QueryBits(ctx, id) {
	case presence.Maybe:
		m.passed.Add(1)
		m.window.addPassed(maphash.String(m.seed, id))
	case presence.Absent:
		m.window.addStopped(maphash.String(m.seed, id))
	}
}

// takeSample evaluates the window, and reports whether the filter is to grow.
func (m *Meter) takeSample() bool {
	now := time.Now()
	m.window.advance(now)
	if version := m.filter.BitsVersion(); version != m.version {
		// The window is about other bits.
		m.version = version
		m.window.reset(now)
		m.estimate.invalidate()
	}
	r := sample{hasAnswers: m.hasAnswers.Load()}
	r.stopped, r.passed = m.window.counts()
	m.sample.Store(&r)
	if m.opts.Alert == 0 {
		return false
	}
	if m.alarm.update(r, now) {
		m.alarmed.Store(m.alarm.on)
		m.logAlarm(r)
	}
	m.showAlert(r)
	return m.opts.Grow && m.alarm.requestGrowth(r, now)
}

// logAlarm logs that the alarm went on or off.
func (m *Meter) logAlarm(r sample) {
	if m.alarm.on {
		m.opts.Logger.Warn("more absent orders pass the filter than alert_false_positive_rate allows",
			"rate", percent(r.rate()), "allowed", percent(m.opts.Alert), "passed", r.passed, "absent", r.ids(),
			"expected", percent(m.EstimatedRate()),
			runbook.FilterLeaks.Do("compare the rate with the expected one: where both are high the filter has too many orders"))
		return
	}
	m.opts.Logger.Info("absent orders pass the filter as rarely as they should, or are no longer looked up",
		"rate", percent(r.rate()), "allowed", percent(m.opts.Alert), "passed", r.passed, "absent", r.ids())
}

// showAlert puts the alert into the filter's state, or removes it.
func (m *Meter) showAlert(r sample) {
	if !m.alarm.on {
		m.filter.NoteAlert("")
		return
	}
	if math.IsNaN(r.rate()) { // the last alert stays
		return
	}
	m.filter.NoteAlert(fmt.Sprintf("%s of the absent IDs pass, alert_false_positive_rate is %s", percent(r.rate()), percent(m.opts.Alert)))
}

// grow expands the filter if its bits explain the rate. Otherwise growth would not help:
// the backend has deleted orders, or a client has the secret of the bits.
func (m *Meter) grow(ctx context.Context) {
	expected := m.filter.EstimatedFalsePositiveRate()
	if expected < m.opts.Alert/2 {
		m.opts.Logger.Warn("filter is not expanded: its bits do not explain the absent orders that pass; deleted orders would",
			"expected", percent(expected),
			runbook.FilterLeaks.Do("look which orders were deleted from the backend, or what else it answers 404 for"))
		return
	}
	m.opts.Logger.Info("filter is expanded: too many absent orders pass", "expected", percent(expected))
	if err := m.filter.Expand(ctx); err != nil && ctx.Err() == nil {
		m.opts.Logger.Error("filter did not grow", "error", err,
			runbook.FilterFull.Do("repair what error names, or raise capacity"))
	}
}

// percent shows a share with two digits that count.
func percent(share float64) string {
	if math.IsNaN(share) {
		return "unknown"
	}
	return fmt.Sprintf("%.2g%%", 100*share)
}

// EstimatedRate returns [filter.Filter.EstimatedFalsePositiveRate], as of at most 30 s ago.
func (m *Meter) EstimatedRate() float64 {
	return m.estimate.get(m.filter.EstimatedFalsePositiveRate)
}

// estimate caches a number that takes long to compute.
type estimate struct {
	mu      sync.Mutex
	value   float64
	expires time.Time
}

func (e *estimate) get(compute func() float64) float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := time.Now(); !now.Before(e.expires) {
		e.value, e.expires = compute(), now.Add(estimateAge)
	}
	return e.value
}

func (e *estimate) invalidate() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expires = time.Time{}
}
