package gate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// Learn is the location of the new ID in an answer: either Header or JSON. Neither: no answer has it.
type Learn struct {
	Header  string         // a response header, in lower case
	JSON    []string       // the path of a member of the response body
	Capture *regexp.Regexp // its one group matches the ID in that text; nil: the text is the ID
}

// createCall is what a call knows of the order that it may create.
type createCall struct {
	namedText  string   // the ID in the request, as it spells it; "": none
	idPrefix   string   // of the ID to learn: the parts in the request
	answer     Response // as far as it has arrived
	headerText string   // what [Learn] finds in the headers, of an answer whose body is read, too
	encoded    bool     // the answer's body may be encoded

	toLearn func(context.Context) learned // the work of learning
}

// onCreated handles the headers of the answer to a create. Unseen: Envoy may pass its body on without
// showing it.
func (c *Call) onCreated(r *Response, unseen bool) Step {
	if r.GRPC {
		r = r.asHTTP()
	}
	c.create.answer, c.status = *r, r.Status
	c.create.answer.Header = nil // valid during this event only
	switch {
	case r.madeNoOrder():
		c.mayCreate = false
		c.logCreate()
		return Step{Do: PassResponse}
	case c.readings.means(nil, false).failed():
		c.mayCreate = false
		c.gate.record.Learned(c.Decision.Rule, ErrFailed)
		c.logCreate()
		return Step{Do: PassResponse}
	case r.Details != "" && r.Details != detailsViaUpstream: // Envoy's own answer
		return c.learnUnanswered()
	case !c.learnsBody() && !c.awaitsEnd(r):
		text := c.textInHeader(r.Header)
		return c.learn(func(ctx context.Context) learned { return c.learnText(ctx, text, nil) })
	case r.Header == nil:
	case len(c.policy.Create.Learn.JSON) == 0:
		c.create.headerText = c.textInHeader(r.Header)
	default:
		c.create.encoded = hasHeader(r.Header, "content-encoding", isEncoding)
	}
	if r.Ended {
		return c.collected(nil)
	}
	c.stage = atCollect
	if unseen && c.policy.Create.Filter.Followed() {
		return Step{Do: Wait, Work: CatchUp}
	}
	return c.collect()
}

// learnOrMark does the work of learning. After a fault in it, no order is absent.
func (c *Call) learnOrMark(ctx context.Context) (l learned) {
	defer func() {
		if fault := recover(); fault != nil {
			l.err = faultError(fault)
			defer func() { _ = recover() }() // a second one must not hold the answer back for good
			l.err = errors.Join(l.err, c.policy.Create.Filter.MarkIncomplete(ctx, l.err.Error(), c.earliestCreation()))
		}
	}()
	return c.create.toLearn(ctx)
}

func (c *Call) onCaughtUp(err error) Step {
	c.gate.problems.unlearned(c, err)
	if c.stage != atCollect {
		return Step{}
	}
	return c.collect()
}

// learned is the result of learning.
type learned struct {
	id         string // of the new order; "": it was not read
	none       bool   // the answer's body says that there is no order
	err        error  // for the log: the answer goes on to the client in any case
	start, end time.Time
}

// learn has an order learned, before its answer is passed on.
func (c *Call) learn(work func(context.Context) learned) Step {
	c.mayCreate, c.create.toLearn = false, work
	if c.stage != atEnd {
		c.stage = atLearn
	}
	return Step{Do: Wait, Work: LearnOrder}
}

// learnUnanswered has a doubt made of a create without an answer of the backend.
func (c *Call) learnUnanswered() Step {
	return c.learn(func(ctx context.Context) learned { return c.learnText(ctx, "", errNoAnswer) })
}

func (c *Call) onLearned(l *learned) Step {
	c.learnedID, c.create.toLearn = l.id, nil
	if !l.none {
		c.traceLearned(l)
	}
	c.gate.problems.unlearned(c, l.err)
	c.logCreate()
	if c.stage == atLearn {
		return c.pass()
	}
	if c.stage != atEnd || c.bracket.state != complete {
		return Step{}
	}
	// The client left when the answer had ended, and the lock has waited for the order.
	if c.decideStored() {
		return Step{Work: Store}
	}
	c.releaseOrHold(c.onBracket(streamEnded, OutcomeUnknown))
	return Step{}
}

