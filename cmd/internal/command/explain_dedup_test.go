package command

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// dedupConfig has creates that may name their order. The filter, the table and the dedup are put in.
const dedupConfig = `
redis: {addresses: ['127.0.0.1:1']}
filters: {orders: %s}
sources: {orders-db: {kind: mysql, dsn_env: DSN, table: %s, id_column: id}}
rules:
  - name: create
    match: {methods: [POST], path: /orders}
    id: {header: x-order-id, optional: true}
    create: {filter: orders, learn: {response_json: orderId}, dedup: %s}
`

func TestExplainDedup(t *testing.T) {
	const goesOn, exists, away = "the backend's, if the order does not exist", "409, if the order exists", "if the order cannot be looked up now"
	for _, tt := range []struct {
		name, filter, dedup, header string
		want                        []string
	}{
		{"forward", "{}", "{confirm: orders-db}", "x-order-id: 42", []string{
			"none         " + goesOn, "unknown      the backend's, " + away, "duplicate    " + exists,
			"reason       the order ID is well-formed: the filter decides whether the order is new, and the table if the filter cannot; the new ID is learned from the answer",
		}},
		{"refuse", "{}", "{confirm: orders-db, on_unavailable: refuse}", "x-order-id: 42", []string{"none         " + goesOn, "unavailable  503, " + away, "duplicate    " + exists}},
		{"no ID", "{}", "{confirm: orders-db}", "x-other: 42", []string{"verdict      none", "status       the backend's"}},
		{"malformed", "{}", "{confirm: orders-db}", "x-order-id: 042", []string{"verdict      invalid"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := writeConfig(t, fmt.Sprintf(dedupConfig, tt.filter, "orders", tt.dedup))
			code, stdout, stderr := command(t.Context(), "explain", "--config", file, "POST /orders", "-H", tt.header)
			if code != exitDone || stderr != "" {
				t.Fatalf("exit code %d, %q", code, stderr)
			}
			rest := stdout
			for _, line := range tt.want {
				_, after, found := strings.Cut(rest, line+"\n")
				if !found {
					t.Fatalf("no line %q, in this order, in\n%s", line, stdout)
				}
				rest = after
			}
		})
	}
}

// TestDedupLive has explain --live ask a table, and check --live look for its index.
func TestDedupLive(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	store, db := bed.Redis(), bed.MariaDB()
	setup, err := sql.Open("mysql", db.DSN())
	bedtest.Check(t, err)
	for _, statement := range []string{
		"CREATE TABLE indexed (id BIGINT PRIMARY KEY)", "INSERT INTO indexed VALUES (42)", "CREATE TABLE plain (id BIGINT, n INT PRIMARY KEY)",
	} {
		_, err := setup.ExecContext(t.Context(), statement)
		bedtest.Check(t, err)
	}
	bedtest.Check(t, setup.Close())
	file := func(table string) string {
		text := fmt.Sprintf(dedupConfig, "{}", table, "{confirm: orders-db, timeout: 5s}")
		return writeConfig(t, bedtest.Replace(text, "127.0.0.1:1", store.Addr()))
	}
	ordergate := func(args ...string) (code int, stdout, stderr string) {
		var out, errs strings.Builder
		code = run(t.Context(), args, &out, &errs, func(name string) string { return map[string]string{"DSN": db.DSN()}[name] })
		return code, out.String(), errs.String()
	}
	for id, want := range map[string]string{"42": "table now    orders-db has the order\n", "43": "table now    orders-db does not have the order\n"} {
		code, stdout, stderr := ordergate("explain", "--live", "--config", file("indexed"), "POST /orders", "-H", "x-order-id: "+id)
		if code != exitDone || stderr != "" || !strings.HasSuffix(stdout, want) {
			t.Errorf("exit code %d, %q, got\n%s\nwant %s", code, stderr, stdout, want)
		}
	}
	code, stdout, _ := ordergate("explain", "--live", "--config", file("gone"), "POST /orders", "-H", "x-order-id: 42")
	if want := "table now    orders-db: not reachable: looking up an order in mysql table gone: "; code != exitDone || !strings.Contains(stdout, want) {
		t.Errorf("exit code %d, got\n%s\nwant %s", code, stdout, want)
	}
	// Without --live, and without an ID, nothing is asked.
	for _, args := range [][]string{{"-H", "x-order-id: 42"}, {"--live"}} {
		_, stdout, _ := ordergate(append([]string{"explain", "--config", file("gone"), "POST /orders"}, args...)...)
		if strings.Contains(stdout, "table now") {
			t.Errorf("%v: %s", args, stdout)
		}
	}

	if code, stdout, stderr := ordergate("check", "--live", "--config", file("indexed")); code != exitDone || stdout+stderr != "" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	path := file("plain")
	_, _, stderr := ordergate("check", "--live", "--config", path)
	want := path + ":9: rules[0].create.dedup.confirm: checking mysql table plain: no index begins with the ID column id of type bigint(20): each query for one order reads the whole table\n"
	if diff := cmp.Diff(want, stderr); diff != "" {
		t.Error("check --live (-want +got):\n" + diff)
	}
}
