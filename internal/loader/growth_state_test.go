package loader

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
	"github.com/ordergate/ordergate/tests/testbed/redisconntest"
)

// TestGrowthState has one ordergate grow a filter, and another one start.
func TestGrowthState(t *testing.T) {
	t.Parallel()
	client := redisconntest.Connect(t, fmt.Sprintf("{addresses: [%s]}", bedtest.New(t).Redis().Addr()))
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	begin := func() (*filter.Filter, *growthState) {
		f, err := filter.New("orders", filter.Options{Capacity: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return f, &growthState{client, "ordergate:{orders}:state", "pod-7", f, log}
	}
	is := func(want map[string]string) {
		t.Helper()
		got, err := client.HGetAll(t.Context(), "ordergate:{orders}:state").Result()
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("unexpected state (%v) (-want +got):\n%s", err, diff)
		}
	}
	room := func(want uint64) {
		t.Helper()
		f, s := begin()
		s.reserve(t.Context())
		if got := f.Capacity(); got != want {
			t.Errorf("another begins with room for %d IDs, want %d", got, want)
		}
	}
	room(1000)
	f, s := begin()
	began := time.UnixMilli(1_700_000_000_000)
	if err := s.write(t.Context(), filter.Expansion{Running: true, To: 1500, Read: 12, Began: began}); err != nil {
		t.Fatal(err)
	}
	is(map[string]string{"capacity": "1000", "process": "pod-7", "next_capacity": "1500", "read": "12", "began_ms": "1700000000000"})
	if err := f.Reserve(1500); err != nil {
		t.Fatal(err)
	}
	if err := s.write(t.Context(), filter.Expansion{Generation: 2}); err != nil {
		t.Fatal(err)
	}
	is(map[string]string{"capacity": "1500"})
	room(1500)
	// One that is smaller changes nothing.
	_, small := begin()
	if err := small.write(t.Context(), filter.Expansion{}); err != nil {
		t.Fatal(err)
	}
	is(map[string]string{"capacity": "1500"})
	for _, capacity := range []string{"1000000000000000", "many"} {
		client.HSet(t.Context(), "ordergate:{orders}:state", "capacity", capacity)
		room(1000)
	}
}
