// Package filter knows which order IDs exist, as far as that can be known: it
// answers Absent only when that is certain.
//
// Start with [New]; [Filter.MayContain] is the question and [Filter.Learn] the
// only way for a new order to become known. How a negative stays true while other
// ordergates create orders is the business of a [Window]; the bits themselves are
// in filter/bloom. docs/freshness.md has the whole argument.
package filter

import (
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
)

// Answer is what a filter says of an order ID.
type Answer int8

// The answers. Unknown is the zero value, so that an answer nobody gave rejects
// nothing.
const (
	Unknown     Answer = iota // the filter cannot tell now
	Maybe                     // the order may exist
	Absent                    // the order did not exist when it was asked for
	NotInMemory               // what tells is not in memory
)

// String returns the answer in lower case.
func (a Answer) String() string {
	switch a {
	case Unknown:
		return "unknown"
	case Maybe:
		return "maybe"
	case Absent:
		return "absent"
	case NotInMemory:
		return "elsewhere"
	}
	return fmt.Sprintf("answer(%d)", int8(a))
}

// Window is a time in which an ID that is not in a filter is one that no client was told of.
type Window interface {
	// Holds reports whether it is not over yet. It does not block.
	Holds() bool
}

// Appender tells every ordergate of new IDs.
type Appender interface {
	// Append returns nil once the IDs are on record: each filter will have them, by and by.
	// Appending an ID twice does no harm.
	Append(ctx context.Context, ids ...string) error
	// Record is Append for whoever tells nobody of the IDs before [Appender.Spread].
	Record(ctx context.Context, ids ...string) error
	// Missed returns the place of the entry once it is on record that every filter is to have a
	// [Doubt]: there is an order whose ID nobody knows. It was created since
	// a time of this process's clock; zero: that is not known.
	AppendIncomplete(ctx context.Context, reason string, since time.Time) (Entry, error)
	// Abandoned is Missed for an order that there may be, and that may yet be created: a
	// [Doubt] that is Late for as long as that can take.
	AppendAbandoned(ctx context.Context, reason string, since time.Time) (Entry, error)
	// Spread returns nil once all that was put on record here before the call is known wherever a
	// [Window] holds.
	Spread(ctx context.Context) error
	// Withdraw returns nil once no window holds anywhere, but here, until all is
	// put on record whose Append, Missed or Abandoned failed.
	Withdraw(ctx context.Context) error
}

// MaxIDBytes is the length of the longest ID that can be learned.
const MaxIDBytes = 256

// Options are the settings of a [Filter].
type Options struct {
	Capacity          uint64   // IDs; default 1,000,000
	FalsePositiveRate float64  // at capacity, of all segments together; default 0.001
	Key               [16]byte // secret; default a random one, which suits bits that never leave the process
	Layout            bloom.Layout
	Exact             bool      // numeric IDs, each of which is remembered: nothing absent ever passes
	Segments          *Segments // nil: nothing is ever forgotten
	Growth            *Growth   // nil: it passes more and more absent IDs when it is over its capacity

	// Window returns the window that was opened last, before which whatever others had been told
	// of was added; nil: none was. Without it a negative counts at
	// once: right only where nothing but this process creates orders. It must not block.
	Window func() Window
	// Behind returns why no window is opened, as the reader of the change log found
	// last, for State; nil: one is. It must not block. Nil: State does not know.
	WindowErr func() error
	// LastRead returns when everything that others have appended was known here last;
	// zero: never. When that is longer ago than StaleAfter, nothing is absent. It must
	// not block. What a window allows is never too old, so with one this only shows in
	// the state. Nil: what is known is new enough.
	LastRead   func() time.Time
	StaleAfter time.Duration
	// Remote is asked before each Absent that memory alone cannot decide: all, where
	// there is one. What is in memory only spares questions to it then; Capacity,
	// Segments and Growth are those of memory, which takes more than that.
	Remote Remote
	// Appender is told of each ID learned. Without it an ID is known here only.
	Appender Appender

	// CanonicalForms converts each ID that is added. Lookups ask for an ID in one of these
	// forms. Nil: IDs are added as they came.
	CanonicalForms CanonicalForms
	// Young reports whether an ID tells that its order may have been created so lately
	// that a source has not told of it yet: it is never absent. Nil: none is.
	WithinGrace func(id string) bool
	// Late is for how long an order may yet be created after Abandoned; default 1 min.
	CommitDelay time.Duration
	// Made returns the latest time at which an order with the ID can have been made, if
	// the ID tells that; nil: none does.
	CreatedBefore func(id string) (latest time.Time, ok bool)
	// Margin is by how much that may be before the creation of the order began, by this
	// process's clock.
	ClockMargin time.Duration
	// Live says that the sources tell of each order as soon as it exists: to read them
	// again clears every doubt.
	Live bool
	// Covered returns what IDs an order may have that the sources have not told of: they
	// were read for whatever it leaves out, and what was read is still so. Nil: any. It
	// must not block, and is called with a lock held. It is of no use with a Remote.
	Covered func() Scope

	Logger        *slog.Logger  // default: none
	MaxPending    int           // IDs kept for another try at appending them; default 10,000
	RetryEvery    time.Duration // default 500 ms
	AppendTimeout time.Duration // until an append fails; default 600 ms
	// Now tells the day. The default is the time at which the process began and what
	// has passed since by a clock that nobody sets.
	Now func() time.Time
}

