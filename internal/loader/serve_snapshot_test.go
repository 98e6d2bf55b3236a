package loader_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/loader"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestServeSnapshot has an operator ask for snapshots.
func TestServeSnapshot(t *testing.T) {
	t.Parallel()
	text := `
listen: {authz: 127.0.0.1:0, proc: "", admin: 127.0.0.1:0}
filters: {orders: {capacity: 100, snapshot: {path: ` + filepath.Join(t.TempDir(), "orders.snap") + `}}, bare: {}}
rules:
  - {name: r, match: {methods: [GET], path: "/{id}"}, id: {path: id}, lookup: {filter: orders}}
`
	c, err := config.Parse("a.yaml", []byte(text), func(string) string { return "" })
	bedtest.Check(t, err)
	s := &admin.Server{Config: c, Filters: make(map[string]admin.Filter), Metrics: metrics.New("", time.Now()), Logger: slog.New(slog.DiscardHandler)}
	opts := &loader.Options{Config: c, Metrics: s.Metrics, Logger: s.Logger}
	for name := range c.Filters {
		l, err := loader.New(t.Context(), opts, name)
		bedtest.Check(t, err)
		s.Filters[name] = admin.Filter{Loader: l}
	}
	l := s.Filters["orders"].Loader
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	bedtest.Eventually(t, "a snapshot is written", func() bool { return l.SnapshotBytes() > 0 })
	handler := s.Handler()
	post := func(change func(r *http.Request), method, path string) (int, string) {
		r := httptest.NewRequest(method, "http://localhost"+path, nil)
		if change != nil {
			change(r)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	canceled := func(r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		*r = *r.WithContext(ctx)
	}
	for _, tc := range []struct {
		name, method, path string
		change             func(r *http.Request)
		busy, tainted      bool
		status             int
		want               string
	}{
		{"good", "POST", "/filters/orders/snapshot", nil, false, false, 200, `"position": null`},
		{"no such filter", "POST", "/filters/none/snapshot", nil, false, false, 404, "there is no filter"},
		{"without a snapshot", "POST", "/filters/bare/snapshot", nil, false, false, 404, "filters.bare has no snapshot"},
		{"by another method", "GET", "/filters/orders/snapshot", nil, false, false, 404, ""},
		{"elsewhere", "POST", "/filters/orders", nil, false, false, 404, ""},
		{"from another site", "POST", "/filters/orders/snapshot", func(r *http.Request) { r.Header.Set("Origin", "http://example.com") }, false, false, 403, ""},
		{"while one is written", "POST", "/filters/orders/snapshot", canceled, true, false, 409, "being written"},
		{"of a filter that lacks IDs", "POST", "/filters/orders/snapshot", nil, false, true, 503, "an order is lost"},
	} {
		var release func()
		if tc.busy {
			release = l.HoldSnapshots()
		}
		if tc.tainted {
			l.Filter().Taint("an order is lost")
		}
		status, body := post(tc.change, tc.method, tc.path)
		if tc.busy {
			release()
		}
		if status != tc.status || !strings.Contains(body, tc.want) {
			t.Errorf("%s: %d %s", tc.name, status, body)
		}
	}
	if n := l.SnapshotErrors(); n != 0 {
		t.Errorf("%d errors were counted", n)
	}
}
