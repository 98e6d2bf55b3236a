package config

import (
	"os"
	"regexp"
	"strings"
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
		{"an exact filter", "{kind: exact}", "{path: id}", "{}", nil},
		{"an exact filter of dates", "{kind: exact}", "{path: id, format: timestamped}", "{duplicate: {status: 400}, on_unavailable: refuse}", nil},

		{"a Bloom filter alone", "{}", "{path: id}", "{}", []string{
			".create.dedup: confirm is missing: a filter of kind local may take a new order for one that exists, and its create would be refused; name a source that is a table, or choose kind exact",
		}},
		{"an exact filter of other IDs", "{kind: exact}", "[{path: id}, {header: x-id, max_length: 20}]", "{on_unavailable: refuse}", []string{
			".create.dedup: confirm is missing: a filter of kind exact is certain of numbers of at most 19 digits, and the rule admits other IDs; name a source that is a table",
		}},
		{"an exact filter with what is for confirm", "{kind: exact}", "{path: id}", "{timeout: 1s, max_queries: 2}", []string{
			".create.dedup.timeout: is for a dedup with confirm only: set it, or remove this",
			".create.dedup.max_queries: is for a dedup with confirm only: set it, or remove this",
		}},
		{"no ID in the request", "{}", "{format: digits}", confirm, []string{
			".create.dedup: is for requests that name the new order: give id a place, such as {header: x-order-id}, or remove this",
		}},
		{"an empty name", "{}", "{path: id}", `{confirm: ""}`, []string{".create.dedup.confirm: is empty: give the name of a source that is a table"}},
		{"an unknown source", "{}", "{path: id}", "{confirm: dbs}", []string{`.create.dedup.confirm: "dbs" is not defined under sources, which has db, seed`}},
		{"a file", "{}", "{path: id}", "{confirm: seed}", []string{`.create.dedup.confirm: source "seed" is a file, which does not have the newest orders: name a table`}},
		{"out of range", "{}", "{path: id}", "{confirm: db, timeout: 9ms, max_queries: 0, on_unavailable: pass, duplicate: {status: 200}}", []string{
			".create.dedup.duplicate.status: 200 is out of range: 400 to 599 are allowed",
			`.create.dedup.on_unavailable: "pass" is not one of forward, refuse`,
			".create.dedup.timeout: 9ms is out of range: 10ms to 5s are allowed",
			".create.dedup.max_queries: 0 is out of range: 1 to 1000 are allowed",
		}},
		{"out of range at the other end", "{}", "{path: id}", "{confirm: db, timeout: 6s, max_queries: 1001}", []string{
			".create.dedup.timeout: 6s is out of range: 10ms to 5s are allowed",
			".create.dedup.max_queries: 1001 is out of range: 1 to 1000 are allowed",
		}},
		{"an answer that is never given", "{}", "{path: id}", "{confirm: db, unavailable: {status: 503}}", []string{
			".create.dedup.unavailable: is for on_unavailable refuse only: set it, or remove this",
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
	rule := "rules: [{" + match + ", id: {path: id}, create: {filter: orders, learn: {response_json: id}, dedup: {}}}]\n"
	file := "filters: {orders: {kind: exact}}\n" + rule
	compareViolations(t, file+"listen: {authz: \"\"}\n", nil, []string{
		"f.yaml:3: listen.authz: is empty, and so is listen.http, and rules[0].create.dedup is decided at one of them: give an address",
	})
	compareViolations(t, file+"listen: {authz: \"\", http: \"127.0.0.1:9193\"}\n", nil, nil)
}

// TestDedupPage reads the examples of docs/create-dedup.md: a whole file, and an exact filter for it.
func TestDedupPage(t *testing.T) {
	text, err := os.ReadFile("../docs/create-dedup.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d examples, want 2", len(blocks))
	}
	whole := blocks[0][1]
	exact := strings.NewReplacer("filters:\n  orders: {sources: [orders-db]}\n", blocks[1][1], "{confirm: orders-db}", "{}", ", format: uuid", "").Replace(whole)
	for _, file := range []string{whole, exact} {
		if err := mustParse(t, file, env{"ORDERS_DSN": "a@tcp(db)/shop"}).Validate(); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(exact, "kind: exact") {
		t.Errorf("the second example does not fit the first:\n%s", exact)
	}
}
