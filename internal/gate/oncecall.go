package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// answerNumbers returns from which number on the answer of a key counts, for each of its orders: their fences. A
// call within another one may come after marks of that one, which is about to undo what was settled before.
func (c *Call) answerNumbers(ctx context.Context, g *Grant) ([]int64, error) {
	if g.key == nil {
		return nil, nil
	}
	fences := g.order.Fences()
	if c.lockRequest.PresentedLease == "" {
		return fences, nil
	}
	numbers, err := c.policy.Settle.Lock.Marked(ctx, c.lockRequest.IDs)
	for i := range numbers {
		numbers[i] = max(numbers[i], fences[i])
	}
	return numbers, err
}

// marks reports whether the call goes on without its lock, and marks what it undoes.
func (c *Call) marks() bool { return c.policy.Observe && c.undoes() && c.hasOrder() }

// undoes reports whether the call deletes stored answers if it succeeds. They are suspended before
// it is forwarded: only its end shows whether they are still true.
func (c *Call) undoes() bool {
	return c.once != nil && c.once.order != nil && len(c.once.order.Forget) > 0
}

// dedupError is the verdict of a [Dedup] that refuses a create which has its locks.
type dedupError Verdict

// Error implements error.
func (e dedupError) Error() string { return "the order of the create: " + Verdict(e).String() }

// keptByOrder returns the error of the key's lock, for a call that has an order too. The stored answer of
// a key is withheld if the order's settlement was undone since, or may be.
func (c *Call) keptByOrder(ctx context.Context, err error) error {
	stored, ok := errors.AsType[*StoredAnswer](err)
	if !ok || !c.hasOrder() || c.undoes() { // a mark may be its own
		return err
	}
	r, _, readErr := readAnswer(stored.Text)
	if readErr != nil || len(r.Fences) != len(c.lockRequest.IDs) {
		return err
	}
	name := ""
	if c.once.order != nil {
		name = c.once.order.Name
	}
	switch undone, failed := c.policy.Settle.Lock.Undone(ctx, c.lockRequest.IDs, name, r.Fences); {
	case failed != nil:
		return failed
	case undone:
		return &StoredAnswer{Withheld: true}
	}
	return err
}

// hasKey reports whether the call has a key of its own.
func (c *Call) hasKey() bool { return c.once != nil && c.once.key != nil }

// hasOrder reports whether the call needs the lock of an order.
func (c *Call) hasOrder() bool { return c.policy.Settle != nil && len(c.lockRequest.IDs) > 0 }

// OnceKey returns the key of the lock of the request's key, or "".
func (c *Call) OnceKey() string {
	if !c.hasKey() {
		return ""
	}
	return c.policy.Once.Key.Lock.Key(c.once.keyID)
}

