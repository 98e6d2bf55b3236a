// Package presence has the answers to the question whether an order exists. See [Answer].
package presence

import "fmt"

// Answer is what a filter, or a set in Redis, answers about an ID.
type Answer int8

// The answers. Unknown is the zero value: a missing answer rejects nothing.
const (
	Unknown     Answer = iota // there is no certain answer now
	Maybe                     // the order may exist
	Absent                    // the order did not exist at the time of the call
	NotInMemory               // memory does not hold the answer, Redis may
)

// String returns the answer in lower case.
func (a Answer) String() string {
	switch a {
	case Unknown:
		return "unknown"
	case Maybe:
		return "maybe"
	case Absent:
		return "absent"
	case NotInMemory:
		return "elsewhere"
	}
	return fmt.Sprintf("answer(%d)", int8(a))
}
