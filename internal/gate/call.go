package gate

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// Call is the life of one request that needs more than a verdict. The face that
// opened it reports each event and does what the returned [Step] says. Its
// methods are called one at a time, but for Acquire, which blocks and has a goroutine of
// its own, or AcquireAsync.
type Call struct {
	gate          *Gate
	policy        *Policy
	bracket       bracket
	lease         Lease
	lockRequest   LockRequest // for the lock
	lockKey       string      // see Key; "": not made yet
	limitID       string      // the ID that the rule's limit is for
	requestID     string      // its ID, for the log
	unknownReason string      // why the outcome is unknown
	watchedID     string      // the ID of a lookup whose answer is of interest
	namedID       string      // the ID that a create names, "" if it names none
	mayCreate     bool        // a create may make an order, which nobody has learned yet
	answer        Response    // to a create, as far as it came
	start         time.Time

	Decision     Decision
	NeedsBody    bool // ask Open again, with the request's body
	BodyEndOnly  bool // of which nothing but the end matters
	NeedsLock    bool // call Acquire, report to Granted
	NeedsAnswer  bool // report the response's headers
	learnsHeader string
	learnsJSON   []string

	// Background does what blocks at the end of a bracket, in a goroutine of its own and
	// within a limit of time. Nil: the method that ends it blocks.
	Background func(do func(context.Context))
	leaseDone  chan struct{} // closed when the lease is given up; nil: nobody waits for that
}

// Step is what a face has to do next.
type Step struct {
	Forward    bool // pass the request on
	Lease      Lease
	Refuse     bool // answer with the policy's reply for Decision.Verdict
	Cancel     bool // end the context of Acquire
	BodyUnseen bool // the backend had the request before Open had its body
}

// Open matches a request that is about to be forwarded. The returned call may
// need nothing at all (NeedsLock and NeedsAnswer false), which is that of most
// requests; when its Decision refuses, answer and forget it. The ID is copied:
// the request's memory need not outlive Open.
func (g *Gate) Open(req order.Request) Call { return g.open(req, false) }

// OpenScreened is Open for a request that Screen or TryScreen has judged: what they have counted
// is not counted again.
func (g *Gate) OpenScreened(req order.Request) Call { return g.open(req, true) }

func (g *Gate) open(req order.Request, judged bool) Call {
	m := g.match(req)
	c := Call{gate: g, Decision: Decision{Rule: m.Rule}}
	if m.Rule < 0 {
		return c
	}
	c.start = g.now()
	c.policy = &g.policies[m.Rule]
	c.Decision.Action = c.policy.bracketAction()
	if m.Screening {
		// The bracket sees bodies without being set up for it, so it looks for lookups too.
		c.NeedsBody = m.Result == order.NeedsBody
		c.Decision.Offset = m.Offset
		c.rejectUnreadable(m, req.Header, judged)
		return c
	}
	if c.policy.Create == nil && c.policy.Settle == nil {
		// The verdict on a lookup is Screen's. Screen may have gone by other rules, though,
		// which a reload has replaced since: what is refused here does not depend on them.
		c.Decision.Offset = m.Offset
		if c.rejectUnreadable(m, req.Header, judged) {
			return c
		}
		c.watchedID = strings.Clone(c.policy.Lookup.watchedID(m, req.Method))
		c.NeedsAnswer = c.watchedID != ""
		return c
	}
	c.Decision.Offset = m.Offset
	if c.rejectUnreadable(m, req.Header, judged) {
		return c
	}
	c.NeedsAnswer = true
	if create := c.policy.Create; create != nil {
		c.learnsHeader, c.learnsJSON = create.Learn.Header, create.Learn.JSON
		c.mayCreate, c.answer = true, Response{Attempts: -1, AttemptHeader: -1}
		if m.Result == order.Named {
			c.namedID = strings.Clone(m.ID)
		}
		c.requestID = strings.Clone(requestID(req.Header))
	}
	switch {
	case m.Result == order.NeedsBody:
		c.NeedsBody = true
		c.requestID = strings.Clone(requestID(req.Header))
	case c.policy.isIncomplete(m, req):
		c.NeedsBody, c.BodyEndOnly = true, true
		c.requestID = strings.Clone(requestID(req.Header))
	case c.policy.Settle != nil && m.Result != order.Named:
		c.NeedsAnswer = false // observed, and nothing to lock
	case c.policy.Settle != nil:
		c.NeedsLock = true
		var size headerSize
		c.lockRequest, size = newLockRequest(c.policy, m, req.Header)
		c.requestID = strings.TrimPrefix(c.lockRequest.Purpose[len(c.policy.Rule.Name):], " ")
		c.limitID = strings.Clone(m.Limit)
		c.Decision.ID = c.lockRequest.IDs[0]
		if !c.policy.Observe && !c.fitsEnvoy(size) {
			c.NeedsLock, c.NeedsAnswer = false, false
			g.refuse(c.policy, m.Rule, order.HeadersTooLarge, &c.Decision)
			c.decide(c.Decision.Verdict)
		}
	}
	return c
}

