package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// Call is one request that needs more than a verdict: a state machine. An adapter reports what it sees
// by [Call.On], and carries out the [Step] that it gets. It calls On for one event at a time.
//
//	atOpen --Opened--> atBody --RequestBody--> atScreen --Screened--> atLock --Granted--> atBackend
//	                                                                                          |
//	atBackend --ResponseHeaders--> atCollect --ResponseBody--> atLearn --Learned--> atAnswer <+
//	                                                                                | ^
//	                                                            the end of the answer | Stored
//	                                                                                v |
//	                                                                              atStore
//
// A call skips each stage that it does not need: one of an ID in a header goes from atBackend to atLearn. One
// whose answer is stored already goes from atLock to atRefusal, with that answer.
// What is refused, or loses its lock, goes to atRefusal from every stage, and what has ended to atEnd. An
// event that means nothing at a stage lets what it is about pass, or wait. What becomes of the lock is the
// machine in bracket.go. What the call needs is decided by [Gate.Open].
type Call struct {
	gate     *Gate
	policy   *Policy
	stage    stage
	bracket  bracket
	start    time.Time
	origin   origin      // for the decision log
	Decision Decision    // its ID is that of a lock or of a create
	screened *Decision   // on the orders that its body names; nil: there is none
	lookup   *lookupCall // nil: no answer to a lookup is read
	create   *createCall // nil: it creates no order
	once     *onceCall   // nil: no answer is stored

	// What it needs.
	NeedsBody   bool // all of the request's body
	BodyEndOnly bool // the gate needs the end of the body, not its content
	NeedsLock   bool
	NeedsAnswer bool

	// How far it has come.
	mayCreate              bool // a create may have made an order that is not learned yet
	forwarded              bool // of a call with a lock: the backend may have the request
	isAnswered             bool // the headers of an answer have arrived
	grpcAnswer             bool // it is gRPC's
	toldOutcome, toldOrder bool // see news

	// Of its request.
	reads           bool        // the method is GET or HEAD
	counted         bool        // ext_authz has found that the orders may exist, or a client feigns that it has
	rule            order.Found // for the request with its body
	line            string      // see lineOf; "": it is not refused later
	requestID       string      // x-request-id, for the log
	accept          string      // the Accept with which the request is forwarded; "": it stays as it is
	bodyIDs         []string    // the orders, if the request's body names them, for screen
	limitID         string      // the ID that the rule's limit counts
	conditionValues []string    // of the headers that the conditions of a settlement use

	// Of its lock.
	lockRequest   LockRequest
	lockKey       string             // see Key; "": not built yet
	stopWaiting   context.CancelFunc // of Acquire; nil: it has not begun
	lease         Lease
	grantedAt     time.Time // when the lease was granted
	unknownReason string    // why the outcome is unknown

	// Of its answer.
	grpcStatus string        // of gRPC's answer, in its trailers or alone in its headers
	status     int           // 0: unknown
	readings   readings      // what it may mean
	body       []byte        // while it is collected
	learnedID  string        // of the order that a create has made
	repeats    string        // see Trace
	completed  time.Duration // after start, of a call that is traced; 0: it is not complete
}

// stage is how far a call has come.
type stage int8

const (
	atOpen    stage = iota // nothing has happened yet
	atBody                 // the request's body is to come. Inside Envoy, a call is opened when it has come
	atScreen               // a filter or a table is asked about what the body names
	atLock                 // the call waits for its lock
	atBackend              // the backend may have the request
	atCollect              // the answer's body is read, before any of the answer is passed on
	atLearn                // the answer waits until the new order is known
	atStore                // the end of the answer waits until it is stored
	atAnswer               // the answer is passed on
	atRefusal              // the gate has answered
	atEnd                  // the stream is over
)

