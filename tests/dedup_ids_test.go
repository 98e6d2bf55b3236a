package tests

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// uuidOf returns the UUID of a test with a last digit, in lower case.
func uuidOf(digit int) string { return fmt.Sprintf("5b6ef3c2-1111-4222-8333-44445555ab%02x", digit) }

// TestCreateDedupOfUUIDs has a column of texts in upper case, in a database that takes "a" and "A"
// for equal and in one that does not, and a column of UUIDs.
func TestCreateDedupOfUUIDs(t *testing.T) {
	t.Parallel()
	for _, tt := range dedupTables {
		t.Run(tt.kind, func(t *testing.T) {
			t.Parallel()
			table, _ := tt.table(t, bedtest.New(t))
			s := &dedupStack{backend: newStoring(t, table), table: table}
			s.backend.asleep.Store(true)
			upper, lower := strings.ToUpper(uuidOf(1)), uuidOf(2)
			for _, statement := range []string{
				"CREATE TABLE texts (id VARCHAR(40) PRIMARY KEY)", "CREATE TABLE uuids (id UUID PRIMARY KEY)",
				"INSERT INTO texts VALUES ('" + upper + "'), ('" + lower + "')", "INSERT INTO uuids SELECT CAST(id AS UUID) FROM texts",
			} {
				table.exec(statement)
			}
			rule := func(name string) string {
				return fmt.Sprintf("  - name: %s\n    match: {methods: [POST], path: /%[1]s}\n    id: {header: x-order-id, format: uuid}\n"+
					"    create: {filter: uuids, learn: {response_json: orderId}, dedup: {confirm: %[1]s, on_unavailable: refuse, timeout: 5s}}\n", name)
			}
			file := filepath.Join(t.TempDir(), "dsn")
			must(t, os.WriteFile(file, []byte(table.dsn), 0o600))
			source := fmt.Sprintf("{kind: %s, dsn_file: %s, id_column: id, overlap: 1s, table: ", table.kind, file)
			s.stack = newStack(t, settings{
				backend: strings.TrimPrefix(s.backend.URL, "http://"),
				gate: func(yaml string) string {
					return edit(t, "\nfilters:\n", "\nfilters:\n  uuids: {sources: [texts, uuids]}\n",
						"\nsources:\n", "\nsources:\n  texts: "+source+"texts}\n  uuids: "+source+"uuids}\n")(yaml) + rule("texts") + rule("uuids")
				},
				envoy: patientAuthz,
			})
			for _, path := range []string{"/texts", "/uuids"} {
				for i := range 2 {
					id := uuidOf(i + 1)
					s.create(path, id).want(t, 409, "duplicate")
					s.create(path, strings.ToUpper(id)).want(t, 409, "duplicate")
				}
			}
			// Both filters know it; neither table has it.
			s.create("/texts", uuidOf(3)).want(t, 201, "")
			s.create("/texts", strings.ToUpper(uuidOf(3))).want(t, 201, "")
			s.create("/uuids", uuidOf(3)).want(t, 201, "")
			if got := s.confirmed("texts", "new"); got != "1" {
				t.Errorf("%s were confirmed as new, want 1", got)
			}
		})
	}
}

// TestCreateDedupOfBodies has the ID in JSON, which ext_authz gets if it is set up so.
func TestCreateDedupOfBodies(t *testing.T) {
	t.Parallel()
	withBody := edit(t, "id: {header: x-order-id, optional: true}", "id: {json: orderId, optional: true}")
	shown := func(yaml string) string {
		return strings.Replace(patientAuthz(yaml), "              encode_raw_headers: true\n", // the module has none
			"              encode_raw_headers: true\n              with_request_body: { max_request_bytes: 65536, allow_partial_message: true, pack_as_bytes: true }\n", 1)
	}
	onDedupStacks(t, settings{gate: withBody, envoy: both(shown, throughBoth(t))}, func(t *testing.T, s *dedupStack) {
		s.backend.asleep.Store(true)
		post := func(body string) answer {
			t.Helper()
			return s.must("POST", "/orders", body, "content-type", "application/json", "x-order-id", "77")
		}
		s.reaches(0, func() {
			post(`{"orderId": 5}`).want(t, 409, "duplicate")
			post(`{"orderId": "5"}`).want(t, 409, "duplicate")
			post(`{"orderId": 5, "orderId": 6}`).want(t, 400, "ambiguous")
			post(`{"item": 5}`).want(t, 400, "ambiguous") // the header is another rule's
		})
		s.reaches(2, func() {
			post(`{"orderId": 11}`).want(t, 201, "")
			s.must("POST", "/orders", `{"item": 5}`, "content-type", "application/json").want(t, 201, "")
		})
	})
}

// TestCreateDedupOfOtherPlaces names an order where other rules read one, and not where its own
// does: a backend that merges its input would find it.
func TestCreateDedupOfOtherPlaces(t *testing.T) {
	t.Parallel()
	rules := func(yaml string) string {
		return yaml + `
  - name: json-create
    match: {methods: [POST], path: /json}
    id: {json: orderId, optional: true}
    create: {filter: orders, learn: {response_json: orderId}, dedup: {confirm: orders-db, timeout: 5s}}
`
	}
	onDedupStacks(t, settings{gate: rules, envoy: patientAuthz}, func(t *testing.T, s *dedupStack) {
		s.backend.asleep.Store(true)
		post := func(path, body string, pairs ...string) answer {
			return s.must("POST", path, body, append(pairs, "content-type", "application/json")...)
		}
		s.reaches(0, func() {
			post("/orders", `{"orderId": 5}`).want(t, 400, "ambiguous")
			post("/orders", `{"orderId": null}`).want(t, 400, "ambiguous")
			post("/orders?orderId=5", `{}`).want(t, 400, "ambiguous")
			post("/orders", `{}`, "cookie", "orderId=5").want(t, 400, "ambiguous")
			post("/json", `{"item": 5}`, "x.order.id", "5").want(t, 400, "ambiguous")
			post("/json", `{"item": 5}`, "x.order.id", "5").want(t, 400, "ambiguous")
			post("/json?x-order-id=5", `{"item": 5}`).want(t, 400, "ambiguous")
		})
		s.reaches(2, func() {
			post("/orders", `{"item": 5}`).want(t, 201, "")
			post("/json", `{"item": 5}`).want(t, 201, "")
		})
	})
}

