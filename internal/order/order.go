// Package order finds the rule of a request and the order that it names.
//
// Start with [NewTable] and [Table.Match]. Old backends accept many spellings of the same
// order, each backend its own: `/orders/%34%32`, `/orders/42;x=1`,
// `?orderId=42&orderId=43`. The package reads the raw bytes that Envoy passes on, and
// accepts one spelling only. A request is Ambiguous if the package is unsure about it, or
// if the most lenient backend could match it to a rule. An Ambiguous request is refused,
// and never forwarded as "another route". docs/order-ids.md lists the spellings, and how
// they were measured. internal/gate decides what to do with a request.
package order

import "iter"

// Request is the part of a request that rules use. Its strings must stay valid during the
// call that receives it, and as long as the [Match] made from it.
type Request struct {
	Method string // as sent: methods are case-sensitive (RFC 9110, 9.1)
	Host   string // :authority, with or without a port
	Target string // :path as sent, query included, undecoded
	Header Header // nil means no headers

	Body      []byte
	BodyState BodyState

	// TraceParent is W3C's traceparent of the proxy's own span, for logs; "": that in Header counts.
	TraceParent string
}

// Size returns the size of the body in bytes. For an unseen body it is the size in the
// headers, or 0 without one.
func (r *Request) Size() int {
	if r.BodyState == BodyUnseen {
		return announcedSize(r.Header)
	}
	return len(r.Body)
}

// BodyState is what is known of a request's body.
type BodyState int8

// The states of a body.
const (
	BodyUnseen   BodyState = iota // it was not read: a rule that needs it returns NeedsBody
	BodyComplete                  // Body is all of it, even if it is empty
	BodyCut                       // it is larger than the buffer
)

// Header iterates over request headers.
type Header interface {
	// Next returns the header at a cursor, with its name in lower case, and the cursor of
	// the next one. Iteration begins with cursor 0. A negative next means that there was no
	// header at this cursor. A repeated header is returned repeatedly, unless the transport
	// has joined its lines.
	Next(cursor int) (name, value string, next int)
}

// HeaderList is headers as pairs of a name, in lower case, and a value. It implements [Header].
type HeaderList [][2]string

// Next implements Header. The cursor is an index.
func (l HeaderList) Next(cursor int) (name, value string, next int) {
	if cursor >= len(l) {
		return "", "", -1
	}
	return l[cursor][0], l[cursor][1], cursor + 1
}

// All yields the name and value of each header. H may be nil.
func All(h Header) iter.Seq2[string, string] {
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

// Result is the kind of a [Match].
type Result int8

// The results. Unruled is the zero value.
const (
	Unruled   Result = iota // no rule matches
	Named                   // a rule matches and the ID is well-formed
	Anonymous               // a rule matches, needs no ID, and there is none
	NeedsBody               // a rule matches, and the ID, or something that may override it, is in the body: match with it, see [Table.MatchBody]
	Invalid                 // a rule matches, and the ID is missing or malformed
	Ambiguous               // backends may read the request in different ways
	TooLarge                // a rule matches, and the body is larger than the rule allows
)

// Match is the result of [Table.Match].
type Match struct {
	Result Result
	Rule   int      // index of the rule as given to NewTable; -1 when Unruled
	ID     string   // the canonical ID when Named, or when NeedsBody and the body does not hold it; may share memory with the request. With parts it is composed of them and of the ID: "acme/42"
	Batch  []string // all IDs, sorted, if the rule takes a list and there are several
	Limit  string   // the canonical ID that the rule's limit counts, when Named and there is one
	Text   string   // the ID, with its parts, as the request spells it, when Named and another text than ID
	Prefix string   // the rule's parts as the request spells them, each with a [Separator] behind it, when Named or Anonymous: "acme/"; "" without parts
	Reason Reason   // why Invalid, Ambiguous or TooLarge

	// Screening means that no rule matches literally. The body, or what chooses the code
	// that runs, may lead to a rule. Rule is then a rule of that backend, whose reply is
	// used.
	Screening bool

	Offset int // of the byte that caused Reason, in the part that Reason names; -1: not a single byte
}

// Found is the rule of a request without its body. It keeps nothing of the request's memory. The zero
// value: the body may lead to any rule.
type Found struct {
	rule int
	way  way
}

// way is how a rule was found.
type way uint8

const (
	literal     way = 1 << iota // by the path
	bare                        // by the path without its session
	otherMethod                 // another rule guards the path under other methods
	otherChoice                 // another rule has the path, and matches by parameters
	screened                    // so what chooses a rule was screened
)
