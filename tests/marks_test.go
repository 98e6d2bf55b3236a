package tests

import (
	"testing"

	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestMarkInTheEnd has a table that is read faster than its overlap, and doubts. The
// table is read as a whole when the filter is filled, and once more: after that only its
// end is, whichever ordergate catches up with it.
func TestMarkInTheEnd(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis := bed.Redis()
	table := mariaTable(t, bed, 1000, "--log-output=TABLE", "--general-log=1")
	s := tableSettings{member: "one", kind: "redis-bitmap"}
	gate := table.gate(bed, redis.Addr(), s)
	gate.becomes(5000, "absent")
	others, err := changelog.New(newClient(t, redis.Addr()), "orders", func(string) {}, changelog.Options{Member: "others"})
	must(t, err)
	doubt := func() {
		recordDoubt(t, others, changelog.Doubt{Kind: changelog.Lost, Reason: "a test says so"})
		gate.becomes(5000, "absent")
	}
	behind := func() (n int) {
		const query = "SELECT COUNT(*) FROM mysql.general_log WHERE argument LIKE 'SELECT `id` FROM%WHERE `id` > 1000 %'"
		must(t, table.db.QueryRowContext(t.Context(), query).Scan(&n))
		return n
	}
	bedtest.Eventually(t, "the table is read behind its last row", func() bool {
		doubt()
		return behind() > 0
	})
	must(t, gate.Stop())
	s.member = "two"
	gate = table.gate(bed, redis.Addr(), s)
	before := behind()
	doubt()
	if behind() == before {
		t.Error("another ordergate has read all of the table")
	}
}
