// Package gate decides which verdict a request gets, and what to do at each event of a call
// that it lets through.
//
// Start with [New]. [Gate.Screen] judges a request before it is forwarded. [Gate.Open]
// begins a [Call], which holds a lock around a request or reads its answer. The package has
// no transport, no Redis client and no clock. So every adapter (ext_authz, ext_proc, ...)
// decides alike, and tests can run every order of events without a network.
package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
)

// Lookups answers whether orders exist. Its methods are safe for concurrent use.
type Lookups interface {
	// MayContain never blocks. After NotInMemory, call Query.
	MayContain(id string) presence.Answer
	// Query is MayContain that may also query Redis. It blocks until ctx ends at most, and
	// then returns Unknown. It never returns NotInMemory.
	Query(ctx context.Context, id string) presence.Answer
}

// Filter knows which orders exist. Its methods are safe for concurrent use.
type Filter interface {
	Lookups
	// Learn returns once every instance is guaranteed to answer Maybe or Unknown for the
	// ID. This holds with an error too, unless the error says otherwise. The ID is the text
	// of the answer: rules may differ about its canonical form.
	Learn(ctx context.Context, id string) error
	// Followed reports whether the filter's tables send each row when it is committed.
	Followed() bool
	// CaughtUp reports whether every order that exists by now is known to every instance of a
	// filter that is followed. It blocks for some milliseconds.
	CaughtUp(ctx context.Context) bool
	// MarkIncomplete reports that an order was created and that its ID could not be learned, for
	// the given reason. The call began at the given time; zero: an earlier call may have
	// created it. It returns as Learn does: then no instance answers Absent for that
	// order's ID, whatever it is.
	MarkIncomplete(ctx context.Context, reason string, began time.Time) error
	// Abandoned is MarkIncomplete for a call that may have created an order, or may still create
	// it: the backend may still be at work.
	Abandoned(ctx context.Context, reason string, began time.Time) error
}

// ErrBusy is returned by a [Locker] if another call held the lock for the whole wait.
var ErrBusy = errors.New("the lock is held by another")

// ErrOverloaded is returned by a [Locker] if the backend has, or may have, its maximum
// number of calls, and none ended within the wait.
var ErrOverloaded = errors.New("too many settlements are in flight")

// Why a new order was not learned from its answer.
var (
	ErrUnnamed   = errors.New("the backend has created an order, and its answer does not name it")
	ErrAbandoned = errors.New("the call may have created an order, and there is no answer of the backend")
	ErrFailed    = errors.New("the rule's answer says that the call created no order")
	ErrByTable   = errors.New("the answer names no order, and the order's table does, if there is one")
)

// Locker takes the locks of orders, and keeps stored answers beside them.
type Locker interface {
	// Key returns the key of the order's lock.
	Key(id string) string
	// Acquire takes the locks of all the orders, or of none. It does not block. It calls then
	// once, before it returns or in another goroutine: with the lease, and then must not block, or with an
	// error that wraps ErrBusy or ErrOverloaded after the wait, a [*StoredAnswer] if it found one, ctx's
	// error if ctx ended, and any other error if the locks are unavailable. An error arrives in a
	// goroutine that may block. After an error nothing stays taken.
	Acquire(ctx context.Context, request LockRequest, then func(Lease, error))
	// Undone reports whether a later call than the one with these fences, one for each order, has
	// undone what this one did for any of them, or may have: a call that forgets the stored answers
	// of this name, or of all names.
	Undone(ctx context.Context, ids []string, name string, fences []int64) (bool, error)
	// Marked returns, for each order, the number above all marks of calls that have begun to undo. A call
	// that has the lock settles anew, and what it does counts from that number on.
	Marked(ctx context.Context, ids []string) ([]int64, error)
}

// LockRequest is a request to a [Locker].
type LockRequest struct {
	IDs            []string // of the orders, sorted and unique; usually one
	PresentedLease string   // the owner of a lease that this call may enter again; "": none
	Purpose        string   // for an operator who inspects the lock
	Stored         string   // the name of stored answers to look for before the lock is taken; "": none
	Meanwhile      bool     // only an answer counts that was stored at most For before Acquire began
	For            time.Duration
	Client         string // the caller's address, or its network; "": unknown
	// Of the calls that present one lease, none that Undoes settlements runs beside one that settles: with
	// Stored, or Keyed, when its answer is stored by a key.
	Undoes, Keyed bool
	// Marks means that the call is only observed and undoes settlements. With an error, Acquire returns a
	// lease too, without a lock: what the call undoes is marked even so.
	Marks bool
}

