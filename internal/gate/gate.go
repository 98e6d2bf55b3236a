// Package gate decides: which verdict a request gets, and what to do at each
// event of a call that it lets through.
//
// Start with [New]. [Gate.Screen] judges a request before it is forwarded, and
// [Gate.Open] begins a [Call], the life of one that needs more than a verdict:
// a lock around it, or a look at its answer. The package knows no transport, no
// Redis and no clock, so that every face of ordergate (ext_authz, ext_proc, ...)
// decides alike, and every order of events can be tested without a network.
package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// Answer is what a filter says of an order ID.
type Answer int8

// The answers. Unknown is the zero value, so that a filter that says nothing
// rejects nothing.
const (
	Unknown   Answer = iota // the filter cannot tell now
	Maybe                   // the order may exist
	Absent                  // the order certainly does not exist
	Elsewhere               // what tells is not in memory
)

// Filter knows which orders exist. Its methods are safe for concurrent use.
type Filter interface {
	// MayContain never blocks. Elsewhere is for Ask.
	MayContain(id string) Answer
	// Ask is MayContain that asks elsewhere too. It may block until ctx ends, which is Unknown,
	// and never answers Elsewhere.
	Ask(ctx context.Context, id string) Answer
	// Learn returns once every ordergate is bound to answer Maybe (or Unknown)
	// for the ID, with or without an error, unless that says otherwise. The ID is the
	// text of the answer: rules may differ about its canonical form.
	Learn(ctx context.Context, id string) error
	// Missed tells that an order was created whose ID could not be learned, for the
	// given reason, by a call that began at the given time; zero: by an earlier one, too.
	// It returns as Learn does: whatever its ID may be is not certainly absent any more.
	Missed(ctx context.Context, reason string, began time.Time) error
	// Abandoned is Missed for a call that may have created an order, and that may do so
	// yet, since nobody knows whether the backend is still at work.
	Abandoned(ctx context.Context, reason string, began time.Time) error
}

// ErrBusy is returned by a [Locker] when another held the lock past the wait.
var ErrBusy = errors.New("the lock is held by another")

// ErrOverloaded is returned by a [Locker] when the backend has, or may have, as many calls
// as it may, and none of them ended within the wait.
var ErrOverloaded = errors.New("too many settlements are in flight")

// Why a new order was not learned from its answer.
var (
	ErrUnnamed   = errors.New("the backend has created an order, and its answer does not name it")
	ErrAbandoned = errors.New("the call may have created an order, and there is no answer of the backend")
)

// Locker takes the locks of orders.
type Locker interface {
	// Key is the name of the order's lock.
	Key(id string) string
	// Acquire blocks until it has the locks of all the orders, or of none: the wait
	// is over (an error that wraps ErrBusy or ErrOverloaded), ctx ended, or they cannot be asked for
	// (any other error). Those granted to an ended ctx are given back by the Locker.
	Acquire(ctx context.Context, request LockRequest) (Lease, error)
}

// LockRequest is what a [Locker] is asked for.
type LockRequest struct {
	IDs            []string // of the orders, in sorted order, none twice; mostly one
	PresentedLease string   // the owner of a lease that may be entered once more; "": none
	Purpose        string   // what it is for, to an operator who looks
	Client         string   // the address of who asks, or its network; "": it is not known
}

// Lease is a held lock, or several. It renews itself until Release or Hold is
// called.
type Lease interface {
	Fences() []int64       // one for each order asked for, in that order; grows with every lease of its key
	Owner() string         // the unguessable name of this lease, or of the one that it entered
	Lost() <-chan struct{} // closed when the lease, or a part of it, ended against our will
	Release(ctx context.Context) error
	// Hold keeps it without renewing, until its hold time ends. The reason is for an
	// operator.
	Hold(ctx context.Context, reason string) error
}

// AsyncLocker is a Locker that can do without a goroutine for each caller.
type AsyncLocker interface {
	Locker
	// AcquireAsync is Acquire for a caller that must not block: then is called once,
	// before this returns or by another goroutine, and must not block either. False: it
	// has done nothing, since only Acquire can do this.
	AcquireAsync(ctx context.Context, request LockRequest, then func(Lease, error)) bool
}

