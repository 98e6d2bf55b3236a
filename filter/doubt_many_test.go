package filter

import (
	"fmt"
	"testing"

	"github.com/ordergate/ordergate/internal/presence"
)

// TestWordForMoreDoubtsThanAreToldApart: somebody's word is good for all entries that it names,
// also if what one of the log's readers found by itself was added to the last of them.
func TestWordForMoreDoubtsThanAreToldApart(t *testing.T) {
	t.Parallel()
	f := mustLoad(t, mustNew(t, Options{}))
	for n := range uint64(maxDoubts + 1) {
		f.Doubt(Doubt{Reason: fmt.Sprint("an abandoned create ", n), Recovery: ByOperator, Orders: true, Entry: Entry{Log: "log", Number: n + 1}})
	}
	f.Doubt(Doubt{Reason: "the change log is read for the first time", Recovery: ByReload, Orders: true})
	f.Doubt(Doubt{Reason: "a gap", Recovery: ByOperator, Orders: true})
	f.Doubt(Doubt{Reason: "a gap", Recovery: ByOperator, Orders: true, Entry: Entry{Log: "log", Number: 100}})
	f.Confirm(Entry{Log: "log", Number: 99}, false)
	if cure, _, ok := f.Doubts(); !ok || cure != ByOperator {
		t.Errorf("%v is enough for an entry behind what was named", cure)
	}
	f.Confirm(Entry{Log: "log", Number: 100}, false)
	if cure, reason, ok := f.Doubts(); !ok || cure != ByReload {
		t.Errorf("%v is needed, of %q, want a reading", cure, reason)
	}
	if err := f.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.MayContain("1"); got != presence.Absent {
		t.Errorf("%v, want absent", got)
	}
}
