package filter

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/presence"
)

// lowerToo are the forms of a rule for UUIDs and of one with a pattern.
func lowerToo(id string) (first string, others []string) {
	if lower := strings.ToLower(id); lower != id {
		return lower, []string{id}
	}
	return id, nil
}

// fullLog takes nothing.
type fullLog struct{ sharedLog }

func (*fullLog) Append(context.Context, ...string) error { return errors.New("OOM") }

// TestFormsOfPending learns an order that the change log does not take, then rebuilds the
// filter.
func TestFormsOfPending(t *testing.T) {
	f := mustNew(t, Options{
		Appender: &fullLog{}, Window: open, CanonicalForms: lowerToo,
		Growth: &Growth{AtFill: 1, By: 2, Rescan: func(_ context.Context, add func(string) error) error { return add("LOGGED") }},
	})
	mustLoad(t, f, these("LOGGED"))
	if f.Learn(t.Context(), "LEARNT") == nil {
		t.Error("learned by a full log")
	}
	look := func() {
		t.Helper()
		for _, id := range []string{"LOGGED", "logged", "LEARNT", "learnt"} {
			if a := f.MayContain(id); a != presence.Maybe {
				t.Errorf("%s is %v", id, a)
			}
		}
	}
	look()
	if err := f.Expand(t.Context()); err != nil {
		t.Fatal(err)
	}
	look()
}

func TestLacks(t *testing.T) {
	f := mustLoad(t, mustNew(t, Options{CanonicalForms: lowerToo}))
	f.Add("KNOWN")
	f.add("HALF") // as if one form had been forgotten
	for id, want := range map[string]bool{"KNOWN": false, "known": false, "HALF": true, "NEW": true} {
		if got := f.IsAbsent(t.Context(), id); got != want {
			t.Errorf("%s: %t", id, got)
		}
	}
	if f.Taint("test"); f.IsAbsent(t.Context(), "NEW") {
		t.Error("something is absent in a filter that cannot tell")
	}
}