// rejectUnreadable judges a request whose order cannot be told, and counts it, unless an observing
// rule has it pass and it was counted before.
func (c *Call) rejectUnreadable(m order.Match, header order.Header, judged bool) bool {
	if !isUnreadable(m) {
		return false
	}
	markRefused(c.policy, m.Reason, &c.Decision)
	if c.Decision.Refused || !judged && !hasVerdict(header, c.Decision.Verdict) {
		c.gate.record.Refused(m.Rule, m.Reason)
		c.decide(c.Decision.Verdict)
	}
	return c.Decision.Refused
}

// hasVerdict reports whether a request bears a verdict already: that of ext_authz, before.
func hasVerdict(header order.Header, v Verdict) bool {
	for cursor := 0; header != nil && cursor >= 0; {
		var name, value string
		if name, value, cursor = header.Next(cursor); cursor >= 0 && name == HeaderVerdict {
			return value == v.String()
		}
	}
	return false
}

// MaxSettlement bounds the body of a settlement, in bytes: what Envoy buffers by default.
const MaxSettlement = 1 << 20

// match refuses, besides what the table does, a settlement that is too large to be waited for.
func (g *Gate) match(req order.Request) order.Match {
	m := g.table.Match(req)
	if m.Rule < 0 || m.Result != order.Named {
		return m
	}
	if g.policies[m.Rule].Locks() && req.Size() > MaxSettlement {
		m.Result, m.Reason, m.Offset = order.TooLarge, order.BodyTooLarge, -1
	}
	return m
}

// isIncomplete reports whether a lock has to wait for the rest of a request. A client could
// send that rest when the lease of its call has ended, and another call has the lock.
func (p *Policy) isIncomplete(m order.Match, req order.Request) bool {
	return p.Locks() && m.Result == order.Named && req.BodyState == order.BodyUnseen
}

// Observed reports whether the call's rule only observes.
func (c *Call) Observed() bool { return c.policy.Observe }

// Rule returns the name of the call's rule. There has to be one.
func (c *Call) Rule() string { return c.policy.Rule.Name }

func (p *Policy) bracketAction() Action {
	switch {
	case p.Settle != nil:
		return ActionSettle
	case p.Create != nil:
		return ActionCreate
	default:
		return ActionLookup
	}
}

// LimitKey returns the key of the permit that the call needs besides, or "".
func (c *Call) LimitKey() string {
	if c.policy.Settle.Limit == nil {
		return ""
	}
	return c.policy.Settle.Limit.Key(c.limitID)
}

// Grant is the end of an attempt to get a lock.
type Grant struct {
	Lease Lease
	Err   error
}

// Acquire asks for the lock and blocks until there is an answer or ctx ends.
// Always report its result to Granted, also when Ended came first.
func (c *Call) Acquire(ctx context.Context) Grant {
	lease, err := c.policy.Settle.acquire(ctx, c.lockRequest, c.limitID)
	return Grant{Lease: lease, Err: err}
}

// AcquireAsync is Acquire for a caller that must not block: then is called once, before
// this returns or by another goroutine, and must not block either. False: nothing was
// done, and only Acquire can do this.
func (c *Call) AcquireAsync(ctx context.Context, then func(Grant)) bool {
	async, ok := c.policy.Settle.Lock.(AsyncLocker)
	return ok && c.policy.Settle.Limit == nil && async.AcquireAsync(ctx, c.lockRequest, func(lease Lease, err error) {
		then(Grant{Lease: lease, Err: err})
	})
}

// Granted reports the result of Acquire.
func (c *Call) Granted(ctx context.Context, g Grant) Step {
	if g.Err != nil {
		return c.denied(g.Err)
	}
	c.lease = g.Lease
	switch c.bracket.on(granted, OutcomeUnknown) {
	case forward:
		c.decide(VerdictAcquired)
		return Step{Forward: true, Lease: c.visibleLease()}
	case release:
		c.releaseOrHold(ctx, release)
	}
	return Step{}
}

// visibleLease hides the lease of an observed rule: its request goes on as it came.
func (c *Call) visibleLease() Lease {
	if c.policy.Observe {
		return nil
	}
	return c.lease
}

func (c *Call) denied(err error) Step {
	if c.bracket.on(denied, OutcomeUnknown) != refuse || errors.Is(err, context.Canceled) {
		return Step{} // nobody is there to be told, whichever is heard of first
	}
	verdict := VerdictUnavailable
	switch {
	case errors.Is(err, ErrBusy):
		verdict = VerdictBusy
	case errors.Is(err, ErrOverloaded):
		verdict = VerdictOverloaded
	}
	c.decide(verdict)
	if c.policy.Observe {
		return Step{Forward: true}
	}
	c.gate.record.Closed(c.Decision.Rule, OutcomeNotForwarded)
	return Step{Refuse: true}
}

func (c *Call) decide(v Verdict) {
	c.Decision.Verdict = v
	c.gate.record.Decided(c.Decision.Rule, c.Decision.Action, v, c.gate.now().Sub(c.start))
}

// Unsent reports that the request could not be passed on after Granted said so.
func (c *Call) Unsent(ctx context.Context) {
	c.releaseOrHold(ctx, c.bracket.on(unsent, OutcomeUnknown))
}