// Event is what happens to a call. What it points to need only be valid during [Call.On].
type Event struct {
	Kind       EventKind
	Request    *order.Request // RequestBody: with all of its body
	Response   *Response      // ResponseHeaders. StreamEnded: what Envoy says about the end, if no headers of an answer have arrived; nil: nothing
	Body       []byte         // ResponseBody: a piece
	End        bool           // ResponseBody: it is the last one
	Cut        bool           // ResponseBody: the adapter collects nothing behind it
	Unseen     bool           // ResponseHeaders: Envoy may pass the body on without showing it
	GRPCStatus string         // ResponseTrailers: the result of [GRPCStatusIn]

	// Of events that work ends with.
	Grant   Grant   // its error may be a stored answer, which is the reply to the request then
	Err     error   // Stored, CaughtUp
	verdict Verdict // Screened
	learned learned
}

// EventKind is the kind of an [Event].
type EventKind int8

// The kinds of events. Those after StreamEnded come from [Call.Start].
const (
	Opened          EventKind = iota // the first event
	RequestBody                      // all of it. Like RequestTrailers, it follows ReadRequest alone
	RequestTrailers                  // in place of the body
	Unsent                           // the adapter could not forward the request: Envoy is gone
	ResponseHeaders                  // of any answer, also of Envoy's own
	ResponseBody
	ResponseTrailers
	Delayed // the adapter has collected the answer for as long as it may
	StreamEnded
	Screened
	Granted // or denied
	LeaseLost
	CaughtUp
	Learned
	Stored
)

// Step is what an adapter does next.
type Step struct {
	Do       Move
	Work     Work      // pass it to Start
	Answer   *Answer   // with Refuse: a stored one; nil: the policy's reply for Decision
	Options  int       // with PassRequest: how many of [AnswerOptions] to remove
	Set      []Header  // with PassRequest: in place of those of the client
	Show     Show      // with PassRequest, ReadRequest and ReadResponse: what is needed of the answer, for ext_proc
	Hide     bool      // with ReadRequest: the backend must not see the path before the body is read
	Unlocked bool      // the backend got the request before the gate saw its body
	Metadata *Metadata // for Envoy; nil: nothing new
	Done     bool      // no later event matters
	// At the end of the stream: of a call whose answer Envoy has not shown to its end, and of one whose answer
	// had begun.
	Unfinished, CutOff bool
}

// Move is what an adapter does with the request or the answer.
type Move int8

// The moves.
const (
	Nothing     Move = iota
	ReadRequest      // show the request's body, and hold the request back
	PassRequest
	ReadResponse // show the answer's body, and hold the answer back
	PassResponse
	Wait   // hold back what the event is about
	Refuse // answer in place of the backend
)

// Show is the part of an answer that a call needs to see.
type Show int8

// The parts.
const (
	ShowNothing Show = iota
	ShowHeaders
	ShowBody      // and as much of the body as fits into a buffer, in one piece
	ShowAll       // and each piece of the body, and the trailers
	ShowBodyToEnd // ShowBody, and the trailers
)

// Work is what takes time. It ends with an event.
type Work int8

// The kinds of work.
const (
	NoWork     Work = iota
	Screen          // ends with Screened
	Acquire         // ends with Granted, and goes on while the adapter reports other events
	Watch           // ends with LeaseLost, or never. It goes on likewise
	CatchUp         // ends with CaughtUp
	LearnOrder      // ends with Learned
	Store           // releases the lock, after the answer is stored. Ends with Stored
)

// Blocks reports whether Start blocks until the work has ended.
func (w Work) Blocks() bool { return w == Screen || w == CatchUp || w == LearnOrder }

// Waits reports whether the adapter waits for the end of the work before it reports anything else of
// the stream but its end.
func (w Work) Waits() bool { return w.Blocks() || w == Store }

