package gate

import (
	"net/http"

	"github.com/ordergate/ordergate/internal/order"
)

// Answered looks at the headers of an answer to a request that nobody opened a
// [Call] for: a face that is shown nothing but answers calls it. The request is the
// one that was judged, as far as the face knows it.
func (g *Gate) Answered(req order.Request, r *Response) {
	if !r.notFound() { // which is seen at once
		return
	}
	m := g.table.Match(req)
	if m.Rule < 0 {
		return
	}
	lookup := g.policies[m.Rule].Lookup
	if id := lookup.watchedID(m, req.Method); id != "" {
		lookup.OnNotFound(id)
	}
}

// watchedID returns the ID that a request looks up, or "" when what the
// backend says of it proves nothing or is of no interest. Only GET and HEAD ask for
// what exists. Of a list nobody knows which of its orders was missing.
func (l *Lookup) watchedID(m order.Match, method string) string {
	known := m.Result == order.Named || m.Result == order.NeedsBody // of a body that is empty, mostly
	if l == nil || l.OnNotFound == nil || !known || len(m.Batch) > 0 {
		return ""
	}
	if method != http.MethodGet && method != http.MethodHead {
		return ""
	}
	return m.ID
}

// checkNotFound looks at the answer to a lookup.
func (l *Lookup) checkNotFound(id string, r *Response) {
	if r.notFound() {
		l.OnNotFound(id)
	}
}

// notFound reports whether the backend itself says that there is no such order. Of
// an answer that Envoy made, or we did, it is never true.
func (r *Response) notFound() bool {
	return (r.Status == http.StatusNotFound || r.Status == http.StatusGone) && r.fromBackend()
}
