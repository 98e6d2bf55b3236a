// Package order says which rule a request falls under and which order it
// names.
//
// Start with [NewTable] and [Table.Match]. Old backends take many requests for
// the same order, each in its own way: `/orders/%34%32`, `/orders/42;x=1`,
// `?orderId=42&orderId=43`. The package reads requests as the raw bytes that
// Envoy passes on and accepts one spelling only. What it cannot be sure of, and
// what comes near a rule when read as the laxest backend would, is Ambiguous: to
// be refused, never passed on as "another route". docs/order-ids.md has the list,
// and how it was measured. What to do about a request is decided elsewhere
// (internal/gate).
package order

import "iter"

// Request is what a rule can see of a request. Its strings need to stay valid
// only as long as the call that is given it and the [Match] made from it.
type Request struct {
	Method string // as sent: methods are case-sensitive (RFC 9110, 9.1)
	Host   string // :authority, with or without a port
	Target string // :path as sent, query included, undecoded
	Header Header // nil means no headers

	Body      []byte
	BodyState BodyState
}

// Size returns how large the body is, in bytes: of one that was not seen as its headers say, 0
// where they say nothing.
func (r *Request) Size() int {
	if r.BodyState == BodyUnseen {
		return announcedSize(r.Header)
	}
	return len(r.Body)
}

// BodyState tells what is known of a request's body.
type BodyState int8

// The states of a body.
const (
	BodyUnseen   BodyState = iota // it was not looked at: a rule that needs it says so
	BodyComplete                  // Body is all of it, also if that is nothing
	BodyCut                       // it is larger than what was buffered
)

// Header iterates over request headers.
type Header interface {
	// Next returns the header at a cursor, its name in lower case, and the cursor
	// of the one after it. Iteration begins with cursor 0; a negative next means
	// that there was no header at this cursor. A header that was sent twice comes
	// twice, unless the transport joined the two.
	Next(cursor int) (name, value string, next int)
}

// all yields the name and value of each header; there are none without h.
func all(h Header) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		if h == nil {
			return
		}
		for cursor := 0; ; {
			name, value, next := h.Next(cursor)
			if next < 0 || !yield(name, value) {
				return
			}
			cursor = next
		}
	}
}

// Result is what a [Table] makes of a request.
type Result int8

// The results. Unruled is the zero value.
const (
	Unruled   Result = iota // no rule matches
	Named                   // a rule matches and the ID is well-formed
	Anonymous               // a rule matches that does without an ID, and there is none
	NeedsBody               // a rule matches, and the ID, or what may override it, is in the body: ask again with it
	Invalid                 // a rule matches, and the ID is missing or malformed
	Ambiguous               // backends may read the request in more than one way
	TooLarge                // a rule matches, and the body is larger than it admits
)

// Match is the answer of [Table.Match].
type Match struct {
	Result Result
	Rule   int      // index of the rule as given to NewTable; -1 when Unruled
	ID     string   // the canonical ID when Named, or when NeedsBody and it is elsewhere; may share memory with the request
	Batch  []string // all IDs, sorted, when the rule takes a list and it has several
	Limit  string   // the canonical ID that the rule's limit is for, when Named and there is one
	Reason Reason   // why Invalid, Ambiguous or TooLarge

	// Screening tells that the request is under no rule: it may only be read as one that
	// is, by its body or by what chooses the code that runs. Rule is then a rule of that
	// backend, to answer for it.
	Screening bool

	Offset int // of the byte that made it so, in the part that Reason names; -1: no single one
}