// On handles an event. It does not block. If it panics, it has begun to hold the lock, and later events are
// those of a call that was refused.
func (c *Call) On(e Event) (s Step) {
	defer func() {
		if fault := recover(); fault != nil {
			c.fail(&e)
			panic(fault)
		}
	}()
	switch e.Kind {
	case Opened:
		s = c.begin()
	case RequestBody:
		s = c.onRequestBody(e.Request)
	case RequestTrailers:
		s = c.onRequestTrailers()
	case Screened:
		s = c.onScreened(e.verdict)
	case Granted:
		s = c.onGranted(&e.Grant)
	case Unsent:
		c.onUnsent()
	case LeaseLost:
		s = c.onLeaseLost()
	case ResponseHeaders:
		s = c.onResponse(e.Response, e.Unseen)
	case ResponseBody:
		s = c.onResponseBody(&e)
	case ResponseTrailers:
		s = c.onResponseTrailers(e.GRPCStatus)
	case Delayed:
		s = c.onDelayed()
	case CaughtUp:
		s = c.onCaughtUp(e.Err)
	case Learned:
		s = c.onLearned(&e.learned)
	case Stored:
		s = c.onStored(e.Err)
	case StreamEnded:
		s = c.onStreamEnded(e.Response)
	}
	return s
}

// Start begins the work of a step. It calls deliver once when that has ended: before it returns, or in
// another goroutine. It must not block. Deliver reports the event by On, also after the stream's end.
func (c *Call) Start(ctx context.Context, w Work, deliver func(Event)) {
	switch w {
	case Screen:
		deliver(Event{Kind: Screened, verdict: c.screen(ctx)})
	case Acquire:
		ctx, c.stopWaiting = context.WithCancel(ctx)
		c.acquire(ctx, func(g Grant) { deliver(Event{Kind: Granted, Grant: g}) })
	case Watch:
		c.lease.NotifyLost(func() { deliver(Event{Kind: LeaseLost}) })
	case CatchUp:
		deliver(Event{Kind: CaughtUp, Err: c.catchUp(ctx)})
	case LearnOrder:
		deliver(Event{Kind: Learned, learned: c.learnOrMark(ctx)})
	case Store:
		c.store(func(err error) { deliver(Event{Kind: Stored, Err: err}) })
	}
}

// begin decides what the call needs first.
func (c *Call) begin() Step {
	switch {
	case c.Decision.Refused:
		return c.refuse(nil)
	case c.NeedsBody:
		c.stage = atBody
		// Behind a body, Envoy takes no other wish.
		return Step{Do: ReadRequest, Show: c.shows(c.policy.HasLock()), Hide: c.hidesPath()}
	case c.NeedsLock:
		c.stage = atLock // of an observed call too: its Locker does not wait
		return Step{Do: Wait, Work: Acquire}
	}
	return c.forward()
}

// forward forwards the request. The backend sees the lease of orders. In observe mode the request goes on
// unchanged.
func (c *Call) forward() Step {
	c.stage = atBackend
	s := Step{Do: PassRequest, Options: len(c.answerOptions()), Show: c.shows(c.NeedsLock), Done: !c.NeedsAnswer}
	if c.accept != "" && c.NeedsAnswer {
		s.Set = append(s.Set, Header{HeaderAccept, c.accept})
	}
	if c.lease != nil {
		s.Work = Watch
		if c.hasOrder() && !c.policy.Observe {
			s.Set = append(s.Set, c.leaseHeaders()...)
		}
	}
	s.Metadata = c.metadata()
	return s
}

// shows is what is needed of the answer to a call that has a lock, or has none.
func (c *Call) shows(locks bool) Show {
	switch {
	case !c.NeedsAnswer:
		return ShowNothing
	case c.lookup != nil:
		return ShowHeaders
	case locks && c.learnsBody():
		return ShowBodyToEnd
	case locks:
		return ShowAll
	case c.learnsBody():
		return ShowBody
	}
	return ShowHeaders
}

// hidesPath reports whether the backend must not see the path of a request whose body is to come: it may be
// a settlement, which has no lock yet.
func (c *Call) hidesPath() bool { return c.NeedsAnswer && c.policy.Locks() }

