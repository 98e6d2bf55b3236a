package envoymodule

import (
	"slices"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// Headers are the headers of a message: names in lower case, repeated headers repeated.
type Headers []Header

// Next implements order.Header. The cursor is an index.
func (h Headers) Next(cursor int) (name, value string, next int) {
	if cursor >= len(h) {
		return "", "", -1
	}
	return h[cursor].Name.string(), h[cursor].Value.string(), cursor + 1
}

// Get returns the first value of a header, "" when there is none.
func (h Headers) Get(name string) string {
	for i := range h {
		if h[i].Name.string() == name {
			return h[i].Value.string()
		}
	}
	return ""
}

// request returns the request in Envoy's memory, with the body so far.
func (h Headers) request(body []byte, state order.BodyState) order.Request {
	req := order.Request{Header: h, Body: body, BodyState: state}
	for i := 0; i < len(h) && (req.Method == "" || req.Host == "" || req.Target == ""); i++ {
		switch value := h[i].Value.string(); h[i].Name.string() {
		case ":method":
			req.Method = value
		case ":authority":
			req.Host = value
		case ":path":
			req.Target = value
		}
	}
	return req
}

// removable are headers to remove from a request, besides forged ones.
var removable = func() (all [stripUnruled + len(gate.AnswerOptions)]string) {
	copy(all[:], gate.Owned[:])
	copy(all[stripOwned:], gate.URLOverrides[:])
	copy(all[stripUnruled:], gate.AnswerOptions[:])
	return all
}()

// removableInitials are the first letters of removable and of forged headers.
var removableInitials = func() (all [256]bool) {
	for _, name := range removable {
		all[name[0]] = true
	}
	return all
}()

// How many of removable are removed.
const (
	stripOwned   = len(gate.Owned)
	stripUnruled = stripOwned + len(gate.URLOverrides)
)

// strip removes the first n of removable, the first options of [gate.AnswerOptions], and forged
// headers. It finds the headers itself, because a call of Envoy for each would cost more than all
// the rest. It finds all of them before it removes any, because a removal frees their memory.
func (h Headers) strip(from Envoy, first, options int) {
	var found [len(removable)]bool
	forged := false
	for i := range h {
		if name := h[i].Name.string(); name != "" && removableInitials[name[0]] {
			if at := slices.Index(removable[:], name); at >= 0 {
				found[at] = true
			} else if gate.IsForged(name) {
				forged = true
			}
		}
	}
	var others []string
	if forged {
		others = gate.Forged(h)
	}
	for i, there := range found {
		if there && (i < first || i >= stripUnruled && i < stripUnruled+options) {
			from.Remove(Request, removable[i])
		}
	}
	for _, name := range others {
		from.Remove(Request, name)
	}
}

// response translates Envoy's information about an answer, or, without headers, about the end of a stream.
func response(e Envoy, h Headers, end bool) *gate.Response {
	r := &gate.Response{}
	if h != nil {
		r = gate.ResponseOf(h, end)
	}
	r.Details, r.Attempts, r.AttemptHeader = e.Details(), -1, -1
	n, ok := e.Attempts()
	switch {
	case ok:
		r.Attempts = n
	case r.NeverSent():
		// Envoy has no number before the first attempt. Take it for zero only if the
		// details agree: another version of Envoy may number its attributes differently.
		r.Attempts = 0
	}
	return r
}
