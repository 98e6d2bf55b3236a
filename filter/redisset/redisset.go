// Package redisset is a filter in Redis that all instances of a deployment share. One of them
// at a time fills it and makes it larger. Another takes over if that one dies.
//
// Start with [New], and keep [Set.Run] running. The bits are those of filter/redisbf, which
// proves each miss by the command that reads the bits. This package adds the lifecycle: it
// refills an incomplete set, it grows a set into another one without a pause, and it drops old
// days. docs/filters.md describes it.
package redisset

import (
	"cmp"
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
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/rediskey"
	"github.com/ordergate/ordergate/internal/runbook"
)

// ReadAll calls add with every existing ID: those of the sources, and those of the change log
// up to its end at a moment after the call. Add is not safe for concurrent use.
type ReadAll func(ctx context.Context, add func(id string) error) error

// Checkpoints are stored beside the set: the positions in the sources up to which a generation
// of it was filled. They are valid only while the set is complete. The positions of an
// unfinished fill are not valid. A source without a checkpoint is not in the set.
type Checkpoints interface {
	// HasAll reports whether a generation has a checkpoint of each source.
	HasAll(ctx context.Context, generation int) (bool, error)
	// Discard removes the checkpoints of all sets. It reports whether there were others than
	// those that an earlier fill of the generation has reached: of other sources or other sets.
	// After the Discard of an unfinished fill it reports true if there may have been others.
	Discard(ctx context.Context, generation int) (others bool, err error)
	// BeginFill is called before Fill, when the set takes IDs.
	BeginFill(ctx context.Context) error
	// Commit stores the checkpoints that Fill has reached, of a generation. The generation is
	// complete and in use.
	Commit(ctx context.Context, generation int) error
}

// LeaderLock waits until this process may do work that one instance at a time does. Fence is
// greater than that of every earlier holder. The context work ends when the lock is lost. done
// releases the lock.
type LeaderLock func(ctx context.Context) (work context.Context, fence int64, done func(), err error)

// Options are the settings of a [Set]. All instances of a deployment have the same.
type Options struct {
	Name string // of the filter; its state in Redis is at "ordergate:{<Name>}:state"
	// Bits are the options of the first generation; later ones have another capacity, shards
	// and key. Without a secret, one is stored in Redis, at "ordergate:{<Name>}:secret".
	Bits     redisbf.Options
	Segments *filter.Segments // nil: the set keeps all IDs
	// Fill reads the IDs for a set that is incomplete. Nil: other programs fill it, and it
	// counts as incomplete until an operator calls [Set.Trust].
	Fill       ReadAll
	LeaderLock LeaderLock // required with Fill

	// CanonicalForms converts each ID that is added or filled in. Nil: IDs stay as they are.
	CanonicalForms filter.CanonicalForms
	// Forms identifies CanonicalForms. A set that was filled with others is incomplete until it
	// has been filled again.
	Forms string

	// Checkpoints, if not nil, are stored with each fill. A set that lacks one is incomplete.
	Checkpoints Checkpoints
	// OnIncomplete is called, with Checkpoints, when the set may lack IDs of the sources, until
	// it has all checkpoints. It lacks one, or a server of a cluster that has a part of the
	// set, but not its state, was restarted or replaced. It must not block.
	OnIncomplete func(reason string)

	AtFill float64 // share of the capacity at which the set grows, above 0 and at most 1; 0: never
	By     float64 // factor of the capacity
	Max    uint64  // most IDs that growth gives space for; 0: no limit

	// ViewAge is the greatest age of the known state when an ID is added. A change of the state
	// waits twice as long for the other instances: their clocks run at half the speed at least.
	// Default 2 s.
	ViewAge time.Duration
	Grace   time.Duration // time for which the old generation is kept beyond that; default 10 s
	// InfoEvery is the time between two reads of the set's size; default 30 s.
	InfoEvery time.Duration
	Logger    *slog.Logger // default: none
	// Now returns the time that decides the day; default time.Now.
	Now func() time.Time
}

