// Package redisset is a filter in Redis that all ordergates of a deployment use. One
// of them at a time fills it, and makes it larger; any other takes over from one
// that dies.
//
// Start with [New], and keep [Set.Run] running. The bits are those of
// filter/redisbf, which proves each negative by the command that reads the bits.
// This package adds what lasts longer than a command: that a set which is not whole
// is filled again, that it grows into another one without a pause, and that days
// are forgotten. docs/filters-redis.md has the details.
package redisset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisbf"
)

// Everything calls add with every ID that there is: those of the sources, and those
// of the change log up to where it ends at a moment after the call. Add is not safe
// for concurrent use.
type ReadAll func(ctx context.Context, add func(id string) error) error

// Places are kept beside the set: of its sources, up to where they are in a generation of
// it. Nobody may go on from there while it is not whole, nor from where a filling came to
// that was not ended. A source without a place is not in the set.
type Checkpoints interface {
	// Has reports whether a generation has a place of each source.
	HasAll(ctx context.Context, generation int) (bool, error)
	// GiveUp drops those of all sets, and reports whether there were others than those that
	// Fill has come to in a generation before: of sources, or sets, that are not this one's.
	// Where a filling has given them up that was not ended, they may have been any.
	Discard(ctx context.Context, generation int) (others bool, err error)
	// Begin is called before Fill, when the set takes IDs.
	BeginFill(ctx context.Context) error
	// End keeps those that Fill has come to, of a generation. It is whole, and asked.
	Commit(ctx context.Context, generation int) error
}

// Turn waits until this process may do what one of a deployment does at a time.
// Fence is greater than that of every earlier turn; work ends when the turn is lost;
// done gives it back.
type LeaderLock func(ctx context.Context) (work context.Context, fence int64, done func(), err error)

// Options are the settings of a [Set]. Those of one deployment have to be the same.
type Options struct {
	Name string // of the filter; what is known of it in Redis is at "ordergate:{<Name>}:state"
	// Bits are those of the first generation; of those that follow capacity, shards and
	// key differ. Without a secret, one is kept in Redis, at "ordergate:{<Name>}:secret".
	Bits     redisbf.Options
	Segments *filter.Segments // nil: nothing is ever forgotten
	// Fill is how the set is filled where it is not whole. Nil: others do that, and
	// it counts for nothing until somebody says [Set.Trust].
	Fill       ReadAll
	LeaderLock LeaderLock // required with Fill

	// CanonicalForms converts each ID that is added or filled in. Nil: IDs stay as they came.
	CanonicalForms filter.CanonicalForms
	// Forms tells CanonicalForms from others. From a set that was filled with others nothing
	// is absent until it has been filled again.
	Forms string

	// Places, if not nil, are told when the set is filled. From a set that lacks one nothing
	// is absent.
	Checkpoints Checkpoints
	// Lacking is called, with Places, when the set may lack what is in the sources, until
	// it has all places: it lacks one, or one of the servers of a cluster that have a part of
	// it, and not its state, was restarted or replaced. It must not block.
	OnIncomplete func(reason string)

	AtFill float64 // share of the capacity at which the set grows, above 0 and at most 1; 0: never
	By     float64 // how many times its capacity it has then
	Max    uint64  // IDs, that no growth goes beyond; 0: none

	// ViewAge is how old what a process knows of the state may be when it adds an ID.
	// Twice as long does a change of the state wait for the others, whose clocks may
	// run at half the speed at the least. Default 2 s.
	ViewAge time.Duration
	Grace   time.Duration // how long the old generation is kept beyond that; default 10 s
	// InfoEvery is how often Redis is asked how full the set is; default 30 s.
	InfoEvery time.Duration
	Logger    *slog.Logger // default: none
	// Now tells the day; default time.Now.
	Now func() time.Time
}

