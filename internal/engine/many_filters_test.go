package engine

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/testbed/bedtest"
)

// TestManyFilters has more filters than a client has connections as a rule: each waits for entries of its log.
func TestManyFilters(t *testing.T) {
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
		bedtest.Eventually(t, "a window is open", func() bool { return u.log.Window().Holds() })
	}
	time.Sleep(3 * time.Second)
	var asked, without int
	for began := time.Now(); time.Since(began) < 2*time.Second; time.Sleep(10 * time.Millisecond) {
		for _, u := range m.filters {
			if asked++; !u.log.Window().Holds() {
				without++
			}
		}
	}
	for i := range 20 {
		if err := m.filters["f0"].filter.Learn(t.Context(), fmt.Sprint(i)); err != nil {
			t.Error(err)
		}
	}
	if without > asked/20 {
		t.Errorf("no window is open at %d of %d times", without, asked)
	}
}
