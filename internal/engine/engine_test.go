package engine

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// build makes an engine and starts it.
func build(ctx context.Context, c *config.Config, log *slog.Logger) (*Engine, error) {
	m, err := New(ctx, c, "test", log)
	if err == nil {
		m.Start()
	}
	return m, err
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ordergate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAfterGC(t *testing.T) {
	cycles := make(chan struct{}, 2)
	afterGC(func() bool {
		cycles <- struct{}{}
		return len(cycles) < cap(cycles)
	})
	bedtest.Eventually(t, "it was called after two collections", func() bool {
		runtime.GC()
		return len(cycles) == cap(cycles)
	})
}

func TestGCPercent(t *testing.T) {
	t.Parallel()
	for used, want := range map[uint64]int{0: 400, 16 << 20: 400, 32 << 20: 200, 128 << 20: 50, 360 << 20: 25, 54 << 30: 25} {
		if got := gcPercent(used); got != want {
			t.Errorf("gcPercent(%d) = %d, want %d", used, got, want)
		}
	}
}

// TestCloseTwice closes an engine again, as a deferred Close does after an explicit one.
func TestCloseTwice(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("a.yaml", []byte("rules: [{name: health, match: {methods: [GET], path: /health}, pass: true}]"), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	m, err := build(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	m.Close()
}

// TestStartWithoutRedis starts while Redis does not answer: the log says so before the first settlement.
func TestStartWithoutRedis(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	bedtest.Check(t, client.Do(t.Context(), "client", "pause", "3000", "all").Err())
	c, err := config.Parse("a.yaml", []byte("redis: {addresses: ["+server.Addr()+"]}\nlocks: {settlement: {}}\nrules:\n"+
		`  - {name: settle, match: {methods: [POST], path: "/orders/{id}/settle"}, id: {path: id}, settle: {lock: settlement}}`), os.Getenv)
	bedtest.Check(t, err)
	log := &bedtest.Log{}
	m, err := build(t.Context(), c, slog.New(slog.NewTextHandler(log, nil)))
	bedtest.Check(t, err)
	defer m.Close()
	for _, line := range []string{"Redis does not answer at the start", "Redis answers now"} {
		bedtest.Eventually(t, line, func() bool { return strings.Contains(log.String(), line) })
	}
}

// TestRefusedWithoutRedis has readiness name what is refused while Redis does not answer, and why first.
func TestRefusedWithoutRedis(t *testing.T) {
	t.Parallel()
	const create = `create: {filter: orders, learn: {response_header: x-id}`
	for _, tc := range []struct{ name, rule, reason string }{
		{"a settlement", "settle: {lock: settlement}", "settlements are refused: "},
		{"a create with a lock", create + ", lock: settlement}", "creates with a lock are refused: "},
		{"a create", create + "}", "Redis does not answer: "},
		{"a key", "once: {by: idempotency-key}", "calls with a key are refused: "},
		{"both", "settle: {lock: settlement}, once: {by: idempotency-key}", "settlements and calls with a key are refused: "},
		{"observed", "settle: {lock: settlement}, mode: observe", "Redis does not answer: "},
		{"a lookup", "lookup: {filter: orders}", "Redis does not answer: "},
	} {
		c, err := config.Parse("a.yaml", []byte(`
redis: {addresses: ["127.0.0.1:1"]}
filters: {orders: {}}
locks: {settlement: {}}
rules: [{name: rule, match: {methods: [PUT], path: "/orders/{id}"}, id: {path: id, format: digits}, `+tc.rule+`}]
`), os.Getenv)
		if err != nil {
			t.Fatal(tc.name, err)
		}
		m, err := build(t.Context(), c, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(tc.name, err)
		}
		bedtest.Eventually(t, tc.name, func() bool {
			list := m.conditions(t.Context(), false)
			return list[1].Name == "redis" && strings.HasPrefix(list[1].Reason, tc.reason) && strings.Contains(list[1].Reason, "refused") &&
				list[2].Name == "filter orders" && strings.Contains(list[2].Reason, "connection refused; its sources have not been read")
		})
		m.Close()
	}
}

// TestFilterWithoutSources has the log say that a filter refuses every order that was there
// before it.
func TestFilterWithoutSources(t *testing.T) {
	t.Parallel()
	csv := filepath.Join(t.TempDir(), "orders.csv")
	if err := os.WriteFile(csv, []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, filter, lookup string
		warns                bool
	}{
		{"none", "{}", "lookup: {filter: orders}", true},
		{"one", "{sources: [seed]}", "lookup: {filter: orders}", false},
		{"none, and no lookup", "{}", "create: {filter: orders, learn: {response_header: x-id}}", false},
		{"none, and observed", "{}", "lookup: {filter: orders}, mode: observe", false},
	} {
		text := `
redis: {mode: embedded}
filters: {orders: ` + tc.filter + `}
sources: {seed: {kind: csv, path: ` + csv + `}}
rules: [{name: rule, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, format: digits}, ` + tc.lookup + `}]
`
		c, err := config.Parse("a.yaml", []byte(text), os.Getenv)
		if err != nil {
			t.Fatal(tc.name, err)
		}
		var log bedtest.Log
		m, err := New(t.Context(), c, "test", slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(tc.name, err)
		}
		m.Close()
		if got := strings.Contains(log.String(), "the filter has no sources"); got != tc.warns {
			t.Errorf("%s: %s", tc.name, log.String())
		}
	}
}

// TestAnswerOutlastsLongerWindows has another ordergate, with a longer window, say nothing any more.
func TestAnswerOutlastsLongerWindows(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("a.yaml", []byte(`
redis: {mode: embedded}
filters: {orders: {change_log: {lease: 200ms}, freshness: {window: 100ms}}}
rules: [{name: create, match: {methods: [POST], path: "/orders"}, id: {format: digits}, create: {filter: orders, learn: {response_header: x-id}}}]
`), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	m, err := build(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	unit := m.filters["orders"]
	bedtest.Eventually(t, "a window is open", func() bool { return unit.Log().Window().Holds() })
	const window = 3 * time.Second
	reader := redis.Z{Member: "another#1~/3000"}
	_, err = m.redis.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.ZAdd(t.Context(), "ordergate:{orders}:readers", reader)
		p.ZAdd(t.Context(), "ordergate:{orders}:reads", reader)
		p.HIncrBy(t.Context(), "ordergate:{orders}:meta", "readers", 1)
		return p.HSet(t.Context(), "ordergate:{orders}:meta", "window", window.Milliseconds()).Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err = unit.Filter().Learn(t.Context(), "1001")
	if took := time.Since(began); err != nil || took < window {
		t.Errorf("the answer may be passed on after %v, while another ordergate refuses by a window of %v: %v", took, window, err)
	}

	// Who ends this ordergate is not kept waiting.
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	cancel()
	began = time.Now()
	if err := unit.Filter().Learn(ctx, "1002"); err == nil || time.Since(began) > window/2 {
		t.Errorf("cancelled, it took %v: %v", time.Since(began), err)
	}
}
