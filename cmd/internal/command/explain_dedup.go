package command

import (
	"context"
	"log/slog"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/loader"
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

// tableState is what the table of a rule's dedup has of an order now.
type tableState struct {
	Source string  `json:"source"`
	Exists *bool   `json:"exists"` // null: it could not be looked up
	Error  *string `json:"error"`
}

// lookUpTable looks the order of a create up, as the server does for an order that the filter does
// not take for new. It returns nil if the server would look nothing up. It blocks for the timeout
// of the rule's dedup at most.
func lookUpTable(ctx context.Context, env *environment, e *explanation) (*tableState, error) {
	if e.create == nil || e.create.Dedup == nil || e.ID == nil {
		return nil, nil
	}
	c, err := env.loadPart("filters", "rules", "sources")
	if err != nil {
		return nil, err
	}
	state := &tableState{Source: e.create.Dedup.Confirm}
	for i := range c.Rules {
		if c.Rules[i].Name != *e.Rule {
			continue
		}
		confirmer, err := loader.NewConfirmer(c, &c.Rules[i], slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		defer confirmer.Close()
		exists, err := confirmer.Exists(ctx, *e.ID)
		if err != nil {
			state.Error = new(err.Error())
		} else {
			state.Exists = &exists
		}
	}
	return state, nil
}

// String describes the state in one line.
func (s *tableState) String() string {
	switch {
	case s.Exists == nil:
		return s.Source + ": not reachable: " + *s.Error
	case *s.Exists:
		return s.Source + " has the order"
	}
	return s.Source + " does not have the order"
}
