package explain

import (
	"fmt"
	"net/http"

	"github.com/ordergate/ordergate/internal/gate"
)

// possible is one of the verdicts that a request can get.
type possible struct {
	Verdict  string  `json:"verdict"`
	Status   *int    `json:"status"`             // that the client gets; null: the backend's status
	Enforced *int    `json:"status_if_enforced"` // in mode enforce; null: the backend's status
	GRPC     *int    `json:"grpc_status"`        // of ordergate's answer to a gRPC call, with status 200; null: not one
	When     *string `json:"when"`               // the condition; null: always
}

// conditions has the condition of each verdict that the filter or the lock decides on.
var conditions = [gate.Verdicts]string{
	gate.VerdictAbsent:      "if the filter is certain that there is no such order",
	gate.VerdictMaybe:       "if the order may exist",
	gate.VerdictUnknown:     "if the filter cannot tell now",
	gate.VerdictAcquired:    "if the lock is free, or comes free within the wait",
	gate.VerdictBusy:        "if another holds the lock past the wait",
	gate.VerdictUnavailable: "if Redis cannot be asked",
	gate.VerdictOverloaded:  "if too many settlements are in flight",
	gate.VerdictReplayed:    "if the answer of an earlier call is stored",
	gate.VerdictDuplicate:   "if an earlier call did it, and this one cannot get its answer",
	gate.VerdictMismatch:    "if the stored answer is that of another request",
	gate.VerdictInUse:       "if the first call with the key has not ended",
	gate.VerdictNotReady:    "if a condition of the settlement does not hold",
}

// conditionsWithLimit replaces conditions for a rule whose settlements also need a permit.
var conditionsWithLimit = [gate.Verdicts]string{
	gate.VerdictAcquired: "if the lock and a permit are free, or come free within the wait",
	gate.VerdictBusy:     "if another holds the lock past the wait, or all permits are taken",
}

// conditionOf returns when the request gets a verdict.
func (e *Explanation) conditionOf(p *gate.Policy, v gate.Verdict) string {
	switch {
	case v == gate.VerdictAcquired && len(e.LockKeys) == 0:
		return "if it is the first call with its key"
	case p.Settle != nil && p.Settle.Limit != nil && conditionsWithLimit[v] != "":
		return conditionsWithLimit[v]
	case e.dedups(p) && conditionsWithDedup[v] != "":
		return conditionsWithDedup[v]
	case v == gate.VerdictReplayed && e.rule.IsBy():
		return fmt.Sprintf("if an equal request gets its answer while this one waits, or got it less than %v ago", e.rule.Settle.Once.For)
	}
	return conditions[v]
}

// dedups reports whether the request is a create whose order may exist.
func (e *Explanation) dedups(p *gate.Policy) bool {
	return p.Create != nil && p.Create.Dedup != nil && e.ID != nil
}

func (e *Explanation) setVerdict(a possible) {
	e.Possible, e.Verdict, e.Status = []possible{a}, &a.Verdict, a.Status
}

// explainUndecided explains a request that the gate does not refuse on its own. It lists
// the verdicts that the filter and the locks can give.
func (e *Explanation) explainUndecided(p *gate.Policy, call *gate.Call) {
	verdicts := call.Possible(e.ID != nil)
	e.Because = e.becauseOf(p)
	if len(verdicts) == 1 {
		e.setVerdict(e.replyTo(p, &gate.Decision{Verdict: verdicts[0]}))
		return
	}
	for _, v := range verdicts {
		a := e.replyTo(p, &gate.Decision{Verdict: v})
		a.When = new(e.conditionOf(p, v))
		e.Possible = append(e.Possible, a)
	}
}

// becauseOf says what decides between the verdicts.
func (e *Explanation) becauseOf(p *gate.Policy) string {
	locks := len(e.LockKeys) > 0
	switch {
	case e.dedups(p):
		return becauseOfDedup
	case p.Create != nil && !locks && e.OnceKey == nil:
		return "the request goes on, and the new ID is learned from the answer"
	case p.Create != nil:
		return "the lock decides; the new ID is learned from the answer"
	case p.Lookup != nil && locks:
		return "the order ID is well-formed: the filter decides, then the lock"
	case p.Lookup != nil && e.ID == nil && p.Rule.Optional:
		return "the request names no order, and need not: it goes on, and nothing is looked up"
	case p.Lookup != nil:
		return "the order ID is well-formed: the filter decides"
	case locks:
		return "the order ID is well-formed: the lock decides"
	case e.OnceKey != nil:
		return "the key of the request decides: the first call with it goes on"
	case p.Once != nil:
		return "the request has no key: it goes on, and nothing is stored"
	}
	return "the request names no order: it goes on"
}

// replyTo returns the status that a client gets with a verdict.
func (e *Explanation) replyTo(p *gate.Policy, d *gate.Decision) possible {
	a := possible{Verdict: d.Verdict.String()}
	if reply, _, ok := p.Reply(d.Refusal()); ok {
		if e.grpc {
			reply.Status, a.GRPC = http.StatusOK, new(int(reply.ForGRPC(d.Verdict).GRPCStatus))
		}
		a.Enforced = &reply.Status
		if !p.Observe {
			a.Status = a.Enforced
		}
	}
	return a
}
