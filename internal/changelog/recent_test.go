package changelog

import (
	"fmt"
	"testing"
)

// TestRecentItemsOverflow: the oldest remembered item shows whether more may be missing, even if
// that item is cleared.
func TestRecentItemsOverflow(t *testing.T) {
	t.Parallel()
	for _, cleared := range []int{0, 1, 3} {
		var r recent
		for n := range recentItems + 5 {
			i := item{"id", fmt.Sprint(n)}
			if n >= 5 && n < 5+cleared {
				i.field = "doubt"
			}
			r.add(i, uint64(n+1))
		}
		word := item{clearedField, "cleared: up to 9 of log"}
		r.add(word, recentItems+6)
		items, more := r.missing("log", map[item]uint64{}, 0)
		if len(items) != recentItems-1 || !more {
			t.Errorf("%d cleared: %d are missing, more: %v", cleared, len(items), more)
		}
		has := map[item]uint64{word: recentItems + 6}
		if items, more = r.missing("log", has, 9); len(items) != recentItems-1-max(0, cleared-1) || !more {
			t.Errorf("%d cleared, and the log has the clearance: %d are missing, more: %v", cleared, len(items), more)
		}
		has[r.items[r.next]] = 7
		if items, more := r.missing("log", has, 9); len(items) != recentItems-2-max(0, cleared-2) || more {
			t.Errorf("%d cleared, and the log has the oldest: %d are missing, more: %v", cleared, len(items), more)
		}
	}
}

// TestLossOfARepeatedDoubt: of two doubts with the same text, the later is lost, or the log has
// another one that is cleared.
func TestLossOfARepeatedDoubt(t *testing.T) {
	t.Parallel()
	doubt := item{"doubt", "lost: no ID"}
	for _, tc := range []struct{ remembered, has, word, lacking uint64 }{
		{5, 3, 0, 1},
		{5, 5, 0, 0},
		{5, 5, 5, 0}, // cleared by an entry that was not read before
		{5, 7, 0, 0}, // equally good
		{5, 7, 7, 1},
		{5, 7, 6, 0},
	} {
		var r recent
		r.add(doubt, tc.remembered)
		items, more := r.missing("log", map[item]uint64{doubt: tc.has}, tc.word)
		if len(items) != int(tc.lacking) || more {
			t.Errorf("%+v: %v is missing, more: %v", tc, items, more)
		}
	}
}
