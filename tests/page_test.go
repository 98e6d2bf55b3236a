package tests

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestPage looks at the page in a real browser, as an operator does, under load: each view, each
// state, and the release of a lock by force.
func TestPage(t *testing.T) {
	t.Parallel()
	backend := newBackend(t)
	s := newStack(t, settings{
		backend: backend.addr(), orders: 1000, gate: both(withToken(t), edit(t, "wait: {tries: 3, every: 100ms}", "wait: {up_to: 45s}")),
		envoy: both(patiently(t), edit(t, "cluster: backend-writes, timeout: 30s", "cluster: backend-writes, timeout: 55s")),
	})
	ctx, leave := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer leave()
	background := func(f func()) { clients.Go(f) }
	at := "http://" + s.GateAddr(s.gate, "admin")
	settle := func(ctx context.Context, id int, do string) {
		_, _ = s.send(ctx, "POST", fmt.Sprintf("/orders/%d/settle?do=%s", id, do), "", "x-request-id", fmt.Sprintf("4d0e1c2a-%d", id))
	}

	background(func() { s.browse(ctx) })
	if *screenshots {
		time.Sleep(2 * time.Minute) // until the plots have a line
	}

	// A settlement that runs, one that waits for it, one whose client has left, and one by Java.
	background(func() { settle(ctx, 11, "hang") })
	bedtest.Eventually(t, "a settlement runs", func() bool { return backend.arrived("/orders/11/settle") == 1 })
	background(func() { settle(ctx, 11, "204") })
	left, gone := context.WithCancel(ctx)
	background(func() { settle(left, 12, "hang") })
	bedtest.Eventually(t, "another runs", func() bool { return backend.arrived("/orders/12/settle") == 1 })
	gone()
	bedtest.Eventually(t, "one waits, and one is held", func() bool {
		return s.metric(`ordergate_lock_waiters{lock="settlement"}`) == "1" && s.metric(`ordergate_lock_outcome_total{lock="settlement",outcome="unknown"}`) == "1"
	})
	must(t, s.redis.HSet(ctx, "order:lock:13", "0b0dd1f4-6d29-4d4b-8c7f-d5b8b1b8c7e1:52", 1).Err())
	for _, path := range []string{"/orders/4%32", "/orders/042;x=1", "/orders/<b>7", "/orders/" + strings.Repeat("9", 10_000)} {
		s.must("GET", path, "")
	}

	b := newBrowser(t, at)
	b.signIn(t)
	b.want("#live", "Live")
	b.want("h1", "Made-up orders are refused, and orders are settled one call at a time.")
	b.want("#now", "absent")
	b.want("#now", "acquired")
	b.want("#locks", "order:lock:11")
	b.want("#locks", "Held by a call that runs")
	b.want("#locks", "1 process waits")
	b.want("#locks", "Held although its call has ended")
	b.want("#locks", "by a Java service")
	b.want("#filters", "ready")
	b.want("#refusals mark", "%")
	b.inspect("the page", 1600, 768, 320)
	b.shoot("page", 1000, "light")
	b.testKeyboard(t)
	b.testWithoutScripts(t)
	b.testTry()
	b.testRelease(t)

	must(t, s.server.Pause()) // what it said before is not what is
	b.want("#locks", ": Redis has not listed the locks since")
	b.want("#filters", "not known: Redis does not answer")
	must(t, s.server.Resume())
	b.want("h1", "Made-up orders are refused")
	b.want("#filters", "passed on last: all IDs")

	s.server.Kill()
	b.want("h1", "Made-up orders pass, because Redis does not answer")
	b.want("h1", "Settlements get 503")
	b.want("#state .do", "Start Redis")
	b.want("#refusals", "Redis, or the table that confirms it, does not answer")
	b.inspect("without Redis", 320)
	b.shoot("page-redis-away", 640, "light")

	// It comes back without its data: the file does not have the orders that were created since.
	must(t, s.server.Restart(ctx))
	b.want("h1", "Made-up orders pass, because filter orders is unknown")
	b.want("#state .do", "run ordergate load --filter orders")
	b.want("#filters", "passed on: all IDs, until ordergate load --filter orders has run")
	b.inspect("in doubt", 768)
	b.shoot("page-doubt", 640, "dark")
	s.operator(commandFile(t, s), "load", "--filter", "orders")
	b.want("h1", "Made-up orders are refused")
	b.want("#filters", "passed on last: all IDs")

	// One whose database accepts connections, and says nothing.
	database, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer database.Close()
	dsn := filepath.Join(t.TempDir(), "dsn")
	must(t, os.WriteFile(dsn, []byte("gate@tcp("+database.Addr().String()+")/shop"), 0o600))
	loading, err := s.GateUnready(ctx, s.Build("./cmd/sidecar", false), strings.Replace(tableOnly, "DSN", dsn, 1))
	must(t, err)
	b.open("http://" + s.GateAddr(loading, "admin"))
	b.want("h1", "Made-up orders pass, because filter orders is loading")
	b.want("#state .do", "Wait until it is ready")
	b.want("#locks", "No lock is held")
	b.want("#refusals", "Nothing was refused since the start")
	b.inspect("while it loads", 1600)
	b.shoot("page-loading", 640, "light")
}

