package source

import (
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestTailOfAnOlderCopy replaces a table by an older copy just after it was read. The missing
// numbers are used again, one of them by a transaction that commits late.
func TestTailOfAnOlderCopy(t *testing.T) {
	onBoth(t, func(t *testing.T, s *server) {
		s.exec(t,
			"CREATE TABLE copy (id {key}, order_id {text} NOT NULL)",
			"INSERT INTO copy SELECT n, CONCAT('ord-', n) FROM {1..100}",
		)
		opts := s.options("copy")
		opts.Overlap = 2 * time.Second
		x := &catchUps{table: newTable(t, opts), seen: map[string]int{}}
		x.next(t)
		s.exec(t, "DELETE FROM copy WHERE id > 90")
		x.next(t)
		began := x.mark.Bounds[0].At
		late, err := s.db.BeginTx(t.Context(), nil)
		if err == nil {
			_, err = late.ExecContext(t.Context(), "INSERT INTO copy VALUES (95, 'late')")
		}
		if err != nil {
			t.Fatal(err)
		}
		s.exec(t, "INSERT INTO copy VALUES (101, 'new')")
		bedtest.Eventually(t, "an overlap has passed", func() bool { return time.Since(began) > opts.Overlap+100*time.Millisecond })
		x.next(t)
		if err := late.Commit(); err != nil {
			t.Fatal(err)
		}
		if x.next(t); x.seen["late"] == 0 {
			t.Errorf("the order that was committed late is missing, mark %+v", x.mark)
		}
	})
}
