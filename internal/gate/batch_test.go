package gate

import (
	"context"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
)

// mixed is a filter whose answer about an ID is in the ID: the first letter is the answer of
// memory, the second that of a query.
type mixed struct {
	Filter  // nil: the others are not called
	queried []string
}

func answerOf(letter byte) presence.Answer {
	return map[byte]presence.Answer{'u': presence.Unknown, 'm': presence.Maybe, 'a': presence.Absent, 'e': presence.NotInMemory}[letter]
}

func (f *mixed) MayContain(id string) presence.Answer { return answerOf(id[0]) }
func (f *mixed) Query(_ context.Context, id string) presence.Answer {
	f.queried = append(f.queried, id)
	if id[0] != 'e' {
		return answerOf(id[0])
	}
	return answerOf(id[1])
}

// TestBatch checks that a list of orders is absent only if each of them is, in memory or by a query.
func TestBatch(t *testing.T) {
	for _, tt := range []struct {
		ids         string
		look, final presence.Answer
	}{
		{"a", presence.Absent, presence.Absent},
		{"a a a", presence.Absent, presence.Absent},
		{"a a m", presence.Maybe, presence.Maybe},
		{"a u m", presence.Unknown, presence.Unknown},
		{"m a", presence.Maybe, presence.Maybe},
		{"u a", presence.Unknown, presence.Unknown},
		{"ea", presence.NotInMemory, presence.Absent},
		{"em", presence.NotInMemory, presence.Maybe},
		{"eu", presence.NotInMemory, presence.Unknown},
		{"ea a", presence.NotInMemory, presence.Absent},
		{"a ea", presence.NotInMemory, presence.Absent},
		{"ea em", presence.NotInMemory, presence.Maybe},
		{"ea ea eu", presence.NotInMemory, presence.Unknown},
		{"ea m", presence.Maybe, presence.Maybe},
		{"ea u", presence.Unknown, presence.Unknown},
		{"a ea a m", presence.Maybe, presence.Maybe},
	} {
		f := &mixed{}
		l := &Lookup{Filter: f}
		ids := strings.Fields(tt.ids)
		m := order.Match{ID: ids[0]}
		if len(ids) > 1 {
			m.Batch = ids
		}
		got := l.mayContain(&m)
		if got != tt.look || len(f.queried) > 0 {
			t.Errorf("%s: %d in memory, want %d; queried for %q", tt.ids, got, tt.look, f.queried)
		}
		final := verdictOf(got)
		if got == presence.NotInMemory {
			final = l.lookUp(t.Context(), cloneIDs(&m))
		}
		if want := verdictOf(tt.final); final != want {
			t.Errorf("%s: %s, want %s", tt.ids, final, want)
		}
	}
	if got := (&Lookup{Filter: &mixed{}}).mayContain(&order.Match{}); got != presence.Unknown {
		t.Errorf("without an ID: %d", got)
	}
}