// logCreate logs what became of a create. With a lock, that is logged at its end.
func (c *Call) logCreate() {
	if !c.NeedsLock {
		c.log(&c.Decision)
	}
}

// textInHeader returns a copy of the response header that holds the new ID. It returns "" if
// there is none, or if several have different values: clients differ in which one they use.
func (c *Call) textInHeader(h order.Header) (text string) {
	for name, value := range order.All(h) {
		switch {
		case name != c.policy.Create.Learn.Header:
		case text != "" && text != value:
			return ""
		default:
			text = value
		}
	}
	return strings.Clone(text)
}

// learnsBody reports whether the response's body holds the new ID, or tells whether there is one,
// or whether the gate awaits its end with any headers.
func (c *Call) learnsBody() bool {
	create := c.policy.Create
	return create != nil && (len(create.Learn.JSON) > 0 || c.policy.Answers.readsBody() || create.Learn.Header == "" && !c.Decision.GRPC)
}

// awaitsEnd reports whether the headers of an answer name no order, and the order's table does: the
// backend may commit as long as it writes the answer. The end of gRPC's answer is in trailers.
func (c *Call) awaitsEnd(r *Response) bool {
	if r.GRPC || r.Header == nil || !c.policy.Create.Filter.Followed() {
		return false
	}
	_, err := c.newID(c.textInHeader(r.Header), nil)
	return err != nil
}

// learnBody learns the ID of an answer with this body. If that is not whole, why says what became of the rest.
func (c *Call) learnBody(ctx context.Context, body []byte, why error) learned {
	if why == nil && c.readings.means(body, true).failed() {
		c.gate.record.Learned(c.Decision.Rule, ErrFailed)
		return learned{none: true}
	}
	text, err := c.textIn(body)
	if err == nil && why != nil {
		_, err = c.newID(text, nil)
	}
	if err != nil && why != nil {
		err = fmt.Errorf("%w: %w", why, err)
	}
	return c.learnText(ctx, text, err)
}

// catchUp is for an answer whose body Envoy may pass on without showing it. Where the order's
// table is followed, it blocks until every instance has the orders that exist by now, or until every
// instance answers Unknown.
func (c *Call) catchUp(ctx context.Context) error {
	f := c.policy.Create.Filter
	if f.CaughtUp(ctx) {
		return nil
	}
	return f.MarkIncomplete(ctx, errPartial.Error(), c.earliestCreation())
}

// textIn returns the text of the answer that holds the new ID, of which the body has come.
func (c *Call) textIn(body []byte) (string, error) {
	path := c.policy.Create.Learn.JSON
	if len(path) == 0 {
		return c.create.headerText, nil
	}
	text, kind, err := member(body, path)
	if err == nil && kind != '"' && kind != '0' {
		err = fmt.Errorf("member %q of the answer is neither a string nor a number", path[len(path)-1])
	}
	switch {
	case err == nil:
	case c.create.answer.GRPC:
		err = errProtobuf
	case c.create.encoded:
		err = errEncoded
	}
	return text, err
}

// isEncoding reports whether a Content-Encoding says that a body is encoded. A decompressor in front
// may have decoded it.
func isEncoding(value string) bool { return value != "" && !strings.EqualFold(value, "identity") }

// Why an answer has no ID when it did not end: the backend may still be at work, even if
// the answer began well.
var (
	errNoAnswer = errors.New("the client or Envoy ended the call before the backend's answer") // or within it
	errProtobuf = errors.New("the answer is a message of gRPC, which is not read: have the backend send the ID as initial metadata, and learn it by response_header")
	errEncoded  = errors.New("the answer has a Content-Encoding, although the request accepts none: have the backend send it plain")
	errPartial  = errors.New("the answer was cut off, is larger than the buffer, or takes too long")
	errSlow     = fmt.Errorf("%w", errPartial)
)

