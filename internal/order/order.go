// Package order says which rule a request falls under and which order it
// names.
//
// Start with [NewTable] and [Table.Match]. The package reads requests as the
// raw bytes that Envoy passes on: nothing is unescaped, trimmed or cleaned, so
// that the ID it reports is the ID that stands in the request. What to do about
// the request is decided elsewhere (internal/gate).
package order

// Request is what a rule can see of a request. Its strings need to stay valid
// only as long as the call that is given it and the [Match] made from it.
type Request struct {
	Method string // as sent: methods are case-sensitive (RFC 9110, 9.1)
	Host   string // :authority, with or without a port
	Target string // :path as sent, query included, undecoded
	Header Header // nil means no headers
}

// Header looks up request headers.
type Header interface {
	// Get returns the value of a header, whose name is in lower case, and how
	// many times the header was sent. Values joined by the transport count once.
	Get(name string) (value string, times int)
}

// Result is what a [Table] makes of a request.
type Result int8

// The results. Unruled is the zero value.
const (
	Unruled   Result = iota // no rule matches
	Named                   // a rule matches and the ID is well-formed
	Anonymous               // a rule matches that does without an ID, and there is none
	Invalid                 // a rule matches, and the ID is missing or malformed
	Ambiguous               // a rule matches, and the request names its order more than once
)

// Match is the answer of [Table.Match].
type Match struct {
	Result Result
	Rule   int    // index of the rule as given to NewTable; -1 when Unruled
	ID     string // the canonical ID when Named; may share memory with the request
	Reason string // why Invalid or Ambiguous: a constant text that quotes nothing of the request
}