// EnsureDefaults fills in what is unset.
func (o *Options) EnsureDefaults() {
	if o.Capacity == 0 {
		o.Capacity = 1_000_000
	}
	if o.FalsePositiveRate == 0 {
		o.FalsePositiveRate = 0.001
	}
	if o.Key == ([16]byte{}) {
		rand.Read(o.Key[:]) // never fails, by its documentation
	}
	if o.CommitDelay == 0 {
		o.CommitDelay = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxPending <= 0 {
		o.MaxPending = 10_000
	}
	if o.RetryEvery <= 0 {
		o.RetryEvery = 500 * time.Millisecond
	}
	if o.AppendTimeout <= 0 {
		o.AppendTimeout = 600 * time.Millisecond
	}
	if o.Now == nil {
		began := time.Now()
		o.Now = func() time.Time { return began.Add(time.Since(began)) }
	}
}

// Filter is the set of the order IDs that exist. All methods are safe for
// concurrent use.
type Filter struct {
	name   string
	opts   Options
	log    *slog.Logger
	memory memory
	recent *recent // nil without a Remote

	status       atomic.Pointer[status]
	doubts       atomic.Pointer[openDoubts] // nil: there are none
	doubtAdded   chan struct{}              // of capacity 1
	loaded       atomic.Bool                // it was ready once
	overCapacity atomic.Bool                // more IDs than Capacity were added
	alert        atomic.Pointer[string]     // see NoteAlert
	snapshotErr  atomic.Pointer[error]      // why the last snapshot was not written, nil when it was
	loadMu       sync.Mutex                 // held by Load

	mu         sync.Mutex
	pending    []pendingWrite // not acknowledged yet; oldest first
	doubtsSeen uint64
	confirmed  Entry         // up to which somebody's word is good
	retry      chan struct{} // of capacity 1: pending is not empty
	abandoned  abandonedCalls

	needsResizing chan struct{} // of capacity 1: a part is too full
	rebuildMu     sync.Mutex    // held by Expand
	layerMu       sync.Mutex    // held by addLayer
	atMax         atomic.Bool   // it should have grown, and Growth.Max did not allow it
	expansionMu   sync.Mutex    // guards expansion
	expansion     Expansion
	rescanned     atomic.Uint64
}

// New returns an empty filter in the state loading: call [Filter.Load] to make it
// ready, and keep [Filter.Run] running if it has an Appender. The error says which
// option is impossible.
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

// MayContain answers whether an order may exist. It never blocks, and does not allocate. Unknown
// is the answer while the filter is loading or not to be trusted, and while no [Window] holds.
// [Elsewhere] is the answer of a filter with a [Remote] for what memory does not have: see [Filter.Ask].
//
// Absent is never the answer for an order that a client was told of before
// the call. The order of the steps is the proof:
//
//  1. The window is loaded before the look. All that was told of before it was opened, or while it
//     holds, has been added by then.
//  2. The state is read before the look, too: who clears a doubt, or bounds it, has added first
//     what it was about.
//  3. The look sees every bit that was set before it began: bits are set and read
//     atomically, and never cleared.
//  4. The window holds still: so it held when the look was made.
func (f *Filter) MayContain(id string) Answer {
	if f.opts.Remote != nil {
		return f.queryMemory(id)
	}
	window, certain := f.window(), f.certainty()
	if a := f.memory.query(id); a != Absent {
		return a
	}
	if !certain.isCertain(f, id) || !f.isFresh(window) {
		return Unknown
	}
	return f.absentUnlessNew(id)
}

// window returns the window that was opened last, nil if negatives count without one.
func (f *Filter) window() Window {
	if f.opts.Window == nil {
		return nil
	}
	return f.opts.Window()
}

// isFresh reports whether what is not known here is unknown to clients, by a window loaded before the look.
func (f *Filter) isFresh(w Window) bool {
	if f.opts.Window == nil {
		return !f.stale()
	}
	return w != nil && w.Holds()
}

// Lacks reports whether a lookup of an order can be refused: whether any canonical form
// of its ID is Absent. It blocks as Ask does.
func (f *Filter) IsAbsent(ctx context.Context, id string) (absent bool) {
	f.opts.CanonicalForms.each(id, func(form string) { absent = absent || f.Query(ctx, form) == Absent })
	return absent
}

// Ask is MayContain that asks elsewhere too, if need be. Only then it blocks, for a round trip. It
// is Unknown if ctx ends.
func (f *Filter) Query(ctx context.Context, id string) Answer {
	if a := f.MayContain(id); a != NotInMemory {
		return a
	}
	return f.queryRemote(ctx, id)
}

// QueryBits returns Maybe or Absent as the bits contain an ID or not, in every state of the
// filter and without a [Window]. Unknown means that a [Remote] gave no answer. It blocks as
// Ask does.
func (f *Filter) QueryBits(ctx context.Context, id string) Answer {
	a := f.memory.query(id)
	if a != Absent || f.opts.Remote == nil {
		return a
	}
	if f.recent.has(id) {
		return Maybe
	}
	a, err := f.opts.Remote.Query(ctx, id)
	if err != nil {
		return Unknown
	}
	return a
}

// absent is the answer for an ID that is not there.
func (f *Filter) absentUnlessNew(id string) Answer {
	if f.opts.WithinGrace != nil && f.opts.WithinGrace(id) {
		return Unknown
	}
	return Absent
}

// stale reports whether what is known is too old to call anything absent.
func (f *Filter) stale() bool {
	return f.opts.LastRead != nil && time.Since(f.opts.LastRead()) > f.opts.StaleAfter
}

// newHolder returns what holds the filter's IDs at the beginning.
func (f *Filter) newStore() (idStore, error) {
	o := &f.opts
	if o.Growth != nil && o.Exact {
		return nil, errors.New("an exact set has no size that it could outgrow")
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
	if _, err := each(f.name); err != nil { // what is impossible is found now
		return nil, err
	}
	failed := func(err error) { f.Taint("a new segment could not be made: " + err.Error()) }
	return newDays(f.name, *o.Segments, DayOf(o.Now()), each, failed), nil
}

// maker makes the layers of a stack that lets at most about twice the rate pass.
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

// Add puts all canonical forms of an ID into the set, without telling anyone. It never
// blocks. This is what the follower of the change log calls.
func (f *Filter) Add(id string) { f.opts.CanonicalForms.each(id, f.add) }

// add puts an ID into the set as it is.
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
		// It stays correct: what suffers is how many absent IDs pass.
		f.log.Warn("filter is over its capacity, more absent orders will pass; raise capacity or let it expand",
			"part", in.name, "capacity", in.capacity())
	}
}

