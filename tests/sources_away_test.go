package tests

import (
	"encoding/json"
	"io"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// account is a user of a database whose connections can be ended, and kept from coming back.
type account struct {
	table     *orderTable
	cut, back []string
}

// newAccount makes one, which ordergate uses from then on.
func newAccount(o *orderTable) *account {
	a := &account{table: o}
	if o.kind == "mysql" {
		o.exec("CREATE USER gate@'%' IDENTIFIED BY 'secret'")
		o.exec("GRANT ALL ON *.* TO gate@'%'")
		_, rest, _ := strings.Cut(o.dsn, "@")
		o.dsn = "gate:secret@" + rest
		a.cut = []string{"ALTER USER gate@'%' ACCOUNT LOCK", "KILL USER gate"}
		a.back = []string{"ALTER USER gate@'%' ACCOUNT UNLOCK"}
		return a
	}
	o.exec("CREATE ROLE gate SUPERUSER LOGIN PASSWORD 'secret'")
	dsn, err := url.Parse(o.dsn)
	must(o.t, err)
	dsn.User = url.UserPassword("gate", "secret")
	o.dsn = dsn.String()
	a.cut = []string{"ALTER ROLE gate NOLOGIN", "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'gate'"}
	a.back = []string{"ALTER ROLE gate LOGIN"}
	return a
}

// do runs statements.
func (a *account) do(statements []string) {
	a.table.t.Helper()
	for _, s := range statements {
		a.table.exec(s)
	}
}

// condition returns the one of this name in /readyz, and whether the whole is ready.
func (g *tableGate) condition(name string) (found struct {
	Name, Reason string
	Ready        bool
}, ready bool) {
	g.t.Helper()
	resp, err := client.Get(g.admin + "/readyz")
	must(g.t, err)
	defer resp.Body.Close()
	all := struct{ Conditions []json.RawMessage }{}
	must(g.t, json.NewDecoder(resp.Body).Decode(&all))
	for _, c := range all.Conditions {
		one := found
		must(g.t, json.Unmarshal(c, &one))
		if one.Name == name {
			return one, resp.StatusCode == 200
		}
	}
	return found, resp.StatusCode == 200
}

// followed returns how many of some ordergates say that they follow the table.
func followed(gates ...*tableGate) (n int) {
	for _, g := range gates {
		if metricAt(g.t, g.admin, `ordergate_source_followed{filter="orders",source="orders-db"}`) == "1" {
			n++
		}
	}
	return n
}

// TestTableCut ends ordergate's connections to the database, into which others go on
// writing: each ordergate knows at once that nothing is certain, long before stale_after, and refuses
// nothing from the end of its window on.
func TestTableCut(t *testing.T) {
	t.Parallel()
	for _, tc := range follows {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			redis := bed.Redis()
			table := tc.table(t, bed, 1000, tc.args...)
			a := newAccount(table)
			s := func(member string) tableSettings {
				return tableSettings{member: member, filter: ", stale_after: 1h", source: tc.source}
			}
			one, two := table.gate(bed, redis.Addr(), s("one")), table.gate(bed, redis.Addr(), s("two"))
			gates := []*tableGate{one, two}
			for _, g := range gates {
				g.becomes(5000, "absent")
			}
			bedtest.Eventually(t, "one of them follows", func() bool { return followed(gates...) == 1 })
			a.do(a.cut)
			table.insert(5000)
			for _, g := range gates {
				// Nobody asks for an order: the state does not depend on that.
				bedtest.Eventually(t, "the state is unknown", func() bool { return g.info().State == "unknown" })
				// Ordergate has told nobody of the order: a window that was open goes on to its end.
				known := time.Now()
				g.becomes(5000, "unknown")
				if took := time.Since(known); took > 10*window { // the rest is for a busy machine
					t.Errorf("an order that the log does not have is absent for another %v", took)
				}
				bedtest.Eventually(t, "the condition has the cause", func() bool {
					c, ready := g.condition("source orders-db")
					return ready && c.Ready && strings.Contains(c.Reason, "nothing counts as absent: the table is not followed: ")
				})
			}
			bedtest.Eventually(t, "no ordergate says that it follows", func() bool { return followed(gates...) == 0 })
			a.do(a.back)
			for _, g := range gates {
				g.becomes(5000, "maybe")
				g.becomes(6000, "absent")
				bedtest.Eventually(t, "the state is ready", func() bool { return g.info().State == "ready" })
				bedtest.Eventually(t, "the condition has no cause", func() bool { c, _ := g.condition("source orders-db"); return c.Reason == "" })
			}
			bedtest.Eventually(t, "one of them follows again", func() bool { return followed(gates...) == 1 })
		})
	}
}

// cutProxy passes connections on until it is cut off. It refuses them from then on.
type cutProxy struct {
	listener net.Listener
	mu       sync.Mutex
	conns    []net.Conn
}

func newCutProxy(t *testing.T, to string) *cutProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &cutProxy{listener: listener}
	t.Cleanup(p.cut)
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close() // the client sees it
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, from, server)
			p.mu.Unlock()
			for _, c := range [][2]net.Conn{{from, server}, {server, from}} {
				go func() {
					_, _ = io.Copy(c[0], c[1]) // ends with either
					_ = c[0].Close()
				}()
			}
		}
	}()
	return p
}