// refuse answers in place of the backend.
func (c *Call) refuse(a *Answer) Step {
	c.stage, c.mayCreate = atRefusal, c.mayCreate && c.forwarded
	if a == nil {
		c.reportRefused()
	}
	return Step{Do: Refuse, Answer: a, Done: c.lease == nil, Metadata: c.metadata()}
}

func (c *Call) onRequestBody(req *order.Request) Step {
	*c = *c.withBody(req) // starts anew, and keeps the client's address
	if c.asksByBody() {
		c.stage = atScreen
		return Step{Do: Wait, Work: Screen}
	}
	return c.begin()
}

// onRequestTrailers refuses a request that ended in trailers, without the body that the call needs: Envoy
// lets an adapter restore a hidden path only with a body.
func (c *Call) onRequestTrailers() Step {
	c.gate.refuse(c.policy, order.TrailersAlone, &c.Decision)
	c.decide(c.Decision.Verdict)
	if c.policy.Observe {
		return c.forward()
	}
	return c.refuse(nil)
}

// Grant is the result of Acquire.
type Grant struct {
	Lease      Lease
	Err        error
	order, key Lease   // what Lease consists of; nil: it has no such part
	numbers    []int64 // of the answer of the key, for each order
}

// markTimeout bounds how long an observed call waits for Redis to mark what it undoes. It is no longer than
// one command, so that Envoy waits for it as for any other call.
const markTimeout = 2 * time.Second

// acquire acquires the call's locks, and then checks what they protect. It does not block. It calls then
// once, before it returns or in another goroutine. Then must not block.
func (c *Call) acquire(ctx context.Context, then func(Grant)) {
	cancel := func() {}
	if c.marks() { // it goes on even so
		ctx, cancel = context.WithTimeout(ctx, markTimeout)
	}
	if c.gate.tracer != nil {
		ctx = c.gate.tracer.Context(ctx, c.origin.parent)
	}
	checks := c.hasOrder() && (c.hasKey() || c.undoes() || c.policy.conditions() != nil || c.policy.dedup() != nil)
	c.acquireLocks(ctx, func(g Grant) {
		if g.Lease == nil || !checks {
			cancel()
			then(g)
			return
		}
		go func() {
			defer cancel()
			if g.Err = cmp.Or(g.Err, c.checkLocked(ctx, &g)); g.Err != nil && !c.marks() {
				giveBack(g.Lease)
				g = Grant{Err: g.Err}
			}
			then(g)
		}()
	})
}

// acquireLocks acquires the lock of the call's key, if it has one, and then that of its orders.
// It gets all of them, or none. If it marks, there is a lease of the orders in either case.
func (c *Call) acquireLocks(ctx context.Context, then func(Grant)) {
	if !c.hasKey() {
		c.acquireOrder(ctx, Grant{}, then)
		return
	}
	request := LockRequest{
		IDs: []string{c.once.keyID}, Purpose: c.lockRequest.Purpose, Client: c.lockRequest.Client, Stored: c.once.key.Name,
	}
	c.policy.Once.Key.Lock.Acquire(ctx, request, func(key Lease, err error) {
		if err != nil {
			err = keyError(c.keptByOrder(ctx, err))
		}
		switch {
		case err != nil && !c.marks():
			then(Grant{Err: err})
		case !c.hasOrder():
			then(Grant{Lease: key, key: key})
		default:
			c.acquireOrder(ctx, Grant{key: key, Err: err}, then)
		}
	})
}

// acquireOrder acquires the lock of the orders, for a call that has what it needs of its key.
func (c *Call) acquireOrder(ctx context.Context, g Grant, then func(Grant)) {
	request := c.lockRequest
	request.Marks, request.Undoes, request.Keyed = c.marks(), c.undoes(), g.key != nil
	c.policy.Settle.acquire(ctx, request, c.limitID, func(lease Lease, err error) {
		if err != nil && !request.Marks {
			if g.key != nil {
				giveBack(g.key)
			}
			then(Grant{Err: err})
			return
		}
		g.Err, g.order, g.Lease = cmp.Or(g.Err, err), lease, lease
		if g.key != nil {
			g.Lease = join(lease, g.key, lease.Owner())
		}
		then(g)
	})
}

