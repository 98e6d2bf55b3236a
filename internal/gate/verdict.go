package gate

import (
	"strconv"
	"time"
)

// Headers that tell the backend, and the client with an answer of ours, what was
// decided. Nobody else may say these things: the faces remove what a client sent.
const (
	HeaderKey     = "x-ordergate-key"   // of the order's lock
	HeaderFence   = "x-ordergate-fence" // decimal
	HeaderLease   = "x-ordergate-lease" // the lease's owner
	HeaderVerdict = "x-ordergate-verdict"
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
	VerdictAcquired            // the call holds the order's lock
	verdicts
)

// Verdicts is the number of verdicts, for tables indexed by one.
const Verdicts = int(verdicts)

var verdictNames = [Verdicts]string{
	"none", "absent", "maybe", "unknown", "busy", "invalid", "ambiguous", "unavailable", "acquired",
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
	Refused bool   // answer with the policy's reply for the verdict; never set in observe mode
	ID      string // the canonical ID, if there is one; may share memory with the request
	Reason  string // why the request is invalid or ambiguous, "" otherwise
}

// Reply returns what to answer with a verdict that refuses.
func (p *Policy) Reply(v Verdict) Reply {
	switch v {
	case VerdictAbsent:
		return p.Lookup.Absent
	case VerdictBusy:
		return p.Settle.Busy
	case VerdictUnavailable:
		return p.Settle.Unavailable
	default:
		return p.Invalid
	}
}

// Refusals lists the verdicts that this policy can refuse a request with.
func (p *Policy) Refusals() []Verdict {
	list := []Verdict{VerdictInvalid, VerdictAmbiguous}
	if p.Lookup != nil {
		list = append(list, VerdictAbsent)
	}
	if p.Settle != nil {
		list = append(list, VerdictBusy, VerdictUnavailable)
	}
	return list
}

// Header is a response header.
type Header struct{ Name, Value string }

// Headers returns the headers that go with the reply, besides the verdict.
func (r Reply) Headers() []Header {
	headers := []Header{{"content-type", "application/json"}}
	if r.RetryAfter > 0 {
		// Whole seconds (RFC 9110, 10.2.3), rounded up: too early is in vain.
		seconds := (r.RetryAfter + time.Second - 1) / time.Second
		headers = append(headers, Header{"retry-after", strconv.FormatInt(int64(seconds), 10)})
	}
	return headers
}
