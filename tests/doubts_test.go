package tests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestFloodOfDoubts has a hundred creates a second whose orders' IDs nobody can read.
// Ordergate refuses made-up IDs all the same that the table's numbers have passed, never
// one of an order that exists, and reads the table no more often than five queries a
// second allow.
func TestFloodOfDoubts(t *testing.T) {
	t.Parallel()
	for _, db := range []struct {
		name    string
		table   func(t testing.TB, bed *bedtest.Bed, rows int, args ...string) *orderTable
		counted string
		fill    string
	}{
		{"mariadb", mariaTable, "ALTER TABLE orders AUTO_INCREMENT = 2001", "INSERT INTO orders SELECT 2*seq, 'x' FROM seq_1_to_1000"},
		{"postgres", postgresTable, "ALTER SEQUENCE orders_id_seq RESTART 2001",
			"INSERT INTO orders SELECT 2*n, 'x' FROM generate_series(1, 1000) n"},
	} {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			redis := bed.Redis()
			table := db.table(t, bed, 0)
			table.exec(db.counted)
			table.exec(db.fill)
			gate := table.gate(bed, redis.Addr(), tableSettings{member: "one"})
			gate.becomes(9_999_999, "absent")
			stop := floodOfDoubts(t, redis.Addr())
			defer stop()
			// The mark moves when the table's end has been there for the overlap.
			bedtest.Eventually(t, "the table's numbers count", func() bool { return strings.Contains(gate.info().Reason, "IDs above 2000") })
			bedtest.Eventually(t, "the page says which IDs pass, and until when", func() bool {
				return strings.Contains(gate.page(), `<b class="bad">passed on: IDs above 2000</b>, until the sources have been read again`)
			})

			before, began := table.queries(), time.Now()
			absent, asked := 0, 0
			for time.Since(began) < 4*time.Second {
				id := 2*(asked%1000) + 1
				switch got := gate.answer(id); got {
				case "absent":
					absent++
				case "maybe":
					t.Fatalf("order %d may exist", id)
				}
				asked++
				if got := gate.answer(id + 1); got != "maybe" {
					t.Fatalf("order %d exists and is %s", id+1, got)
				}
				if asked%20 == 0 {
					// A create whose answer could not be read: the doubt about it is told first.
					id := 1_000_000 + asked
					table.insert(id)
					tellDoubt(t, redis.Addr(), time.Now())
					if got := gate.answer(id); got == "absent" {
						t.Fatalf("order %d exists and is absent", id)
					}
				}
				time.Sleep(time.Millisecond) // leave some CPU to the others
			}
			took := time.Since(began).Seconds()
			queries := table.queries() - before - asked/20 // and those of the inserts
			t.Logf("%d of %d refused, %.1f queries a second", absent, asked, float64(queries)/took)
			if absent < asked*95/100 {
				t.Errorf("%d of %d made-up IDs are absent, want 95%%", absent, asked)
			}
			if most := 5*took + 20; float64(queries) > most { // a reading more, which began before
				t.Errorf("%d queries in %.1f s, want at most %.0f", queries, took, most)
			}
			stop()
			gate.becomes(9_999_999, "absent")
		})
	}
}

// TestDoubtAboutLateOrders: where IDs tell their time, a doubt about a create leaves out
// those of before its call, whatever the sources are, and one about the log those of before
// the table was read.
func TestDoubtAboutLateOrders(t *testing.T) {
	t.Parallel()
	id := func(ago time.Duration) string {
		return strconv.FormatInt(time.Since(time.Unix(0, 0).Add(ago)).Milliseconds()<<22, 10)
	}
	timed := func(yaml string) string {
		return strings.ReplaceAll(yaml, "id: {path: id", `id: {path: id, format: snowflake, time: {epoch: "1970-01-01T00:00:00Z"}, max_length: 20`)
	}
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		k := newKeeper(t, 0)
		k.config = timed(k.yaml(""))
		k.gate = k.Gate(k.binary, k.config)
		k.want("absent", id(0))
		tell := func(d changelog.Doubt) {
			t.Helper()
			d.Kind, d.Reason = changelog.Lost, "no ID in the answer"
			recordDoubt(t, k.log, d)
		}
		tell(changelog.Doubt{Orders: true, Since: time.Now()})
		k.want("unknown", id(0), id(30*time.Second))
		k.want("absent", id(2*time.Minute), id(time.Hour))
		tell(changelog.Doubt{Orders: true, Since: time.Now().Add(-10 * time.Minute)})
		k.want("unknown", id(0), id(10*time.Minute))
		k.want("absent", id(12*time.Minute))
		if text := k.readyz(); !strings.Contains(text, "(IDs from ") {
			t.Errorf("readiness does not say what is in doubt: %s", text)
		}
		tell(changelog.Doubt{}) // as the last release writes it
		k.want("unknown", id(time.Hour))
	})
	t.Run("table", func(t *testing.T) {
		t.Parallel()
		bed := bedtest.New(t)
		redis := bed.Redis()
		table := mariaTable(t, bed, 0)
		c := bedtest.Replace(timed(table.config(redis.Addr(), tableSettings{member: "one"})), ", format: digits", "")
		gate := asTableGate(t, bed, bed.Gate(bed.Build("./cmd/sidecar", true), c, "ORDERS_DSN="+table.dsn))
		answer := func(id string) string {
			n, err := strconv.Atoi(id)
			must(t, err)
			return gate.answer(n)
		}
		bedtest.Eventually(t, "orders are absent", func() bool { return answer(id(0)) == "absent" })
		stop := floodOfDoubts(t, redis.Addr())
		defer stop()
		bedtest.Eventually(t, "the table has been read", func() bool { return answer(id(time.Hour)) == "absent" })
		// Doubts about the log have no time of their own.
		log, err := changelog.New(newClient(t, redis.Addr()), "orders", func(string) {}, changelog.Options{})
		must(t, err)
		recordDoubt(t, log, changelog.Doubt{Kind: changelog.Crash, Reason: "an ordergate ended"})
		for range 50 {
			if got := answer(id(time.Hour)); got != "absent" {
				t.Fatalf("an ID of an hour ago is %s", got)
			}
			if got := answer(id(0)); got == "maybe" {
				t.Fatalf("an ID of now is %s", got)
			}
		}
	})
}

