package timeouts

import (
	"os"
	"testing"
	"time"

	"github.com/ordergate/ordergate/config"
)

// TestLongestLearn compares it with the leases and windows that an answer may have to be kept back
// for: it is longer, or a client is told of an order that others may refuse.
func TestLongestLearn(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		lease, freshness string
		over             time.Duration // until no window holds that began before
	}{
		{"200ms", "{window: 500ms}", 560 * time.Millisecond},
		{"2s", "{window: 100ms}", 560 * time.Millisecond}, // that of the other filter
		{"10s", "{window: 500ms}", 560 * time.Millisecond},
		{"2s", "{window: 5s}", 5500 * time.Millisecond},
		{"10s", "none", 0},
	} {
		text := `
redis: {mode: embedded}
filters: {orders: {change_log: {lease: ` + tc.lease + `}, freshness: ` + tc.freshness + `}, others: {}}
rules: [{name: lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, format: digits}, lookup: {filter: orders}}]
`
		c, err := config.Parse("a.yaml", []byte(text), os.Getenv)
		if err != nil {
			t.Fatal(err)
		}
		longest := max(c.Filters["orders"].ChangeLog.Lease, c.Filters["others"].ChangeLog.Lease)
		if got, least := LongestLearn(c), 2*Append+longest+longest/10+2*tc.over; got < least || got > least+time.Second {
			t.Errorf("lease %s, freshness %s: %v, want %v and a little", tc.lease, tc.freshness, got, least)
		}
	}
}

// TestAnswerDelaysWithKey checks that the answer of a create with a key is held for the time of
// its storing, too.
func TestAnswerDelaysWithKey(t *testing.T) {
	create := config.Create{Filter: "orders"}
	once := create
	once.Once = &config.Once{By: []string{config.OnceIdempotencyKey}}
	held := AnswerDelays(&config.Config{
		Filters: map[string]config.Filter{"orders": {}},
		Rules:   []config.Rule{{Name: "plain", Create: &create}, {Name: "once", Create: &once}},
	})
	if got := held[1].Longest - held[0].Longest; got != 2*time.Second {
		t.Errorf("held %v longer, want 2s", got)
	}
}
