package gate

import (
	"net/http"
	"sync/atomic"
	"time"
)

// attachment notices that requests of a rule pass ext_authz, and that none reaches ext_proc behind
// it: Envoy's route skips it, or the chain lacks it. Reads and writes of a rule have an attachment
// each, as they may have different routes.
type attachment struct {
	arrived atomic.Bool  // one has reached ext_proc
	passed  atomic.Int64 // how many have passed ext_authz since the last one that did
	since   atomic.Int64 // when the first of these did, in ns since 1970
}

// Fewer may be requests of clients that left between the filters. A request takes less time from
// ext_authz to ext_proc.
const (
	minUnattached, unattachedAfter = 3, 3 * time.Second
	// Once a request has arrived, clients could feign with the rest that none does.
	minDetached, detachedAfter = 20, 10 * time.Second
)

// attachment returns that of a rule's requests with a method.
func (g *Gate) attachment(rule int, method string) *attachment {
	if method == http.MethodGet || method == http.MethodHead {
		return &g.attachments[rule][0]
	}
	return &g.attachments[rule][1]
}

// Arrived reports that a request of the rule has reached ext_proc. One that is not sealed has not
// passed ext_authz before, unless the rule only observes.
func (g *Gate) Arrived(rule int, method string, sealed bool) {
	if rule < 0 || !sealed && !g.policies[rule].Observe {
		return
	}
	a := g.attachment(rule, method)
	if !a.arrived.Load() {
		a.arrived.Store(true)
	}
	if a.passed.Load() != 0 {
		a.passed.Store(0)
	}
}

// Attached is what is known of the requests of a rule that pass ext_authz.
type Attached int8

// The values of [Attached].
const (
	AttachedAsFarAsKnown Attached = iota
	AttachedNever                 // none has reached ext_proc
	AttachedBefore                // none has reached ext_proc for a while
)

// Passed reports that a request passes ext_authz. It returns whether it is to be sealed: it needs
// ext_proc, and its rule does not only observe.
func (g *Gate) Passed(d *Decision, method string) (seal bool, attached Attached) {
	if d.Rule < 0 || !g.policies[d.Rule].HasCalls() {
		return false, AttachedAsFarAsKnown
	}
	return !g.policies[d.Rule].Observe && !d.Observed, g.attachment(d.Rule, method).pass(g.now())
}

func (a *attachment) pass(now time.Time) Attached {
	passed := a.passed.Add(1)
	if passed == 1 {
		a.since.Store(now.UnixNano())
	}
	waited := time.Duration(now.UnixNano() - a.since.Load())
	switch arrived := a.arrived.Load(); {
	case !arrived && passed > minUnattached && waited >= unattachedAfter:
		return AttachedNever
	case arrived && passed > minDetached && waited >= detachedAfter:
		return AttachedBefore
	}
	return AttachedAsFarAsKnown
}
