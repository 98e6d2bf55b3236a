package gate

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// attachment notices that requests of a rule pass ext_authz, and that none reaches ext_proc: Envoy's
// route skips it, or the chain lacks it. They would be settled without a lock, and their new orders
// not learned. Reads and writes of a rule have an attachment each, as they may have different routes.
type attachment struct {
	arrived atomic.Bool  // one has reached ext_proc: clients that leave could feign the rest
	passed  atomic.Int64 // how many have passed ext_authz before
	since   atomic.Int64 // when the first of these did, in ns since 1970
	noticed atomic.Int64 // when the last one was noticed that may pass all the same
}

const (
	// minUnattached is how many requests may be lost on their way, such as with their clients.
	minUnattached = 3
	// unattachedAfter is longer than a request takes from ext_authz to ext_proc.
	unattachedAfter = 3 * time.Second
	// retryUnattached is how often one request passes, to find out that Envoy was repaired.
	retryUnattached = 10 * time.Second
)

// attachment returns that of a rule's requests with a method.
func (g *Gate) attachment(rule int, method string) *attachment {
	if method == http.MethodGet || method == http.MethodHead {
		return &g.attachments[rule][0]
	}
	return &g.attachments[rule][1]
}

// Arrived reports that a request of the rule has reached ext_proc.
func (g *Gate) Arrived(rule int, method string) {
	if rule < 0 {
		return
	}
	a := g.attachment(rule, method)
	if !a.arrived.Load() {
		a.arrived.Store(true)
	}
}

// Unattached reports whether a request that ext_authz lets pass is one of those that do not reach
// ext_proc. It refuses those that need a lock, but for one now and then. A create goes on, and is a
// doubt.
func (g *Gate) Unattached(d *Decision, method string) bool {
	if d.Rule < 0 {
		return false
	}
	p := &g.policies[d.Rule]
	if !p.HasCalls() || p.Observe {
		return false
	}
	a := g.attachment(d.Rule, method)
	if a.arrived.Load() {
		return false
	}
	now, passed := g.now(), a.passed.Add(1)
	if passed == 1 {
		a.since.Store(now.UnixNano())
	}
	if passed <= minUnattached || now.UnixNano()-a.since.Load() < int64(unattachedAfter) {
		return false
	}
	last := a.noticed.Load()
	if now.UnixNano()-last >= int64(retryUnattached) && a.noticed.CompareAndSwap(last, now.UnixNano()) {
		if create := p.Create; create != nil {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), CleanupTimeout)
				defer cancel()
				_ = create.Filter.MarkIncomplete(ctx, "creates do not reach ext_proc", time.Time{}) // this instance has the doubt, and logs it, in any case
			}()
		}
		return true
	}
	if p.Locks() {
		d.Verdict, d.Refused = VerdictUnavailable, true
		g.record.Decided(d.Rule, d.Action, d.Verdict, false, 0)
	}
	return true
}
