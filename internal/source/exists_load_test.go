package source

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// connections returns the number of connections of ordergates to a server.
func (s *server) connections(t *testing.T) int {
	t.Helper()
	query := map[Kind]string{
		MySQL:    "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'ordergate'",
		Postgres: "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = '" + applicationName + "'",
	}[s.kind]
	n, err := strconv.Atoi(s.query(t, query)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// asReader returns the server as a user sees it that may read one table.
func (s *server) asReader(t *testing.T, table string) *server {
	t.Helper()
	if s.kind == Postgres {
		return s
	}
	s.exec(t, "CREATE USER ordergate@'127.0.0.1' IDENTIFIED BY 'secret'", "GRANT SELECT (order_id) ON "+table+" TO ordergate@'127.0.0.1'")
	config, err := mysql.ParseDSN(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.User, config.Passwd = "ordergate", "secret"
	reader := *s
	reader.dsn = config.FormatDSN()
	return &reader
}

// ask calls Exists n times at once, and returns the answers: "true", "false" or "error".
func ask(t *testing.T, c *Confirmer, n int, id func(i int) string) (answers map[string]int, slowest time.Duration) {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	answers = make(map[string]int)
	for i := range n {
		all.Go(func() {
			began := time.Now()
			exists, err := c.Exists(t.Context(), id(i))
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			slowest = max(slowest, took)
			if err != nil {
				if answers["error"]++; answers["error"] == 1 {
					t.Logf("after %v: %v", took, err)
				}
				return
			}
			answers[strconv.FormatBool(exists)]++
		})
	}
	all.Wait()
	return answers, slowest
}

func theSame(int) string { return "ord-1" }

func different(i int) string { return "ord-" + strconv.Itoa(i+1) }

// TestExistsAtOnce has many callers at once, of one order and of many, also while the table is
// locked and after the server was restarted.
func TestExistsAtOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		s.exec(t, "CREATE TABLE busy (id {key}, order_id {text} UNIQUE)", "INSERT INTO busy SELECT n, CONCAT('ord-', n) FROM {1..100}")
		reader := s.asReader(t, "busy")
		patient := reader.confirmer(t, "busy", func(o *ConfirmerOptions) { o.MaxQueries = 3 })
		want := func(what string, id func(int) string, want string) {
			t.Helper()
			answers, _ := ask(t, patient, 200, id)
			if got := fmt.Sprint(answers); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		patient.Warm()
		bedtest.Eventually(t, "it connects", func() bool { return s.connections(t) == 1 })
		want("one order", theSame, "map[true:200]")
		want("many orders", different, "map[false:100 true:100]")
		if n := s.connections(t); n > 3 {
			t.Errorf("%d connections, want 3 at most", n)
		}

		must(t, s.proc.Stop())
		want("stopped", different, "map[error:200]")
		bedtest.Eventually(t, "connections are refused", func() bool { // each one that was lost is found so once
			_, err := patient.Exists(t.Context(), "ord-1")
			return err != nil && strings.Contains(err.Error(), "refused")
		})
		must(t, s.proc.Restart(t.Context()))
		bedtest.Eventually(t, "it answers again", func() bool { _, err := patient.Exists(t.Context(), "ord-1"); return err == nil })
		want("started again", different, "map[false:100 true:100]")
		must(t, s.proc.Restart(t.Context()))
		want("restarted", different, "map[false:100 true:100]") // on connections that the server has closed
		s.db.SetMaxIdleConns(0)                                 // the test's own are closed, too

		patient.Retire()
		bedtest.Eventually(t, "it closes its connections", func() bool { return s.connections(t) == 0 })
		want("retired", different, "map[false:100 true:100]")
		bedtest.Eventually(t, "it closes its connections", func() bool { return s.connections(t) == 0 })
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestExistsInTime asks while the table is locked, and while the server hangs.
func TestExistsInTime(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		s.exec(t, "CREATE TABLE slow (id {key}, order_id {text} UNIQUE)", "INSERT INTO slow SELECT n, CONCAT('ord-', n) FROM {1..100}")
		c := s.asReader(t, "slow").confirmer(t, "slow", func(o *ConfirmerOptions) { o.Timeout, o.MaxQueries = 300*time.Millisecond, 3 })
		answers := func() bool { _, err := c.Exists(t.Context(), "ord-1"); return err == nil }
		none := func(n int, id func(int) string) {
			t.Helper()
			answers, slowest := ask(t, c, n, id)
			// Ten times as long, on a machine that is busy with other tests.
			if answers["error"] != n || slowest > 3*time.Second {
				t.Errorf("%v, after %v at most", answers, slowest)
			}
		}
		bedtest.Eventually(t, "it answers", answers)
		unlock := s.lock(t, "slow")
		none(200, theSame)
		none(200, different)
		if n := s.connections(t); n > 2*3 { // some wait to be closed
			t.Errorf("%d connections while the table is locked", n)
		}
		_, err := c.Exists(t.Context(), "ord-1")
		s.wantError(t, err, "no answer for 300ms")
		unlock()
		bedtest.Eventually(t, "it answers again", answers)
		if s.kind == Postgres {
			return // its processes go on if the first one is stopped
		}
		must(t, s.proc.Pause())
		bedtest.Eventually(t, "all of its threads have stopped", func() bool { return !answers() })
		none(50, different)
		must(t, s.proc.Resume())
		bedtest.Eventually(t, "it answers again", answers)
	})
}

// TestExistsShares counts the queries of 200 callers at once, who ask about one order.
func TestExistsShares(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	m := bed.MariaDB("--log-output=TABLE", "--general-log=1")
	s := &server{kind: MySQL, dsn: m.DSN(), bed: bed, proc: m.Process}
	s.db = openDB(t, s.kind, s.dsn)
	s.exec(t, "CREATE TABLE shared (id {key}, order_id {text} UNIQUE)")
	c := s.confirmer(t, "shared", nil)
	if _, err := c.Exists(t.Context(), "ord-2"); err != nil { // it is connected
		t.Fatal(err)
	}
	unlock := s.lock(t, "shared")
	var asking sync.WaitGroup
	asking.Go(func() {
		answers, _ := ask(t, c, 200, theSame)
		if got := fmt.Sprint(answers); got != "map[false:200]" {
			t.Error(got)
		}
	})
	bedtest.Eventually(t, "all ask", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		callers := 0
		if l := c.lanes["ord-1"]; l != nil {
			for _, q := range []*question{l.sent, l.next} {
				if q != nil {
					callers += q.callers
				}
			}
		}
		return callers == 200
	})
	unlock()
	asking.Wait()
	if n := s.query(t, "SELECT COUNT(*) FROM mysql.general_log WHERE command_type = 'Query' AND argument LIKE 'SELECT `order_id`%ord-1%'")[0]; n > "2" {
		t.Errorf("%s queries, want 2 at most", n)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lanes)+c.queue.Len() > 0 {
		t.Errorf("%d lanes and %d questions are left", len(c.lanes), c.queue.Len())
	}
}

// TestExistsSeesWhatWasCommitted has orders created while many callers ask about them. Whoever asks
// after the commit has to hear of it.
func TestExistsSeesWhatWasCommitted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		s.exec(t, "CREATE TABLE fresh (id {key}, order_id {text} UNIQUE)")
		c := s.confirmer(t, "fresh", nil)
		const orders, callers = 100, 6
		var now, stop atomic.Int64 // the order that is created next
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for stop.Load() == 0 {
					if _, err := c.Exists(t.Context(), different(int(now.Load()))); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for i := range orders {
			now.Store(int64(i))
			s.exec(t, "INSERT INTO fresh (order_id) VALUES ('"+different(i)+"')")
			if exists, err := c.Exists(t.Context(), different(i)); !exists || err != nil {
				t.Errorf("order %d after its commit: %t, %v", i, exists, err)
			}
		}
		stop.Store(1)
		all.Wait()
	})
}

