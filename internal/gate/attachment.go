package gate

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// attachment notices that requests of a rule pass ext_authz, and that none reaches ext_proc behind
// it: Envoy's route skips it, or the chain lacks it. Reads and writes of each page that a rule lists
// have an attachment of their own, as they may have different routes.
type attachment struct {
	arrived atomic.Bool  // one has reached ext_proc
	passed  atomic.Int64 // how many have passed ext_authz since the last one that did
	since   atomic.Int64 // when the first of these did, in ns since 1970
	missing atomic.Int64 // when the latest of too many did, in ns since 1970
}

// Fewer may be requests of clients that left between the filters. A request takes less time from
// ext_authz to ext_proc.
const (
	minUnattached, unattachedAfter = 3, 3 * time.Second
	// Once a request has arrived, clients could feign with the rest that none does.
	minDetached, detachedAfter = 20, 10 * time.Second
	// missingFor is how long a rule counts as unattached after its last such request.
	missingFor = 5 * time.Minute
)

// attachment returns that of a rule's requests like this one.
func (g *Gate) attachment(rule int, req *order.Request) *attachment {
	i := 2 * g.table.Page(rule, req.Target)
	if !isRead(req.Method) {
		i++
	}
	return &g.attachments[rule][i]
}

func isRead(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// Arrived reports that a request of the rule has reached ext_proc. One that is not sealed has not
// passed ext_authz before, unless the rule only observes.
func (g *Gate) Arrived(rule int, req *order.Request, sealed bool) {
	if rule < 0 || !sealed && !g.policies[rule].Observe {
		return
	}
	a := g.attachment(rule, req)
	if !a.arrived.Load() {
		a.arrived.Store(true)
	}
	if a.passed.Load() != 0 {
		a.passed.Store(0)
	}
}

// Passed reports that a request passes ext_authz. It returns whether it is to be sealed: it needs
// ext_proc, and its rule does not only observe. Attached is false if requests of its rule fail to
// reach ext_proc.
//
// Gone means that Envoy no longer waits: the client has left, or Envoy's timeout has passed. Such a
// request does not reach ext_proc, or not sealed. A client can leave whenever it likes, so the count
// begins anew.
func (g *Gate) Passed(d *Decision, req *order.Request, gone bool) (seal, attached bool) {
	if d.Rule < 0 || !g.policies[d.Rule].HasCalls() {
		return false, true
	}
	seal = !g.policies[d.Rule].Observe && !d.Observed
	a := g.attachment(d.Rule, req)
	if gone {
		a.passed.Store(0)
		return seal, true
	}
	return seal, a.pass(g.now())
}

func (a *attachment) pass(now time.Time) (attached bool) {
	passed := a.passed.Add(1)
	if passed == 1 {
		a.since.Store(now.UnixNano())
	}
	waited := time.Duration(now.UnixNano() - a.since.Load())
	if a.arrived.Load() {
		return passed <= minDetached || waited < detachedAfter
	}
	if passed <= minUnattached || waited < unattachedAfter {
		return true
	}
	a.missing.Store(now.UnixNano())
	return false
}

// IsUnattached reports whether requests of a rule have failed to reach ext_proc of late, and none
// ever has reached it.
func (g *Gate) IsUnattached() bool {
	for rule := range g.attachments {
		for i := range g.attachments[rule] {
			a := &g.attachments[rule][i]
			if last := a.missing.Load(); last != 0 && !a.arrived.Load() && g.now().UnixNano()-last < int64(missingFor) {
				return true
			}
		}
	}
	return false
}