func (p *cutProxy) cut() {
	_ = p.listener.Close() // first, or another connection might come
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
}

// TestLeaderCutOff cuts the ordergate that follows the table off from the database alone. Another
// follows soon after stale_after, for both.
func TestLeaderCutOff(t *testing.T) {
	t.Parallel()
	for _, tc := range follows {
		if strings.Contains(tc.name, "poll") {
			continue // it ends with its connection
		}
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			redis := bed.Redis()
			table := tc.table(t, bed, 1000, tc.args...)
			direct := table.dsn
			addr := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(direct)
			proxy := newCutProxy(t, addr)
			s := func(member string) tableSettings {
				return tableSettings{member: member, filter: ", stale_after: 2s", source: tc.source}
			}
			table.dsn = bedtest.Replace(direct, addr, proxy.listener.Addr().String())
			one := table.gate(bed, redis.Addr(), s("one"))
			bedtest.Eventually(t, "the first follows", func() bool { return followed(one) == 1 })
			table.dsn = direct
			two := table.gate(bed, redis.Addr(), s("two"))
			two.becomes(5000, "absent")
			proxy.cut()
			table.insert(5000)
			bedtest.Eventually(t, "the second follows", func() bool { return followed(two) == 1 })
			for _, g := range []*tableGate{one, two} {
				g.becomes(5000, "maybe")
				g.becomes(6000, "absent")
			}
		})
	}
}

// TestReadyWhenRead has a table that cannot be read when ordergate starts: it is not ready
// until it could be, once. An outage after that takes nothing away.
func TestReadyWhenRead(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis := bed.Redis()
	for _, tc := range []struct {
		name, broken, mended, why, source string
	}{
		{"no table", "RENAME TABLE orders TO later", "RENAME TABLE later TO orders", "doesn't exist", ""},
		{"another column", "ALTER TABLE orders CHANGE id other BIGINT", "ALTER TABLE orders CHANGE other id BIGINT", "", ""},
		{"no table, followed", "RENAME TABLE orders TO later", "RENAME TABLE later TO orders", "doesn't exist", ", follow: poll, every: 100ms"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table := mariaTable(t, bed, 10)
			table.exec(tc.broken)
			must(t, newClient(t, redis.Addr()).FlushAll(t.Context()).Err())
			gate := table.gate(bed, redis.Addr(), tableSettings{member: tc.name, source: tc.source, unready: true})
			bedtest.Eventually(t, "the filter's condition has the reason", func() bool {
				c, ready := gate.condition("filter orders")
				return !ready && !c.Ready && strings.Contains(c.Reason, tc.why) && strings.Contains(c.Reason, "orders-db")
			})
			table.exec(tc.mended)
			bedtest.Eventually(t, "it is ready", func() bool { _, ready := gate.condition(""); return ready })
			gate.becomes(1, "maybe")
			table.exec(tc.broken)
			if c, ready := gate.condition("filter orders"); !ready {
				t.Errorf("an outage took readiness away: %+v", c)
			}
			must(t, gate.Stop())
		})
	}
}

// TestCauseIsRepeated has a table that can never be followed: the log says so once a minute,
// with the cause, and nothing that reads like success.
func TestCauseIsRepeated(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis := bed.Redis()
	table := mariaTable(t, bed, 10) // without a binary log
	gate := table.gate(bed, redis.Addr(), tableSettings{member: "one", source: ", follow: binlog", unready: true})
	bedtest.Eventually(t, "the condition has the cause", func() bool {
		c, ready := gate.condition("source orders-db")
		return !ready && !c.Ready && strings.Contains(c.Reason, "the server writes no binary log; start it with log_bin")
	})
	if !gate.said("a table is not followed: nothing counts as absent") || gate.said("a table is followed") {
		t.Error("the log says nothing of it, or something else")
	}
	bedtest.Eventually(t, "the filter's condition names it", func() bool {
		c, _ := gate.condition("filter orders")
		return c.Ready && strings.Contains(c.Reason, "the changes of a table are not known up to now: source:orders-db")
	})
}

// TestWrongIDs has another ID in the database's log than in the table, as if the log was read wrongly.
func TestWrongIDs(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis := bed.Redis()
	table := mariaTable(t, bed, 10, "--log-bin", "--binlog-format=ROW", "--server-id=1")
	gate := table.gate(bed, redis.Addr(), tableSettings{member: "one", source: ", follow: binlog"})
	gate.becomes(6000, "absent")
	table.db.SetMaxOpenConns(1) // one session
	for _, statement := range []string{"LOCK TABLES orders WRITE", "INSERT INTO orders VALUES (5000, 'x')", "SET sql_log_bin = 0",
		"UPDATE orders SET id = 6000 WHERE id = 5000", "SET sql_log_bin = 1", "UNLOCK TABLES"} {
		table.exec(statement)
	}
	gate.becomes(6000, "unknown")
	bedtest.Eventually(t, "the condition names the column", func() bool {
		c, _ := gate.condition("source orders-db")
		return strings.Contains(c.Reason, "nothing counts as absent") && strings.Contains(c.Reason, "does not have an ID that its database's log has in column id")
	})
}