// HidesPath reports whether the request must not reach the backend as it is before Open has its
// body: it may be a settlement, which has no lock yet.
func (c *Call) HidesPath() bool {
	return c.NeedsBody && c.NeedsAnswer && c.policy.Locks()
}

// TrailersAlone reports that the request ended, without the body which Open asked for, in
// trailers. It is refused: Envoy lets a path that was hidden be set with a body only.
func (c *Call) TrailersAlone() {
	c.gate.refuse(c.policy, c.Decision.Rule, order.TrailersAlone, &c.Decision)
	c.decide(c.Decision.Verdict)
}

// BodyUnseen reports the headers of an answer that came instead of the body which Open asked
// for. An answer of Envoy's own, to a request that it gave up before its body came, is
// nothing new. Otherwise the request was passed on as it was: a create has to be learned
// from (see Created), and the answer to a settlement is refused, which nothing guarded.
func (c *Call) BodyUnseen(r *Response) Step {
	if !r.forwarded() {
		c.mayCreate = false
		return Step{}
	}
	step := Step{BodyUnseen: true}
	if c.NeedsAnswer && c.policy.Settle != nil {
		c.decide(VerdictUnlocked)
		step.Refuse = !c.policy.Observe
	}
	return step
}

// Answered reports the headers of the response.
func (c *Call) Answered(r *Response) Step {
	if c.watchedID != "" {
		c.policy.Lookup.checkNotFound(c.watchedID, r)
		return Step{}
	}
	outcome := r.Outcome()
	if outcome == OutcomeUnknown && c.bracket.state == running {
		c.unknownReason = r.unknownReason()
	}
	return Step{Cancel: c.bracketEvent(response, outcome) == cancel}
}

// Finished reports that the response has come to its end, after Answered.
func (c *Call) Finished() { c.bracketEvent(finished, OutcomeUnknown) }

// LeaseLost reports what [Call.NotifyLost] has told. A call that was not answered yet is to
// be ended, by an answer in the backend's stead: Envoy drops what it has not sent of the
// request, which another call may overtake from now on. Its outcome is unknown.
func (c *Call) LeaseLost() Step {
	if c.policy.Observe || c.bracket.on(lost, OutcomeUnknown) != end {
		return Step{}
	}
	c.unknownReason = "the call was ended, since its lease went first"
	c.start = c.gate.now() // the call has run until here, and nothing has waited for this
	c.decide(VerdictLost)
	return Step{Refuse: true}
}

// Ended reports that the stream is over. Cancel tells that a result of Acquire
// is still to come and has to be reported to Granted, which gives it back.
func (c *Call) Ended(ctx context.Context) Step {
	if c.bracket.isCutOff() {
		c.unknownReason = answerCutOff
	}
	e := c.bracketEvent(ended, OutcomeUnknown)
	c.releaseOrHold(ctx, e)
	return Step{Cancel: e == cancel}
}

func (c *Call) bracketEvent(e event, o Outcome) effect {
	if !c.NeedsLock {
		return nothing
	}
	return c.bracket.on(e, o)
}

// releaseOrHold ends the lease as the bracket says. An error is not the caller's to
// handle: the lock then ends by itself, since it is renewed no more.
func (c *Call) releaseOrHold(ctx context.Context, e effect) {
	if e != release && e != hold {
		return
	}
	if c.leaseDone != nil {
		close(c.leaseDone)
	}
	async, ok := c.lease.(AsyncLease)
	switch {
	case e == release && ok:
		async.ReleaseAsync()
	case e == release:
		c.background(ctx, func(ctx context.Context) { _ = c.lease.Release(ctx) })
	default:
		reason := c.holdReason()
		c.background(ctx, func(ctx context.Context) { _ = c.lease.Hold(ctx, reason) })
	}
	c.gate.record.Closed(c.Decision.Rule, c.bracket.outcome)
}

func (c *Call) background(ctx context.Context, do func(context.Context)) {
	if c.Background != nil {
		c.Background(do)
		return
	}
	do(ctx)
}

// answerCutOff is why a lock is held although the backend's answer had begun.
const answerCutOff = "the end of the backend's answer did not come, or Envoy does not show it: allow_mode_override: true, or response_body_mode: STREAMED"

// holdReason tells an operator why a lock is held although nobody is at work that
// we know of.
func (c *Call) holdReason() string {
	if c.unknownReason == "" {
		return "outcome unknown: the client or Envoy ended the call before an answer"
	}
	return "outcome unknown: " + c.unknownReason
}

// NotifyLost has a function called, in a goroutine of its own, when the call's lease is
// lost before it is given up, or has been held for its maximum and is renewed no more. It is
// called at most once, after Granted.
func (c *Call) NotifyLost(lost func()) {
	if c.lease == nil {
		return
	}
	if async, ok := c.lease.(AsyncLease); ok {
		async.NotifyLost(lost)
		return
	}
	ended, ends := make(chan struct{}), c.lease.Lost()
	c.leaseDone = ended
	go func() {
		select {
		case <-ends:
			lost()
		case <-ended:
		}
	}()
}
