package gate

import (
	"context"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/order"
)

// mixed is a filter that tells of each ID by its first letter what memory knows, and by
// the second what is known elsewhere.
type mixed struct {
	Filter // nil: the others are not called
	asked  []string
}

func answerOf(letter byte) Answer {
	return map[byte]Answer{'u': Unknown, 'm': Maybe, 'a': Absent, 'e': NotInMemory}[letter]
}

func (f *mixed) MayContain(id string) Answer { return answerOf(id[0]) }
func (f *mixed) Query(_ context.Context, id string) Answer {
	f.asked = append(f.asked, id)
	if id[0] != 'e' {
		return answerOf(id[0])
	}
	return answerOf(id[1])
}

// TestBatch: a list of orders is absent only if each of them is, wherever that is known.
func TestBatch(t *testing.T) {
	for _, tt := range []struct {
		ids         string
		look, final Answer
	}{
		{"a", Absent, Absent},
		{"a a a", Absent, Absent},
		{"a a m", Maybe, Maybe},
		{"a u m", Unknown, Unknown},
		{"m a", Maybe, Maybe},
		{"u a", Unknown, Unknown},
		{"ea", NotInMemory, Absent},
		{"em", NotInMemory, Maybe},
		{"eu", NotInMemory, Unknown},
		{"ea a", NotInMemory, Absent},
		{"a ea", NotInMemory, Absent},
		{"ea em", NotInMemory, Maybe},
		{"ea ea eu", NotInMemory, Unknown},
		{"ea m", Maybe, Maybe},
		{"ea u", Unknown, Unknown},
		{"a ea a m", Maybe, Maybe},
	} {
		f := &mixed{}
		l := &Lookup{Filter: f}
		ids := strings.Fields(tt.ids)
		m := order.Match{ID: ids[0]}
		if len(ids) > 1 {
			m.Batch = ids
		}
		got := l.mayContain(m)
		if got != tt.look || len(f.asked) > 0 {
			t.Errorf("%s: %d in memory, want %d; asked for %q", tt.ids, got, tt.look, f.asked)
		}
		if got == NotInMemory {
			got = l.lookUp(t.Context(), cloneIDs(m))
		}
		if got != tt.final {
			t.Errorf("%s: %d, want %d", tt.ids, got, tt.final)
		}
	}
	if got := (&Lookup{Filter: &mixed{}}).mayContain(order.Match{}); got != Unknown {
		t.Errorf("of an ID that nobody showed us: %d", got)
	}
}
