package gate

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// Headers that describe the decision to the backend, and to the client in an answer of
// ours. Only ordergate may send them: the adapters remove a client's copy.
const (
	HeaderKey     = "x-ordergate-key"   // of the order's lock
	HeaderFence   = "x-ordergate-fence" // decimal
	HeaderLease   = "x-ordergate-lease" // the lease's owner; see LockRequest.PresentedLease
	HeaderVerdict = "x-ordergate-verdict"

	HeaderLeaseLost = "x-ordergate-lease-lost" // to the client: the lease ended before the call
)

// Verdict is the gate's verdict on a request.
type Verdict int8

// The verdicts. VerdictNone is for a request without a rule.
const (
	VerdictNone        Verdict = iota
	VerdictAbsent              // the order certainly does not exist
	VerdictMaybe               // it may exist
	VerdictUnknown             // the filter cannot answer
	VerdictBusy                // another call settles this order
	VerdictInvalid             // the order ID is missing or malformed
	VerdictAmbiguous           // the request names its order more than once
	VerdictUnavailable         // the lock is unavailable, or a create cannot be confirmed
	VerdictOverloaded          // the backend may be overloaded, or the client has left too often
	VerdictAcquired            // the call holds the order's lock
	VerdictUnlocked            // the backend answered a settlement that had no lock
	VerdictLost                // the lease ended before the answer, and so did the call
	VerdictReplayed            // the call got the stored answer of an earlier one
	VerdictDuplicate           // the order exists, or was settled in another way
	VerdictMismatch            // the key was used for another request
	VerdictInUse               // the first call with the key has not ended
	VerdictNotReady            // a condition of the settlement does not hold
	verdicts
)

// Verdicts is the number of verdicts, for tables indexed by one.
const Verdicts = int(verdicts)

var verdictNames = [Verdicts]string{
	"none", "absent", "maybe", "unknown", "busy", "invalid", "ambiguous", "unavailable", "overloaded", "acquired", "unlocked", "lost",
	"replayed", "duplicate", "mismatch", "in_use", "not_ready",
}

// String returns the name that headers, metrics and logs use.
func (v Verdict) String() string { return verdictNames[v] }

// IsTrouble reports whether the verdict says that something is wrong with the locks, or that
// there are too many calls. An operator should see it.
func (v Verdict) IsTrouble() bool { return v == VerdictUnavailable || v == VerdictOverloaded }

// Action is the part of a rule that gave a verdict.
type Action int8

// The actions.
const (
	ActionLookup Action = iota
	ActionCreate
	ActionSettle
	ActionOnce // a rule that only stores answers
	actions
)

// Actions is the number of actions, for tables indexed by one.
const Actions = int(actions)

var actionNames = [Actions]string{"lookup", "create", "settle", "once"}

// String returns the name that metrics and logs use.
func (a Action) String() string { return actionNames[a] }

// Decision is the verdict on one request.
type Decision struct {
	Rule     int // index of the policy; -1 when no rule matches
	Action   Action
	Verdict  Verdict
	Reason   order.Reason  // why the request is invalid or ambiguous
	Refused  bool          // answer with the policy's reply; always false in observe mode
	GRPC     bool          // the request says that it is a gRPC call: answer in gRPC's form. Set if Refused, and in a Call
	Observed bool          // the request is not enforced: its rule observes, or the rule's share leaves it out
	ID       string        // the canonical ID, if there is one; may share memory with the request
	Verified bool          // the filter would refuse the lookup, or does in observe mode: open a Call, which holds the answer against it
	Offset   int           // of the byte that Reason is about, in its part; -1: not a single byte
	Waited   time.Duration // for a lock, a filter or a table that is not in memory

	Condition int // the index of the condition that does not hold, with VerdictNotReady
}

// reasonName returns the name of the reason, "" if there is none.
func (d *Decision) reasonName() string {
	if d.Reason == order.NoReason {
		return ""
	}
	return d.Reason.Name()
}

// Refusal numbers the answers that a policy can give, so that an adapter can prepare them.
// There is one for each reason, one for each verdict without a reason, and one for each
// condition.
type Refusal int

// String returns the name of the reason, or of the verdict.
func (r Refusal) String() string {
	if int(r) < order.Reasons {
		return order.Reason(r).Name()
	}
	if r >= firstOfConditions {
		return VerdictNotReady.String()
	}
	return Verdict(int(r) - order.Reasons).String()
}

// firstOfConditions is the refusal for the first condition of a rule.
const firstOfConditions Refusal = Refusal(order.Reasons + Verdicts)

// Refusals is the number of refusals, for tables indexed by one.
const Refusals = int(firstOfConditions) + MaxConditions

// Refusal returns the answer to give to a refused request.
func (d *Decision) Refusal() Refusal {
	if d.Reason != order.NoReason {
		return Refusal(d.Reason)
	}
	if d.Verdict == VerdictNotReady {
		return firstOfConditions + Refusal(d.Condition)
	}
	return Refusal(order.Reasons + int(d.Verdict))
}

