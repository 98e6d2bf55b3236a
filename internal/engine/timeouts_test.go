package engine

import (
	"testing"
	"time"

	"github.com/ordergate/ordergate/config"
)

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
