package gate

import (
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// attachment notices that requests of a rule pass ext_authz, and that none reaches ext_proc behind
// it: Envoy's route skips it, or the chain lacks it. Reads and writes of each page that a rule lists
// have an attachment of their own, as they may have different routes.
type attachment struct {
	arrived  atomic.Bool  // one has reached ext_proc
	passed   atomic.Int64 // how many have passed ext_authz since the last one that did
	since    atomic.Int64 // when the first of these did, in ns since 1970
	latest   atomic.Int64 // when the last of these did
	reported atomic.Int64 // how many of these were reported
}

const (
	// So few may be requests of clients that left between the filters. A request takes less time from
	// ext_authz to ext_proc.
	fewUnattached, unattachedAfter = 3, 3 * time.Second
	// Once a request has arrived, clients could feign with the rest that none does.
	fewDetached, detachedAfter = 20, 10 * time.Second
	// unattachedFor is how long a rule counts as unattached after its last such request.
	unattachedFor = 5 * time.Minute
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

// Arrived reports that a request of the rule has reached ext_proc, rightly if it is sealed or ext_authz is
// off for it. Another one has not passed ext_authz before, unless the rule only observes.
func (g *Gate) Arrived(rule int, req *order.Request, rightly bool) {
	if !g.streamed.Load() {
		g.streamed.Store(true)
	}
	if rule < 0 || !rightly && !g.policies[rule].Observe {
		return
	}
	a := g.attachment(rule, req)
	if !a.arrived.Load() {
		a.arrived.Store(true)
	}
	a.begin()
}

// Seals reports whether a request that is not refused is to be sealed: it needs ext_proc, and its rule
// does not only observe.
func (g *Gate) Seals(d *Decision) bool {
	return !d.Refused && d.Rule >= 0 && g.policies[d.Rule].HasCalls() && !g.policies[d.Rule].Observe && !d.Observed
}

// Passed reports that a request passes ext_authz.
//
// Gone means that Envoy no longer waits: the client has left, or Envoy's timeout has passed. Such a
// request does not reach ext_proc, or not sealed. A client can leave whenever it likes, so the count
// begins anew.
func (g *Gate) Passed(d *Decision, req *order.Request, gone bool) {
	g.PassedAny()
	if d.Rule < 0 || !g.policies[d.Rule].HasCalls() {
		return
	}
	if d.Observed && !g.policies[d.Rule].Observe {
		return // outside of the rule's share: Arrived cannot tell it from one that skipped ext_authz
	}
	a := g.attachment(d.Rule, req)
	if gone {
		a.begin()
	} else {
		a.pass(g.now())
	}
}

func (a *attachment) pass(now time.Time) {
	a.latest.Store(now.UnixNano())
	if a.passed.Add(1) == 1 {
		a.since.Store(now.UnixNano())
	}
}

// PassedHTTP reports that a request passes a check over plain HTTP. It is not sealed, so the backend
// gets it without a lock if no ext_proc stands behind.
func (g *Gate) PassedHTTP(d *Decision) {
	g.PassedAny()
	if d.Rule >= 0 && g.policies[d.Rule].HasLock() && !g.streamed.Load() {
		g.unsealed[d.Rule].pass(g.now())
	}
}

// Unlocked calls report for each rule with a lock of which more requests than before have passed a
// check over plain HTTP, while no request at all has reached ext_proc.
func (g *Gate) Unlocked(report func(rule string)) {
	for rule := range g.unsealed {
		a := &g.unsealed[rule]
		if passed, _ := a.missing(g.now()); passed > 0 && !g.streamed.Load() && a.reported.Swap(passed) != passed {
			report(g.policies[rule].Rule.Name)
		}
	}
}

// PassedAny reports that a request passes ext_authz, or another proxy's check.
func (g *Gate) PassedAny() {
	if !g.passed.Load() {
		g.passed.Store(true)
	}
}

// Screened reports that ext_proc has screened a request, for which ext_authz is off. If that is a read,
// ext_authz need not be on anywhere.
func (g *Gate) Screened(d *Decision, req *order.Request) {
	if d.Rule >= 0 && d.Action == ActionLookup && isRead(req.Method) {
		g.PassedAny()
	}
}

// NonePasses reports whether no request has passed ext_authz, which refuses the lookups of a rule.
func (g *Gate) NonePasses() bool {
	return !g.passed.Load() && slices.ContainsFunc(g.policies, func(p Policy) bool { return p.Lookup != nil && !p.HasCalls() })
}

// begin begins the count anew.
func (a *attachment) begin() {
	if a.passed.Load() != 0 {
		a.passed.Store(0)
		a.reported.Store(0)
	}
}

// missing returns how many requests should have reached ext_proc by now, and whether one did before.
func (a *attachment) missing(now time.Time) (passed int64, arrived bool) {
	passed, arrived = a.passed.Load(), a.arrived.Load()
	since, latest := time.Unix(0, a.since.Load()), time.Unix(0, a.latest.Load())
	switch {
	case now.Sub(latest) >= unattachedFor, now.Sub(since) < unattachedAfter,
		arrived && (passed <= fewDetached || latest.Sub(since) < detachedAfter):
		return 0, arrived
	}
	return passed, arrived
}

// eachAttachment calls see for each attachment with the index of its rule, until see returns false.
func (g *Gate) eachAttachment(see func(rule int, a *attachment) bool) {
	for rule := range g.attachments {
		for i := range g.attachments[rule] {
			if !see(rule, &g.attachments[rule][i]) {
				return
			}
		}
	}
}

// Unattached calls report for each rule with more requests than before that pass ext_authz and do
// not reach ext_proc. Few may be those of clients that have left.
func (g *Gate) Unattached(report func(rule string, few bool)) {
	for rule, a := range g.eachAttachment {
		if passed, _ := a.missing(g.now()); passed > 0 && a.reported.Swap(passed) != passed {
			report(g.policies[rule].Rule.Name, passed <= fewUnattached)
		}
	}
}

// IsUnattached reports whether some requests of a rule have not reached ext_proc of late, and none
// ever has.
func (g *Gate) IsUnattached() bool {
	for _, a := range g.eachAttachment {
		if passed, arrived := a.missing(g.now()); passed > fewUnattached && !arrived {
			return true
		}
	}
	return false
}