// learnText makes the new order known, by the text of its answer. If its ID cannot be read, or if there
// may be more orders, then absence proves nothing from now on. It blocks until every instance knows the
// ID, or answers Unknown, or until ctx ends. It changes nothing of the call, whose next events may come
// meanwhile.
func (c *Call) learnText(ctx context.Context, text string, err error) learned {
	l := learned{start: c.gate.now()}
	// A client that has an answer of the backend may know of an order.
	answered := !errors.Is(err, errNoAnswer) && !c.create.answer.fromGateway()
	known := answered && c.create.answer.Outcome() == OutcomeKnown
	id, err := c.newID(text, err)
	filter := c.policy.Create.Filter
	var why error // why the ID was not read
	switch {
	case err == nil:
		l.id = id
		err = filter.Learn(ctx, id)
		if c.create.answer.retried() && !filter.Followed() {
			err = errors.Join(err, filter.Abandoned(ctx, "an earlier attempt may make another order: "+c.create.answer.unknownReason(), c.start))
		}
	case answered && !errors.Is(err, errSlow) && filter.Followed() && filter.CaughtUp(ctx):
		why, err = ErrByTable, nil
	case known && errors.Is(err, errPartial): // the answer is passed on, so the client may see the ID
		why = ErrUnnamed
		err = errors.Join(err, filter.MarkIncomplete(ctx, err.Error(), c.earliestCreation()), filter.Abandoned(ctx, err.Error(), c.earliestCreation()))
	case known:
		why = ErrUnnamed
		err = errors.Join(err, filter.MarkIncomplete(ctx, err.Error(), c.earliestCreation()))
	default:
		why = ErrAbandoned
		reason := err.Error()
		if c.create.answer.Status != 0 && c.create.answer.Outcome() != OutcomeKnown {
			reason += ": " + c.create.answer.unknownReason()
		}
		var failed error
		// A table that is followed sends the order when the backend commits it. With a doubt, one
		// aborted create a minute could stop the rejection of absent IDs.
		if answered || !filter.Followed() {
			failed = filter.Abandoned(ctx, reason, c.earliestCreation())
		}
		if failed != nil || c.create.answer.Status != 0 {
			err = errors.Join(err, failed)
		} else {
			err = nil // a client can cause it by leaving
		}
	}
	c.gate.record.Learned(c.Decision.Rule, errors.Join(why, err))
	if err != nil {
		l.err = &learnError{fmt.Errorf("rule %s: learning the new order: %w", c.policy.Rule.Name, err), why}
	}
	l.end = c.gate.now()
	return l
}

// learnError is an error with why there is no ID, for [errors.Is]; nil: there is one.
type learnError struct {
	error
	why error
}

func (e *learnError) Unwrap() []error { return []error{e.error, e.why} }

// earliestCreation returns the earliest time at which the call's order was created. Zero:
// the answer says that the order existed before.
func (c *Call) earliestCreation() time.Time {
	if c.create.answer.Status == http.StatusConflict {
		return time.Time{}
	}
	return c.start
}

// newID returns the ID in the text of an answer. If the answer says that the order existed
// before, the ID may come from the request.
func (c *Call) newID(text string, err error) (string, error) {
	create := c.policy.Create
	if err == nil && text == "" {
		err = errors.New("the answer names no order")
	}
	if err == nil && create.Learn.Capture != nil {
		text, err = create.Learn.capture(text)
	}
	if err == nil {
		_, ok := create.Format.Canonical(text)
		switch {
		case ok && c.create.idPrefix == "" && len(c.policy.Rule.Parts) > 0:
			return "", errNoParts
		case ok:
			return c.create.idPrefix + text, nil // as it is: other rules may have another canonical form
		}
		err = errors.New("the ID in the answer does not have the rule's format")
	}
	if c.create.namedText != "" && c.create.answer.Status == http.StatusConflict && c.create.answer.Outcome() == OutcomeKnown {
		return c.create.namedText, nil
	}
	return "", err
}

// errNoParts is why the ID in an answer is no whole ID: in observe mode the gate passes a
// request that lacks a part, and an adapter may not see the body that has it.
var errNoParts = errors.New("the request does not name the parts of the new order's ID, or not in one way")

// capture returns the text that the pattern's group matches. Envoy joins several lines of
// some headers, Location among them, with commas. So no part between commas may name
// another ID.
func (l *Learn) capture(text string) (string, error) {
	found := l.Capture.FindStringSubmatch(text)
	if found == nil {
		return "", errors.New("the answer does not match the rule's pattern")
	}
	if l.Header == "" {
		return found[1], nil
	}
	for part := range strings.SplitSeq(text, ",") {
		if other := l.Capture.FindStringSubmatch(strings.TrimSpace(part)); other != nil && other[1] != found[1] {
			return "", errors.New("the answer matches the rule's pattern in several ways")
		}
	}
	return found[1], nil
}
