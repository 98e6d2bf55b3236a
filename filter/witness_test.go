package filter

import (
	"context"
	"testing"
)

// TestWitness has a doubt with an order that exists. Only a reading that brings the order clears
// it, and any other reading leaves it to an operator.
func TestWitness(t *testing.T) {
	reading := func(ids ...string) func(context.Context, func(string) error) error {
		return func(_ context.Context, add func(string) error) error {
			for _, id := range ids {
				if err := add(id); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for name, live := range map[string]bool{"tables": true, "files": false} {
		t.Run(name, func(t *testing.T) {
			f := mustLoad(t, mustNew(t, Options{Live: live}))
			f.Doubt(Doubt{Reason: "order 7 exists", Recovery: ByOperator, Witness: "7"})
			for range 2 {
				if err := f.Reload(t.Context(), reading("8")); err != nil {
					t.Fatal(err)
				}
				if recovery, reason, ok := f.Doubts(); !ok || recovery != ByOperator || reason != "order 7 exists" {
					t.Errorf("after a reading without it: %v, %s, %v", recovery, reason, ok)
				}
				if _, again := f.Recoverable(); again {
					t.Error("the same reading would be repeated")
				}
			}
			f.Confirm(Entry{Log: "a", Number: 1}, false) // by another instance, whose sources have it
			if err := f.Reload(t.Context(), reading("7")); err != nil {
				t.Fatal(err)
			}
			if _, reason, ok := f.Doubts(); ok {
				t.Errorf("after a reading with it: %s", reason)
			}
		})
	}
}