// Lease is a held lock, or several. It renews itself until Release or Hold is called. These two do
// not block, and log errors: a lock that is not renewed expires.
type Lease interface {
	Fences() []int64 // one for each ID, in their order; grows with every lease of its key
	Owner() string   // the unguessable name of this lease, or of the one that it entered
	Ended() bool     // it, or a part of it, ended by now: by its time, or as NotifyLost says
	// NotifyLost has lost called, in a goroutine of its own, when the lease, or a part of it, ends
	// before Release or Hold, at once if it already has, and shortly before its maximum: then Ended is false.
	NotifyLost(lost func())
	// Release calls then once, when the lock is released and what StoreAnswer and the others have
	// asked for is done, or with an error.
	Release(then func(error))
	// Hold keeps the lease, without renewing it, until its hold time ends. The reason is
	// for an operator.
	Hold(reason string)

	// Call one of StoreAnswer, ForgetAnswers and KeepSuspended, once, before Release.

	// StoreAnswer has Release store the text by this name, for so long. Of the locks of
	// several orders, one has the text, and the others have the brief.
	StoreAnswer(name, text, brief string, keep time.Duration)
	// ForgetAnswers deletes those that earlier calls have stored, or will store within keep.
	ForgetAnswers(keep time.Duration, names ...string)
	// SuspendAnswers withholds the answers by these names from all calls, for keep. Release gives them
	// back, unless ForgetAnswers or KeepSuspended was called. After Hold they stay suspended. It blocks
	// until the Locker answers or ctx ends. With an error, some may be suspended.
	SuspendAnswers(ctx context.Context, keep time.Duration, names ...string) error
	KeepSuspended()
}

// Policy is what to do with the requests of one rule. Package config guarantees that it does
// something, that a create does not look up, and that it learns from one place.
type Policy struct {
	Rule    order.Rule
	Observe bool     // decide and count, change nothing
	Share   *Share   // what of it is enforced; nil: all requests are alike
	Answers *Answers // nil: the status tells what an answer means
	Invalid Reply
	Lookup  *Lookup
	Create  *Create
	Settle  *Settle // with Create: the lock of a create that names its order
	Once    *Once   // by a key in the request; nil: none. Settle has one by the order
}

// Locks reports whether the rule's requests need a lock before they are forwarded, and are not
// in observe mode.
func (p *Policy) Locks() bool { return p.HasLock() && !p.Observe }

// HasLock reports whether calls of the rule may need a lock.
func (p *Policy) HasLock() bool { return p.Settle != nil || p.Once != nil }

// HasCalls reports whether the rule's requests need a [Call]: see [Gate.Open].
func (p *Policy) HasCalls() bool { return p.Create != nil || p.HasLock() }

// Lookup refuses requests for absent orders.
type Lookup struct {
	Filter Lookups
	Absent Reply
	// OnNotFound is called with each order that a forwarded lookup asked for and that the
	// backend does not have. It must be quick, and safe for concurrent use. The ID is valid
	// only during the call. Nil: it is not called.
	OnNotFound func(id string)
	Verify     Verifier // holds refusals against the backend; nil: none
}

// Create learns the ID of a new order from the backend's answer.
type Create struct {
	Filter Filter
	Learn  Learn
	Format order.Format // of the new ID
	Dedup  *Dedup       // nil: a create of an order that exists goes on, too
}

// Settle holds a lock around a call.
type Settle struct {
	Lock        Locker
	Limit       Locker   // of permits, by the ID of the rule's limit; nil: none
	Once        *Once    // the order's stored answer; nil: none
	Require     *Require // nil: nothing but the lock
	Busy        Reply
	Unavailable Reply
}

