package changelog

import (
	"fmt"
	"testing"
)

// TestMoreIsLostThanIsRemembered: the oldest that is remembered tells whether there may be
// more, whatever was cleared before it.
func TestMoreIsLostThanIsRemembered(t *testing.T) {
	t.Parallel()
	for _, cleared := range []int{0, 1, 3} {
		var r recent
		for n := range remembered + 5 {
			i := item{"id", fmt.Sprint(n)}
			if n >= 5 && n < 5+cleared {
				i.field = "doubt"
			}
			r.add(i, uint64(n+1))
		}
		r.cleared(remembered)
		items, more := r.lacking(map[item]uint64{})
		if len(items) != remembered-cleared || !more {
			t.Errorf("%d cleared: %d are lacking, more: %v", cleared, len(items), more)
		}
		has := map[item]uint64{{"id", fmt.Sprint(5 + cleared)}: uint64(6 + cleared)}
		if items, more := r.lacking(has); len(items) != remembered-cleared-1 || more {
			t.Errorf("%d cleared, and the log has the oldest: %d are lacking, more: %v", cleared, len(items), more)
		}
	}
}

// TestSameDoubtIsLost: of two doubts of the same words the later one is lost.
func TestSameDoubtIsLost(t *testing.T) {
	t.Parallel()
	var r recent
	doubt := item{"doubt", "lost: no ID"}
	r.add(doubt, 3)
	r.add(doubt, 5)
	if items, more := r.lacking(map[item]uint64{doubt: 3}); len(items) != 1 || more {
		t.Errorf("%v is lacking, more: %v", items, more)
	}
	if items, more := r.lacking(map[item]uint64{doubt: 5}); len(items) != 0 || more {
		t.Errorf("%v is lacking, more: %v", items, more)
	}
}
