package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// formRule creates orders as a form of PHP does: the answer leads to the new order. In the
// next one the client chooses the ID, and the last one learns from a header.
const formRule = `
  - name: form-create
    match: {methods: [POST], path: /orders.php}
    create: {filter: orders, learn: {response_header: Location, pattern: "/orders/([0-9]+)$"}}

  - name: chosen-create
    match: {methods: [POST], path: /chosen}
    id: {query: id}
    create: {filter: orders, learn: {response_json: orderId}}

  - name: named-create
    match: {methods: [POST], path: /named}
    create: {filter: orders, learn: {response_header: X-New-Order}}

  - name: order-create
`

// withForms adds it to the example's rules.
func withForms(t testing.TB) func(string) string {
	return edit(t, "\n  - name: order-create\n", formRule)
}

// fromTable has the filter read a table, and not the file. A transaction takes a second.
func (o *orderTable) fromTable() func(string) string {
	file := filepath.Join(o.t.TempDir(), "dsn")
	must(o.t, os.WriteFile(file, []byte(o.dsn), 0o600))
	return edit(o.t, "sources: [seed]", "sources: [orders-db]", "\nsources:\n", fmt.Sprintf(
		"\nsources:\n  orders-db: {kind: %s, dsn_file: %s, table: orders, id_column: id, overlap: 1s}\n", o.kind, file))
}

// answering is a request to create an order that the backend answers like that.
func answering(path string, status int, pairs ...string) string {
	query := url.Values{"do": {"answer"}, "status": {fmt.Sprint(status)}}
	for i := 0; i+1 < len(pairs); i += 2 {
		query.Set(pairs[i], pairs[i+1])
	}
	return path + "?" + query.Encode()
}

// TestCreatesLearned has creates succeed, or fail for certain, in every way but a plain
// 201. Nothing else becomes uncertain by them.
func TestCreatesLearned(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: withForms(t), envoy: withTestRoutes})
	for _, tt := range []struct {
		name, path, route string
		status            int
		id                string // that is known after it
	}{
		{"see other", answering("/orders.php", 303, "location", "/orders/1001"), "", 303, "1001"},
		{"found", answering("/orders.php", 302, "location", "https://shop.example/orders/1002"), "", 302, "1002"},
		{"created at", answering("/orders.php", 201, "location", "/orders/1003"), "", 201, "1003"},
		{"conflict", answering("/orders", 409, "body", `{"error":"exists","orderId":1004}`), "", 409, "1004"},
		{"conflict over what the request names", answering("/chosen", 409, "id", "1005"), "", 409, "1005"},
		{"in a header", answering("/named", 200, "named", "1007"), "", 200, "1007"},
		{"in a header twice", answering("/named", 200, "named", "1008") + "&named=1008", "", 200, "1008"},
		{"503 that names the order", answering("/orders", 503, "body", `{"orderId":1009}`), "", 503, "1009"},
		{"invalid", answering("/orders", 422, "body", `{"orderId":1006}`), "", 422, ""},
		{"a fault", answering("/orders", 500), "", 500, ""},
		{"refused", "/orders", "refused", 503, ""},
		{"no endpoints", "/orders", "empty", 503, ""},
		{"no such cluster", "/orders", "nocluster", 503, ""},
		{"redirect", "/orders", "redirect", 301, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.id != "" {
				s.must("GET", "/orders/"+tt.id, "").want(t, 404, "absent")
			}
			s.must("POST", tt.path, "", "x-test-route", tt.route).want(t, tt.status, "")
			if tt.id != "" {
				s.must("GET", "/orders/"+tt.id, "").want(t, 200, "")
			}
			s.must("GET", "/orders/9999", "").want(t, 404, "absent")
		})
	}
}