// Reply is an answer that the gate gives in place of the backend.
type Reply struct {
	Status      int
	ContentType string // "": application/json
	Body        string
	Others      []Header      // besides those of the other fields
	RetryAfter  time.Duration // 0: none
	Problem     bool          // the body is application/problem+json (RFC 9457)
	leaseLost   bool
	why         order.Reason // of an answer to a request that cannot be read

	// GRPCStatus is the status of an answer that ForGRPC has returned.
	GRPCStatus       GRPCStatus
	grpc, neverRetry bool
}

// Recorder counts decisions. Every request calls its methods: they must be quick and safe
// for concurrent use.
type Recorder interface {
	// Decided reports a verdict on a request of the rule with this index, and
	// how long it took, waits included. Observed: the gate does not enforce it. Trace is the ID of
	// a trace that shows it, valid during the call; "": there is none.
	Decided(rule int, action Action, verdict Verdict, observed bool, took time.Duration, trace string)
	// Refused reports why a request of the rule is invalid or ambiguous. In observe mode it
	// reports why the request would be refused.
	Refused(rule int, why order.Reason)
	// Closed reports the outcome of a call with a lock, or with one that is only observed.
	Closed(rule int, outcome Outcome, observed bool)
	// Learned reports an attempt to learn a new ID. The error wraps ErrUnnamed, ErrAbandoned
	// or ErrFailed, or comes from a filter that could not inform its peers in time.
	Learned(rule int, err error)
	// Once reports what became of a call under a rule with stored answers.
	Once(rule int, result OnceResult)
}

// Gate makes the decisions. It is immutable and safe for concurrent use.
type Gate struct {
	table    *order.Table
	policies []Policy
	record   Recorder
	now      func() time.Time

	attachments [][]attachment  // by rule: of the reads and of the writes of each page
	unsealed    []attachment    // by rule: of what has passed a check over plain HTTP
	streamed    atomic.Bool     // a request has reached ext_proc
	passed      atomic.Bool     // a request has passed ext_authz
	refusals    *RecentRefusals // nil: none are kept
	decisions   DecisionLog     // nil: there is none
	tracer      Tracer          // nil: there is none
	problems    *Problems       // of calls
	describes   bool            // decisions, to Envoy

	encodedActions [][Actions][]byte // by rule: see Metadata

	locking      *order.Table // of the enforced rules that take locks; nil: there are none, or no other rule observes requests
	lockingRules []int        // their indices
}

// New builds a gate. The first policy whose rule matches decides. The error names the first
// unusable policy. The clock only measures durations; it is time.Now except in tests.
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
	g := &Gate{problems: NewProblems(slog.New(slog.DiscardHandler)), describes: true, table: table, policies: policies, record: record, now: now, attachments: make([][]attachment, len(policies)), unsealed: make([]attachment, len(policies))}
	g.encodedActions = make([][Actions][]byte, len(policies))
	for i := range policies {
		g.encodedActions[i] = encodeActions(policies[i].Rule.Name)
		g.attachments[i] = make([]attachment, 2*table.Pages(i))
	}
	return g, g.findLocking()
}

func (g *Gate) findLocking() (err error) {
	var rules []order.Rule
	observes := false
	for i := range g.policies {
		p := &g.policies[i]
		observes = observes || p.Observe || p.Share != nil
		if p.Locks() {
			rules, g.lockingRules = append(rules, p.Rule), append(g.lockingRules, i)
		}
	}
	if observes && len(rules) > 0 {
		g.locking, err = order.NewTable(rules)
	}
	return err
}

func (p *Policy) check() error {
	switch {
	case p.Create != nil && p.Create.Learn.Capture != nil && p.Create.Learn.Capture.NumSubexp() != 1:
		return errors.New("create learns from a pattern with one group")
	case p.Settle != nil && p.Settle.Require != nil && len(p.Settle.Require.Otherwise) > MaxConditions:
		return fmt.Errorf("there are more than %d conditions", MaxConditions)
	case (p.Settle != nil && p.Settle.Limit != nil) != (p.Rule.Limit != nil):
		return errors.New("a limit takes a lock and an ID")
	case p.Share != nil && (p.Share.Others == nil || !p.Share.Others.Observe):
		return errors.New("a share takes a policy that observes the other requests")
	}
	return nil
}

// Policies returns the policies as given to [New]. For a rule with a share, that is the
// enforced one. Adapters prepare their answers from
// them, and must not change them.
func (g *Gate) Policies() []Policy { return g.policies }