// TestExistsOnAReplica warns that the newest orders may be missing.
func TestExistsOnAReplica(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	s := &server{kind: MySQL, dsn: bed.MariaDB().DSN(), bed: bed}
	s.db = openDB(t, s.kind, s.dsn)
	s.exec(t, "CREATE TABLE copied (id {key}, order_id {text} UNIQUE)", "SET GLOBAL read_only = 1")
	log, out := logger()
	c := s.confirmer(t, "copied", func(o *ConfirmerOptions) { o.Logger = log })
	if _, err := c.Exists(t.Context(), "ord-1"); err != nil {
		t.Error(err)
	}
	c.Close()
	if n := strings.Count(out.String(), "the server is read-only"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, out)
	}
}

// TestExistsIsCommitted has an order that is being created, and then is not.
func TestExistsIsCommitted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		s.exec(t, "CREATE TABLE pending (id {key}, order_id {text} UNIQUE)")
		if s.kind == MySQL {
			s.exec(t, "SET GLOBAL TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
		}
		c := s.confirmer(t, "pending", nil)
		tx, err := s.db.BeginTx(t.Context(), nil)
		must(t, err)
		_, err = tx.ExecContext(t.Context(), "INSERT INTO pending (order_id) VALUES ('ord-1')")
		must(t, err)
		if exists, err := c.Exists(t.Context(), "ord-1"); exists || err != nil {
			t.Errorf("before its commit: %t, %v", exists, err)
		}
		must(t, tx.Commit())
		if exists, err := c.Exists(t.Context(), "ord-1"); !exists || err != nil {
			t.Errorf("after its commit: %t, %v", exists, err)
		}
	})
}

