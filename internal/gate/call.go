package gate

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// Call is one request that needs more than a verdict. The adapter that opened it reports
// each event and follows the returned [Step]. An adapter calls the methods one at a time.
type Call struct {
	gate          *Gate
	policy        *Policy
	bracket       bracket
	lease         Lease
	orderLease    Lease       // of the orders, in lease
	keyLease      Lease       // of the key, in lease
	numbers       []int64     // from which on the answer of the key counts, for each order
	once          *onceCall   // nil: no answer is stored
	lockRequest   LockRequest // for the lock
	lockKey       string      // see Key; "": not built yet
	limitID       string      // the ID that the rule's limit counts
	requestID     string      // x-request-id, for the log
	line          string      // see lineOf; "": it is not refused later
	unknownReason string      // why the outcome is unknown
	watchedID     string      // the ID of a lookup, if the gate reads its answer
	sampled       bool        // the lookup may be one of Verifier.Sample
	accept        string      // see Accept
	reads         bool        // the method is GET or HEAD
	namedID       string      // the ID in the request of a create; "": none
	namedText     string      // the same as the request spells it
	bodyIDs       []string    // the orders, if the request's body names them, for RefuseByBody
	counted       bool        // ext_authz has found that the orders may exist, or a client feigns that it has
	// conditionValues are those of the headers that the conditions of a settlement use.
	conditionValues []string
	idPrefix        string   // of the ID that a create learns: the parts in its request
	mayCreate       bool     // a create may have made an order that is not learned yet
	forwarded       bool     // of a call with a lock: the backend may have the request
	answer          Response // the answer to a create, as far as it has arrived
	grpcAnswer      bool     // the answer is gRPC's
	grpcStatus      string   // of gRPC's answer, in its trailers or alone in its headers
	grpcEnded       bool     // gRPC's answer has ended, and its outcome is unknown
	start           time.Time
	rule            order.Found // for WithBody

	screened               Decision               // by RefuseByBody, of a call that goes on
	learnedID              atomic.Pointer[string] // of the order that a create has made
	toldOutcome, toldOrder bool                   // see HasNews
	origin                 origin                 // for the decision log
	grantedAt              time.Time              // when the lease was granted
	finishedAt             time.Time              // when the answer had ended, of a call that is traced
	repeats                string                 // see Trace
	status                 int                    // of the answer; 0: unknown
	Decision               Decision
	NeedsBody              bool // call WithBody
	BodyEndOnly            bool // the gate needs the end of the body, not its content
	NeedsLock              bool // call Acquire, then Granted
	NeedsAnswer            bool // report the response's headers
	learnsHeader           string
	readings               readings // of the answer to a lookup or a create
	notFound               bool     // the status of the answer to a lookup says that there is no such order
	headerText             string   // that of learnsHeader, of an answer whose body is read, too
	learnsJSON             []string
	encoded                bool // the answer's body may be encoded
}

// Step is what an adapter does next.
type Step struct {
	Forward    bool // forward the request
	Lease      Lease
	Refuse     bool // answer with Answer, or without one with the policy's reply for Decision.Verdict
	Answer     *Answer
	Store      bool   // call Store, and pass the end of the answer on afterwards
	Err        error  // why a stored answer cannot be given, for the log
	NotStored  string // why the answer is not stored, for the log; "": it is, or there is nothing to store
	Cancel     bool   // cancel the context of Acquire
	ReadBody   bool   // call LookupBody with the answer's body
	BodyUnseen bool   // the backend received the request before Open saw its body
}

// MayLock reports whether the call's rule has locks.
func (c *Call) MayLock() bool { return c.policy.HasLock() }

// MayCreate reports whether a create was forwarded, and its order is not learned yet.
func (c *Call) MayCreate() bool { return c.mayCreate && (c.forwarded || !c.NeedsLock) }

// AnswerOptions returns those of [AnswerOptions] that the adapter removes from the request.
func (c *Call) AnswerOptions() []string {
	switch acts := c.policy.Create != nil || c.once != nil; {
	case acts && c.reads:
		return AnswerOptions[:]
	case acts, c.watchedID != "" && c.policy.Answers.readsBody():
		return AnswerOptions[:len(AnswerOptions)-preconditions]
	}
	return nil
}

// Accept returns the [HeaderAccept] with which the request is forwarded; "": it stays as it is.
func (c *Call) Accept() string { return c.accept }

// Observed reports whether the call is not enforced.
func (c *Call) Observed() bool { return c.policy.Observe }

// Rule returns the name of the call's rule. The call must have one.
func (c *Call) Rule() string { return c.policy.Rule.Name }

func (p *Policy) bracketAction() Action {
	switch {
	case p.Create != nil:
		return ActionCreate
	case p.Settle != nil:
		return ActionSettle
	case p.Once != nil:
		return ActionOnce
	default:
		return ActionLookup
	}
}

// LimitKey returns the key of the permit that the call also needs, or "".
func (c *Call) LimitKey() string {
	if c.policy.Settle == nil || c.policy.Settle.Limit == nil {
		return ""
	}
	return c.policy.Settle.Limit.Key(c.limitID)
}

