// Package filter knows which order IDs exist. It answers Absent only when that is certain.
//
// Start with [New]. [Filter.MayContain] answers a lookup, and [Filter.Learn] adds a new order.
// A [Window] keeps Absent true while other instances create orders. The bits are in
// filter/bloom. docs/freshness.md has the argument.
package filter

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/filter/exact"
	"github.com/ordergate/ordergate/internal/orderid"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/runbook"
)

// Window is a time in which a miss is Absent: no client has the answer to a create whose ID the
// filter lacks.
type Window interface {
	// Holds reports whether the window is still open. It does not block.
	Holds() bool
}

// Appender sends new IDs to every instance.
type Appender interface {
	// Append returns nil once the log has the IDs. Every filter reads them from there. A second
	// append of an ID does no harm.
	Append(ctx context.Context, ids ...string) error
	// Record is Append for a caller that waits for [Appender.Spread] before it passes the IDs
	// on.
	Record(ctx context.Context, ids ...string) error
	// AppendIncomplete adds an order with an unknown ID to the log, and returns the entry.
	// Every filter gets a [Doubt] from it. The order was created at since or later, by this
	// process's clock; zero: at any time.
	AppendIncomplete(ctx context.Context, reason string, since time.Time) (Entry, error)
	// AppendAbandoned is AppendIncomplete for an order that may not exist, or may be created
	// later. The [Doubt] is Late for as long as that can take.
	AppendAbandoned(ctx context.Context, reason string, since time.Time) (Entry, error)
	// Spread returns nil once every instance with an open [Window] has all that was appended
	// here before the call.
	Spread(ctx context.Context) error
	// Withdraw returns nil once every window of the other instances is closed. They stay closed
	// until the log has everything whose append failed.
	Withdraw(ctx context.Context) error
}

// Options are the settings of a [Filter].
type Options struct {
	Capacity          uint64   // IDs; default 1,000,000
	FalsePositiveRate float64  // at capacity, of all segments together; default 0.001
	Key               [16]byte // secret; the default is random, for bits that stay in this process
	Layout            bloom.Layout
	Exact             bool      // an exact set of numeric IDs: no absent ID passes
	Segments          *Segments // nil: the filter keeps all IDs
	Growth            *Growth   // nil: a filter past its capacity passes more and more absent IDs

	// Window returns the last window; nil: none was opened. What the other instances had
	// answered before it was opened has been added by then. It must not block. Without Window a
	// miss is Absent at once. That is right only if this process alone creates orders.
	Window func() Window
	// WindowErr returns the reason that the reader of the change log opens no window, for
	// State; nil: it opens them. It must not block. Nil: State does not show it.
	WindowErr func() error
	// LastRead returns the last time at which everything that others had appended was known
	// here; zero: never. If that is longer ago than StaleAfter, nothing is absent. It must not
	// block. With a Window this only shows in the state. Nil: the filter is never stale.
	LastRead   func() time.Time
	StaleAfter time.Duration
	// Remote is a set outside this process. The filter queries it before each Absent; memory
	// only saves queries. Capacity, Segments and Growth then describe memory, which grows past
	// them.
	Remote Remote
	// Appender receives each ID that is learned. Without it an ID is known only here.
	Appender Appender

	// Check returns the reason why a text is no order ID, "" if it is one. Default:
	// [orderid.Check].
	Check func(id string) (reason string)
	// CanonicalForms converts each ID that is added. Lookups use one of these forms. Nil: IDs
	// stay as they are.
	CanonicalForms CanonicalForms
	// WithinGrace reports whether an ID shows that a source may not have its order yet. Such an
	// ID is never absent. Nil: no ID shows it.
	WithinGrace func(id string) bool
	// CommitDelay is the time after Abandoned in which the order may still be created; default
	// 1 min.
	CommitDelay time.Duration
	// CreatedBefore returns the latest time at which an order with the ID can have been
	// created, if the ID shows it; nil: no ID does.
	CreatedBefore func(id string) (latest time.Time, ok bool)
	// ClockMargin is the longest time by which CreatedBefore may precede the start of the
	// create, by this process's clock.
	ClockMargin time.Duration
	// Live means that the sources have each order as soon as it exists. A reload clears every
	// doubt then.
	Live bool
	// Covered returns the scope of the orders that the sources may lack. The sources have every
	// order outside it. Nil: all IDs. It must not block: the caller holds a lock. With a Remote
	// it has no effect.
	Covered func() Scope

	Logger        *slog.Logger  // default: none
	MaxPending    int           // limit of the writes that wait for a retry; default 10,000
	RetryEvery    time.Duration // default 500 ms
	AppendTimeout time.Duration // timeout of an append; default 600 ms
	// Now returns the time that decides the day. The default is the start time of the process
	// plus the time since, by the monotonic clock.
	Now func() time.Time
}

