package explain

import (
	"github.com/ordergate/ordergate/internal/gate"
)

// conditionsWithDedup replaces conditions for a create whose order may exist.
var conditionsWithDedup = [gate.Verdicts]string{
	gate.VerdictNone:        "if the order does not exist",
	gate.VerdictDuplicate:   "if the order exists",
	gate.VerdictUnknown:     "if the order cannot be looked up now",
	gate.VerdictUnavailable: "if the order cannot be looked up now",
}

// becauseOfDedup explains who decides on a create whose order may exist.
const becauseOfDedup = "the order ID is well-formed: the filter decides whether the order is new, and the table if the filter cannot; the new ID is learned from the answer"

// TableState is what the table of a rule's dedup has of an order now.
type TableState struct {
	Source string  `json:"source"`
	Exists *bool   `json:"exists"` // null: it could not be looked up
	Error  *string `json:"error"`
}

// String describes the state in one line.
func (s *TableState) String() string {
	switch {
	case s.Exists == nil:
		return s.Source + ": not reachable: " + *s.Error
	case *s.Exists:
		return s.Source + " has the order"
	}
	return s.Source + " does not have the order"
}

// Confirms returns the source that confirms the create, or "".
func (e *Explanation) Confirms() string {
	if e.create == nil || e.create.Dedup == nil {
		return ""
	}
	return e.create.Dedup.Confirm
}