// OnceKey returns the key of the lock of the request's key, or "".
func (c *Call) OnceKey() string {
	if !c.hasKey() {
		return ""
	}
	return c.policy.Once.Key.Lock.Key(c.once.keyID)
}

// Grant is the result of Acquire.
type Grant struct {
	Lease      Lease
	Err        error
	order, key Lease   // what Lease consists of; nil: it has no such part
	numbers    []int64 // of the answer of the key, for each order
}

// Granted takes the result of Acquire.
//
// A lease may have ended since it was granted: while another lock was waited for, or what may
// have changed was asked for, or the process stood still.
func (c *Call) Granted(g Grant) Step {
	if g.Err == nil && g.Lease.Ended() {
		g.Err = errLockLost
	}
	if g.Err != nil && (!c.marks() || g.Lease == nil || errors.Is(g.Err, context.Canceled)) {
		if g.Lease != nil {
			giveBack(g.Lease)
		}
		return c.denied(g.Err)
	}
	c.lease, c.orderLease, c.keyLease, c.numbers, c.grantedAt = g.Lease, g.order, g.key, g.numbers, c.gate.now()
	switch c.bracket.on(granted, OutcomeUnknown) {
	case forward:
		c.forwarded = true
		verdict := VerdictAcquired
		if g.Err != nil { // only observed
			verdict, _ = c.refusal(g.Err)
		}
		c.decide(verdict)
		return Step{Forward: true, Lease: c.visibleLease()}
	case release:
		c.Decision.Waited = c.grantedAt.Sub(c.start)
		c.releaseOrHold(release)
	}
	return Step{}
}

// giveBack releases the lease of a call that was not forwarded.
func giveBack(lease Lease) { lease.Release(func(error) {}) }

// visibleLease returns the lease that the backend may see: that of orders. In observe mode it
// is nil: the request goes on unchanged.
func (c *Call) visibleLease() Lease {
	if c.policy.Observe || !c.hasOrder() {
		return nil
	}
	return c.lease
}

func (c *Call) denied(err error) Step {
	if c.bracket.on(denied, OutcomeUnknown) != refuse || errors.Is(err, context.Canceled) {
		c.Decision.Waited = c.gate.now().Sub(c.start)
		c.report(&c.Decision, SpanSettle)
		return Step{} // the client has left, whichever event arrives first
	}
	verdict, step := c.refusal(err)
	if step.Answer != nil {
		c.status = step.Answer.Status
	}
	c.decide(verdict)
	if c.policy.Observe {
		c.forwarded = true
		return Step{Forward: true}
	}
	c.gate.record.Closed(c.Decision.Rule, OutcomeNotForwarded, c.Decision.Observed)
	return step
}

// refusal returns the verdict on a call that got no lock, and its answer.
func (c *Call) refusal(err error) (Verdict, Step) {
	verdict, step := VerdictUnavailable, Step{Refuse: true}
	stored, isStored := errors.AsType[*StoredAnswer](err)
	refused, isDedup := errors.AsType[dedupError](err)
	switch {
	case isStored:
		_, byKey := errors.AsType[*storedByKey](err)
		verdict, step.Answer, step.Err = c.found(stored, byKey)
	case isDedup:
		verdict = Verdict(refused)
	case errors.Is(err, ErrInUse):
		verdict = VerdictInUse
		c.gate.record.Once(c.Decision.Rule, OnceInUse)
	case errors.Is(err, ErrBusy):
		verdict = VerdictBusy
	case errors.Is(err, ErrOverloaded):
		verdict = VerdictOverloaded
	}
	if i, ok := unmetCondition(err); ok {
		verdict, c.Decision.Condition = VerdictNotReady, i
	}
	return verdict, step
}

func (c *Call) decide(v Verdict) {
	d := &c.Decision
	d.Verdict = v
	took := c.gate.now().Sub(c.start)
	if c.NeedsLock && v != VerdictLost {
		d.Waited = took
	}
	c.gate.record.Decided(d.Rule, d.Action, v, d.Observed, took, c.gate.exemplar(&c.origin))
	if c.lease == nil { // otherwise at the end of the call
		c.report(d, c.bracketSpan())
	}
}

// Unsent reports that the adapter could not forward the request after Granted asked for it.
func (c *Call) Unsent() {
	c.forwarded = false
	c.releaseOrHold(c.bracket.on(unsent, OutcomeUnknown))
}

// HidesPath reports whether the adapter must hide the path from the backend until Open has
// the body. The request may be a settlement, which has no lock yet.
func (c *Call) HidesPath() bool {
	return c.NeedsBody && c.NeedsAnswer && c.policy.Locks()
}

// TrailersAlone reports that the request ended in trailers, without the body that Open
// needs. The gate refuses it: Envoy lets an adapter restore a hidden path only with a body.
func (c *Call) TrailersAlone() {
	c.gate.refuse(c.policy, order.TrailersAlone, &c.Decision)
	c.decide(c.Decision.Verdict)
}

