package tests

import (
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestCreateDedupWithoutTheFollowedTable has a database away whose table the filter follows. The
// filter is unknown then, so on_unavailable decides about new orders, too.
func TestCreateDedupWithoutTheFollowedTable(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	server := bed.MariaDB("--log-bin", "--binlog-format=ROW", "--server-id=1")
	table := newOrderTable(t, "mysql", server.DSN(), 10, "INSERT INTO orders SELECT seq, 'x' FROM seq_1_to_%d")
	b := newStoring(t, table)
	b.asleep.Store(true) // it does without the table
	s := newStack(t, settings{
		backend: strings.TrimPrefix(b.URL, "http://"), envoy: patientAuthz,
		gate: both(edit(t, createRule, dedupRules), both(table.fromTable(), edit(t, "overlap: 1s}", "follow: binlog}"))),
	})
	create := func(path, id string) answer { return s.must("POST", path, "", "x-order-id", id) }
	bedtest.Eventually(t, "the filter is certain", s.certainlyAbsent)
	create("/refusing", "777001").want(t, 201, "")
	server.Kill()
	bedtest.Eventually(t, "the filter is unknown", func() bool { return !s.certainlyAbsent() })
	create("/refusing", "777002").want(t, 503, "unavailable")
	create("/orders", "777003").want(t, 201, "")
}