// EnsureDefaults fills in what is unset.
func (o *Options) EnsureDefaults() {
	if o.ViewAge <= 0 {
		o.ViewAge = 2 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = 10 * time.Second
	}
	if o.InfoEvery <= 0 {
		o.InfoEvery = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Set is a set of IDs that is shared. All methods are safe for concurrent use.
type Set struct {
	client redis.UniversalClient
	opts   Options
	log    *slog.Logger
	key    string   // of the state
	secret [16]byte // zero until it is known; guarded by looking

	refreshMu sync.Mutex // held by look
	view      atomic.Pointer[view]
	sets      map[string]target // those of the view, by key; guarded by looking

	health        atomic.Pointer[health]
	everComplete  atomic.Bool // it was whole, and placed, since the start
	info          atomic.Pointer[Info]
	workMu        sync.Mutex // held by who fills or grows
	wakeup        chan struct{}
	idsRead       atomic.Uint64 // IDs, by the work under way
	filling       atomic.Bool
	lastErr       atomic.Pointer[error] // of the last work, nil when it came to an end
	policyChecked bool                  // of eviction; used by Run only
	atMax         atomic.Bool           // it should grow, and Max does not allow it
	otherServers  *string               // servers, as of the last look; used by Run only
	rereadReason  string                // why sources are read, "" once they were; used by Run only
}

// health is what the last look at the set found.
type health struct {
	complete bool
	err      error
}

// errAsked is what is known before the first answer.
var errNotRead = errors.New("the set in Redis has not been looked at yet")

// New returns a shared set. It does not talk to Redis. The error says which option
// is impossible.
func New(client redis.UniversalClient, opts Options) (*Set, error) {
	opts.EnsureDefaults()
	s := &Set{
		client: client, opts: opts, log: opts.Logger.With("filter", opts.Name),
		key:  StateKey(opts.Name),
		sets: make(map[string]target), wakeup: make(chan struct{}, 1),
	}
	switch {
	case opts.Name == "" || strings.ContainsAny(opts.Name, "{}"):
		return nil, fmt.Errorf("filter in Redis %q: a filter's name must be non-empty and have no braces", opts.Name)
	case opts.Fill != nil && opts.LeaderLock == nil:
		return nil, fmt.Errorf("filter in Redis %s: filling takes turns", opts.Name)
	case opts.AtFill < 0 || opts.AtFill > 1 || opts.AtFill > 0 && opts.By <= 1:
		return nil, fmt.Errorf("filter in Redis %s: growing at %g by %g", opts.Name, opts.AtFill, opts.By)
	case opts.AtFill > 0 && (opts.Fill == nil || opts.Bits.Kind == redisbf.Redisson):
		return nil, fmt.Errorf("filter in Redis %s: nobody but those who fill it can make it larger", opts.Name)
	}
	s.secret[0] = 1 // any will do, to find what is impossible now
	if _, err := s.target(s.first().current()); err != nil {
		return nil, fmt.Errorf("filter in Redis %s: %w", opts.Name, err)
	}
	s.secret = [16]byte{}
	s.health.Store(&health{err: errNotRead})
	s.info.Store(&Info{})
	return s, nil
}

// StateKey returns the key of what is known of a filter in Redis.
func StateKey(name string) string { return "ordergate:{" + name + "}:state" }

// Ask answers whether an ID may be in the set. Absent was read in Redis after the
// call. An error comes with Unknown.
//
// A generation that this process does not know of yet takes nothing away: until it
// is dropped, the old one is told of every ID, and one that was dropped answers
// Unknown.
func (s *Set) Query(ctx context.Context, id string) (filter.Answer, error) {
	v := s.view.Load()
	if v == nil {
		return filter.Unknown, errNotRead
	}
	if s.hasOtherForms(v) || !v.checkpointed {
		return filter.Unknown, nil
	}
	a, err := v.current.query(ctx, id)
	if a == filter.Absent && time.Since(v.at) > queryViewAges*s.opts.ViewAge {
		return filter.Unknown, errStaleView
	}
	return a, err
}

// viewLasts is for how many times ViewAge a view is good for asking: somebody else may fill
// the set in other forms, or from other sources, and waits for longer before it is whole.
const queryViewAges = 2

// errOldView passes: Run looks again.
var errStaleView = errors.New("the state of the set in Redis was not read lately")

// Add adds IDs, which are in the change log already, to all generations there are.
// It returns nil once Redis has acknowledged them, or if a generation is not there: it
// will be filled from the log.
//
// Whoever begins a new generation reads the log after twice ViewAge. An ID that is
// not told to it here is in the log by then: the state that did not have it was read
// within ViewAge before Add returned, and the log was appended to before.
func (s *Set) Add(ctx context.Context, ids ...string) error {
	done := make(map[target]bool)
	for {
		v, err := s.freshView(ctx)
		if err != nil {
			return err
		}
		more := false
		for _, t := range v.all() {
			if done[t] {
				continue
			}
			more, done[t] = true, true
			err := s.add(ctx, t, ids)
			switch {
			case err == nil || errors.Is(err, redisbf.ErrGone):
			case errors.Is(err, redisbf.ErrFull) && t != v.current:
				// It is not asked yet, or not any more, and must not be without the ID.
				if err := t.unmark(ctx); err != nil {
					return err
				}
			case errors.Is(err, redisbf.ErrFull):
				s.onFull(ctx, t)
				return err
			default:
				return err
			}
		}
		if !more {
			return nil
		}
	}
}

// add adds all canonical forms of IDs to one generation.
func (s *Set) add(ctx context.Context, to target, ids []string) error {
	return to.add(ctx, s.opts.CanonicalForms.All(ids))
}

// overflow makes sure that nothing is absent from a set which takes no more.
func (s *Set) onFull(ctx context.Context, t target) {
	if h := s.health.Load(); h.err != nil && errors.Is(h.err, redisbf.ErrFull) {
		return // done
	}
	if err := t.unmark(ctx); err != nil {
		s.log.Error("a full filter could not be unmarked", "error", err)
		return
	}
	s.health.Store(&health{err: redisbf.ErrFull})
	s.log.Error("filter is full: nothing counts as absent until it has grown")
	s.wake()
}

func (s *Set) wake() {
	select {
	case s.wakeup <- struct{}{}:
	default: // it knows
	}
}

// State returns the state of the set, in the words of package filter, and the
// reason for it in one line.
func (s *Set) State() (state, reason string) {
	h := s.health.Load()
	switch {
	case s.filling.Load() && !h.complete:
		return filter.StateLoading, fmt.Sprintf("filling it: %d IDs so far", s.idsRead.Load())
	case errors.Is(h.err, errNotRead):
		return filter.StateLoading, h.err.Error()
	case h.err != nil:
		return filter.StateUnknown, h.err.Error()
	case !h.complete && s.opts.Fill == nil:
		return filter.StateUnknown, "nobody has said that it is whole: ordergate filter trust " + s.opts.Name
	case !h.complete:
		if failure := s.lastErr.Load(); failure != nil {
			return filter.StateUnknown, "it is not whole, and could not be filled: " + (*failure).Error()
		}
		return filter.StateLoading, "it is not whole, and is going to be filled"
	}
	v := s.view.Load()
	if !v.checkpointed {
		return filter.StateLoading, noCheckpoints
	}
	if v.Capacity < s.opts.Bits.Capacity && s.opts.AtFill == 0 && !s.singleGeneration() {
		return filter.StateReady, fmt.Sprintf("it was made for %d IDs, not for %d: let it expand, or give it another key_prefix",
			v.Capacity, s.opts.Bits.Capacity)
	}
	return filter.StateReady, ""
}

// EverWhole implements filter.Remote. A set without Fill is whole when an operator says
// so, for whom nothing waits.
func (s *Set) EverComplete() bool {
	return s.everComplete.Load() || s.opts.Fill == nil && !errors.Is(s.health.Load().err, errNotRead)
}

// Size implements filter.Remote. It is as of at most InfoEvery ago.
func (s *Set) Size() filter.RemoteSize {
	i := s.info.Load()
	return filter.RemoteSize{
		Count: i.IDs, Capacity: i.Capacity, Bytes: i.Bytes, FillRatio: i.FillRatio, FalsePositiveRate: i.EstimatedFalsePositiveRate,
	}
}

// Info tells of the set, as of at most InfoEvery ago, and of what is done to it.
func (s *Set) Info() Info { return *s.info.Load() }

// Close lets go of what [Set.Ask] uses. The client stays open.
func (s *Set) Close() {
	s.refreshMu.Lock()
	defer s.refreshMu.Unlock()
	for _, t := range s.sets {
		t.close()
	}
}
