package config

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestDedup has a case for each rule about the dedup of creates.
func TestDedup(t *testing.T) {
	const confirm = "{confirm: db}"
	for _, tt := range []struct {
		name, filter, id, dedup string
		want                    []string // behind "f.yaml:4: rules[0]"; nil: accepted
	}{
		{"the least", "{}", "{header: x-id}", confirm, nil},
		{"all", "{}", "[{json: orderId, optional: true}, {header: x-id, optional: true}]",
			"{confirm: db, duplicate: {status: 422, body: twice, retry_after: 1s}, on_unavailable: refuse, unavailable: {status: 500}, timeout: 10ms, max_queries: 1}", nil},
		{"the other ends", "{kind: redis-bitmap}", "{form: id, format: uuid}", "{confirm: db, on_unavailable: forward, timeout: 5s, max_queries: 1000}", nil},
		{"an exact filter, confirmed", "{kind: exact}", "{path: id, format: pattern, pattern: a+}", confirm, nil},
		{"an exact filter alone", "{kind: exact}", "{path: id}", "{}", []string{
			".create.dedup: confirm is missing: give a source that is a table: the filter may take a new order for one that exists, and its create would be refused",
		}},
		{"no ID in the request", "{}", "{format: digits}", confirm, []string{
			".create.dedup: is for requests that name the new order: give id a place, such as {header: x-order-id}, or remove this",
		}},
		{"an empty name", "{}", "{path: id}", `{confirm: ""}`, []string{".create.dedup.confirm: is empty: give a source that is a table: the filter may take a new order for one that exists, and its create would be refused"}},
		{"an unknown source", "{}", "{path: id}", "{confirm: dbs}", []string{`.create.dedup.confirm: "dbs" is not defined under sources, which has db, seed`}},
		{"a file", "{}", "{path: id}", "{confirm: seed}", []string{`.create.dedup.confirm: source "seed" is a file, which does not have the newest orders: name a table`}},
		{"out of range", "{}", "{path: id}", "{confirm: db, timeout: 9ms, max_queries: 0, on_unavailable: pass, duplicate: {status: 199}}", []string{
			`.create.dedup.on_unavailable: "pass" is not one of forward, refuse`,
			".create.dedup.timeout: 9ms is out of range: 10ms to 5s are allowed",
			".create.dedup.max_queries: 0 is out of range: 1 to 1000 are allowed",
			".create.dedup.duplicate.status: 199 is out of range: 200 to 599 are allowed",
		}},
		{"out of range at the other end", "{}", "{path: id}", "{confirm: db, timeout: 6s, max_queries: 1001}", []string{
			".create.dedup.timeout: 6s is out of range: 10ms to 5s are allowed",
			".create.dedup.max_queries: 1001 is out of range: 1 to 1000 are allowed",
		}},
		{"an answer that is never given", "{}", "{path: id}", "{confirm: db, unavailable: {status: 503}}", []string{
			".create.dedup.unavailable: is for on_unavailable refuse only: set it, or remove this",
		}},
		{"a key of the request, too", "{}", "{path: id}", "{confirm: db}, once: {}", []string{
			".create.dedup: refuses the repeat of a create before its key is looked up: remove dedup, or the once with a key",
		}},
		{"a misspelt key", "{}", "{path: id}", "{confirms: db}", []string{".create.dedup.confirms: unknown key, did you mean confirm?"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := "redis: {}\nfilters: {orders: " + tt.filter + "}\n" +
				"sources: {seed: {kind: csv, path: ids.csv}, db: {kind: mysql, dsn_env: ORDERS_DSN, table: orders, id_column: id}}\n" +
				"rules: [{" + match + ", id: " + tt.id + ", create: {filter: orders, learn: {response_json: id}, dedup: " + tt.dedup + "}}]\n"
			var want []string
			for _, w := range tt.want {
				want = append(want, "f.yaml:4: rules[0]"+w)
			}
			compareViolations(t, file, env{"ORDERS_DSN": "a@tcp(db)/shop"}, want)
		})
	}
}

// TestDedupDefaults fills in what the file leaves out.
func TestDedupDefaults(t *testing.T) {
	file := "redis: {}\nfilters: {orders: {}}\nsources: {db: {kind: mysql, dsn_env: ORDERS_DSN, table: orders, id_column: id}}\n" +
		"rules: [{" + match + ", id: {path: id}, create: {filter: orders, learn: {response_json: id}, dedup: {confirm: db, on_unavailable: refuse}}}]\n"
	got := mustParse(t, file, env{"ORDERS_DSN": "a@tcp(db)/shop"}).Rules[0].Create.Dedup
	want := &Dedup{
		Confirm: "db", Duplicate: Reply{Status: 409, Body: `{"error":"order already exists"}`}, OnUnavailable: "refuse",
		Unavailable: Reply{Status: 503, Body: `{"error":"order cannot be looked up, try again"}`, RetryAfter: time.Second},
		Timeout:     200 * time.Millisecond, MaxQueries: 8,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

// TestDedupNeedsAListener decides at ext_authz, or over HTTP.
func TestDedupNeedsAListener(t *testing.T) {
	rule := "rules: [{" + match + ", id: {path: id}, create: {filter: orders, learn: {response_json: id}, dedup: {confirm: db}}}]\n"
	file := "filters: {orders: {}}\n" + rule + "sources: {db: {kind: mysql, dsn_env: ORDERS_DSN, table: orders, id_column: id}}\n"
	dsn := env{"ORDERS_DSN": "a@tcp(db)/shop"}
	compareViolations(t, file+"listen: {authz: \"\"}\n", dsn, []string{
		"f.yaml:4: listen.authz: is empty, and so is listen.http, and rules[0].create.dedup is decided at one of them: give an address",
	})
	compareViolations(t, file+"listen: {authz: \"\", http: \"127.0.0.1:9193\"}\n", dsn, nil)
}

// TestDedupPage reads the example of docs/create-dedup.md.
func TestDedupPage(t *testing.T) {
	text, err := os.ReadFile("../docs/create-dedup.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 1 {
		t.Fatalf("%d examples, want 1", len(blocks))
	}
	if err := mustParse(t, blocks[0][1], env{"ORDERS_DSN": "a@tcp(db)/shop"}).Validate(); err != nil {
		t.Error(err)
	}
}