// checkLocked decides whether the conditions of a settlement hold, and whether the order of a create
// exists: another call of the order may have changed both until now. It suspends the answers that the call may
// undo. The call has its locks, or it marks.
func (c *Call) checkLocked(ctx context.Context, g *Grant) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = faultError(fault)
		}
	}()
	if conditions := c.policy.conditions(); conditions != nil && g.Err == nil {
		err = conditions.Check(ctx, c.lockRequest.IDs, c.conditionValues)
	}
	if dedup := c.policy.dedup(); dedup != nil && g.Err == nil {
		switch v := dedup.Decide(ctx, c.lockRequest.IDs[0]); v {
		case VerdictDuplicate, VerdictUnavailable:
			err = dedupError(v)
		}
	}
	if err == nil && g.Err == nil {
		g.numbers, err = c.answerNumbers(ctx, g)
	}
	if c.undoes() && (err == nil || c.marks()) {
		err = cmp.Or(err, g.order.SuspendAnswers(ctx, c.once.order.Keep, c.once.order.undoes()...))
	}
	return err
}

// onGranted takes the result of Acquire.
//
// A lease may have ended since it was granted: while another lock was waited for, or what may
// have changed was asked for, or the process stood still.
func (c *Call) onGranted(g *Grant) Step {
	if c.stopWaiting != nil {
		c.stopWaiting()
	}
	if g.Err == nil && g.Lease.Ended() {
		g.Err = errLockLost
	}
	if g.Err != nil && (!c.marks() || g.Lease == nil || errors.Is(g.Err, context.Canceled)) {
		if g.Lease != nil {
			giveBack(g.Lease)
		}
		return c.onDenied(g.Err)
	}
	c.lease, c.grantedAt = g.Lease, c.gate.now()
	if c.once != nil {
		c.once.grant = *g
	}
	switch c.bracket.on(granted, OutcomeUnknown) {
	case forward:
		c.forwarded = true
		verdict := VerdictAcquired
		if g.Err != nil { // only observed
			verdict, _, _ = c.refusal(g.Err)
		}
		c.decide(verdict)
		return c.forward()
	case release:
		c.Decision.Waited = c.grantedAt.Sub(c.start)
		c.releaseOrHold(release)
	}
	return Step{}
}

// giveBack releases the lease of a call that was not forwarded.
func giveBack(lease Lease) { lease.Release(func(error) {}) }

func (c *Call) onDenied(err error) Step {
	if c.bracket.on(denied, OutcomeUnknown) != refuse || errors.Is(err, context.Canceled) {
		c.Decision.Waited = c.gate.now().Sub(c.start)
		c.report(&c.Decision, SpanSettle)
		return Step{} // the client has left, whichever event arrives first
	}
	verdict, stored, why := c.refusal(err)
	if stored != nil {
		c.status = stored.Status
	}
	c.decide(verdict)
	if c.policy.Observe { // the bracket is closed: no later event concerns a lock
		c.forwarded = true
		return c.forward()
	}
	c.gate.record.Closed(c.Decision.Rule, OutcomeNotForwarded, c.Decision.Observed)
	if stored == nil {
		c.gate.problems.denied(c, cmp.Or(why, err))
	}
	return c.refuse(stored)
}

// refusal returns the verdict on a call that got no lock, and the stored answer that it gets, or why it
// gets none although there is one.
func (c *Call) refusal(err error) (verdict Verdict, answer *Answer, why error) {
	verdict = VerdictUnavailable
	stored, isStored := errors.AsType[*StoredAnswer](err)
	exists, isDedup := errors.AsType[dedupError](err)
	unmet, isUnmet := errors.AsType[*UnmetError](err)
	switch {
	case isStored:
		verdict, answer, why = c.found(stored)
	case isDedup:
		verdict = Verdict(exists)
	case errors.Is(err, ErrInUse):
		verdict = VerdictInUse
		c.gate.record.Once(c.Decision.Rule, OnceInUse)
	case errors.Is(err, ErrBusy):
		verdict = VerdictBusy
	case errors.Is(err, ErrOverloaded):
		verdict = VerdictOverloaded
	case isUnmet:
		verdict, c.Decision.Condition = VerdictNotReady, unmet.Condition
	}
	return verdict, answer, why
}