// keyError marks an error of the key's lock.
func keyError(err error) error {
	if stored, ok := errors.AsType[*StoredAnswer](err); ok {
		stored.byKey = true
	}
	if errors.Is(err, ErrBusy) {
		return fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return err
}

// found returns the verdict on a call that found a stored answer, and the answer for the
// client, if it is for the call.
func (c *Call) found(stored *StoredAnswer) (verdict Verdict, answer *Answer, err error) {
	once, own := c.once.order, &c.once.brief
	if stored.byKey {
		once = c.once.key
	}
	r, body, err := readAnswer(stored.Text)
	result := OnceDuplicate
	verdict = VerdictDuplicate
	switch {
	case stored.Withheld, slices.ContainsFunc(stored.All, func(text string) bool { return !c.isOfBatch(text) }):
	case err != nil:
		return VerdictUnavailable, nil, err
	case r.Rule != own.Rule || r.Orders != own.Orders || r.Status == 0 && !c.policy.Observe,
		!stored.byKey && r.Caller != own.Caller, !c.once.varying.fit(r.Vary):
	case stored.byKey && r.Subject != "" && r.Subject != own.Subject, once.Fingerprint && r.Request != "" && r.Request != own.Request: // "": it was stored without one
		verdict, result = VerdictMismatch, OnceMismatch
	case r.Head && !c.once.head:
	default:
		verdict, result, c.repeats, answer = VerdictReplayed, OnceReplayed, r.Trace, r.answer(body, c.gate.now())
	}
	c.gate.record.Once(c.Decision.Rule, result)
	return verdict, answer, nil
}

// isOfBatch reports whether a text is stored for all orders of the call together. One of them may
// have been undone since, and settled anew.
func (c *Call) isOfBatch(text string) bool {
	r, _, err := readAnswer(text)
	return err == nil && r.Orders == c.once.brief.Orders
}

// storedName returns the name of the call's stored answers. Answers to different requests do not
// meet if they are for equal ones that came meanwhile.
func (c *Call) storedName(once *Once) string {
	if once.Meanwhile && once.Fingerprint {
		return once.Name + "." + c.once.brief.Request
	}
	return once.Name
}

// AnswerPlace is where the answer of an earlier call may be stored.
type AnswerPlace struct {
	LockKey string // of the lock that it is beside
	Name    string
}

// AnswerPlaces returns where Acquire looks for stored answers.
func (c *Call) AnswerPlaces() (places []AnswerPlace) {
	if c.hasKey() {
		places = append(places, AnswerPlace{c.once.key.Key.Lock.Key(c.once.keyID), c.once.key.Name})
	}
	if c.once != nil && c.once.order != nil && c.once.order.Name != "" {
		for _, id := range c.lockRequest.IDs {
			places = append(places, AnswerPlace{c.policy.Settle.Lock.Key(id), c.storedName(c.once.order)})
		}
	}
	return places
}

// decideStored reports, once, that something is stored of an answer that has ended. The work Store releases the
// locks then, and the bracket is closed. It logs why an answer is unfit to be stored.
func (c *Call) decideStored() bool {
	if c.once == nil || c.once.decided || c.bracket.state != complete || c.bracket.outcome != OutcomeKnown || c.lease == nil {
		return false
	}
	why := ""
	o := c.once
	o.decided = true
	o.both(func(once *Once) {
		result, unfit := c.storable(once)
		why = cmp.Or(why, unfit)
		if result == OnceStatus {
			c.gate.record.Once(c.Decision.Rule, result)
			if o.grant.order != nil && len(once.Forget) > 0 && !c.failed() {
				o.grant.order.KeepSuspended()
			}
			return
		}
		change := onceChange{once: once, result: result}
		if result != OnceForgotten {
			r := answerRecord{answerBrief: o.brief, At: c.gate.now().UnixMilli()}
			if c.gate.exemplar(&c.origin) != "" {
				r.Trace = c.origin.parent
			}
			if once.Key != nil {
				r.Fences = o.grant.numbers
			}
			change.brief = r.text(nil)
			change.text = change.brief
			if result == OnceStored && !c.policy.Observe {
				r.Status, r.Vary, r.Head = c.status, o.varying.hashes(o.vary), o.head
				r.Headers = slices.DeleteFunc(slices.Clone(o.headers), func(h [2]string) bool { return !once.storesHeader(h[0]) })
				change.text = r.text(o.body)
			}
		}
		o.changes = append(o.changes, change)
	})
	if len(o.changes) > 0 {
		c.bracket.on(storing, OutcomeKnown)
	}
	if why != "" {
		c.gate.problems.notStored(c, "reason", why)
	}
	return len(o.changes) > 0
}

// store releases the call's locks and stores its answer. It does not block. It calls then once, in another
// goroutine, when Redis has replied, or before it returns. With an error, the answer may be missing.
func (c *Call) store(then func(error)) {
	defer func() {
		if fault := recover(); fault != nil {
			c.lease.Hold(inFault)
			then(faultError(fault))
		}
	}()
	for _, change := range c.once.changes {
		lease := c.once.grant.order
		if change.once.Key != nil {
			lease = c.once.grant.key
		}
		switch {
		case lease == nil:
		case change.result == OnceForgotten:
			lease.ForgetAnswers(change.once.Keep, change.once.undoes()...)
		default:
			lease.StoreAnswer(c.storedName(change.once), change.text, change.brief, change.once.Keep)
		}
	}
	c.release(then)
}

func (c *Call) onStored(err error) Step {
	for _, change := range c.once.changes {
		result := change.result
		if err != nil {
			result = OnceFailed
		}
		c.gate.record.Once(c.Decision.Rule, result)
	}
	c.gate.record.Closed(c.Decision.Rule, OutcomeKnown, c.Decision.Observed)
	c.log(&c.Decision)
	if err != nil {
		c.gate.problems.notStored(c, "error", err)
	}
	if c.stage != atStore {
		return Step{}
	}
	c.stage = atAnswer
	return Step{Do: PassResponse, Metadata: c.news()}
}
