package faults

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ordergate/ordergate/tests/faults/register"
)

// sections is the model of a number that is guarded well: each section happens at
// one instant between its reading and its writing, so it finds what the one before
// it wrote. One that was refused changes nothing.
var sections = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make(map[string][]porcupine.Operation)
		for _, op := range history {
			key := op.Input.(register.Section).Key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return int64(0) },
	Step: func(state, input, _ any) (bool, any) {
		s := input.(register.Section)
		if s.Outcome == register.Refused {
			return true, state
		}
		return s.Read == state.(int64), s.Wrote
	},
	DescribeOperation: func(input, _ any) string {
		s := input.(register.Section)
		if s.Outcome == register.Refused {
			return fmt.Sprintf("%s: read %d, refused (fence %d)", s.Key, s.Read, s.Fence)
		}
		return fmt.Sprintf("%s: %d -> %d (fence %d)", s.Key, s.Read, s.Wrote, s.Fence)
	},
}

// checkLimit bounds one check. Histories are short: each worker does one section
// after the other, so few overlap.
const checkLimit = time.Minute

// linearizable reports whether a history fits the model. Sections that were never
// written changed nothing and are left out.
func linearizable(t *testing.T, history []register.Section) bool {
	t.Helper()
	switch result := porcupine.CheckOperationsTimeout(sections, operations(history), checkLimit); result {
	case porcupine.Ok:
		return true
	case porcupine.Illegal:
		return false
	default:
		t.Fatalf("checking %d sections: %s", len(history), result)
		return false
	}
}

func operations(history []register.Section) []porcupine.Operation {
	var list []porcupine.Operation
	for _, s := range history {
		if s.Outcome != register.Open {
			list = append(list, porcupine.Operation{
				ClientId: s.Worker, Input: s, Call: int64(s.Call), Return: int64(s.Return),
			})
		}
	}
	return list
}

// mustBeLinearizable fails the test with a picture if a history does not fit.
func mustBeLinearizable(t *testing.T, history []register.Section) {
	t.Helper()
	if linearizable(t, history) {
		return
	}
	file, err := os.CreateTemp("", "faults-*.html") // the test's own directory is removed
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, info := porcupine.CheckOperationsVerbose(sections, operations(history), checkLimit)
	if err := porcupine.Visualize(sections, info, file); err != nil {
		t.Errorf("drawing the history: %v", err)
	}
	t.Errorf("two held one lock, and the fence did not help: see %s", file.Name())
}

// TestChecker gives the checker histories of which the answer is known.
func TestChecker(t *testing.T) {
	at := func(call, ret int, read, wrote int64, o register.Outcome) register.Section {
		return register.Section{
			Key: "k", Read: read, Wrote: wrote, Outcome: o,
			Call: time.Duration(call), Return: time.Duration(ret),
		}
	}
	const applied, refused, open = register.Applied, register.Refused, register.Open
	for _, c := range []struct {
		name    string
		history []register.Section
		want    bool
	}{
		{"nothing", nil, true},
		{"in turn", []register.Section{at(1, 2, 0, 1, applied), at(3, 4, 1, 2, applied)}, true},
		{"a lost update", []register.Section{at(1, 4, 0, 1, applied), at(2, 3, 0, 2, applied)}, false},
		{"a lost update that was refused", []register.Section{at(1, 4, 0, 1, refused), at(2, 3, 0, 2, applied)}, true},
		{"one that was killed", []register.Section{at(1, 0, 0, 1, open), at(2, 3, 0, 2, applied)}, true},
		{"a value of the future", []register.Section{at(1, 2, 2, 1, applied), at(3, 4, 0, 2, applied)}, false},
		{"a stale value", []register.Section{
			at(1, 2, 0, 1, applied), at(3, 4, 1, 2, applied), at(5, 6, 1, 3, applied),
		}, false},
		{"a value that nobody wrote", []register.Section{at(1, 2, math.MaxInt64, 1, applied)}, false},
	} {
		if got := linearizable(t, c.history); got != c.want {
			t.Errorf("%s: linearizable is %v, want %v", c.name, got, c.want)
		}
	}
}