// Reply returns an answer and its verdict, or false if the policy never gives it.
func (p *Policy) Reply(r Refusal) (Reply, Verdict, bool) {
	if int(r) < order.Reasons {
		return p.invalid(order.Reason(r))
	}
	if index := int(r - firstOfConditions); index >= 0 {
		if p.Settle == nil || p.Settle.Require == nil || index >= len(p.Settle.Require.Otherwise) {
			return Reply{}, VerdictNone, false
		}
		return p.Settle.Require.Otherwise[index], VerdictNotReady, true
	}
	switch v := Verdict(int(r) - order.Reasons); {
	case v == VerdictAbsent && p.Lookup != nil:
		return p.Lookup.Absent, v, true
	case v == VerdictDuplicate && p.dedup() != nil:
		return p.Create.Dedup.Duplicate, v, true
	case v == VerdictUnavailable && p.dedup() != nil && p.Create.Dedup.Refuse:
		return p.Create.Dedup.Unavailable, v, true
	case v == VerdictBusy && p.Settle != nil:
		return p.Settle.Busy, v, true
	case (v == VerdictUnavailable || v == VerdictOverloaded) && p.HasLock():
		return p.unavailable(), v, true
	case v == VerdictDuplicate, v == VerdictMismatch, v == VerdictInUse:
		reply, ok := p.onceReply(v)
		return reply, v, ok
	case (v == VerdictUnlocked || v == VerdictLost) && p.HasLock():
		reply := p.unavailable()
		reply.RetryAfter = 0 // the backend may have acted: a client must not retry by itself
		reply.leaseLost = v == VerdictLost
		return reply, v, true
	}
	return Reply{}, VerdictNone, false
}

// unavailable is the answer to a request whose locks are unavailable.
func (p *Policy) unavailable() Reply {
	if p.Settle != nil {
		return p.Settle.Unavailable
	}
	return p.Once.Unavailable
}

// Replies are the refusals of a gate as an adapter sends them. They are read-only.
type Replies[T any] struct {
	http, grpc [][Refusals]*T // by rule
}

// NewReplies encodes them. Equal answers are encoded once: a page for requests that cannot be read is the
// answer for every reason. The error is encode's first one, with the rule's name.
func NewReplies[T any](g *Gate, encode func(Reply, Verdict) (*T, error)) (r Replies[T], err error) {
	r.http, r.grpc = make([][Refusals]*T, len(g.policies)), make([][Refusals]*T, len(g.policies))
	known := make(map[string]*T)
	add := func(to **T, reply Reply, verdict Verdict) (err error) {
		key := fmt.Sprintf("%d %d %d %q %q", verdict, reply.Status, reply.GRPCStatus, reply.Headers(), reply.Body)
		if known[key] == nil {
			known[key], err = encode(reply, verdict)
		}
		*to = known[key]
		return err
	}
	for i := range g.policies {
		for n := range Refusal(Refusals) {
			reply, verdict, ok := g.policies[i].Reply(n)
			if !ok { // the policy never gives this answer
				continue
			}
			err = cmp.Or(add(&r.http[i][n], reply, verdict), add(&r.grpc[i][n], reply.ForGRPC(verdict), verdict))
			if err != nil {
				return r, fmt.Errorf("rule %q: %w", g.policies[i].Rule.Name, err)
			}
		}
	}
	return r, nil
}

// To returns the answer to a refused request.
func (r *Replies[T]) To(d *Decision) *T {
	if d.GRPC {
		return r.grpc[d.Rule][d.Refusal()]
	}
	return r.http[d.Rule][d.Refusal()]
}

// invalid is the answer to a request whose order cannot be determined. If the policy has no
// body for it, the body names the faulty part of the request.
func (p *Policy) invalid(why order.Reason) (Reply, Verdict, bool) {
	if why == order.NoReason {
		return Reply{}, VerdictNone, false
	}
	reply := p.Invalid
	reply.why = why
	if why.Part() == "key" {
		if p.Once == nil {
			return Reply{}, VerdictNone, false
		}
		return withProblem(p.Once.Missing, why.String()), verdictFor(why), true
	}
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

// verdictFor separates a request without a usable order from one that may name several.
func verdictFor(why order.Reason) Verdict {
	switch why {
	case order.MissingID, order.MalformedID, order.MissingLimit, order.MalformedLimit, order.BodyTooLarge, order.HeadersTooLarge, order.TrailersAlone,
		order.MissingPart, order.MalformedPart, order.MissingKey, order.MalformedKey, order.LongKey, order.MissingHeader, order.MalformedHeader, order.RepeatedHeader:
		return VerdictInvalid
	}
	return VerdictAmbiguous
}

// Header is a response header.
type Header struct{ Name, Value string }

// Answer is an answer in place of the backend, as a client gets it.
type Answer struct {
	Verdict    Verdict
	Status     int
	GRPCStatus GRPCStatus // 0: the call is not gRPC's
	Headers    []Header   // the verdict included
	Body       string
}

// Answer returns the reply with its verdict.
func (r Reply) Answer(v Verdict) *Answer {
	return &Answer{v, r.Status, r.GRPCStatus, append([]Header{{HeaderVerdict, v.String()}}, r.Headers()...), r.Body}
}

const headerCacheControl = "cache-control"

// Headers returns the headers of the reply, except the verdict.
func (r Reply) Headers() []Header {
	if r.grpc {
		return r.grpcHeaders()
	}
	headers := make([]Header, 1, 4+len(r.Others))
	switch headers[0].Name = "content-type"; {
	case r.Problem:
		headers[0].Value = "application/problem+json"
	case r.ContentType != "":
		headers[0].Value = r.ContentType
	default:
		headers[0].Value = "application/json"
	}
	headers = append(headers, r.Others...)
	isCache := func(h Header) bool { return h.Name == headerCacheControl }
	if r.Status < http.StatusBadRequest && !slices.ContainsFunc(r.Others, isCache) {
		headers = append(headers, Header{headerCacheControl, "no-store"}) // the order may be created later
	}
	if r.leaseLost {
		headers = append(headers, Header{HeaderLeaseLost, "true"})
	}
	if r.RetryAfter > 0 {
		// Whole seconds (RFC 9110, 10.2.3), rounded up: an earlier retry would fail.
		seconds := (r.RetryAfter + time.Second - 1) / time.Second
		headers = append(headers, Header{"retry-after", strconv.FormatInt(int64(seconds), 10)})
	}
	return headers
}
