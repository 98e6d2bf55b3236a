package envoymodule

import (
	"slices"
	"strconv"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// Headers are those of a message: names in lower case, repeated ones repeated.
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

// request shows a request to the gate, in Envoy's memory. A body is that so far.
func (h Headers) request(body []byte, state order.BodyState) order.Request {
	req := order.Request{Header: h, Body: body, BodyState: state}
	left := 3
	for i := range h {
		if name := h[i].Name.string(); name == "" || name[0] != ':' {
			continue
		} else if into := pseudo(&req, name); into != nil {
			*into = h[i].Value.string()
			if left--; left == 0 {
				break
			}
		}
	}
	return req
}

func pseudo(req *order.Request, name string) *string {
	switch name {
	case ":method":
		return &req.Method
	case ":authority":
		return &req.Host
	case ":path":
		return &req.Target
	}
	return nil
}

// removable are headers that are taken off a request, besides those that are forged. Only
// ordergate may send those of its own, the first four; the next two would let a client name
// a path that no rule has seen; and without the last three an answer can be read. Apache cuts
// the answer of a script to a Range, or makes a 416 of it, whatever the method.
var removable = [...]string{
	gate.HeaderKey, gate.HeaderFence, gate.HeaderLease, gate.HeaderVerdict,
	"x-original-url", "x-rewrite-url",
	"accept-encoding", "range", "if-range",
}

// removableInitials are the letters that they, and those that are forged, begin with.
var removableInitials = [256]bool{'x': true, 'a': true, 'r': true, 'i': true}

// How many of removable are taken off.
const (
	stripOwned   = 4
	stripUnruled = 6
)

// strip takes the first so many of removable off a request, what is forged, and the last three
// if the answer has to be whole and plain. Which are there is seen here: to ask Envoy for each
// would cost more than all the rest. All are found before any is removed, which frees its memory.
func (h Headers) strip(from Envoy, first int, whole bool) {
	var found [len(removable)]bool
	forged := false
	for i := range h {
		if name := h[i].Name.string(); name != "" && removableInitials[name[0]] {
			if at := slices.Index(removable[:], name); at >= 0 {
				found[at] = true
			} else if order.IsOurs(name) {
				forged = true
			}
		}
	}
	var others []string
	if forged {
		others = gate.Forged(h)
	}
	for i, there := range found {
		if there && (i < first || whole && i >= stripUnruled) {
			from.Remove(Request, removable[i])
		}
	}
	for _, name := range others {
		from.Remove(Request, name)
	}
}

// status returns the status of an answer, -1 if it has none.
func (h Headers) status() int {
	n, err := strconv.Atoi(h.Get(":status"))
	if err != nil {
		return -1
	}
	return n
}

// response translates what Envoy tells of an answer, or of the end of a stream: without
// headers.
func response(e Envoy, h Headers) *gate.Response {
	r := &gate.Response{Attempts: -1, AttemptHeader: -1, Details: e.Details()}
	if h != nil {
		r.Status = h.status()
		r.HasServiceTime = h.Get("x-envoy-upstream-service-time") != ""
	}
	n, ok := e.Attempts()
	switch {
	case ok:
		r.Attempts = n
	case r.NeverSent():
		// Envoy has no number before the first attempt. Only with details that say the
		// same is that taken for none: another Envoy may number its attributes otherwise.
		r.Attempts = 0
	}
	return r
}
