package source

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/testbed/bedtest"
)

// tails catches up with a table for a test.
type tails struct {
	table *Table
	mark  Mark
	seen  map[string]int
	last  []string // of the last call
}

func (x *tails) next(t *testing.T) {
	t.Helper()
	x.last = nil
	var err error
	x.mark, _, err = x.table.Tail(t.Context(), x.mark, func(id string) error {
		x.seen[id]++
		x.last = append(x.last, id)
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
}

// kept is what another process knows of the mark.
func kept(t *testing.T, m Mark) (other Mark) {
	t.Helper()
	text, err := json.Marshal(m)
	if err == nil {
		err = json.Unmarshal(text, &other)
	}
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// testTail catches up, quickly and slowly.
func testTail(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE tail (id {key}, order_id {text} NOT NULL)",
		"INSERT INTO tail SELECT n, CONCAT('ord-', n) FROM {1..40}",
	)
	opts := s.options("tail")
	opts.Overlap = 100 * time.Millisecond
	x := &tails{table: newTable(t, opts), seen: map[string]int{}}
	x.next(t)
	if len(x.seen) != 40 || !x.mark.Zero() {
		t.Fatalf("%d IDs, mark %+v", len(x.seen), x.mark)
	}
	s.exec(t, "INSERT INTO tail VALUES (41, 'ord-41')")
	bedtest.Eventually(t, "the mark moves", func() bool {
		x.next(t)
		return x.mark.Floor.Cursor == "41"
	})
	s.exec(t, "INSERT INTO tail VALUES (50, 'ord-50')")
	x.mark = kept(t, x.mark)
	if x.next(t); fmt.Sprint(x.last) != "[ord-50]" {
		t.Errorf("behind %+v: %q", x.mark, x.last)
	}

	// A load that takes longer than the overlap, and is interrupted.
	opts.Batch, opts.Pause = 1, 20*time.Millisecond
	x = &tails{table: newTable(t, opts), seen: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var disk Mark
	n := 0
	_, _, err := x.table.Tail(ctx, Mark{}, func(id string) error {
		x.seen[id]++
		return nil
	}, func(m Mark) error {
		disk = kept(t, m)
		if n++; n == 25 {
			cancel()
		}
		return nil
	})
	if err == nil || disk.Skip == nil || !disk.Floor.zero() {
		t.Fatalf("a load that was interrupted: mark %+v, %v", disk, err)
	}
	x.mark = disk
	if x.next(t); len(x.seen) != 42 || len(x.last) >= 42-10 {
		t.Errorf("%d IDs, %d of them in the second part", len(x.seen), len(x.last))
	}
	if x.mark.Zero() {
		t.Errorf("mark %+v", x.mark)
	}

	s.exec(t, "DELETE FROM tail")
	x.next(t)
	if len(x.last) > 0 || !x.mark.Zero() {
		t.Errorf("of no rows %q, mark %+v", x.last, x.mark)
	}
}

// testTailOfAnotherColumn renames two columns into each other: no mark holds.
func testTailOfAnotherColumn(t *testing.T, s *server) {
	s.exec(t, "CREATE TABLE swapped (id {key}, order_id {text} NOT NULL, other {text} NOT NULL)", "INSERT INTO swapped SELECT n, CONCAT('ord-', n), 'x' FROM {1..40}")
	opts := s.options("swapped")
	opts.Overlap = 100 * time.Millisecond
	x := &tails{table: newTable(t, opts), seen: map[string]int{}}
	bedtest.Eventually(t, "the mark moves", func() bool {
		x.next(t)
		return x.mark.Floor.Cursor == "40"
	})
	swap := []string{"ALTER TABLE swapped RENAME COLUMN order_id TO third", "ALTER TABLE swapped RENAME COLUMN other TO order_id", "ALTER TABLE swapped RENAME COLUMN third TO other"}
	s.exec(t, swap...)
	x.mark = kept(t, x.mark)
	if x.next(t); len(x.last) != 40 || x.seen["x"] != 40 {
		t.Errorf("after the swap %q were read", x.last)
	}
}

// testLateCommits has transactions commit in another order than that of their rows.
func testLateCommits(t *testing.T, s *server) {
	now := map[Kind]string{MySQL: "NOW(6)", Postgres: "clock_timestamp()"}[s.kind]
	s.exec(t, "CREATE TABLE late (id {key}, order_id {text} NOT NULL, made {time} NOT NULL)", "CREATE INDEX late_made ON late (made, id)")

	// One by one: row 1 appears when 2 was read.
	opts := s.options("late")
	x := &tails{table: newTable(t, opts), seen: map[string]int{}}
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	insert := "INSERT INTO late (order_id, made) VALUES ('%s', " + now + ")"
	if _, err := tx.ExecContext(t.Context(), fmt.Sprintf(insert, "slow")); err != nil {
		t.Fatal(err)
	}
	s.exec(t, fmt.Sprintf(insert, "quick"))
	if x.next(t); fmt.Sprint(x.last) != "[quick]" {
		t.Fatalf("%q", x.last)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if x.next(t); fmt.Sprint(x.last) != "[slow quick]" {
		t.Errorf("%q", x.last)
	}

	// Many, for as long as the overlap allows.
	const writers, each = 4, 40
	for _, cursor := range []string{"id", "made"} {
		t.Run(cursor, func(t *testing.T) {
			opts.CursorColumn = cursor
			// Far above what a transaction takes here, though not what it may take when
			// the machine is busy: that is measured below.
			opts.Overlap = time.Second
			x := &tails{table: newTable(t, opts), seen: map[string]int{}}
			var mu sync.Mutex
			var longest time.Duration
			var writing sync.WaitGroup
			for w := range writers {
				writing.Go(func() {
					for i := range each {
						began := time.Now()
						err := s.slowly(t.Context(), fmt.Sprintf(insert, fmt.Sprintf("%s-%d-%d", cursor, w, i)), rand.N(50*time.Millisecond))
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						longest = max(longest, time.Since(began))
						mu.Unlock()
					}
				})
			}
			done := make(chan struct{})
			go func() {
				writing.Wait()
				close(done)
			}()
			for over := false; !over; {
				select {
				case <-done:
					over = true
				default:
				}
				x.next(t)
			}
			if longest > opts.Overlap {
				t.Skipf("a transaction took %v: the machine is too busy", longest)
			}
			count := 0
			for id := range x.seen {
				if strings.HasPrefix(id, cursor+"-") {
					count++
				}
			}
			if count != writers*each {
				t.Errorf("%d orders, want %d", count, writers*each)
			}
			if x.mark.Floor.zero() && cursor == "made" {
				t.Logf("the mark has not moved: %+v", x.mark)
			}
		})
	}
}

// slowly inserts in a transaction that takes some time.
func (s *server) slowly(ctx context.Context, insert string, wait time.Duration) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing to do after a commit
	if _, err := tx.ExecContext(ctx, insert); err != nil {
		return err
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return tx.Commit()
}

// testShorterTable deletes what the mark was moved behind.
func testShorterTable(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE shorter (id {key}, order_id {text} NOT NULL)",
		"INSERT INTO shorter SELECT n, CONCAT('ord-', n) FROM {1..20}",
	)
	opts := s.options("shorter")
	opts.Overlap = time.Millisecond
	log, out := logger()
	opts.Logger = log
	x := &tails{table: newTable(t, opts), seen: map[string]int{}}
	bedtest.Eventually(t, "the mark moves", func() bool {
		x.next(t)
		return x.mark.Floor.Cursor == "20"
	})
	// As from a backup, after which the numbers begin again.
	s.exec(t, "DELETE FROM shorter WHERE id > 10", "INSERT INTO shorter VALUES (12, 'again')")
	x.mark = kept(t, x.mark)
	if x.next(t); len(x.last) != 11 || x.seen["again"] != 1 {
		t.Errorf("%q", x.last)
	}
	if !strings.Contains(out.String(), "id = 20") {
		t.Errorf("logged %s", out)
	}
	x.mark = Mark{Skip: &Span{From: x.mark.Floor, To: Position{Of: x.mark.reached().Of, Cursor: "99"}}}
	x.mark.Skip.From = Position{Of: x.mark.Skip.To.Of, Cursor: "3"}
	if x.mark.Skip.To.Of == "" {
		return
	}
	if x.next(t); len(x.last) != 11 {
		t.Errorf("with a part to skip that has gone: %q", x.last)
	}
}

// testTailWithoutOrder catches up by a cursor that new rows do not come at the end of.
func testTailWithoutOrder(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE anyhow (order_id {text} PRIMARY KEY)",
		"INSERT INTO anyhow SELECT CONCAT('b', n) FROM {1..20}",
	)
	opts := s.options("anyhow")
	opts.CursorColumn, opts.Overlap = "order_id", 1
	x := &tails{table: newTable(t, opts), seen: map[string]int{}}
	for range 3 {
		if x.next(t); len(x.last) != 20 || !x.mark.Zero() {
			t.Errorf("%d rows, mark %+v", len(x.last), x.mark)
		}
	}
	s.exec(t, "INSERT INTO anyhow VALUES ('a')")
	if x.next(t); x.seen["a"] != 1 {
		t.Error("a new row in front of the others was not read")
	}
	opts.Ascending = true
	x.table = newTable(t, opts)
	bedtest.Eventually(t, "the mark moves", func() bool {
		x.next(t)
		return !x.mark.Zero()
	})
}