// EnsureDefaults sets what is unset.
func (o *Options) EnsureDefaults() {
	o.ViewAge = cmp.Or(o.ViewAge, 2*time.Second)
	o.Grace = cmp.Or(o.Grace, 10*time.Second)
	o.InfoEvery = cmp.Or(o.InfoEvery, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Set is a set of IDs in Redis. All methods are safe for concurrent use.
type Set struct {
	client redis.UniversalClient
	opts   Options
	log    *slog.Logger
	key    string   // of the state
	secret [16]byte // zero until it is read; guarded by refreshMu

	refreshMu sync.Mutex // held by refresh
	view      atomic.Pointer[view]
	sets      map[string]target // those of the view, by key; guarded by refreshMu

	health        atomic.Pointer[health]
	everComplete  atomic.Bool // it was complete, with its checkpoints, since the start
	info          atomic.Pointer[Info]
	workMu        sync.Mutex // held to fill or grow
	wakeup        chan struct{}
	idsRead       atomic.Uint64 // IDs in the present fill
	filling       atomic.Bool
	lastErr       atomic.Pointer[error] // of the last work, nil if it succeeded
	policyChecked bool                  // for eviction; used by Run only
	atMax         atomic.Bool           // it should grow, and Max does not allow it
	otherServers  *string               // as of the last check; used by Run only
	rereadReason  string                // last reason for a reload of the sources, "" if none is due; used by Run only
}

// health is the result of the last check.
type health struct {
	complete bool
	err      error
}

// errNotRead is the health before the first check.
var errNotRead = errors.New("the filter in Redis has not been read yet")

// New returns a set. It sends nothing to Redis. The error names the impossible option.
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
		return nil, fmt.Errorf("filter in Redis %s: a set that is filled needs a leader lock", opts.Name)
	case opts.AtFill < 0 || opts.AtFill > 1 || opts.AtFill > 0 && opts.By <= 1:
		return nil, fmt.Errorf("filter in Redis %s: growing at %g by %g", opts.Name, opts.AtFill, opts.By)
	case opts.AtFill > 0 && (opts.Fill == nil || opts.Bits.Kind == redisbf.Redisson):
		return nil, fmt.Errorf("filter in Redis %s: growth needs a fill", opts.Name)
	}
	s.secret[0] = 1 // any value, to check the options
	if _, err := s.target(s.first().current()); err != nil {
		return nil, fmt.Errorf("filter in Redis %s: %w", opts.Name, err)
	}
	s.secret = [16]byte{}
	s.health.Store(&health{err: errNotRead})
	s.info.Store(&Info{})
	return s, nil
}

// StateKey returns the key of a filter's state in Redis.
func StateKey(name string) string { return rediskey.Of(name, "state") }

// Query answers whether an ID may be in the set. Absent was read in Redis after the call. An
// error comes with Unknown.
//
// This process may not know of a new generation yet. That is harmless: every ID goes to the old
// one until it is dropped, and a dropped one answers Unknown.
func (s *Set) Query(ctx context.Context, id string) (presence.Answer, error) {
	v := s.view.Load()
	if v == nil {
		return presence.Unknown, errNotRead
	}
	if s.hasOtherForms(v) || !v.checkpointed {
		return presence.Unknown, nil
	}
	a, err := v.current.query(ctx, id)
	if a == presence.Absent && time.Since(v.at) > queryViewAges*s.opts.ViewAge {
		return presence.Unknown, errStaleView
	}
	return a, err
}

// queryViewAges is the number of ViewAges for which a view is valid for queries. Another
// instance that fills the set with other forms, or from other sources, waits longer before it
// marks the set complete.
const queryViewAges = 2

// errStaleView is temporary: Run refreshes the view.
var errStaleView = errors.New("the last state read from Redis is too old")

// Add adds IDs, which are in the change log already, to all generations. It returns nil once
// Redis has acknowledged them, or if a generation is missing: a fill reads them from the log.
//
// An instance that begins a new generation reads the log after twice ViewAge. So it finds an ID
// that Add did not write to that generation. The state without it was read within ViewAge
// before Add returned, and the append to the log was earlier.
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
				// It is not in use yet, or no longer, and must not lack the ID.
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

// onFull makes sure that a full set answers Unknown.
func (s *Set) onFull(ctx context.Context, t target) {
	if h := s.health.Load(); h.err != nil && errors.Is(h.err, redisbf.ErrFull) {
		return // done
	}
	if err := t.unmark(ctx); err != nil {
		s.log.Error("marking a full filter as incomplete", "error", err,
			runbook.FilterNotReady.Do("look at Redis and the way to it; ordergate tries again"))
		return
	}
	s.health.Store(&health{err: redisbf.ErrFull})
	s.log.Error("filter is full: nothing is absent until it has grown",
		runbook.FilterFull.Do("nothing if expand is set; otherwise raise capacity"))
	s.wake()
}

func (s *Set) wake() {
	select {
	case s.wakeup <- struct{}{}:
	default: // the signal is pending
	}
}

// State returns the state of the set, as package filter names it, and the reason in one line.
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
		return filter.StateUnknown, "no operator has declared it complete: ordergate filter trust " + s.opts.Name
	case !h.complete:
		if failure := s.lastErr.Load(); failure != nil {
			return filter.StateUnknown, "it is incomplete, and could not be filled: " + (*failure).Error()
		}
		return filter.StateLoading, "it is incomplete, and will be filled"
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

// EverComplete implements filter.Remote. A set without Fill is complete when an operator
// declares it, and no start waits for that.
func (s *Set) EverComplete() bool {
	return s.everComplete.Load() || s.opts.Fill == nil && !errors.Is(s.health.Load().err, errNotRead)
}

// Size implements filter.Remote, as of at most InfoEvery ago.
func (s *Set) Size() filter.RemoteSize {
	i := s.info.Load()
	return filter.RemoteSize{
		Count: i.IDs, Capacity: i.Capacity, Bytes: i.Bytes, FillRatio: i.FillRatio, FalsePositiveRate: i.EstimatedFalsePositiveRate,
	}
}

// Info describes the set, as of at most InfoEvery ago.
func (s *Set) Info() Info { return *s.info.Load() }

// Close frees what [Set.Query] uses. The client stays open.
func (s *Set) Close() {
	s.refreshMu.Lock()
	defer s.refreshMu.Unlock()
	for _, t := range s.sets {
		t.close()
	}
}
