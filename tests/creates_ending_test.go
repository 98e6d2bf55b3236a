package tests

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestCreatesWhileItEnds has an ordergate end again and again while orders are created
// through it. Each order that a client was told of is found afterwards, by another
// ordergate and by itself when it has been started again.
func TestCreatesWhileItEnds(t *testing.T) {
	t.Parallel()
	rounds := 3
	if n, err := strconv.Atoi(os.Getenv("ROUNDS")); err == nil {
		rounds = n
	}
	kill := func(s *stack) error { s.gate.Kill(); return nil }
	stop := func(s *stack) error {
		if err := s.gate.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		return s.gate.Wait(s.t.Context())
	}
	for _, tt := range []struct {
		name  string
		end   func(*stack) error
		table bool
	}{
		{"stopped", stop, false},
		{"stopped beside a table", stop, true},
		{"killed", kill, false},
		{"killed beside a table", kill, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			change := func(yaml string) string { return yaml }
			if tt.table {
				change = mariaTable(t, bedtest.New(t), 10).fromTable() // which has none of the new orders
			}
			there := settings{backend: b.addr(), orders: 10, gate: change}
			here := there
			here.gate = both(change, edit(t, "  addresses: [", "  member: here\n  addresses: ["))
			other := newStack(t, there)
			s := other.second(here)
			// Inside Envoy, calls end with it. Without a table, that is a doubt for a minute.
			certain := tt.table || *attachment == asSidecar
			var all []int64
			var next atomic.Int64
			next.Store(1000)
			for range rounds {
				made := s.createUntil(tt.end, &next)
				all = append(all, made...)
				other.finds(made)
				if *attachment == asSidecar {
					must(t, s.envoy.Stop())
				}
				s = other.second(here)
				if !tt.table && certain {
					other.reload(t)
				}
				for _, st := range []*stack{s, other} {
					if certain {
						bedtest.Eventually(t, "it is certain", func() bool { return st.must("GET", "/orders/99999999", "").status == 404 })
					}
					st.finds(all)
				}
			}
			t.Logf("%d orders", len(all))
		})
	}
}

// finds looks up orders that exist.
func (s *stack) finds(ids []int64) {
	s.t.Helper()
	for _, id := range ids {
		s.must("GET", fmt.Sprint("/orders/", id), "").want(s.t, 200, "")
	}
}

// createUntil creates orders until the end of ordergate, which it brings about, and returns
// those that clients were told of.
func (s *stack) createUntil(end func(*stack) error, next *atomic.Int64) (made []int64) {
	s.t.Helper()
	const enough, workers = 60, 8
	var mu sync.Mutex
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(made)
	}
	var creating sync.WaitGroup
	for range workers {
		creating.Go(func() {
			for {
				id := next.Add(1)
				a, err := s.send(s.t.Context(), "POST", fmt.Sprint("/orders?do=create&id=", id), "")
				if err != nil || a.status != 201 {
					return
				}
				mu.Lock()
				made = append(made, id)
				mu.Unlock()
			}
		})
	}
	begin := time.Now()
	bedtest.Eventually(s.t, "orders are created", func() bool { return count() >= enough || time.Since(begin) > 20*time.Second })
	must(s.t, end(s))
	creating.Wait()
	if len(made) < enough {
		s.t.Fatalf("%d orders were created", len(made))
	}
	return made
}
