package benchmark

import "fmt"

// Target is what a figure is to reach.
type Target struct {
	atLeast bool // else at most
	limit   float64
}

// AtLeast returns the target of a figure of which more is better.
func AtLeast(limit float64) Target { return Target{true, limit} }

// AtMost returns the target of a figure of which less is better.
func AtMost(limit float64) Target { return Target{false, limit} }

func (t Target) String() string {
	if t.atLeast {
		return fmt.Sprintf("at least %.4g", t.limit)
	}
	return fmt.Sprintf("at most %.4g", t.limit)
}

func (t Target) reached(v float64) bool {
	if t.atLeast {
		return v >= t.limit
	}
	return v <= t.limit
}

// Targets is a table that says how far something is.
type Targets struct{ Table }

// NewTargets returns the table of what is to reach its targets.
func NewTargets(what string) *Targets {
	return &Targets{Table{
		Title: "Targets", Note: "The targets of " + what + ", and whether this run reached them.",
		Header: []string{"", "", "target", "here", "reached"},
	}}
}

// Add adds a row about the median of the values. What was not measured gets none.
func (t *Targets) Add(section, what string, target Target, values []float64) {
	if len(values) == 0 {
		return
	}
	here, reached := Median(values), "no"
	if target.reached(here) {
		reached = "yes"
	}
	t.Rows = append(t.Rows, []string{section, what, target.String(), fmt.Sprintf("%.2f", here), reached})
}
