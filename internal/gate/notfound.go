package gate

import (
	"net/http"
	"slices"

	"github.com/ordergate/ordergate/internal/order"
)

// Verifier holds the refusals of lookups against the answers of the backend. It is safe for
// concurrent use.
type Verifier interface {
	// Sample reports whether a refused lookup goes on to the backend. It must be quick. Clients
	// must not be able to predict it.
	Sample() bool
	// Answered takes the meaning of the backend's answer to a lookup. It reports whether the filter
	// would refuse the lookup. It must be quick. The ID is valid only during the call.
	Answered(id string, means Meaning) (absent bool)
}

// Answered reads the headers of an answer to a request without a [Call]. An adapter that
// sees only answers calls it. The request is the one that was judged, as far as the adapter
// has it. Answered returns the rule of a lookup that passed, "" for any other request.
func (g *Gate) Answered(req order.Request, r *Response) (rule string) {
	if !r.fromBackend() { // the cheap check first
		return ""
	}
	m := g.table.Match(req)
	if m.Rule < 0 {
		return ""
	}
	p := &g.policies[m.Rule]
	id := p.Lookup.watchedID(&m, req.Method)
	if id == "" {
		return ""
	}
	p.lookedUp(id, p.Answers.readLookup(r).ofLookup(nil, false, r.notFound()))
	return p.Rule.Name
}

// watchedID returns the ID that a request looks up. It returns "" if the backend's answer
// proves nothing, or if no answer is needed. Only GET and HEAD ask whether an order exists.
// With a list it is unclear which order is missing.
func (l *Lookup) watchedID(m *order.Match, method string) string {
	known := m.Result == order.Named || m.Result == order.NeedsBody // mostly of an empty body
	if l == nil || l.OnNotFound == nil && l.Verify == nil || !known || len(m.Batch) > 0 {
		return ""
	}
	if !isRead(method) {
		return ""
	}
	return m.ID
}

// ReadsAnswer reports whether a lookup that goes on needs a [Call], which reads the answer. Without
// one, an adapter reports only answers with 404 and 410, to [Gate.Answered].
func (p *Policy) ReadsAnswer(d *Decision) bool {
	return d.Verified || !d.Refused && !p.HasCalls() && p.Lookup != nil && p.Lookup.OnNotFound != nil && p.Answers != nil && len(p.Answers.Absent) > 0
}

// lookupCall is what a call knows of a lookup whose answer the gate reads.
type lookupCall struct {
	id       string
	sampled  bool // it may be one of Verifier.Sample
	notFound bool // the answer's status says that there is no such order
}

// onLookedUp handles the headers of the answer to a lookup, which may have to wait for its body.
func (c *Call) onLookedUp(r *Response) Step {
	l := c.lookup
	c.readings, l.notFound = c.policy.Answers.readLookup(r), r.notFound()
	if c.readings.pending() && !r.Ended {
		c.stage = atCollect
		return c.collect()
	}
	return c.onLookupRead(nil, r.Ended)
}

// onLookupRead handles the body of the answer to a lookup. Whole means that the body is all of it. The
// client of a sample gets the answer of a refusal if neither the backend nor the filter has the
// order.
func (c *Call) onLookupRead(body []byte, whole bool) Step {
	// The rest of the body might say something else. Where no adapter reads it, the status counts: see Answered.
	l := c.lookup
	notFound := l.notFound && (whole || !c.readings.readBody())
	absent := c.policy.lookedUp(l.id, c.readings.ofLookup(body, whole, notFound))
	if absent && l.sampled {
		c.Decision.Verdict, c.Decision.Refused = VerdictAbsent, true
		c.log(&c.Decision)
		return c.refuse(nil)
	}
	return c.pass()
}

// lookedUp takes the meaning of the backend's answer to a lookup. It reports whether neither the
// backend nor the filter has the order.
func (p *Policy) lookedUp(id string, means Meaning) (absent bool) {
	if means == MeansAbsent && p.Lookup.OnNotFound != nil {
		p.Lookup.OnNotFound(id)
	}
	return p.Lookup.Verify != nil && p.Lookup.Verify.Answered(id, means) && means == MeansAbsent
}

// readLookup is read for an answer to a lookup. Its status says that there is an order only if the
// rule does not tell the one from the other.
func (a *Answers) readLookup(r *Response) readings {
	list := a.read(r)
	aboutHeader := func(t AnswerTest) bool { return t.ContentType != "" || len(t.Headers) > 0 }
	switch {
	case a.TellsOrders() && a.hasTest(aboutHeader) && !r.hasHeaders():
		return slices.DeleteFunc(list, func(r reading) bool { return r.means == MeansDone })
	case !a.TellsOrders() && r.Status/100 == 2 && r.fromBackend():
		list = append(list, reading{means: MeansDone})
	}
	return list
}

// TellsOrders reports whether the rule says which answers show that an order exists, and which
// that it does not.
func (a *Answers) TellsOrders() bool { return a != nil && len(a.Done) > 0 && len(a.Absent) > 0 }

// hasHeaders reports whether the adapter has the headers of an answer, and not its status alone:
// forward_rules of ext_proc may leave them out.
func (r *Response) hasHeaders() bool {
	for name := range order.All(r.Header) {
		if name != "" && name[0] != ':' {
			return true
		}
	}
	return false
}

// notFound reports whether the backend itself answers that there is no such order. It is
// false for an answer of Envoy or ordergate.
func (r *Response) notFound() bool {
	return (r.Status == http.StatusNotFound || r.Status == http.StatusGone) && r.fromBackend()
}