func (c *Call) decide(v Verdict) { c.decideAfter(v, c.gate.now().Sub(c.start)) }

// decideAfter counts a verdict that took so long.
func (c *Call) decideAfter(v Verdict, took time.Duration) {
	d := &c.Decision
	d.Verdict = v
	if c.NeedsLock && v != VerdictLost {
		d.Waited = took
	}
	c.gate.record.Decided(d.Rule, d.Action, v, d.Observed, took, c.gate.exemplar(&c.origin))
	span := SpanCheck
	if c.policy.HasLock() {
		span = SpanSettle
	}
	if c.lease == nil { // otherwise at the end of the call
		c.report(d, span)
	}
}

// onUnsent handles that the backend did not get the request.
func (c *Call) onUnsent() {
	c.forwarded, c.mayCreate = false, false
	c.releaseOrHold(c.onBracket(unsent, OutcomeUnknown))
}

// onResponse handles the headers of an answer.
func (c *Call) onResponse(r *Response, unseen bool) Step {
	if c.isAnswered && c.bracket.isCutOff() { // by an answer of Envoy's own
		c.unknownReason = answerCutOff
		c.onBracket(response, OutcomeUnknown)
	}
	switch c.stage {
	case atBody:
		return c.onUnseenBody(r, unseen)
	case atCollect: // an answer of Envoy's own, in place of the one that is collected
		return c.collected(errPartial)
	case atLearn, atStore: // likewise
		return Step{Do: Wait}
	case atRefusal, atEnd:
		if !c.NeedsLock {
			return Step{Do: PassResponse}
		}
	}
	if c.lookup != nil {
		return c.onLookedUp(r)
	}
	if c.isAnswered { // a later answer is Envoy's own, and says nothing about the first
		return c.pass()
	}
	c.onAnswer(r)
	r.Ended = r.Ended || c.once != nil && c.once.length == 0 // a client takes it for complete
	if r.Ended {
		c.completeAnswer()
	}
	if c.mayHaveCreated() {
		if s := c.onCreated(r, unseen); s.Do != PassResponse {
			return s
		}
	}
	return c.pass()
}

// onAnswer handles the headers of the first answer.
func (c *Call) onAnswer(r *Response) {
	c.isAnswered, c.grpcAnswer, c.status = true, r.GRPC, r.Status
	if r.Ended {
		c.grpcStatus = r.GRPCStatus
	}
	c.readings = c.policy.Answers.readOutcome(r)
	outcome := r.Outcome()
	if outcome == OutcomeUnknown {
		c.unknownReason = r.unknownReason()
	}
	if c.once != nil {
		c.once.begin(r)
	}
	c.onBracket(response, outcome)
}

// onUnseenBody handles an answer that arrived in place of the request's body. It may be
// Envoy's own answer, to a request that it dropped before the body arrived. Then nothing
// happened. Otherwise Envoy forwarded the request as it was: a create is learned, and the answer to a
// settlement is refused, because no lock protected it.
func (c *Call) onUnseenBody(r *Response, unseen bool) Step {
	c.stage, c.isAnswered = atAnswer, true
	s := Step{Do: PassResponse, Done: true}
	switch {
	case !r.forwarded():
		c.mayCreate = false
		return s
	case c.NeedsAnswer && c.policy.Create != nil:
		c.onAnswer(r)
		if s = c.onCreated(r, unseen); s.Do == PassResponse {
			s = c.pass()
		}
	case c.NeedsAnswer && c.policy.HasLock():
		if c.decide(VerdictUnlocked); !c.policy.Observe {
			s = c.refuse(nil)
		}
	}
	s.Unlocked = true
	return s
}

