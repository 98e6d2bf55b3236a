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

// Part is the part of a create's answer that holds the new ID.
type Part int8

// The parts.
const (
	NoPart     Part = iota // the call certainly made no order
	HeaderPart             // call LearnHeader
	BodyPart               // call LearnBody
)

// Created reports the headers of the answer to a create. It returns NoPart only if there is
// certainly no order.
func (c *Call) Created(r *Response) Part {
	if r.GRPC {
		r = r.asHTTP()
	}
	c.policy.Answers.note(r)
	c.answer, c.readings, c.status = *r, c.policy.Answers.readOutcome(r), r.Status
	c.answer.Header = nil // valid during this call only
	switch {
	case r.madeNoOrder():
		c.mayCreate = false
		c.logCreate()
		return NoPart
	case c.readings.means(nil, false).failed():
		c.madeNone()
		return NoPart
	case (c.LearnsBody() || c.awaitsEnd(r)) && r.mayBeFromBackend():
		switch {
		case r.Header == nil:
		case len(c.learnsJSON) == 0:
			c.headerText = c.HeaderText(r.Header)
		default:
			c.encoded = hasHeader(r.Header, "content-encoding", isEncoding)
		}
		return BodyPart
	}
	return HeaderPart
}

// madeNone notes that the create made no order, by the rule's answer.
func (c *Call) madeNone() {
	c.mayCreate = false
	c.gate.record.Learned(c.Decision.Rule, ErrFailed)
	c.logCreate()
}

// logCreate logs what became of a create. With a lock, that is logged at its end.
func (c *Call) logCreate() {
	if !c.NeedsLock {
		c.log(&c.Decision)
	}
}

// HeaderText returns a copy of the response header that holds the new ID. It returns "" if
// there is none, or if several have different values: clients differ in which one they use.
func (c *Call) HeaderText(h order.Header) (text string) {
	for cursor := 0; ; {
		name, value, next := h.Next(cursor)
		switch {
		case next < 0:
			return strings.Clone(text)
		case name != c.learnsHeader:
		case text != "" && text != value:
			return ""
		default:
			text = value
		}
		cursor = next
	}
}

// LearnsBody reports whether the response's body holds the new ID, or tells whether there is one,
// or whether the gate awaits its end with any headers.
func (c *Call) LearnsBody() bool {
	return len(c.learnsJSON) > 0 || c.policy.Create != nil && (c.policy.Answers.readsBody() || c.learnsHeader == "" && !c.Decision.GRPC)
}

// awaitsEnd reports whether the headers of an answer name no order, and the order's table does: the
// backend may commit as long as it writes the answer. The end of gRPC's answer is in trailers.
func (c *Call) awaitsEnd(r *Response) bool {
	if r.GRPC || r.Header == nil || !c.policy.Create.Filter.Followed() {
		return false
	}
	_, err := c.newID(c.HeaderText(r.Header), nil)
	return err != nil
}

// LearnHeader learns the ID from the header text that HeaderText returned. It blocks until
// every instance knows the ID, or until every instance answers Unknown, or until ctx ends.
// The answer goes on to the client in any case; the error is for the log.
func (c *Call) LearnHeader(ctx context.Context, text string) error {
	if !c.answer.mayBeFromBackend() {
		return c.learn(ctx, "", errNoAnswer)
	}
	return c.learn(ctx, text, nil)
}

// LearnBody does the same for a body. Partial means that the body was cut off.
func (c *Call) LearnBody(ctx context.Context, body []byte, partial bool) error {
	if !partial && c.readings.means(body, true).failed() {
		c.madeNone()
		return nil
	}
	if partial {
		return c.learnPart(ctx, body, errPartial)
	}
	text, err := c.textIn(body)
	return c.learn(ctx, text, err)
}

// LearnUnseen is for an answer whose body Envoy may pass on without showing it. Where the order's
// table is followed, it blocks until every instance has the orders that exist by now, or until every
// instance answers Unknown. Call LearnBody or StreamEnded after it.
func (c *Call) LearnUnseen(ctx context.Context) error {
	f := c.policy.Create.Filter
	if !f.Followed() || f.CaughtUp(ctx) {
		return nil
	}
	return f.MarkIncomplete(ctx, errPartial.Error(), c.earliestCreation())
}

// LearnBegun is LearnBody for the begin of a body whose end does not come in time: the backend
// may still be at work.
func (c *Call) LearnBegun(ctx context.Context, part []byte) error {
	return c.learnPart(ctx, part, errSlow)
}

func (c *Call) learnPart(ctx context.Context, part []byte, why error) error {
	text, err := c.textIn(part)
	if err == nil {
		_, err = c.newID(text, nil)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", why, err)
	}
	return c.learn(ctx, text, err)
}