// Count returns the number of IDs, less those few that were taken for known. Of a
// filter with a [Remote] this and the following are those of the remote set.
func (f *Filter) Count() uint64 {
	if f.opts.Remote != nil {
		return f.opts.Remote.Size().Count
	}
	return f.sum((*scalable).count)
}

// Capacity returns the number of IDs that the filter is made for. Of one with
// segments, it counts those that there are.
func (f *Filter) Capacity() uint64 {
	if f.opts.Remote != nil {
		return f.opts.Remote.Size().Capacity
	}
	return f.sum((*scalable).capacity)
}

// SizeBytes returns the memory that the bits take in this process.
func (f *Filter) SizeBytes() uint64 { return f.sum((*scalable).sizeBytes) }

func (f *Filter) sum(of func(*scalable) uint64) (n uint64) {
	for _, s := range f.memory.current().parts() {
		n += of(s)
	}
	return n
}

// FillRatio returns the share of bits that are set in the fullest part of the
// filter, 0 to 1; at its capacity about half are. Of exact sets it is 0. It costs as
// much as EstimatedFalsePositiveRate.
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

// EstimatedFalsePositiveRate returns the chance that an ID which was never added
// passes now, where all segments are asked: of one that has a day, it is smaller.
// It reads all of the filter's memory (35 to 75 ms for 360 MB): call it for a metric, not
// for a request.
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