// onResponseBody handles a piece of the answer's body.
func (c *Call) onResponseBody(e *Event) Step {
	// By its length, for Envoy may report the end too late.
	end := c.once != nil && !c.once.decided && c.isAnswered && c.addBody(e.Body) || e.End
	if end {
		c.completeAnswer()
	}
	return c.onPiece(e.Body, end, e.Cut)
}

// onPiece goes on with a piece of the answer's body. That of a create is collected although Envoy has not shown
// the headers.
func (c *Call) onPiece(piece []byte, end, cut bool) Step {
	if c.stage == atBackend && c.mayHaveCreated() {
		c.stage = atCollect
	}
	switch c.stage {
	case atCollect:
		switch c.body = append(c.body, piece...); {
		case end:
			return c.collected(nil)
		case cut, len(c.body) > maxAnswer:
			return c.collected(errPartial)
		}
		return Step{Do: Wait}
	case atLearn, atStore:
		return Step{Do: Wait}
	}
	return c.pass()
}

// maxAnswer bounds the part of an answer that is collected, in bytes. It is Envoy's default buffer size.
const maxAnswer = 1 << 20

// ReadsBody reports whether the call needs the pieces of the answer's body, and not their end alone.
func (c *Call) ReadsBody() bool { return c.stage == atCollect || c.once != nil && !c.once.decided }

// onResponseTrailers handles the end of an answer by trailers. A stored answer has none.
func (c *Call) onResponseTrailers(grpcStatus string) Step {
	c.grpcStatus = grpcStatus
	c.completeAnswer()
	if c.once != nil && !c.once.decided {
		c.once.unfit = "it ends in trailers"
	}
	return c.onPiece(nil, true, false)
}

// onDelayed goes on with the part of an answer that has arrived: the backend may still be at work.
func (c *Call) onDelayed() Step {
	if c.stage != atCollect {
		return Step{}
	}
	return c.collected(errSlow)
}

// collect has the body of an answer read.
func (c *Call) collect() Step {
	if c.NeedsLock {
		return Step{Do: ReadResponse, Show: ShowBodyToEnd}
	}
	return Step{Do: ReadResponse, Show: ShowBody}
}

// collected goes on with the body of an answer. If that is not whole, why says what became of the rest.
func (c *Call) collected(why error) Step {
	body := c.body
	c.body = nil
	if c.lookup != nil {
		return c.onLookupRead(body, why == nil)
	}
	return c.learn(func(ctx context.Context) learned { return c.learnBody(ctx, body, why) })
}

// pass passes the answer on, as far as it has arrived. If it ends, and is stored, that is done before the
// client sees its end: a client that has seen all of an answer gets it again.
func (c *Call) pass() Step {
	switch c.stage {
	case atBackend, atCollect, atLearn:
		c.stage = atAnswer
	}
	if c.decideStored() {
		c.stage = atStore
		return Step{Do: Wait, Work: Store}
	}
	return Step{Do: PassResponse, Done: !c.NeedsLock, Metadata: c.news()}
}

// completeAnswer handles that all of the answer has arrived. It may still wait before it is passed on. An answer
// of gRPC counts as cut off if its status does not prove that the backend has finished.
func (c *Call) completeAnswer() {
	if c.grpcAnswer && !isKnownGRPC(c.grpcStatus) {
		if c.bracket.state == answered && c.bracket.isCutOff() {
			c.unknownReason = grpcReason(c.grpcStatus)
		}
		return
	}
	if c.gate.tracer != nil && c.completed == 0 {
		c.completed = c.gate.now().Sub(c.start)
	}
	c.onBracket(completed, OutcomeUnknown)
}

