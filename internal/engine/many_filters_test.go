package engine

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestManyFilters has more filters than a client has connections as a rule: each waits for entries of its log.
func TestManyFilters(t *testing.T) {
	bedtest.WithoutRace(t)
	t.Parallel()
	const many = 100
	var filters []string
	for i := range many {
		filters = append(filters, fmt.Sprintf("f%d: {capacity: 1000}", i))
	}
	c, err := config.Parse("a.yaml", []byte(`
redis: {mode: embedded}
filters: {`+strings.Join(filters, ", ")+`}
rules: [{name: create, match: {methods: [POST], path: "/orders"}, id: {format: digits}, create: {filter: f0, learn: {response_header: x-id}}}]
`), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	m, err := build(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, u := range m.filters {
		bedtest.Eventually(t, "a window is open", func() bool { return u.Log().Window().Holds() })
	}
	before := m.redis.PoolStats().WaitCount // for a connection; of many that begin at once
	for i := range 20 {
		// On a busy machine the embedded Redis misses the time limit of an append at times.
		bedtest.Eventually(t, "an order is learned", func() bool {
			return m.filters["f0"].Filter().Learn(t.Context(), fmt.Sprint(i)) == nil
		})
	}
	reads := func() (n int) {
		for _, u := range m.filters {
			n += int(u.Log().State().Reads)
		}
		return n
	}
	first := reads()
	bedtest.Eventually(t, "every log is read eight times", func() bool { return reads() >= first+8*many })
	if after := m.redis.PoolStats().WaitCount; after > before {
		t.Errorf("a connection was waited for %d times", after-before)
	}
}
