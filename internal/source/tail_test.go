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

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// catchUps catches up with a table for a test.
type catchUps struct {
	table *Table
	mark  Mark
	seen  map[string]int
	last  []string // of the last call
}

func (x *catchUps) next(t *testing.T) {
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

// roundTrip returns the mark as another process reads it.
func roundTrip(t *testing.T, m Mark) (other Mark) {
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
	x := &catchUps{table: newTable(t, opts), seen: map[string]int{}}
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
	x.mark = roundTrip(t, x.mark)
	if x.next(t); fmt.Sprint(x.last) != "[ord-50]" {
		t.Errorf("behind %+v: %q", x.mark, x.last)
	}

	// Each time another process starts from the stored mark.
	x = &catchUps{table: newTable(t, opts), seen: map[string]int{}}
	bedtest.Eventually(t, "the mark moves", func() bool {
		x.next(t)
		x.mark = roundTrip(t, x.mark)
		return x.mark.Floor.Cursor == "50"
	})
	if x.next(t); len(x.last) > 0 {
		t.Errorf("behind %+v: %q", x.mark, x.last)
	}

	// A load that takes longer than the overlap, and is interrupted.
	opts.Batch, opts.Pause = 1, 20*time.Millisecond
	x = &catchUps{table: newTable(t, opts), seen: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var disk Mark
	n := 0
	_, _, err := x.table.Tail(ctx, Mark{}, func(id string) error {
		x.seen[id]++
		return nil
	}, func(m Mark) error {
		disk = roundTrip(t, m)
		if n++; n == 25 {
			cancel()
		}
		return nil
	})
	if err == nil || disk.Zero() { // a part to skip, or the floor if the machine was busy at the beginning
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

// testTailOfAnotherColumn swaps the names of two columns: no mark holds.
func testTailOfAnotherColumn(t *testing.T, s *server) {
	s.exec(t, "CREATE TABLE swapped (id {key}, order_id {text} NOT NULL, other {text} NOT NULL)", "INSERT INTO swapped SELECT n, CONCAT('ord-', n), 'x' FROM {1..40}")
	opts := s.options("swapped")
	opts.Overlap = 100 * time.Millisecond
	x := &catchUps{table: newTable(t, opts), seen: map[string]int{}}
	bedtest.Eventually(t, "the mark moves", func() bool {
		x.next(t)
		return x.mark.Floor.Cursor == "40"
	})
	swap := []string{"ALTER TABLE swapped RENAME COLUMN order_id TO third", "ALTER TABLE swapped RENAME COLUMN other TO order_id", "ALTER TABLE swapped RENAME COLUMN third TO other"}
	s.exec(t, swap...)
	x.mark = roundTrip(t, x.mark)
	if x.next(t); len(x.last) != 40 || x.seen["x"] != 40 {
		t.Errorf("after the swap %q were read", x.last)
	}
}

// testLateCommits commits transactions in another order than that of their rows.
func testLateCommits(t *testing.T, s *server) {
	now := map[Kind]string{MySQL: "NOW(6)", Postgres: "clock_timestamp()"}[s.kind]
	s.exec(t, "CREATE TABLE late (id {key}, order_id {text} NOT NULL, made {time} NOT NULL)", "CREATE INDEX late_made ON late (made, id)")

	// One by one: row 1 appears when 2 was read.
	opts := s.options("late")
	x := &catchUps{table: newTable(t, opts), seen: map[string]int{}}
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

	// Many at once, for as long as the overlap allows.
	const writers, each = 4, 40
	for _, cursor := range []string{"id", "made"} {
		t.Run(cursor, func(t *testing.T) {
			opts.CursorColumn, opts.Ascending = cursor, true
			// Far above the duration of a transaction here, unless the machine is busy: the test
			// measures that below.
			opts.Overlap = time.Second
			x := &catchUps{table: newTable(t, opts), seen: map[string]int{}}
			var mu sync.Mutex
			var longest time.Duration
			var writing sync.WaitGroup
			for w := range writers {
				writing.Go(func() {
					for i := range each {
						began := time.Now()
						err := s.insertSlowly(t.Context(), fmt.Sprintf(insert, fmt.Sprintf("%s-%d-%d", cursor, w, i)), rand.N(50*time.Millisecond))
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

// insertSlowly inserts a row in a transaction that takes some time.
func (s *server) insertSlowly(ctx context.Context, insert string, wait time.Duration) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	if _, err := tx.ExecContext(ctx, insert); err != nil {
		return err
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return tx.Commit()
}

// testShorterTable deletes rows that the mark has passed.
func testShorterTable(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE shorter (id {key}, order_id {text} NOT NULL)",
		"INSERT INTO shorter SELECT n, CONCAT('ord-', n) FROM {1..20}",
	)
	opts := s.options("shorter")
	opts.Overlap = time.Millisecond
	log, out := logger()
	opts.Logger = log
	x := &catchUps{table: newTable(t, opts), seen: map[string]int{}}
	bedtest.Eventually(t, "the mark moves", func() bool {
		x.next(t)
		return x.mark.Floor.Cursor == "20"
	})
	// As from a backup: the numbers start again.
	s.exec(t, "DELETE FROM shorter WHERE id > 10", "INSERT INTO shorter VALUES (12, 'again')")
	x.mark = roundTrip(t, x.mark)
	if x.next(t); len(x.last) != 11 || x.seen["again"] != 1 {
		t.Errorf("%q", x.last)
	}
	if !strings.Contains(out.String(), "id = 20") {
		t.Errorf("logged %s", out)
	}
	x.mark = Mark{Skip: &Span{From: x.mark.Floor, To: Position{Identity: x.mark.readUpTo().Identity, Cursor: "99"}}}
	x.mark.Skip.From = Position{Identity: x.mark.Skip.To.Identity, Cursor: "3"}
	if x.mark.Skip.To.Identity == "" {
		return
	}
	if x.next(t); len(x.last) != 11 {
		t.Errorf("with a part to skip that has gone: %q", x.last)
	}
}

// testBounds deletes the last row that was seen before the mark moves behind it, as a restored
// backup does. New rows get its number.
func testBounds(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE sightings (id {key}, order_id {text} NOT NULL)",
		"INSERT INTO sightings SELECT n, CONCAT('ord-', n) FROM {1..20}",
	)
	opts := s.options("sightings")
	opts.Overlap = time.Millisecond
	x := &catchUps{table: newTable(t, opts), seen: map[string]int{}}
	x.next(t)
	s.exec(t, "DELETE FROM sightings WHERE id > 10")
	x.next(t)
	s.exec(t, "INSERT INTO sightings SELECT n + 10, CONCAT('new-', n) FROM {1..20}")
	x.next(t)
	for _, id := range []string{"new-1", "new-10", "new-20"} {
		if x.seen[id] == 0 {
			t.Errorf("%s was not read, behind %+v", id, x.mark)
		}
	}
}

// testTailWithoutOrder catches up by a cursor with new rows anywhere.
func testTailWithoutOrder(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE anyhow (order_id {text} PRIMARY KEY)",
		"INSERT INTO anyhow SELECT CONCAT('b', n) FROM {1..20}",
	)
	opts := s.options("anyhow")
	opts.CursorColumn, opts.Overlap = "order_id", 1
	x := &catchUps{table: newTable(t, opts), seen: map[string]int{}}
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

// testChosenNumbers catches up by numbers that clients choose.
func testChosenNumbers(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE chosen (id BIGINT PRIMARY KEY, order_id {text} NOT NULL)",
		"INSERT INTO chosen SELECT n + 1000, CONCAT('ord-', n) FROM {1..20}",
	)
	opts := s.options("chosen")
	opts.Overlap = time.Millisecond
	log, out := logger()
	opts.Logger = log
	x := &catchUps{table: newTable(t, opts), seen: map[string]int{}}
	for range 3 {
		x.next(t)
	}
	s.exec(t, "INSERT INTO chosen VALUES (5, 'five')")
	if x.next(t); x.seen["five"] != 1 || !x.mark.Zero() {
		t.Errorf("the order with the number 5 was read %d times, behind %+v", x.seen["five"], x.mark)
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "cursor column id of type bigint") || !strings.Contains(got, "set ascending: true") {
		t.Errorf("logged %s", got)
	}
}

// testAutoIncrement determines which cursors the database itself increments.
func testAutoIncrement(t *testing.T, s *server) {
	cases := map[Kind][]struct {
		name string
		make []string // a table or a view with the name counted
		want bool
	}{
		MySQL: {
			{"AUTO_INCREMENT", []string{"CREATE TABLE counted (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, order_id INT)"}, true},
			{"second in its index", []string{"CREATE TABLE counted (id INT AUTO_INCREMENT, order_id INT, PRIMARY KEY (order_id, id), KEY (id, order_id))"}, true},
			{"for each shop", []string{"CREATE TABLE counted (id INT AUTO_INCREMENT, order_id INT, PRIMARY KEY (order_id, id)) ENGINE = MyISAM"}, false},
			{"chosen", []string{"CREATE TABLE counted (id BIGINT PRIMARY KEY, order_id INT)"}, false},
			{"of a sequence, which MariaDB tells in its own way", []string{"CREATE SEQUENCE n", "CREATE TABLE counted (id BIGINT DEFAULT NEXTVAL(n) PRIMARY KEY, order_id INT)"}, false},
			{"a time", []string{"CREATE TABLE counted (id TIMESTAMP(6) DEFAULT NOW(6) PRIMARY KEY, order_id INT)"}, false},
			{"a view", []string{"CREATE TABLE under_it (id INT AUTO_INCREMENT PRIMARY KEY, order_id INT)", "CREATE VIEW counted AS SELECT id, order_id FROM under_it"}, false},
		},
		Postgres: {
			{"serial", []string{"CREATE TABLE counted (id serial, order_id int)"}, true},
			{"numeric, of a domain", []string{
				"CREATE SEQUENCE n", "CREATE DOMAIN number AS numeric", "CREATE TABLE counted (id number DEFAULT nextval('n'), order_id int)",
			}, true},
			{"identity", []string{"CREATE TABLE counted (id int GENERATED ALWAYS AS IDENTITY, order_id int)"}, true},
			{"identity by default", []string{"CREATE TABLE counted (id int GENERATED BY DEFAULT AS IDENTITY, order_id int)"}, true},
			{"a sequence of its own", []string{`CREATE SEQUENCE "o'd d"`, `CREATE TABLE counted (id bigint DEFAULT nextval('"o''d d"'), order_id int)`}, true},
			{"of a partitioned table", []string{"CREATE TABLE counted (id bigserial, order_id int) PARTITION BY RANGE (id)"}, true},
			{"chosen", []string{"CREATE TABLE counted (id bigint PRIMARY KEY, order_id int)"}, false},
			{"no default any more", []string{"CREATE TABLE counted (id serial, order_id int)", "ALTER TABLE counted ALTER id DROP DEFAULT"}, false},
			{"reckoned", []string{"CREATE SEQUENCE n", "CREATE TABLE counted (id bigint DEFAULT nextval('n') * 7919 % 10007, order_id int)"}, false},
			{"of two sequences", []string{"CREATE SEQUENCE n", "CREATE SEQUENCE m", "CREATE TABLE counted (id bigint DEFAULT nextval('n') - nextval('m'), order_id int)"}, false},
			{"downwards", []string{"CREATE SEQUENCE n INCREMENT -1", "CREATE TABLE counted (id int DEFAULT nextval('n'), order_id int)"}, false},
			{"in circles", []string{"CREATE SEQUENCE n CYCLE", "CREATE TABLE counted (id int DEFAULT nextval('n'), order_id int)"}, false},
			{"many at a time", []string{"CREATE TABLE counted (id int GENERATED ALWAYS AS IDENTITY (CACHE 20), order_id int)"}, false},
			{"in steps, as of Hibernate, which uses the numbers between them later", []string{"CREATE SEQUENCE n INCREMENT 50", "CREATE TABLE counted (id bigint DEFAULT nextval('n'), order_id int)"}, false},
			{"as text", []string{"CREATE SEQUENCE n", "CREATE TABLE counted (id text DEFAULT nextval('n'), order_id int)"}, false},
			{"a time", []string{"CREATE TABLE counted (id timestamptz DEFAULT now(), order_id int)"}, false},
			{"a view", []string{"CREATE TABLE under_it (id serial, order_id int)", "CREATE VIEW counted AS SELECT * FROM under_it"}, false},
		},
	}[s.kind]
	for i, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			schema := fmt.Sprintf("counted_%d", i)
			s.exec(t, "CREATE SCHEMA "+schema)
			own := *s
			own.db = s.connIn(t, schema)
			own.exec(t, tc.make...)
			opts := s.options(schema + ".counted")
			for _, said := range []bool{false, true} {
				opts.Ascending = said
				c, l, err := newTable(t, opts).open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				c.close()
				if l.autoIncrement != tc.want || l.ascending != (tc.want || said) {
					t.Errorf("counted %v, want %v; ascending %v, where ascending: %v", l.autoIncrement, tc.want, l.ascending, said)
				}
				if warned := strings.Contains(fmt.Sprint(l.warnings), "set ascending: true"); warned == l.ascending {
					t.Errorf("warnings %q", l.warnings)
				}
			}
		})
	}
}