// queries returns how many queries the database has answered.
func (o *orderTable) queries() int {
	o.t.Helper()
	text, name := "SHOW GLOBAL STATUS LIKE 'Questions'", ""
	if o.kind == "postgres" {
		text = "SELECT '', xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
	}
	var n int
	must(o.t, o.db.QueryRowContext(o.t.Context(), text).Scan(&name, &n))
	return n
}

// tellDoubt says that an order was created whose ID nobody knows.
func tellDoubt(t testing.TB, redis string, since time.Time) {
	t.Helper()
	log, err := changelog.New(newClient(t, redis), "orders", func(string) {}, changelog.Options{})
	must(t, err)
	recordDoubt(t, log, changelog.Doubt{Kind: changelog.Lost, Reason: "no ID in the answer", Orders: true, Since: since})
}

// floodOfDoubts tells a hundred of them a second until it is stopped.
func floodOfDoubts(t testing.TB, redis string) (stop func()) {
	log, err := changelog.New(newClient(t, redis), "orders", func(string) {}, changelog.Options{})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var told sync.WaitGroup
	told.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			d := changelog.Doubt{Kind: changelog.Lost, Reason: "no ID in answer " + strconv.Itoa(n), Orders: true, Since: time.Now()}
			if err := log.RecordDoubt(ctx, d); err != nil && ctx.Err() == nil {
				t.Errorf("doubt %d: %v", n, err)
			}
		}
	})
	return func() { cancel(); told.Wait() }
}

// TestDoubtsThatLast: without a live source, a doubt that wants somebody is there after a
// restart, with a snapshot and without, and after the file was touched. Only ordergate
// load clears it, for all, who read their sources then.
func TestDoubtsThatLast(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, 100)
	other := *k
	other.member, other.file = "there", k.file+".other"
	const lost, never = "3000001", "4000000"
	unknown := func(when string, ids ...string) {
		t.Helper()
		for _, k := range []*keeper{k, &other} {
			k.want("maybe", "1")
			k.mustSay("level=ERROR", "nothing counts as absent until the sources have every order")
			for _, id := range append(ids, never) {
				if got := k.ask(id); got != "unknown" {
					t.Fatalf("%s: order %s is %s at %s", when, id, got, k.member)
				}
			}
		}
	}
	absent := func(when string) {
		t.Helper()
		for _, k := range []*keeper{k, &other} {
			bedtest.Eventually(t, when+": a verdict", func() bool { return k.ask(never) == "absent" })
		}
	}
	restart := func(before func(k *keeper)) {
		t.Helper()
		for _, k := range []*keeper{k, &other} {
			must(t, k.gate.Stop())
			before(k)
			k.start("")
		}
	}
	forget := func(k *keeper) { must(t, errors.Join(os.Remove(k.file))) }
	k.start("")
	other.start("")
	absent("at the start")
	k.written()
	other.written()

	recordDoubt(t, k.log, changelog.Doubt{Kind: changelog.Lost, Reason: "no ID in the answer", Orders: true, Since: time.Now()})
	unknown("a doubt", lost)
	for _, part := range []string{"unknown, lookups of orders that do not exist go on to the backend: no ID in the answer", "ordergate load --filter orders"} {
		if text := k.readyz(); !strings.Contains(text, part) {
			t.Errorf("readiness does not say %q: %s", part, text)
		}
	}
	restart(func(*keeper) {})
	unknown("restarted from a snapshot", lost)
	restart(forget)
	unknown("restarted without", lost)
	k.touch()
	restart(func(*keeper) {})
	unknown("the file was touched", lost)
	// Somebody's reading that began before the doubt was told.
	read, err := changelog.New(k.redis, "orders", func(string) {}, changelog.Options{})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var followed sync.WaitGroup
	followed.Go(func() { _ = read.Run(ctx) })
	defer followed.Wait()
	defer cancel()
	<-read.TailReached()
	early := read.Mark()
	early.Seq--
	must(t, k.log.ClearDoubts(t.Context(), early))
	unknown("somebody has said that of an earlier reading", lost)

	file, err := os.OpenFile(k.ids, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = fmt.Fprintln(file, lost)
	must(t, errors.Join(err, file.Close()))
	k.age(time.Minute) // or its time would tell nothing yet
	k.load()
	absent("the source has the order")
	k.want("maybe", lost)
	other.want("maybe", lost)
	restart(forget)
	absent("restarted after that")
	k.want("maybe", lost)
	other.want("maybe", lost)

	// A log that was lost is a doubt that wants somebody, too.
	must(t, k.redis.FlushAll(t.Context()).Err())
	unknown("the log was flushed")
	restart(func(k *keeper) { _ = os.Remove(k.file) })
	unknown("the log was flushed, and restarted")
	// Where none runs, ordergate load writes a snapshot, and says the same.
	must(t, errors.Join(k.gate.Stop(), other.gate.Stop()))
	k.load()
	k.start("")
	k.mustSay(fromSnapshot)
	other.start("")
	absent("loaded where none ran")
}