// onLeaseLost ends a call whose lease is lost or reaches its maximum hold time. If the call is not
// answered yet, the gate ends it with an answer of its own. Envoy then drops the unsent part of the request,
// because another call may run from now on. If its answer has begun, Envoy resets the call.
// The outcome is unknown. If the lease was lost during the answer, there is nothing left to
// hold, and the answer may still be stored: the call goes on.
func (c *Call) onLeaseLost() Step {
	if c.policy.Observe || c.bracket.state == answered && c.lease.Ended() || c.bracket.on(lost, OutcomeUnknown) != endCall {
		return Step{}
	}
	c.unknownReason = "the call was ended because its lease ended first"
	c.decideAfter(VerdictLost, 0) // the call ran until now, and nothing waited for this
	c.gate.problems.lost(c)
	return c.refuse(nil)
}

// onStreamEnded handles the end of the stream.
func (c *Call) onStreamEnded(last *Response) (s Step) {
	stage := c.stage
	if stage == atEnd {
		return Step{}
	}
	c.stage = atEnd
	if stage == atLearn && c.bracket.state == complete { // until the order is known, the lock keeps another create of it away
		s.Metadata = c.news()
		return s
	}
	if last != nil && c.NeedsLock && !c.isAnswered {
		c.onAnswer(last)
	}
	s.CutOff = c.bracket.isCutOff()
	breaksOff := s.CutOff && c.bracket.state == answered
	if breaksOff {
		c.unknownReason = cmp.Or(c.unknownReason, answerCutOff)
	}
	s.Unfinished = c.bracket.state == running || breaksOff || stage == atCollect && c.lookup == nil
	c.releaseOrHold(c.onBracket(streamEnded, OutcomeUnknown))
	s.Metadata = c.news()
	if !c.mayHaveCreated() || last != nil && last.Outcome() == OutcomeNotForwarded || stage == atBody && c.hidesPath() {
		return s // the backend certainly has no such request
	}
	if stage == atCollect {
		s.Work = c.collected(errNoAnswer).Work
	} else {
		s.Work = c.learnUnanswered().Work
	}
	return s
}

// fail holds the lock of a call in which a fault occurred: nothing is known of its state. A lock that is
// still waited for is released, and what may have been created is a doubt at the end.
func (c *Call) fail(e *Event) {
	lease := c.lease
	if e.Kind == Granted && e.Grant.Lease != nil {
		lease = e.Grant.Lease
	}
	c.onBracket(streamEnded, OutcomeUnknown)
	c.stage, c.NeedsLock, c.mayCreate = atRefusal, false, c.mayHaveCreated()
	if lease != nil {
		lease.Hold(inFault)
	}
}

const inFault = "a fault in ordergate"

// faultError is the error of work in which a fault (a panic) occurred.
func faultError(fault any) error { return fmt.Errorf("%s: %v", inFault, fault) }

// onBracket applies an event to the bracket of a call with a lock. The stream is over, or Envoy has
// answered, if it gives up the wait.
func (c *Call) onBracket(e event, o Outcome) effect {
	if !c.NeedsLock {
		return nothing
	}
	effect := c.bracket.on(e, o)
	if effect == cancel && c.stopWaiting != nil {
		c.stopWaiting()
	}
	return effect
}

// mayHaveCreated reports whether a create was forwarded, and its order is not learned yet.
func (c *Call) mayHaveCreated() bool { return c.mayCreate && (c.forwarded || !c.NeedsLock) }

// Observed reports whether the call is not enforced.
func (c *Call) Observed() bool { return c.policy.Observe }

// Rule returns the name of the call's rule. The call must have one.
func (c *Call) Rule() string { return c.policy.Rule.Name }

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

// release releases the call's locks, and ends its span when Redis has replied.
func (c *Call) release(then func(error)) {
	if c.gate.tracer == nil {
		c.lease.Release(then)
		return
	}
	t := c.trace(&c.Decision, SpanSettle)
	g, start := c.gate, t.End
	c.lease.Release(func(err error) {
		t.End = g.now()
		t.Failed = t.Failed || err != nil
		t.Parts = append(t.Parts, Span{SpanRelease, start, t.End})
		g.tracer.Trace(t)
		then(err)
	})
}