// tableOnly is a configuration with a table.
const tableOnly = `
listen: {authz: "127.0.0.1:0", proc: "127.0.0.1:0", admin: "127.0.0.1:0"}
redis: {mode: embedded}
filters: {orders: {capacity: 10_000, sources: [orders-db]}}
sources: {orders-db: {kind: mysql, dsn_file: DSN, table: orders, id_column: id}}
locks: {settlement: {key: "order:lock:{id}"}}
rules:
- {name: order-lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, format: digits}, lookup: {filter: orders}}
- {name: commission-settle, match: {methods: [POST], path: "/orders/{id}/settle"}, id: {path: id, format: digits}, settle: {lock: settlement}}
`

// browse sends lookups of orders that exist and of others, creates and settlements, until ctx ends.
func (s *stack) browse(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		_, _ = s.send(ctx, "GET", fmt.Sprintf("/orders/%d", 700_000_000_000+i), "")
		_, _ = s.send(ctx, "GET", fmt.Sprintf("/orders/%d", 1+i%1000), "")
		if i%5 == 0 {
			_, _ = s.send(ctx, "POST", fmt.Sprintf("/orders?do=create&id=%d", 2000+i), "")
			_, _ = s.send(ctx, "POST", fmt.Sprintf("/orders/%d/settle", 20+i%900), "")
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// signIn shows the token.
func (b *browser) signIn(t *testing.T) {
	b.inspect("the sign-in", 320)
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), adminToken))
	b.press("main button")
	if b.pathOf() != "/" {
		t.Errorf("signed in at %s", b.pathOf())
	}
}

func (b *browser) testKeyboard(t *testing.T) {
	want := []string{"ordergate", "Now", "Locks", "Filters", "Recent refusals", "Try",
		"Release order:lock:11 ...", "Release order:lock:12 ...", "Release order:lock:13 ...", "request", "Explain"}
	stops := slices.DeleteFunc(b.stops(), func(name string) bool {
		// The others are what the load settles at the moment.
		return strings.HasPrefix(name, "Older ones") || strings.HasPrefix(name, "Release ") && !slices.Contains(want, name)
	})
	if diff := cmp.Diff(want, stops); diff != "" {
		t.Errorf("the tabulator's way (-want +got):\n%s", diff)
	}
}

func (b *browser) testWithoutScripts(t *testing.T) {
	b.scripts(false)
	for _, text := range []string{"Made-up orders are refused", "order:lock:12", "Reload the page"} {
		if got := b.text("body"); !strings.Contains(got, text) {
			t.Errorf("without scripts the page has no %q: %s", text, got)
		}
	}
	b.scripts(true)
}

// testTry asks about a request with a fault.
func (b *browser) testTry() {
	b.do(chromedp.SendKeys(chromedp.CSS("#request"), "curl -X POST 'http://shop/orders/4%32/settle'"))
	b.press("main form[action='/page/try'] button")
	b.want("h1", "What ordergate would do")
	b.want("mark", "%")
	b.inspect("a request that was tried", 320)
	b.open(b.at)
}

// testRelease releases a lock by force.
func (b *browser) testRelease(t *testing.T) {
	b.press("[aria-label='Release order:lock:12 ...']")
	b.want("main", "The backend may still work on this order")
	b.inspect("a lock", 768)
	for _, token := range []string{"wrong", adminToken} {
		b.do(chromedp.SetValue(chromedp.CSS("#reason"), "the service is gone"), chromedp.SetValue(chromedp.CSS("#token"), token))
		b.press("button.danger")
	}
	b.want("h1", "The lock is released")
	b.inspect("a released lock", 320)
	b.open(b.at)
	bedtest.Eventually(t, "the lock is gone", func() bool {
		return eval[bool](b, "!document.querySelector(\"[aria-label='Release order:lock:12 ...']\")")
	})
}