// BodyUnseen reports that an answer arrived in place of the body that Open needs. It may be
// Envoy's own answer, to a request that it dropped before the body arrived. Then nothing
// happened. Otherwise Envoy forwarded the request as it was: a create is learned (see
// Created), and the answer to a settlement is refused, because no lock protected it.
func (c *Call) BodyUnseen(r *Response) Step {
	if !r.forwarded() {
		c.mayCreate = false
		return Step{}
	}
	step := Step{BodyUnseen: true}
	if c.NeedsAnswer && c.policy.HasLock() && c.policy.Create == nil {
		c.decide(VerdictUnlocked)
		step.Refuse = !c.policy.Observe
	}
	return step
}

// Answered reports the response's headers.
func (c *Call) Answered(r *Response) Step {
	if c.watchedID != "" {
		return c.lookedUp(r)
	}
	c.grpcAnswer, c.status = r.GRPC, r.Status
	if r.Ended {
		c.grpcStatus = r.GRPCStatus
	}
	c.policy.Answers.note(r)
	outcome := r.Outcome()
	first := c.bracket.state == running || c.bracket.state == ending // an answer may cross the gate's own
	if outcome == OutcomeUnknown && first {
		c.unknownReason = r.unknownReason()
	}
	if c.once != nil && first {
		c.once.begin(r)
		c.once.readings, c.once.saysDone = c.policy.Answers.readOutcome(r), c.policy.Answers.saysDone() && !r.GRPC
		c.once.named = c.policy.Answers.names(r.Status)
	}
	return Step{Cancel: c.bracketEvent(response, outcome) == cancel}
}

// Finished reports the end of the response, after Answered. An answer of gRPC counts as cut off
// if its status does not prove that the backend has finished.
func (c *Call) Finished() Step {
	if c.isUnfinished() {
		c.grpcEnded = true
		return Step{}
	}
	if c.gate.tracer != nil {
		c.finishedAt = c.gate.now()
	}
	c.bracketEvent(finished, OutcomeUnknown)
	return c.finishOnce()
}

// LeaseLost reports what [Call.NotifyLost] signaled. If the call is not answered yet, the
// gate ends it with an answer of its own. Envoy then drops the unsent part of the request,
// because another call may run from now on. If its answer has begun, Envoy resets the call.
// The outcome is unknown. If the lease was lost during the answer, there is nothing left to
// hold, and the answer may still be stored: the call goes on.
func (c *Call) LeaseLost() Step {
	if c.policy.Observe || c.bracket.state == answered && c.lease.Ended() || c.bracket.on(lost, OutcomeUnknown) != end {
		return Step{}
	}
	c.unknownReason = "the call was ended because its lease ended first"
	start := c.start
	c.start = c.gate.now() // the call ran until now, and nothing waited for this
	c.decide(VerdictLost)
	c.start = start
	return Step{Refuse: true}
}

// Ended reports that the stream is over. With Cancel, the result of Acquire is still to
// come: pass it to Granted, which releases the lock.
func (c *Call) Ended() Step {
	if c.bracket.isCutOff() && c.bracket.state == answered {
		c.unknownReason = answerCutOff
		if c.grpcEnded {
			c.unknownReason = grpcReason(c.grpcStatus)
		}
	}
	e := c.bracketEvent(ended, OutcomeUnknown)
	c.releaseOrHold(e)
	return Step{Cancel: e == cancel}
}

// AwaitsAnswer reports whether the call was forwarded with a lock, and its answer has not ended.
func (c *Call) AwaitsAnswer() bool {
	return c.bracket.state == running || c.bracket.state == answered && c.bracket.isCutOff()
}

// IsCutOff reports whether the backend's answer to a call with a lock has begun, and not ended.
func (c *Call) IsCutOff() bool { return c.bracket.isCutOff() }

func (c *Call) bracketEvent(e event, o Outcome) effect {
	if !c.NeedsLock {
		return nothing
	}
	return c.bracket.on(e, o)
}

// releaseOrHold ends the lease as the bracket decides.
func (c *Call) releaseOrHold(e effect) {
	switch e {
	case release:
		c.release(func(error) {})
		c.log(&c.Decision)
	case hold:
		c.lease.Hold(c.holdReason())
		c.report(&c.Decision, SpanSettle)
	default:
		return
	}
	c.gate.record.Closed(c.Decision.Rule, c.bracket.outcome, c.Decision.Observed)
}

// answerCutOff is why a lock is held although the backend's answer had begun.
const answerCutOff = "the end of the backend's answer did not come, or Envoy does not show it: allow_mode_override: true, or response_body_mode: STREAMED"

// holdReason tells an operator why the lock stays although no call is known to run.
func (c *Call) holdReason() string {
	if c.unknownReason == "" {
		return "outcome unknown: the client or Envoy ended the call before an answer"
	}
	return "outcome unknown: " + c.unknownReason
}

// NotifyLost calls lost in a goroutine of its own when the lease is lost before the call
// ends, or when it reaches its maximum hold time and is not renewed. It calls lost at most
// once. Call it after Granted.
func (c *Call) NotifyLost(lost func()) {
	if c.lease != nil {
		c.lease.NotifyLost(lost)
	}
}
