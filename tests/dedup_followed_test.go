package tests

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// begunRules create by answers that do not name their order in their headers.
const begunRules = `
  - {name: begun, match: {methods: [POST], path: /begun}, create: {filter: orders, learn: table}}
  - {name: begun-header, match: {methods: [POST], path: /begun/header}, id: {format: digits}, create: {filter: orders, learn: {response_header: location}}}
  - {name: begun-locked, match: {methods: [POST], path: "/begun/locked/{id}"}, id: {path: id}, create: {filter: orders, learn: {response_header: location}, lock: settlement}}
`

// TestCreatesOfAFollowedTable has answers that begin before the order exists, and name it nowhere that
// ordergate reads: their clients get nothing of them before the order is known. Then the database is away. The
// filter is unknown, so on_unavailable decides about new orders, too.
func TestCreatesOfAFollowedTable(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	server := bed.MariaDB("--log-bin", "--binlog-format=ROW", "--server-id=1")
	table := newOrderTable(t, "mysql", server.DSN(), 10, "INSERT INTO orders SELECT seq, 'x' FROM seq_1_to_%d")
	b := newStoring(t, table)
	b.asleep.Store(true) // it does without the table
	s := newStack(t, settings{
		backend: strings.TrimPrefix(b.URL, "http://"), envoy: patientAuthz,
		gate: both(edit(t, createRule, begunRules+dedupRules), both(table.fromTable(), edit(t, "overlap: 1s}", "follow: binlog}"))),
	})
	create := func(path, id string) answer { return s.must("POST", path, "", "x-order-id", id) }
	bedtest.Eventually(t, "the filter is certain", s.certainlyAbsent)
	for i, path := range []string{"/begun", "/begun/header", "/begun/locked/9"} {
		id := fmt.Sprint(778000 + i)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, http.NoBody)
		must(t, err)
		req.Header.Set("x-order-id", id)
		resp, err := client.Do(req)
		must(t, err)
		var stored int
		must(t, table.db.QueryRowContext(t.Context(), "SELECT count(*) FROM orders WHERE id = ?", id).Scan(&stored))
		text, err := io.ReadAll(resp.Body)
		must(t, errors.Join(err, resp.Body.Close()))
		if stored != 1 || !strings.HasSuffix(string(text), id) {
			t.Errorf("%s: the client has an answer, and the table has the order %d times: %s", path, stored, text)
		}
		s.must("GET", "/orders/"+id, "").want(t, 200, "")
	}
	create("/refusing", "777001").want(t, 201, "")
	server.Kill()
	bedtest.Eventually(t, "the filter is unknown", func() bool { return !s.certainlyAbsent() })
	create("/refusing", "777002").want(t, 503, "unavailable")
	create("/orders", "777003").want(t, 201, "")
}
