package gate

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// Headers that tell the backend, and the client with an answer of ours, what was
// decided. Nobody else may say these things: the faces remove what a client sent.
const (
	HeaderKey     = "x-ordergate-key"   // of the order's lock
	HeaderFence   = "x-ordergate-fence" // decimal
	HeaderLease   = "x-ordergate-lease" // the lease's owner; see Present
	HeaderVerdict = "x-ordergate-verdict"

	HeaderLeaseLost = "x-ordergate-lease-lost" // to the client: the lease ended before the call
)

// Verdict is what the gate says of a request.
type Verdict int8

// The verdicts. None is that of a request no rule has an opinion on.
const (
	VerdictNone        Verdict = iota
	VerdictAbsent              // the order certainly does not exist
	VerdictMaybe               // it may exist
	VerdictUnknown             // the filter could not tell
	VerdictBusy                // another settles this order
	VerdictInvalid             // the order ID is missing or malformed
	VerdictAmbiguous           // the request names its order more than once
	VerdictUnavailable         // the lock cannot be asked for
	VerdictOverloaded          // the backend may have too much to do yet, or the client has left too often
	VerdictAcquired            // the call holds the order's lock
	VerdictUnlocked            // the backend has answered a settlement that no lock was taken for
	VerdictLost                // the lease ended before the answer, and so the call
	verdicts
)

// Verdicts is the number of verdicts, for tables indexed by one.
const Verdicts = int(verdicts)

var verdictNames = [Verdicts]string{
	"none", "absent", "maybe", "unknown", "busy", "invalid", "ambiguous", "unavailable", "overloaded", "acquired", "unlocked", "lost",
}

// String returns the name that headers, metrics and logs use.
func (v Verdict) String() string { return verdictNames[v] }

// Action is the part of a rule that a verdict came from.
type Action int8

// The actions.
const (
	ActionLookup Action = iota
	ActionCreate
	ActionSettle
	actions
)

// Actions is the number of actions, for tables indexed by one.
const Actions = int(actions)

var actionNames = [Actions]string{"lookup", "create", "settle"}

// String returns the name that metrics and logs use.
func (a Action) String() string { return actionNames[a] }

// Decision is the verdict on one request.
type Decision struct {
	Rule    int // index of the policy; -1 when no rule matches
	Action  Action
	Verdict Verdict
	Reason  order.Reason // why the request is invalid or ambiguous
	Refused bool         // answer with the policy's reply; never set in observe mode
	ID      string       // the canonical ID, if there is one; may share memory with the request
	Offset  int          // of the byte that Reason is about, in its part; -1: no single one
}

// Refusal numbers the answers that a policy can give, so that a face can prepare
// them: one for each reason, and one for each verdict that has none.
type Refusal int

// String returns the name of the reason, or of the verdict that has none.
func (r Refusal) String() string {
	if int(r) < order.Reasons {
		return order.Reason(r).Name()
	}
	return Verdict(int(r) - order.Reasons).String()
}

// Refusals is the number of refusals, for tables indexed by one.
const Refusals = order.Reasons + Verdicts

// Refusal returns which answer to give to a request that is refused.
func (d *Decision) Refusal() Refusal {
	if d.Reason != order.NoReason {
		return Refusal(d.Reason)
	}
	return Refusal(order.Reasons + int(d.Verdict))
}

// Reply returns an answer and its verdict, or false when the policy never gives
// it.
func (p *Policy) Reply(r Refusal) (Reply, Verdict, bool) {
	if int(r) < order.Reasons {
		return p.invalid(order.Reason(r))
	}
	switch v := Verdict(int(r) - order.Reasons); {
	case v == VerdictAbsent && p.Lookup != nil:
		return p.Lookup.Absent, v, true
	case v == VerdictBusy && p.Settle != nil:
		return p.Settle.Busy, v, true
	case (v == VerdictUnavailable || v == VerdictOverloaded) && p.Settle != nil:
		return p.Settle.Unavailable, v, true
	case (v == VerdictUnlocked || v == VerdictLost) && p.Settle != nil:
		reply := p.Settle.Unavailable
		reply.RetryAfter = 0 // the backend may have acted: a client must not try again by itself
		reply.leaseLost = v == VerdictLost
		return reply, v, true
	}
	return Reply{}, VerdictNone, false
}

// Prepare makes, by rule, every answer that the gate's policies can give, in the form
// that a face sends; nil where a policy never gives it. The error is the first of
// encode's, with the rule.
func Prepare[T any](g *Gate, encode func(Reply, Verdict) (*T, error)) ([][Refusals]*T, error) {
	all := make([][Refusals]*T, len(g.policies))
	for i := range g.policies {
		p := &g.policies[i]
		for r := range Refusal(Refusals) {
			reply, verdict, ok := p.Reply(r)
			if !ok {
				continue
			}
			var err error
			if all[i][r], err = encode(reply, verdict); err != nil {
				return nil, fmt.Errorf("rule %q: %w", p.Rule.Name, err)
			}
		}
	}
	return all, nil
}

// invalid is the answer to a request whose order cannot be told. Unless the
// policy has a body of its own, it says which part of the request is to blame.
func (p *Policy) invalid(why order.Reason) (Reply, Verdict, bool) {
	if why == order.NoReason {
		return Reply{}, VerdictNone, false
	}
	reply := p.Invalid
	if reply.Body == "" {
		reply.Body = fmt.Sprintf(`{"error":%q,"part":%q}`, why, why.Part())
	}
	switch why {
	case order.BodyTooLarge:
		reply.Status = http.StatusRequestEntityTooLarge
	case order.HeadersTooLarge:
		reply.Status = http.StatusRequestHeaderFieldsTooLarge
	}
	return reply, verdictFor(why), true
}

// verdictFor tells a request that names no usable order from one that may name
// several.
func verdictFor(why order.Reason) Verdict {
	switch why {
	case order.MissingID, order.MalformedID, order.MissingLimit, order.MalformedLimit, order.BodyTooLarge, order.HeadersTooLarge, order.TrailersAlone:
		return VerdictInvalid
	}
	return VerdictAmbiguous
}

// Header is a response header.
type Header struct{ Name, Value string }

// Headers returns the headers that go with the reply, besides the verdict.
func (r Reply) Headers() []Header {
	headers := []Header{{"content-type", "application/json"}}
	if r.leaseLost {
		headers = append(headers, Header{HeaderLeaseLost, "true"})
	}
	if r.RetryAfter > 0 {
		// Whole seconds (RFC 9110, 10.2.3), rounded up: too early is in vain.
		seconds := (r.RetryAfter + time.Second - 1) / time.Second
		headers = append(headers, Header{"retry-after", strconv.FormatInt(int64(seconds), 10)})
	}
	return headers
}