// EnsureDefaults sets what is unset.
func (o *Options) EnsureDefaults() {
	o.Capacity = cmp.Or(o.Capacity, 1_000_000)
	o.FalsePositiveRate = cmp.Or(o.FalsePositiveRate, 0.001)
	if o.Key == ([16]byte{}) {
		rand.Read(o.Key[:]) // never fails, by its documentation
	}
	if o.Check == nil {
		o.Check = orderid.Check[string]
	}
	o.CommitDelay = cmp.Or(o.CommitDelay, time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.MaxPending = cmp.Or(o.MaxPending, 10_000)
	o.RetryEvery = cmp.Or(o.RetryEvery, 500*time.Millisecond)
	o.AppendTimeout = cmp.Or(o.AppendTimeout, 600*time.Millisecond)
	if o.Now == nil {
		began := time.Now()
		o.Now = func() time.Time { return began.Add(time.Since(began)) }
	}
}

// Filter is the set of the existing order IDs. All methods are safe for concurrent use.
type Filter struct {
	name   string
	opts   Options
	log    *slog.Logger
	memory memory
	recent *recent // nil without a Remote

	status       atomic.Pointer[status]
	doubts       atomic.Pointer[openDoubts] // nil: there are none
	doubtAdded   chan struct{}              // of capacity 1
	loaded       atomic.Bool                // the filter was ready once
	overCapacity atomic.Bool                // it has more IDs than Capacity
	alert        atomic.Pointer[string]     // see NoteAlert
	snapshotErr  atomic.Pointer[error]      // why the last snapshot failed; nil: it did not
	loadMu       sync.Mutex                 // held by Load and ReadSnapshot

	mu         sync.Mutex
	pending    []pendingWrite // not acknowledged; oldest first
	doubtsSeen uint64
	confirmed  Entry         // see Confirm
	ownEntries []Entry       // of the last doubts of this process's creates, at most maxDoubts
	retry      chan struct{} // of capacity 1: pending is not empty
	abandoned  abandonedCalls

	needsResizing chan struct{} // of capacity 1: a part is too full
	rebuildMu     sync.Mutex    // held while memory is rebuilt
	layerMu       sync.Mutex    // held by addLayer
	atMax         atomic.Bool   // it is too full, and Growth.Max does not allow growth
	expansionMu   sync.Mutex    // guards expansion
	expansion     Expansion
	rescanned     atomic.Uint64
}

// New returns an empty filter in the state loading. [Filter.Load] makes it ready. Keep
// [Filter.Run] running if it has an Appender. The error names the impossible option.
func New(name string, opts Options) (*Filter, error) {
	opts.EnsureDefaults()
	f := &Filter{
		name:          name,
		opts:          opts,
		log:           opts.Logger.With("filter", name),
		retry:         make(chan struct{}, 1),
		needsResizing: make(chan struct{}, 1),
		doubtAdded:    make(chan struct{}, 1),
		expansion:     Expansion{Generation: 1},
	}
	if opts.Remote != nil {
		if opts.Appender == nil {
			return nil, fmt.Errorf("filter %s: a remote set needs the change log", name)
		}
		f.recent = newRecent(opts.Key)
	}
	held, err := f.newStore()
	if err != nil {
		return nil, fmt.Errorf("filter %s: %w", name, err)
	}
	f.memory.start(held)
	f.status.Store(&status{state: StateLoading, reason: "its sources have not been read"})
	return f, nil
}

// MayContain answers whether an order may exist. It never blocks and does not allocate. It
// answers Unknown while the filter is loading or incomplete, and while no [Window] is open. A
// filter with a [Remote] answers [presence.NotInMemory] for an ID that memory lacks: see [Filter.Query].
//
// MayContain never answers Absent for an order whose create was answered before the call. The
// order of the steps is the proof:
//
//  1. The window is loaded before the bits are read. Everything that was answered before it
//     was opened, or while it is open, has been added by then.
//  2. The state is read before the bits, too. A doubt is cleared, or bounded, only after its
//     IDs were added.
//  3. The read sees every bit that was set before it began. Bits are set and read atomically,
//     and never cleared.
//  4. The window is still open at the end. So it was open during the read.
func (f *Filter) MayContain(id string) presence.Answer {
	if f.opts.Remote != nil {
		return f.queryMemory(id)
	}
	window, certain := f.window(), f.certainty()
	if a := f.memory.query(id); a != presence.Absent {
		return a
	}
	if !certain.isCertain(f, id) || !f.isFresh(window) {
		return presence.Unknown
	}
	return f.absentUnlessNew(id)
}

// window returns the last window, nil if a miss needs none.
func (f *Filter) window() Window {
	if f.opts.Window == nil {
		return nil
	}
	return f.opts.Window()
}

// isFresh reports whether a miss is unknown to clients. The window was loaded before the bits
// were read.
func (f *Filter) isFresh(w Window) bool {
	if f.opts.Window == nil {
		return !f.stale()
	}
	return w != nil && w.Holds()
}

// IsAbsent reports whether a lookup of an order can be refused: any canonical form of its ID is
// Absent. It blocks as Query does.
func (f *Filter) IsAbsent(ctx context.Context, id string) (absent bool) {
	f.opts.CanonicalForms.each(id, func(form string) { absent = absent || f.Query(ctx, form) == presence.Absent })
	return absent
}

// Query is MayContain that also queries the [Remote] if memory lacks the ID. Only then it
// blocks, for one round trip. It answers Unknown if ctx ends.
func (f *Filter) Query(ctx context.Context, id string) presence.Answer {
	if a := f.MayContain(id); a != presence.NotInMemory {
		return a
	}
	return f.queryRemote(ctx, id)
}

// QueryBits returns Maybe or Absent: the bits contain the ID or not. It ignores the state of
// the filter and the [Window]. Unknown means that a [Remote] gave no answer. It blocks as Query
// does.
func (f *Filter) QueryBits(ctx context.Context, id string) presence.Answer {
	a := f.memory.query(id)
	if a != presence.Absent || f.opts.Remote == nil {
		return a
	}
	if f.recent.has(id) {
		return presence.Maybe
	}
	a, err := f.opts.Remote.Query(ctx, id)
	if err != nil {
		return presence.Unknown
	}
	return a
}

// absentUnlessNew is the answer for an ID that the filter lacks.
func (f *Filter) absentUnlessNew(id string) presence.Answer {
	if f.opts.WithinGrace != nil && f.opts.WithinGrace(id) {
		return presence.Unknown
	}
	return presence.Absent
}

// stale reports whether the last read is too old for Absent.
func (f *Filter) stale() bool {
	return f.opts.LastRead != nil && time.Since(f.opts.LastRead()) > f.opts.StaleAfter
}

// newStore returns an empty store for the filter's IDs.
func (f *Filter) newStore() (idStore, error) {
	o := &f.opts
	if o.Growth != nil && o.Exact {
		return nil, errors.New("an exact set needs no growth")
	}
	if o.Growth != nil {
		if err := o.Growth.check(); err != nil {
			return nil, err
		}
	}
	if o.Segments == nil {
		return newScalable(f.name, o.Capacity, f.layerMaker(o.FalsePositiveRate))
	}
	if err := o.Segments.check(); err != nil {
		return nil, err
	}
	capacity, rate := o.Segments.Each(o.Capacity, o.FalsePositiveRate)
	each := func(name string) (*scalable, error) { return newScalable(name, capacity, f.layerMaker(rate)) }
	if _, err := each(f.name); err != nil { // checks the options
		return nil, err
	}
	failed := func(err error) { f.Taint("a new segment could not be made: " + err.Error()) }
	return newDays(f.name, *o.Segments, DayOf(o.Now()), each, failed), nil
}

// layerMaker makes the layers of a part that passes at most about twice the rate.
func (f *Filter) layerMaker(rate float64) layerMaker {
	return func(layer int, capacity uint64) (bits, error) {
		if f.opts.Exact {
			return &exactBits{set: exact.New(), capacity: capacity}, nil
		}
		return bloom.New(bloom.Params{
			Capacity: capacity, FalsePositiveRate: math.Ldexp(rate, -layer), Key: f.opts.Key, Layout: f.opts.Layout,
		})
	}
}

// Add adds all canonical forms of an ID to this filter only. It never blocks. The reader of the
// change log calls it.
func (f *Filter) Add(id string) { f.opts.CanonicalForms.each(id, f.add) }

// add adds an ID in the form that it has.
func (f *Filter) add(id string) {
	in, changed := f.memory.add(id)
	if !changed {
		return
	}
	switch {
	case f.opts.Growth != nil:
		f.onFill(in)
		return
	case f.opts.Remote != nil:
		f.growMemory(in)
		return
	}
	if in.isFull(1) && f.overCapacity.CompareAndSwap(false, true) {
		// The answers stay correct. More absent IDs pass.
		f.log.Warn("filter is over its capacity, more absent orders will pass",
			"part", in.name, "capacity", in.capacity(),
			runbook.FilterFull.Do("raise capacity, or set expand"))
	}
}

// Count returns the number of IDs, without the few that were false positives when added. Of a
// filter with a [Remote] this and the following describe the remote set.
func (f *Filter) Count() uint64 {
	if f.opts.Remote != nil {
		return f.opts.Remote.Size().Count
	}
	return f.sum((*scalable).count)
}

// Capacity returns the number of IDs that the filter is made for. With segments it counts the
// existing ones.
func (f *Filter) Capacity() uint64 {
	if f.opts.Remote != nil {
		return f.opts.Remote.Size().Capacity
	}
	return f.sum((*scalable).capacity)
}

// SizeBytes returns the memory of the bits in this process.
func (f *Filter) SizeBytes() uint64 { return f.sum((*scalable).sizeBytes) }

func (f *Filter) sum(of func(*scalable) uint64) (n uint64) {
	for _, s := range f.memory.current().parts() {
		n += of(s)
	}
	return n
}

// FillRatio returns the share of set bits in the fullest part of the filter, 0 to 1. At
// capacity it is about a half. For exact sets it is 0. It costs as much as
// EstimatedFalsePositiveRate.
func (f *Filter) FillRatio() (most float64) {
	if f.opts.Remote != nil {
		return f.opts.Remote.Size().FillRatio
	}
	for _, s := range f.memory.current().parts() {
		for _, l := range *s.layers.Load() {
			most = max(most, l.FillRatio())
		}
	}
	return most
}

// EstimatedFalsePositiveRate returns the chance that an absent ID passes now, if all segments
// are read. It is smaller for an ID with a day. It reads all of the filter's memory (35 to 75
// ms for 360 MB): call it for a metric, not for a request.
func (f *Filter) EstimatedFalsePositiveRate() float64 {
	stopped := 1.0
	if f.opts.Remote != nil {
		stopped -= f.opts.Remote.Size().FalsePositiveRate
	}
	for _, s := range f.memory.current().parts() {
		stopped *= 1 - s.rate()
	}
	return 1 - stopped
}
