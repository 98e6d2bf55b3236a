package gate

import (
	"net/http"

	"github.com/ordergate/ordergate/internal/order"
)

// Answered reads the headers of an answer to a request without a [Call]. An adapter that
// sees only answers calls it. The request is the one that was judged, as far as the adapter
// has it.
func (g *Gate) Answered(req order.Request, r *Response) {
	notFound := r.notFound()
	if !notFound && !(g.saysAbsent && r.fromBackend()) { // the cheap check first
		return
	}
	m := g.table.Match(req)
	if m.Rule < 0 {
		return
	}
	p := &g.policies[m.Rule]
	if id := p.Lookup.watchedID(m, req.Method); id != "" && p.Answers.read(r).absent(nil, false, notFound) {
		p.Lookup.OnNotFound(id)
	}
}

// watchedID returns the ID that a request looks up. It returns "" if the backend's answer
// proves nothing, or if OnNotFound is nil. Only GET and HEAD ask whether an order exists.
// With a list it is unclear which order is missing.
func (l *Lookup) watchedID(m order.Match, method string) string {
	known := m.Result == order.Named || m.Result == order.NeedsBody // mostly of an empty body
	if l == nil || l.OnNotFound == nil || !known || len(m.Batch) > 0 {
		return ""
	}
	if method != http.MethodGet && method != http.MethodHead {
		return ""
	}
	return m.ID
}

// lookedUp reads the headers of the answer to a lookup. It reports whether the body decides.
func (c *Call) lookedUp(r *Response) (readBody bool) {
	c.readings, c.notFound = c.policy.Answers.read(r), r.notFound()
	if c.readings.pending() && !r.Ended {
		return true
	}
	c.LookupBody(nil, r.Ended)
	return false
}

// LookupBody reads the body of the answer to a lookup. Whole means that the body is all of it.
func (c *Call) LookupBody(body []byte, whole bool) {
	if c.readings.absent(body, whole, c.notFound) {
		c.policy.Lookup.OnNotFound(c.watchedID)
	}
}

// notFound reports whether the backend itself answers that there is no such order. It is
// false for an answer of Envoy or ordergate.
func (r *Response) notFound() bool {
	return (r.Status == http.StatusNotFound || r.Status == http.StatusGone) && r.fromBackend()
}