// TestCreatesInDoubt has creates end so that nobody knows which order they made: nothing
// is absent until the table was read again.
func TestCreatesInDoubt(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	bed := bedtest.New(t)
	table := mariaTable(t, bed, 10)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: both(withForms(t), table.fromTable()), envoy: withTestRoutes})
	// The first answer waits for windows of the era before, and the table would be read again meanwhile.
	s.must("POST", "/orders?do=create&id=2999", "").want(t, 201, "")
	for i, tt := range []struct {
		name, path, route string
		status            int // 0: the client leaves; -1: any
		learned           string
		answered          bool // the order existed before the answer; else it is made later
	}{
		{"conflict", answering("/orders", 409, "body", `{"error":"exists"}`), "", 409, "", true},
		{"named twice, in headers", answering("/named", 201, "named", "2004") + "&named=2005", "", 201, "", true},
		{"a gateway's timeout", answering("/orders", 504), "", 504, "", false},
		{"503 of a mesh's proxy", answering("/orders", 503), "", 503, "", false},
		{"not acceptable", answering("/orders", 406), "", 406, "", false},
		{"sent elsewhere", answering("/orders.php", 302, "location", "/login"), "", 302, "", true},
		{"of another form", answering("/orders.php", 303, "location", "/orders/0042"), "", 303, "", true},
		{"created, unnamed", answering("/orders", 201, "body", `{"status":"new"}`), "", 201, "", true},
		{"timeout", "/orders?first=hangs", "timeout", 504, "", false},
		{"timeout of a form", "/orders.php?first=hangs", "timeout", 504, "", false},
		{"reset", "/orders?do=reset", "", 503, "", false},
		{"a second attempt is answered", "/orders?do=create&id=2001&first=hangs", "retry", 201, "2001", false},
		{"a second attempt fails", answering("/orders", 500, "first", "hangs"), "retry", 500, "", false},
		{"the client leaves", "/orders?first=hangs&n=2", "", 0, "", false},
		{"the client leaves a form", "/orders.php?first=hangs&n=2", "", 0, "", false},
		{"reset in the answer", "/orders?do=reset-in-body", "", -1, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bedtest.Eventually(t, "the filter is certain", func() bool { return s.must("GET", "/orders/9999", "").status == 404 })
			before := s.doubts()
			if tt.answered {
				table.insert(3000 + i)
			}
			// The table may have been read again before an answer that waits reaches the client.
			doubted := func() bool { return s.doubts() > before }
			if tt.status == 0 {
				s.abort(b, tt.path)
				bedtest.Eventually(t, "there is a doubt", doubted)
			} else {
				if tt.path == "/orders?do=reset-in-body" {
					b.goOn() // all that hangs, but nothing does any more
				}
				a, err := s.send(t.Context(), "POST", tt.path, "", "x-test-route", tt.route)
				if tt.status > 0 && (err != nil || a.status != tt.status) {
					t.Errorf("got %d, %v", a.status, err)
				}
				if tt.status < 0 { // the client may hear of the end before ordergate does
					bedtest.Eventually(t, "there is a doubt", doubted)
				}
				if !doubted() {
					t.Error("there is no doubt")
				}
			}
			if !tt.answered { // what it made, and no client was told of
				table.insert(3000 + i)
			}
			bedtest.Eventually(t, "the filter is certain again", func() bool { return s.must("GET", "/orders/9999", "").status == 404 })
			s.must("GET", fmt.Sprint("/orders/", 3000+i), "").want(t, 200, "")
			if tt.learned != "" {
				s.must("GET", "/orders/"+tt.learned, "").want(t, 200, "")
			}
		})
	}
}

// doubts counts those about creates so far.
func (s *stack) doubts() (n int) {
	s.t.Helper()
	for _, kind := range []string{"lost", "running"} {
		count, err := strconv.Atoi(s.metric(`ordergate_filter_doubts_total{filter="orders",kind="` + kind + `"}`))
		must(s.t, err)
		n += count
	}
	return n
}

// abort sends a request, and leaves when the backend has it.
func (s *stack) abort(b *backend, target string) {
	s.t.Helper()
	path, _, _ := strings.Cut(target, "?")
	before := b.arrived(path)
	ctx, leave := context.WithCancel(s.t.Context())
	done := s.inBackground(ctx, target)
	bedtest.Eventually(s.t, "the backend has it", func() bool { return b.arrived(path) > before })
	leave()
	<-done
}

// TestCreatedLate has the backend make an order after its client has left, and after all
// ordergates have heard of that: no reading from before counts.
func TestCreatedLate(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	bed := bedtest.New(t)
	table := mariaTable(t, bed, 10)
	with := settings{backend: b.addr(), orders: 10, gate: table.fromTable(), envoy: withTestRoutes}
	one := newStack(t, with)
	other := one.second(with)
	absent := func(s *stack, want bool) func() bool {
		return func() bool { return (s.must("GET", "/orders/9999", "").status == 404) == want }
	}
	for i, end := range []func(){
		func() { one.abort(b, "/orders?first=hangs") },
		func() { one.must("POST", "/orders?first=hangs&n=2", "", "x-test-route", "timeout").want(t, 504, "") },
	} {
		for _, s := range []*stack{one, other} {
			bedtest.Eventually(t, "the filter is certain", absent(s, true))
		}
		end()
		for _, s := range []*stack{one, other} {
			bedtest.Eventually(t, "there is a doubt", absent(s, false))
		}
		table.insert(3000 + i)
		for _, s := range []*stack{one, other} {
			bedtest.Eventually(t, "the filter is certain again", absent(s, true))
			s.must("GET", fmt.Sprint("/orders/", 3000+i), "").want(t, 200, "")
		}
	}
	if *attachment == asSidecar {
		wantNoLine(t, one.gate, "level=ERROR") // a client can leave
	}
}