// AsyncLease is a lease of an [AsyncLocker].
type AsyncLease interface {
	Lease
	// ReleaseAsync is Release that does not block. What goes wrong is logged.
	ReleaseAsync()
	// NotifyLost is Lost without a goroutine that waits: lost is called, in one of its
	// own.
	NotifyLost(lost func())
}

// Policy is what to do with the requests of one rule.
type Policy struct {
	Rule    order.Rule
	Observe bool // decide and count, change nothing
	Invalid Reply
	Lookup  *Lookup
	Create  *Create
	Settle  *Settle
}

// Locks reports whether the rule's requests need a lock before they are passed on: it
// settles, and is not only observed.
func (p *Policy) Locks() bool { return p.Settle != nil && !p.Observe }

// Lookup turns requests for absent orders away.
type Lookup struct {
	Filter Filter
	Absent Reply
	// OnNotFound is told of each order that a lookup was passed on for and that the
	// backend does not have. It must be quick, and safe for concurrent use; the ID is
	// valid only during the call. Nil: nobody wants to know.
	OnNotFound func(id string)
}

// Create learns the ID of a new order from the backend's answer.
type Create struct {
	Filter Filter
	Learn  Learn
	Format order.Format // of the new ID
}

// Settle brackets a call with a lock.
type Settle struct {
	Lock        Locker
	Limit       Locker // of permits, by the ID of the rule's limit; nil: none
	Busy        Reply
	Unavailable Reply
}

// Reply is an answer that the gate gives in the backend's stead.
type Reply struct {
	Status     int
	Body       string        // JSON
	RetryAfter time.Duration // 0: none
	leaseLost  bool
}

// Recorder is told what was decided. Its methods are called on the way of every
// request: they must be quick and safe for concurrent use.
type Recorder interface {
	// Decided reports a verdict on a request of the rule with this index, and
	// how long it took, waits included.
	Decided(rule int, action Action, verdict Verdict, took time.Duration)
	// Refused reports why a request of the rule is invalid or ambiguous, or would be
	// refused as such but for observe mode.
	Refused(rule int, why order.Reason)
	// Closed reports how a bracketed call of the rule with this index ended.
	Closed(rule int, outcome Outcome)
	// Learned reports an attempt to learn a new ID. The error wraps ErrUnnamed or
	// ErrAbandoned, or is that of a filter that could not tell the others in time.
	Learned(rule int, err error)
}

// Gate decides. It is immutable and safe for concurrent use.
type Gate struct {
	table    *order.Table
	policies []Policy
	record   Recorder
	now      func() time.Time
}

// New builds a gate. The order of policies counts: the first whose rule matches
// decides. The error names the first policy that is unusable. The clock, which
// is time.Now but in tests, only measures.
func New(policies []Policy, record Recorder, now func() time.Time) (*Gate, error) {
	rules := make([]order.Rule, len(policies))
	for i, p := range policies {
		rules[i] = p.Rule
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("rule %q: %w", p.Rule.Name, err)
		}
	}
	table, err := order.NewTable(rules)
	if err != nil {
		return nil, err
	}
	return &Gate{table: table, policies: policies, record: record, now: now}, nil
}

func (p *Policy) check() error {
	switch {
	case !p.Rule.Pass && p.Lookup == nil && p.Create == nil && p.Settle == nil:
		return errors.New("does nothing")
	case p.Create != nil && (p.Lookup != nil || p.Settle != nil):
		return errors.New("create goes with no other action")
	case p.Create != nil && (p.Create.Learn.Header == "") == (len(p.Create.Learn.JSON) == 0):
		return errors.New("create learns from a header or from the body")
	case p.Create != nil && p.Create.Learn.Capture != nil && p.Create.Learn.Capture.NumSubexp() != 1:
		return errors.New("create learns from a pattern with one group")
	case (p.Settle != nil && p.Settle.Limit != nil) != (p.Rule.Limit != nil):
		return errors.New("a limit takes a lock and an ID")
	}
	return nil
}

// Policies returns the policies as given to [New]: the faces prepare their
// answers from them. They must not be changed.
func (g *Gate) Policies() []Policy { return g.policies }
