package logical

import (
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// withParts returns the bed with a table in two partitions, one of which has partitions itself.
func (b *bed) withParts(table string) *bed {
	b.t.Helper()
	other := *b
	other.table = table
	other.exec(
		"CREATE TABLE orders (n INT, id TEXT, note TEXT, PRIMARY KEY (n, id)) PARTITION BY RANGE (n)",
		"CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (100) TO (200)",
		"CREATE TABLE orders_2 PARTITION OF orders FOR VALUES FROM (200) TO (300) PARTITION BY RANGE (n)",
		"CREATE TABLE orders_21 PARTITION OF orders_2 FOR VALUES FROM (200) TO (250)",
	)
	return &other
}

// TestPartitions follows the rows of a table's partitions, under any name. Later partitions are
// included.
func TestPartitions(t *testing.T) {
	b := startServer(t).withParts("parted")
	f := start(t, b.options(), "")
	f.WaitCaughtUp()
	b.exec("INSERT INTO orders VALUES (100, 'a')", "INSERT INTO orders_1 VALUES (101, 'b')", "INSERT INTO orders_21 VALUES (200, 'c')")
	f.Want("a", "b", "c")
	b.exec(
		"CREATE TABLE orders_3 PARTITION OF orders FOR VALUES FROM (300) TO (400)",
		"CREATE TABLE orders_4 (note TEXT, id TEXT NOT NULL, n INT NOT NULL)",
		"ALTER TABLE orders ATTACH PARTITION orders_4 FOR VALUES FROM (400) TO (500)",
	)
	f.WaitCaughtUp()
	b.exec("INSERT INTO orders VALUES (300, 'd')", "INSERT INTO orders_3 VALUES (301, 'e')", "INSERT INTO orders_4 VALUES ('', 'f', 400)")
	b.exec("UPDATE orders SET n = 302, id = 'g' WHERE id = 'a'", "ALTER TABLE orders DETACH PARTITION orders_1", "DROP TABLE orders_21")
	f.WaitCaughtUp()
	b.exec("INSERT INTO orders VALUES (303, 'h')")
	f.Want("a", "b", "c", "d", "e", "f", "g", "h")
	// Its log does not show which updates change the ID.
	b.exec("CREATE UNIQUE INDEX orders_by_n ON orders_3 (n)", "ALTER TABLE orders_3 REPLICA IDENTITY USING INDEX orders_by_n")
	f.WantError(follow.ErrUnsure, "lacks, or lacked")
	b.waitSlotFree()
	f = start(t, b.options(), "")
	f.WaitCaughtUp()
	b.exec("UPDATE orders SET id = 'i' WHERE id = 'h'")
	f.Want("i")
	// The checkpoint shows that the partitions differ.
	start(t, b.options(), f.Stop()).Want()
}

// TestAttachedPartitions attaches partitions with rows: the log does not have those.
func TestAttachedPartitions(t *testing.T) {
	server := startServer(t)
	server.exec("CREATE TABLE other (n INT NOT NULL, id TEXT NOT NULL, note TEXT)", "INSERT INTO other VALUES (300, 'unheard')",
		"CREATE FOREIGN DATA WRAPPER elsewhere", "CREATE SERVER away FOREIGN DATA WRAPPER elsewhere")
	for name, test := range map[string]struct {
		lose  []string
		want  string
		again error
	}{
		"attached": {[]string{"CREATE TABLE orders_3 AS TABLE other", "ALTER TABLE orders_3 ALTER n SET NOT NULL, ALTER id SET NOT NULL",
			"ALTER TABLE orders ATTACH PARTITION orders_3 FOR VALUES FROM (300) TO (400)"}, "p_attached_3 was attached with its rows", follow.ErrGone},
		"attached with parts": {[]string{"CREATE TABLE orders_3 (n INT NOT NULL, id TEXT NOT NULL, note TEXT) PARTITION BY RANGE (n)",
			"CREATE TABLE orders_31 PARTITION OF orders_3 FOR VALUES FROM (300) TO (301)", "INSERT INTO orders_3 SELECT * FROM other",
			"ALTER TABLE orders ATTACH PARTITION orders_3 FOR VALUES FROM (300) TO (400)"}, "p_attached_with_parts_31 was attached with its rows", follow.ErrGone},
		"detached, filled, attached": {[]string{`ALTER TABLE orders DETACH PARTITION orders_1; INSERT INTO orders_1 VALUES (101, 'unheard');
			ALTER TABLE orders ATTACH PARTITION orders_1 FOR VALUES FROM (100) TO (200)`}, "_1 was attached with its rows", follow.ErrGone},
		"detached, filled, attached with parts": {[]string{`ALTER TABLE orders DETACH PARTITION orders_2; INSERT INTO orders_2 VALUES (201, 'unheard');
			ALTER TABLE orders ATTACH PARTITION orders_2 FOR VALUES FROM (200) TO (300)`}, "_21 was attached with its rows", follow.ErrGone},
		"rewritten": {[]string{"INSERT INTO orders VALUES (100, 'x')", "ALTER TABLE orders ALTER id TYPE TEXT USING id || '0'"}, "p_rewritten_1 was attached with its rows, or was rewritten", follow.ErrGone},
		"unlogged":  {[]string{"CREATE UNLOGGED TABLE orders_3 PARTITION OF orders FOR VALUES FROM (300) TO (400)"}, "lacks, or lacked", nil},
		"foreign":   {[]string{"ALTER TABLE orders DROP CONSTRAINT orders_pkey", "CREATE FOREIGN TABLE orders_3 PARTITION OF orders FOR VALUES FROM (300) TO (400) SERVER away"}, "lacks, or lacked", nil},
		"by its own name": {[]string{"ALTER PUBLICATION orders_changes SET (publish_via_partition_root = false)", "INSERT INTO orders VALUES (100, 'x')",
			"ALTER PUBLICATION orders_changes SET (publish_via_partition_root = true)"}, "lacks, or lacked", follow.ErrGone},
	} {
		t.Run(name, func(t *testing.T) {
			b := server.withParts("p_" + strings.Map(underscore, name))
			f := start(t, b.options(), "")
			f.WaitCaughtUp()
			b.exec(test.lose...)
			f.WantError(follow.ErrUnsure, test.want)
			b.waitSlotFree()
			start(t, b.options(), f.Last()).WantError(test.again, "") // the slot was dropped
		})
	}
}