// textIn returns the text of the answer that holds the new ID, of which the body has come.
func (c *Call) textIn(body []byte) (string, error) {
	if len(c.learnsJSON) == 0 {
		return c.headerText, nil
	}
	text, err := memberText(body, c.learnsJSON)
	switch {
	case err == nil:
	case c.answer.GRPC:
		err = errProtobuf
	case c.encoded:
		err = errEncoded
	}
	return text, err
}

// isEncoding reports whether a Content-Encoding says that a body is encoded. A decompressor in front
// may have decoded it.
func isEncoding(value string) bool { return value != "" && !strings.EqualFold(value, "identity") }

// StreamEnded reports that the stream of a create is over after its request was forwarded.
// Last is Envoy's information about the end, or nil. If the answer was learned before, or
// if the call failed, it does nothing. Otherwise it blocks and returns as LearnHeader does.
func (c *Call) StreamEnded(ctx context.Context, last *Response) error {
	if !c.MayCreate() || last != nil && last.Outcome() == OutcomeNotForwarded {
		return nil
	}
	return c.learn(ctx, "", errNoAnswer)
}

// StreamEndedInBody is StreamEnded for a stream that ended within the answer's body. Part
// is the body so far.
func (c *Call) StreamEndedInBody(ctx context.Context, part []byte) error {
	return c.learnPart(ctx, part, errNoAnswer)
}

// Why an answer has no ID when it did not end: the backend may still be at work, even if
// the answer began well.
var (
	errNoAnswer = errors.New("the client or Envoy ended the call before the backend's answer") // or within it
	errProtobuf = errors.New("the answer is a message of gRPC, which is not read: have the backend send the ID as initial metadata, and learn it by response_header")
	errEncoded  = errors.New("the answer has a Content-Encoding, although the request accepts none: have the backend send it plain")
	errPartial  = errors.New("the answer was cut off, is larger than the buffer, or takes too long")
	errSlow     = fmt.Errorf("%w", errPartial)
)

// learn is learnText, and logs it.
func (c *Call) learn(ctx context.Context, text string, err error) error {
	defer c.logCreate()
	start := c.gate.now()
	err = c.learnText(ctx, text, err)
	c.traceLearned(start, err)
	return err
}

// learnText makes the new order known. If its ID cannot be read, or if there may be more
// orders, then absence proves nothing from now on.
func (c *Call) learnText(ctx context.Context, text string, err error) error {
	c.mayCreate = false
	// A client that has an answer of the backend may know of an order.
	answered := !errors.Is(err, errNoAnswer) && !c.answer.fromGateway()
	known := answered && c.answer.Outcome() == OutcomeKnown
	id, err := c.newID(text, err)
	filter := c.policy.Create.Filter
	var why error // why the ID was not read
	switch {
	case err == nil:
		c.learnedID.Store(&id)
		err = filter.Learn(ctx, id)
		if c.answer.retried() && !filter.Followed() {
			err = errors.Join(err, filter.Abandoned(ctx, "an earlier attempt may make another order: "+c.answer.unknownReason(), c.start))
		}
	case answered && !errors.Is(err, errSlow) && filter.Followed() && filter.CaughtUp(ctx):
		c.gate.record.Learned(c.Decision.Rule, ErrByTable)
		return nil
	case known && errors.Is(err, errPartial): // the answer is passed on, so the client may see the ID
		why = ErrUnnamed
		err = errors.Join(err, filter.MarkIncomplete(ctx, err.Error(), c.earliestCreation()), filter.Abandoned(ctx, err.Error(), c.earliestCreation()))
	case known:
		why = ErrUnnamed
		err = errors.Join(err, filter.MarkIncomplete(ctx, err.Error(), c.earliestCreation()))
	default:
		why = ErrAbandoned
		reason := err.Error()
		if c.answer.Status != 0 && c.answer.Outcome() != OutcomeKnown {
			reason += ": " + c.answer.unknownReason()
		}
		var failed error
		// A table that is followed sends the order when the backend commits it. With a doubt, one
		// aborted create a minute could stop the rejection of absent IDs.
		if answered || !filter.Followed() {
			failed = filter.Abandoned(ctx, reason, c.earliestCreation())
		}
		if failed != nil || c.answer.Status != 0 {
			err = errors.Join(err, failed)
		} else {
			err = nil // a client can cause it by leaving
		}
	}
	c.gate.record.Learned(c.Decision.Rule, errors.Join(why, err))
	if err != nil {
		return &learnError{fmt.Errorf("rule %s: learning the new order: %w", c.policy.Rule.Name, err), why}
	}
	return nil
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
	if c.answer.Status == http.StatusConflict {
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
		case ok && c.idPrefix == "" && len(c.policy.Rule.Parts) > 0:
			return "", errNoParts
		case ok:
			return c.idPrefix + text, nil // as it is: other rules may have another canonical form
		}
		err = errors.New("the ID in the answer does not have the rule's format")
	}
	if c.namedID != "" && c.answer.Status == http.StatusConflict && c.answer.Outcome() == OutcomeKnown {
		return c.namedText, nil
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