// TestExistsCloses ends questions that hang.
func TestExistsCloses(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		s.exec(t, "CREATE TABLE hung (id {key}, order_id {text} UNIQUE)")
		c := s.confirmer(t, "hung", func(o *ConfirmerOptions) { o.Timeout = time.Hour })
		if _, err := c.Exists(t.Context(), "ord-1"); err != nil {
			t.Fatal(err)
		}
		unlock := s.lock(t, "hung")
		defer unlock()
		var asking sync.WaitGroup
		asking.Go(func() {
			if answers, _ := ask(t, c, 20, different); answers["error"] != 20 {
				t.Errorf("%v", answers)
			}
		})
		bedtest.Eventually(t, "all ask", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.lanes) == 20
		})
		c.Close()
		asking.Wait()
	})
}

// TestExistsInAnotherTable replaces the table by one whose column has another type.
func TestExistsInAnotherTable(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		s.exec(t, "CREATE TABLE moved (id {key}, order_id BIGINT UNIQUE)", "INSERT INTO moved (order_id) VALUES (42)")
		c := s.confirmer(t, "moved", nil)
		want := func(id string, exists bool) {
			t.Helper()
			if got, err := c.Exists(t.Context(), id); got != exists || err != nil {
				t.Errorf("%s: %t, %v", id, got, err)
			}
		}
		want("42", true)
		s.exec(t, "DROP TABLE moved")
		if _, err := c.Exists(t.Context(), "42"); err == nil {
			t.Error("a table that was dropped: no error")
		}
		s.exec(t, "CREATE TABLE moved (id {key}, order_id {text} UNIQUE)", "INSERT INTO moved (order_id) VALUES ('43'), ('042')")
		bedtest.Eventually(t, "it has the new one", func() bool { _, err := c.Exists(t.Context(), "1"); return err == nil })
		want("42", false)
		want("042", true)
		want("43", true)
		s.exec(t, "DROP TABLE moved", "CREATE TABLE moved (id {key}, order_id BIGINT UNIQUE)", "INSERT INTO moved (order_id) VALUES (44)")
		want("44", true)
		want("43", false)
	})
}
