package tests

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestWritesByGet is an old service whose links create and settle orders. The example's Envoy
// leaves ext_proc out of reads, which has to be taken back then.
func TestWritesByGet(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, envoy: allThroughProc(t), gate: edit(t, "  - name: order-create\n", `  - name: create-by-link
    match: {methods: [GET], path: /new.php}
    create: {filter: orders, learn: {response_json: orderId}}
  - name: settle-by-link
    match: {methods: [GET, POST], path: /settle.php}
    id: {query: id}
    settle: {lock: settlement}
  - name: pay-by-link
    match: {methods: [GET], path: /pay.php}
    once: {by: [{header: x-user}]}
  - name: order-create
`)})
	s.must("GET", "/orders/77", "").want(t, 404, "absent")
	s.must("GET", "/new.php?do=create&id=77", "").want(t, 201, "")
	s.must("GET", "/orders/77", "").want(t, 200, "")
	s.must("GET", "/settle.php?id=5", "").want(t, 200, "")
	if key := b.last("key"); key != "order:lock:5" {
		t.Errorf("settled under the lock %q", key)
	}
	for _, verdict := range []string{"", "replayed"} {
		s.must("GET", "/pay.php", "", "x-user", "7").want(t, 200, verdict)
	}
}

// TestWritesPastExtProc leaves ext_proc out of links that settle and create, or has it before
// ext_authz: none of these requests reaches the backend's code, and ordergate names the cause and is
// not ready.
func TestWritesPastExtProc(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "inside Envoy there is one filter")
	for name, envoy := range map[string]func(string) string{"a route without": unhurried(t), "in front": both(both(unhurried(t), throughBoth(t)), procInFront)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			s := newStack(t, settings{backend: b.addr(), orders: 10, envoy: envoy, gate: edit(t, "  - name: order-create\n", linksThatWrite)})
			link := func(method, path string) {
				t.Helper()
				s.must(method, path, "")
				seen := b.seen()
				if got := seen[len(seen)-1].URL.Path; got != "/.ordergate/not-bracketed" {
					t.Errorf("the backend got %s for %s", got, path)
				}
			}
			inFront := name == "in front"
			if inFront {
				link("POST", "/orders/5/settle")
			} else {
				s.must("POST", "/settle.php?id=6", "").want(t, 200, "") // by its route, it reaches ext_proc
			}
			link("GET", "/settle.php?id=5")
			bedtest.Eventually(t, "the log names the first one", func() bool {
				return strings.Contains(gateLog(t, s), "have not reached ext_proc. Unless their clients have left")
			})
			for range 4 {
				link("GET", "/settle.php?id=5")
				link("GET", "/new.php?do=create&id=77")
			}
			bedtest.Eventually(t, "ordergate is not ready", func() bool {
				link("GET", "/settle.php?id=5")
				status, reasons := s.readiness()
				return status == 503 && strings.Contains(reasons["ext_proc"], "none reaches it")
			})
			s.wantLogged("ERROR", "none reaches ext_proc", "settle-by-link")
			s.must("GET", "/orders/77", "").want(t, 404, "absent")
			if !inFront {
				s.must("POST", "/settle.php?id=6", "").want(t, 200, "")
				s.must("POST", "/orders/5/settle", "").want(t, 200, "")
			}
			s.must("POST", "/.ordergate/not-bracketed?seal=x&ordergate=/settle.php", "").want(t, 503, "unavailable")
		})
	}
}

// TestWithoutExtAuthz has a chain with ext_proc alone: settlements are safe, and no lookup is refused. The
// answers to lookups show it, and so do settlements that ext_authz should have sealed.
func TestWithoutExtAuthz(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "inside Envoy there is one filter")
	for method, form := range map[string]func(string) string{"GET": func(yaml string) string { return yaml }, "POST": throughBoth(t)} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			s := newStack(t, settings{backend: b.addr(), orders: 10, envoy: both(form, func(yaml string) string {
				start, end := strings.Index(yaml, partAuthz), strings.Index(yaml, partProc)
				return yaml[:start] + yaml[end:]
			})})
			s.must("POST", "/orders/5/settle", "").want(t, 200, "")
			for range 20 {
				if method == "GET" {
					s.must("GET", "/orders/77?do=answer&status=404", "").want(t, 404, "")
				} else {
					s.must("POST", "/orders/5/settle", "").want(t, 200, "")
				}
			}
			s.wantLogged("ERROR", "none has passed ext_authz")
		})
	}
}

// The comments above the example's filters.
const partAuthz, partProc, partAnswers = "          # 1. Reads", "          # 2. Everything else", "          # 3. Answers"

// TestClientsWhoLeave has clients leave at the start, before their settlements reach ext_proc. That
// is no trouble of Envoy's.
func TestClientsWhoLeave(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "inside Envoy there is one filter")
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, envoy: throughBoth(t)})
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		must(t, err)
		fmt.Fprint(conn, "POST /orders/5/settle HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n")
		time.Sleep(rand.N(100 * time.Microsecond)) // the moment is what is tried
		must(t, conn.(*net.TCPConn).SetLinger(0))  // what follows is a reset
		must(t, conn.Close())
	}
	if status, reasons := s.readiness(); status != 200 {
		t.Errorf("after clients have left: %d %q", status, reasons)
	}
	if log := gateLog(t, s); strings.Contains(log, "none reaches ext_proc") {
		t.Errorf("the log: %s", log)
	}
}

// procInFront has ext_proc before ext_authz.
func procInFront(yaml string) string {
	start, authz, proc := strings.Index(yaml, partAuthz), strings.Index(yaml, partProc), strings.Index(yaml, partAnswers)
	return yaml[:start] + yaml[authz:proc] + yaml[start:authz] + yaml[proc:]
}

// linksThatWrite are rules before the example's.
const linksThatWrite = `  - name: create-by-link
    match: {methods: [GET], path: /new.php}
    create: {filter: orders, learn: {response_json: orderId}}
  - name: settle-by-link
    match: {methods: [GET, POST], path: /settle.php}
    id: {query: id}
    settle: {lock: settlement}
  - name: order-create
`

// TestSwappedListeners has Envoy ask each of ordergate's gRPC services at the listener of the
// other.
func TestSwappedListeners(t *testing.T) {
	t.Parallel()
	if *attachment == asModule {
		t.Skip("inside Envoy there are no listeners")
	}
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, envoy: func(yaml string) string {
		return strings.NewReplacer("cluster_name: ordergate-authz", "cluster_name: ordergate-proc", "cluster_name: ordergate-proc", "cluster_name: ordergate-authz").Replace(yaml)
	}})
	s.must("GET", "/orders/77", "").want(t, 404, "absent")
	s.must("POST", "/orders/5/settle", "").want(t, 200, "")
	if key := b.last("key"); key != "order:lock:5" {
		t.Errorf("settled under the lock %q", key)
	}
}

// allThroughProc takes the setting of the example's route of reads away.
func allThroughProc(t testing.TB) func(string) string {
	if *attachment == asModule {
		return nil
	}
	return both(unhurried(t), without(t, reads))
}