// TestCreatedLateInAFollowedTable is TestCreatedLate where the table is followed as it
// changes: no client can make new IDs uncertain by leaving, and the order is found as soon as
// the backend commits it.
func TestCreatedLateInAFollowedTable(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	bed := bedtest.New(t)
	table := mariaTable(t, bed, 10, "--log-bin", "--binlog-format=ROW", "--server-id=1")
	with := settings{backend: b.addr(), orders: 10, gate: both(table.fromTable(), edit(t, "overlap: 1s}", "overlap: 1m, follow: binlog}")), envoy: withTestRoutes}
	one := newStack(t, with)
	other := one.second(with)
	for i, end := range []func(){
		func() { one.abort(b, "/orders?first=hangs") },
		func() { one.must("POST", "/orders?first=hangs&n=2", "", "x-test-route", "timeout").want(t, 504, "") },
	} {
		for _, s := range []*stack{one, other} {
			bedtest.Eventually(t, "the filter is certain", s.certainlyAbsent)
		}
		end()
		bedtest.Eventually(t, "the end is noticed", func() bool {
			return one.metric(`ordergate_learned_total{result="abandoned",rule="order-create"}`) == fmt.Sprint(i+1)
		})
		table.insert(3000 + i)
		for _, s := range []*stack{one, other} {
			bedtest.Eventually(t, "the order is found", func() bool { return s.must("GET", fmt.Sprint("/orders/", 3000+i), "").status == 200 })
			if !s.certainlyAbsent() {
				t.Error("other IDs are not certain")
			}
		}
	}
	if n := one.metric(`ordergate_filter_doubts_total{filter="orders",kind="running"}`); n != "0" {
		t.Errorf("%s doubts about creates that may run", n)
	}
}

// TestLoadAfterAbandonedCreate has somebody say that the sources have every order, while a
// call may still make one: what they say counts when it is over.
func TestLoadAfterAbandonedCreate(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	bed := bedtest.New(t)
	table := mariaTable(t, bed, 10)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: table.fromTable(), envoy: withTestRoutes})
	s.must("POST", "/orders?first=hangs", "", "x-test-route", "timeout").want(t, 504, "")
	table.insert(3000)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.GateAddr(s.gate, "admin")+"/filters/orders/load", nil)
	must(t, err)
	response, err := client.Do(req)
	must(t, err)
	defer response.Body.Close()
	var report struct{ State, Reason string }
	must(t, json.NewDecoder(response.Body).Decode(&report))
	if report.State != "ready" {
		t.Errorf("the load left %+v", report)
	}
	s.must("GET", "/orders/9999", "").want(t, 404, "absent")
	s.must("GET", "/orders/3000", "").want(t, 200, "")
}

// TestCreatesOfAMuteEnvoy has an Envoy that tells nothing of where an answer is from.
func TestCreatesOfAMuteEnvoy(t *testing.T) {
	needsSidecar(t, "Envoy tells the module all there is")
	t.Parallel()
	const (
		attributes = "              response_attributes:\n              - response.code_details\n              - upstream.request_attempt_count\n"
		router     = "extensions.filters.http.router.v3.Router\n"
	)
	b := newBackend(t)
	bed := bedtest.New(t)
	table := mariaTable(t, bed, 10)
	s := newStack(t, settings{
		backend: b.addr(), orders: 10, gate: both(withForms(t), table.fromTable()),
		envoy: both(withTestRoutes, edit(t, attributes, "", router, router+"              suppress_envoy_headers: true\n")),
	})
	certain := func() bool { return s.must("GET", "/orders/9999", "").status == 404 }
	for id, path := range map[string]string{
		"1001": "/orders?do=create&id=1001",
		"1002": answering("/orders.php", 303, "location", "/orders/1002"),
		"1003": answering("/orders", 409, "body", `{"orderId":1003}`),
	} {
		s.must("GET", "/orders/"+id, "").want(t, 404, "absent")
		s.must("POST", path, "")
		s.must("GET", "/orders/"+id, "").want(t, 200, "")
		if !certain() {
			t.Error("there is a doubt")
		}
	}
	for _, path := range []string{"/orders?do=504", answering("/orders", 422)} {
		bedtest.Eventually(t, "the filter is certain", certain)
		s.must("POST", path, "")
		s.must("GET", "/orders/9999", "").want(t, http.StatusOK, "")
	}
}
