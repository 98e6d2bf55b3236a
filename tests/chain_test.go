package tests

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestChainOfAFollowedTable loses the proof that a followed table's changes join what a filter has:
// rows in front of the table's end are found all the same.
func TestChainOfAFollowedTable(t *testing.T) {
	t.Parallel()
	for _, f := range follows {
		if f.source != ", follow: binlog" && f.source != ", follow: logical" {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			redis := bed.Redis()
			table := f.table(t, bed, 100, f.args...)
			table.insert(100_000)
			c := newClient(t, redis.Addr())
			s := func(member string) tableSettings {
				path := filepath.Join(t.TempDir(), member+".snap")
				return tableSettings{member: member, source: f.source, filter: fmt.Sprintf(", snapshot: {path: %q}", path)}
			}
			one, two := s("one"), s("two")
			gate := table.gate(bed, redis.Addr(), one)
			gate.becomes(99_999, "absent")

			// The place is lost, and the rows that its follower missed.
			must(t, gate.Stop())
			must(t, c.Del(t.Context(), "ordergate:{orders}:follow").Err())
			table.insert(5000)
			gate = table.gate(bed, redis.Addr(), one)
			gate.becomes(99_999, "absent")
			if got := gate.answer(5000); got != "maybe" {
				t.Errorf("after its place was lost, an order is %s", got)
			}

			// While another instance follows, the log loses its entries beyond the mark of a snapshot.
			other := table.gate(bed, redis.Addr(), two)
			other.becomes(99_999, "absent")
			must(t, gate.Stop())
			for i := range 30 {
				values := ""
				for n := range 100 {
					values += fmt.Sprintf(", (%d, 'import')", 20_000+i*100+n)
				}
				table.exec("INSERT INTO orders VALUES " + values[2:])
			}
			other.becomes(22_999, "maybe")
			must(t, c.XTrimMaxLen(t.Context(), "ordergate:{orders}:log", 1000).Err())
			gate = table.gate(bed, redis.Addr(), one)
			gate.becomes(99_999, "absent")
			for _, id := range []int{20_000, 20_500, 21_500, 22_999} {
				if got := gate.answer(id); got != "maybe" {
					t.Errorf("after a gap in the log, order %d is %s", id, got)
				}
			}
			must(t, c.FlushAll(t.Context()).Err())
			table.insert(6000)
			gate.becomes(6000, "maybe")
			gate.becomes(99_999, "absent")
			if got := gate.answer(6000); got != "maybe" {
				t.Errorf("after Redis lost everything, an order is %s", got)
			}
		})
	}
}