// TestCreateDedupOfUnseenBodies has an ext_authz that is not shown bodies: ext_proc decides.
func TestCreateDedupOfUnseenBodies(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "the module reads bodies")
	withBody := edit(t, "id: {header: x-order-id}", "id: {json: orderId}", "id: {header: x-order-id, optional: true}", "id: {json: orderId, optional: true}")
	onDedupStacks(t, settings{gate: withBody}, func(t *testing.T, s *dedupStack) {
		s.backend.asleep.Store(true)
		post := func(path, body string) answer {
			return s.must("POST", path, body, "content-type", "application/json", "x-order-id", "77")
		}
		s.reaches(0, func() {
			post("/orders", `{"orderId": 5}`).want(t, 409, "duplicate")
			post("/refusing", `{"orderId": 5}`).want(t, 409, "duplicate")
		})
		s.reaches(2, func() {
			post("/orders", `{"orderId": 11}`).want(t, 201, "")
			post("/refusing", `{"orderId": 11}`).want(t, 201, "")
		})
	})
}

// TestCreateDedupOverHTTP asks as Traefik and nginx do.
func TestCreateDedupOverHTTP(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "the module has no listener")
	table, _ := dedupTables[0].table(t, bedtest.New(t))
	bed := bedtest.New(t)
	redis := bed.Redis()
	config := both(edit(t, createRule, dedupRules), table.fromTable())(bed.GateExample(redis.Addr(), idFile(t, 1)))
	gate := bed.Gate(bed.Build("./cmd/sidecar", false), config, "ORDERGATE_LISTEN_HTTP=127.0.0.1:0")
	at := "http://" + bed.GateAddr(gate, "http")
	ask := func(path string, header http.Header) (answer, http.Header) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "GET", at+path, nil)
		must(t, err)
		req.Header = header
		resp, err := client.Do(req)
		must(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		return answerOf(resp, body), resp.Header
	}
	traefik := func(id string) http.Header {
		return http.Header{"X-Forwarded-Uri": {"/orders"}, "X-Forwarded-Method": {"POST"}, "X-Forwarded-Host": {"shop"}, "X-Order-Id": {id}}
	}
	a, _ := ask("/check/forward-auth", traefik("5"))
	a.want(t, 409, "duplicate")
	if a.body != duplicate {
		t.Errorf("%q", a.body)
	}
	a, _ = ask("/check/forward-auth", traefik("11"))
	a.want(t, 200, "")
	a, header := ask("/check/nginx", http.Header{"X-Original-Uri": {"/orders"}, "X-Original-Method": {"POST"}, "X-Order-Id": {"5"}})
	a.want(t, 403, "duplicate")
	a, _ = ask(header.Get("x-ordergate-answer"), nil)
	a.want(t, 409, "duplicate")
}

// TestCreateDedupReloads changes the dedup while it is in use. No create is answered otherwise
// than by one of the two configurations, and connections do not pile up.
func TestCreateDedupReloads(t *testing.T) {
	t.Parallel()
	onDedupStacks(t, settings{gate: edit(t, "max_queries: 4, timeout: 5s", "max_queries: 4, timeout: 4s"), envoy: patientAuthz}, func(t *testing.T, s *dedupStack) {
		text, err := os.ReadFile(s.gate.ConfigFile())
		must(t, err)
		r := &reloads{stack: s.stack, text: string(text)}
		s.create("/orders", "5").want(t, 409, "duplicate")
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				a, err := s.send(t.Context(), "POST", "/orders", "", "x-order-id", "5")
				if err != nil || a.status != 409 && a.status != 422 || a.verdict != "duplicate" {
					t.Errorf("%d %q, %v", a.status, a.verdict, err)
				}
			}
		}()
		for i := range 6 {
			r.wantAfter("applied", func() {
				r.rewrite(r.edited("timeout: 4s", fmt.Sprintf("timeout: %ds, duplicate: {status: %d}", 5-i%2, []int{409, 422}[i%2])))
			})
		}
		close(stop)
		<-done
		s.create("/orders", "5").want(t, 422, "duplicate")
		bedtest.Eventually(t, "only the connections of three rules are left", func() bool { return s.connections() <= 3+4 })
		r.wantAfter("refused", func() { r.rewrite(r.edited("table: orders", "table: others")) })
		// Without it creates go on, and the backend refuses.
		r.wantAfter("applied", func() { r.rewrite(r.edited(", dedup: {confirm: orders-db, max_queries: 4, timeout: 4s}", "")) })
		if a := s.create("/orders", "5"); a.status != 409 || a.verdict != "" {
			t.Errorf("%+v", a)
		}
	})
}

// connections returns how many connections others than the test have to the database.
func (s *dedupStack) connections() (n int) {
	s.t.Helper()
	query := "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'ordergate'"
	if s.table.kind == "mysql" {
		query = fmt.Sprintf("SELECT COUNT(*) - %d FROM information_schema.PROCESSLIST WHERE USER = 'root'", s.table.db.Stats().OpenConnections)
	}
	must(s.t, s.table.db.QueryRowContext(s.t.Context(), query).Scan(&n))
	return n
}
