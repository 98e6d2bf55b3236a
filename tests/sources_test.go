package tests

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// orderTable is a table of orders that somebody writes to directly.
type orderTable struct {
	t    testing.TB
	db   *sql.DB
	kind string
	dsn  string // of ordergate
}

func mariaTable(t testing.TB, bed *bedtest.Bed, rows int, args ...string) *orderTable {
	m := bed.MariaDB(args...)
	return newOrderTable(t, "mysql", m.DSN(), rows, "INSERT INTO orders SELECT seq, 'x' FROM seq_1_to_%d")
}

func postgresTable(t testing.TB, bed *bedtest.Bed, rows int, args ...string) *orderTable {
	p := bed.Postgres(args...)
	return newOrderTable(t, "postgres", p.DSN(), rows, "INSERT INTO orders SELECT n, 'x' FROM generate_series(1, %d) n")
}

func newOrderTable(t testing.TB, kind, dsn string, rows int, fill string) *orderTable {
	t.Helper()
	driver := map[string]string{"mysql": "mysql", "postgres": "pgx"}[kind]
	number := map[string]string{"mysql": "BIGINT AUTO_INCREMENT", "postgres": "BIGSERIAL"}[kind]
	db, err := sql.Open(driver, dsn)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	o := &orderTable{t: t, db: db, kind: kind, dsn: dsn}
	o.exec("CREATE TABLE orders (id " + number + " PRIMARY KEY, what VARCHAR(20))")
	if rows > 0 {
		o.exec(fmt.Sprintf(fill, rows))
	}
	return o
}

func (o *orderTable) exec(statement string) {
	o.t.Helper()
	_, err := o.db.ExecContext(o.t.Context(), statement)
	must(o.t, err)
}

func (o *orderTable) insert(id int) {
	o.exec(fmt.Sprintf("INSERT INTO orders VALUES (%d, 'direct')", id))
}

// tableGate is an ordergate whose filter has a table for its source. Orders are looked
// up by its admin address, which asks the same filter as Envoy's requests do.
type tableGate struct {
	*testbed.Gate
	t     testing.TB
	admin string
}

const tableConfig = `
listen: {authz: 127.0.0.1:0, proc: "", admin: 127.0.0.1:0%s}
redis: {addresses: [%s], member: "%s"}
filters:
  orders: {kind: %s, capacity: 100_000, sources: [orders-db]%s}
sources:
  orders-db: {kind: %s, dsn_env: ORDERS_DSN, table: orders, id_column: id, overlap: 1s%s}
rules:
  - name: lookup
    match: {methods: [GET], path: "/orders/{id}"}
    id: {path: id, format: digits}
    lookup: {filter: orders}
`

// tableSettings are what differs.
type tableSettings struct {
	listen, member, filter, source string
	kind                           string // of filter; default local
	env                            []string
	unready                        bool
}

func (o *orderTable) config(redis string, s tableSettings) string {
	return fmt.Sprintf(tableConfig, s.listen, redis, s.member, cmp.Or(s.kind, "local"), s.filter, o.kind, s.source)
}

func (o *orderTable) gate(bed *bedtest.Bed, redis string, s tableSettings) *tableGate {
	o.t.Helper()
	binary, config, env := bed.Build("./cmd/sidecar", true), o.config(redis, s), append([]string{"ORDERS_DSN=" + o.dsn}, s.env...)
	if !s.unready {
		return asTableGate(o.t, bed, bed.Gate(binary, config, env...))
	}
	gate, err := bed.GateUnready(o.t.Context(), binary, config, env...)
	must(o.t, err)
	return asTableGate(o.t, bed, gate)
}

func asTableGate(t testing.TB, bed *bedtest.Bed, gate *testbed.Gate) *tableGate {
	t.Helper()
	return &tableGate{Gate: gate, t: t, admin: "http://" + bed.GateAddr(gate, "admin")}
}

func (g *tableGate) get(path string, into any) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.admin+path, nil)
	must(g.t, err)
	response, err := client.Do(req)
	must(g.t, err)
	defer response.Body.Close()
	must(g.t, json.NewDecoder(response.Body).Decode(into))
}

// page returns the page at the admin address.
func (g *tableGate) page() string {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.admin+"/", nil)
	must(g.t, err)
	req.Header.Set("Authorization", "Bearer 0123456789abcdef")
	response, err := client.Do(req)
	must(g.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(g.t, err)
	return string(text)
}

// answer returns what the filter says of an order.
func (g *tableGate) answer(id int) string {
	g.t.Helper()
	var r struct{ Answer string }
	g.get(fmt.Sprintf("/filters/orders/contains?id=%d", id), &r)
	return r.Answer
}

// info returns what ordergate filter info tells.
func (g *tableGate) info() (r struct {
	State, Reason string
	IDs           uint64
	Log           struct {
		Phase   string
		Doubts  map[string]int
		Members []string
	}
}) {
	g.t.Helper()
	g.get("/filters/orders", &r)
	return r
}

// said reports whether it has logged this.
func (g *tableGate) said(text string) bool {
	g.t.Helper()
	all, err := os.ReadFile(g.Output())
	must(g.t, err)
	return strings.Contains(string(all), text)
}

func (g *tableGate) becomes(id int, want string) {
	g.t.Helper()
	bedtest.Eventually(g.t, fmt.Sprintf("order %d is %s", id, want), func() bool { return g.answer(id) == want })
}

// follows are the ways to hear of rows that others write.
var follows = []struct {
	name   string
	table  func(t testing.TB, bed *bedtest.Bed, rows int, args ...string) *orderTable
	args   []string
	source string
}{
	{"mariadb binlog", mariaTable, []string{"--log-bin", "--binlog-format=ROW", "--server-id=1"}, ", follow: binlog"},
	{"mariadb poll", mariaTable, nil, ", follow: poll, every: 100ms"},
	{"postgres logical", postgresTable, []string{"-c", "wal_level=logical"}, ", follow: logical"},
	{"postgres poll", postgresTable, nil, ", follow: poll, every: 100ms"},
}

// TestRowsOfOthers has rows written directly into the table, which nothing tells
// ordergate of but the table. Two ordergates follow in turn; when the one whose turn it
// is gets killed, the other goes on where that was.
func TestRowsOfOthers(t *testing.T) {
	t.Parallel()
	for _, tc := range follows {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			redis := bed.Redis()
			table := tc.table(t, bed, 1000, tc.args...)
			one := table.gate(bed, redis.Addr(), tableSettings{member: "one", source: tc.source})
			one.becomes(5000, "absent")
			if got := one.answer(1000); got != "maybe" {
				t.Errorf("a row that was there: %s", got)
			}
			two := table.gate(bed, redis.Addr(), tableSettings{member: "two", source: tc.source})
			two.becomes(5000, "absent")
			table.insert(5000)
			one.becomes(5000, "maybe")
			two.becomes(5000, "maybe")

			one.Kill()
			for i := 5001; i < 5050; i++ {
				table.insert(i)
			}
			// Nothing of it is absent once anything is: at the latest when the dead one is
			// taken for gone. Its place comes back first here.
			three := table.gate(bed, redis.Addr(), tableSettings{member: "one", source: tc.source, unready: true})
			two.becomes(6000, "absent")
			three.becomes(6000, "absent")
			for i := 5000; i < 5050; i++ {
				// Unknown for a moment, if the doubt about the dead one comes only now.
				if a, b := two.answer(i), three.answer(i); a == "absent" || b == "absent" {
					t.Fatalf("order %d is %s and %s after the follower was killed", i, a, b)
				}
			}
			for i := 5000; i < 5050; i++ {
				two.becomes(i, "maybe")
				three.becomes(i, "maybe")
			}
			if d := two.info().Log.Doubts; d["crash"] == 0 {
				t.Errorf("nobody noticed that one was killed: %v", d)
			}
		})
	}
}

// TestColumnsSwapped gives every row of a followed table another ID: all of it is read
// again, and not what is behind the mark.
func TestColumnsSwapped(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		table func(t testing.TB, bed *bedtest.Bed, rows int, args ...string) *orderTable
		args  []string
		way   string
		swap  string // the columns id and other, from whichever is which
	}{
		// The log has the statement only: nothing in the catalogue tells the tables apart.
		{"mariadb", mariaTable, follows[0].args, follows[0].source, "ALTER TABLE orders CHANGE id other BIGINT AFTER id, CHANGE other id BIGINT AFTER n"},
		{"postgres", postgresTable, follows[2].args, follows[2].source, "BEGIN; ALTER TABLE orders RENAME id TO x; ALTER TABLE orders RENAME other TO id; ALTER TABLE orders RENAME x TO other; COMMIT"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			redis := bed.Redis()
			table := tc.table(t, bed, 1000, tc.args...)
			for _, s := range []string{
				"ALTER TABLE orders RENAME TO numbers", "CREATE TABLE orders (n BIGINT PRIMARY KEY, id BIGINT, other BIGINT)",
				"INSERT INTO orders SELECT id, id, id + 100000 FROM numbers",
			} {
				table.exec(s)
			}
			s := tableSettings{
				member: "one", filter: fmt.Sprintf(", snapshot: {path: %q}", filepath.Join(t.TempDir(), "orders.snap")),
				source: tc.way + ", cursor_column: n",
			}
			gate := table.gate(bed, redis.Addr(), s)
			log, err := changelog.New(newClient(t, redis.Addr()), "orders", func(string) {}, changelog.Options{})
			must(t, err)
			began := time.Now()
			bedtest.Eventually(t, "the mark is behind all rows", func() bool { // that were read an overlap after the load
				must(t, log.RecordDoubt(t.Context(), changelog.Doubt{Kind: changelog.Lost, Reason: "a test"}))
				return time.Since(began) > 3*time.Second
			})
			gate.becomes(5000, "absent")
			if got := gate.answer(100_001); got != "absent" {
				t.Errorf("before: %s", got)
			}
			// While it is followed.
			table.exec(tc.swap)
			for i := 1; i <= 1000; i += 37 {
				gate.becomes(100_000+i, "maybe")
			}
			gate.becomes(5000, "absent")
			// While it is not. What it was read with before is in the filter.
			must(t, gate.Stop())
			table.exec("UPDATE orders SET other = other + 200000")
			table.exec(tc.swap)
			gate = table.gate(bed, redis.Addr(), s)
			if !gate.said("from its snapshot") {
				t.Error("the snapshot was not used")
			}
			for i := 1; i <= 1000; i += 37 {
				gate.becomes(200_000+i, "maybe")
			}
			gate.becomes(5000, "absent")
		})
	}
}

// TestTableAway: as long as a table cannot be followed, nothing is absent.
func TestTableAway(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis := bed.Redis()
	db := bed.MariaDB()
	table := newOrderTable(t, "mysql", db.DSN(), 10, "INSERT INTO orders SELECT seq, 'x' FROM seq_1_to_%d")
	gate := table.gate(bed, redis.Addr(), tableSettings{member: "one", filter: ", stale_after: 1s", source: ", follow: poll, every: 100ms"})
	gate.becomes(11, "absent")
	must(t, db.Pause())
	bedtest.Eventually(t, "the table is missed", func() bool { // on a busy machine, a window may end before that
		i := gate.info()
		return i.Log.Phase == "away" && strings.Contains(i.Reason, "source:orders-db")
	})
	gate.becomes(11, "unknown") // a window that was open goes on to its end
	must(t, db.Resume())
	gate.becomes(11, "absent")
}

// TestFleetReadsOnce starts three ordergates at once: one reads the table.
func TestFleetReadsOnce(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis := bed.Redis()
	table := mariaTable(t, bed, 50_000, "--log-output=TABLE", "--general-log=1")
	var gates []*tableGate
	for i := range 3 {
		// Slowly, so that they meet.
		gates = append(gates, table.gate(bed, redis.Addr(), tableSettings{member: fmt.Sprint("m", i), source: ", batch: 1000, pause: 20ms", unready: true}))
	}
	for _, g := range gates {
		g.becomes(60_000, "absent")
		for _, id := range []int{1, 25_000, 50_000} {
			if got := g.answer(id); got != "maybe" {
				t.Errorf("order %d: %s", id, got)
			}
		}
	}
	whole := 0
	for _, g := range gates {
		if g.said("from its snapshot") {
			whole++
		}
	}
	if whole != 2 {
		t.Errorf("%d of three took another's snapshot, want two", whole)
	}
}

// TestLoadGoesOn kills an ordergate again and again while it loads: it goes on where it
// was.
func TestLoadGoesOn(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis := bed.Redis()
	const rows = 60_000
	table := mariaTable(t, bed, rows)
	path := filepath.Join(t.TempDir(), "orders.snap")
	s := tableSettings{
		member: "one", unready: true,
		filter: fmt.Sprintf(", snapshot: {path: %q, every: 1h}, share_load: false", path),
		source: ", batch: 1000, pause: 200ms", // twelve seconds
	}
	for range 3 {
		gate := table.gate(bed, redis.Addr(), s)
		before, _ := os.Stat(path + ".part")
		bedtest.Eventually(t, "what was loaded is written", func() bool {
			now, err := os.Stat(path + ".part")
			return err == nil && (before == nil || now.ModTime().After(before.ModTime()))
		})
		if got := gate.answer(rows + 1); got != "unknown" {
			t.Errorf("%s in the midst of a load", got)
		}
		gate.Kill()
	}
	gate := table.gate(bed, redis.Addr(), s)
	gate.becomes(rows+1, "absent")
	for id := 1; id <= rows; id += 501 {
		if got := gate.answer(id); got != "maybe" {
			t.Errorf("order %d: %s", id, got)
		}
	}
	if !gate.said("the load goes on where it was interrupted") {
		t.Error("it began anew")
	}
	bedtest.Eventually(t, "the snapshot takes the place of the file of the load", func() bool {
		_, err := os.Stat(path + ".part")
		return os.IsNotExist(err)
	})
}

// TestAnnounce adds orders by HTTP and by Redis, as services do that create orders
// in some other way.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis := bed.Redis()
	table := postgresTable(t, bed, 10)
	env := []string{"TOKEN=0123456789abcdef"}
	one := table.gate(bed, redis.Addr(), tableSettings{member: "one", listen: ", token_env: TOKEN", env: env})
	two := table.gate(bed, redis.Addr(), tableSettings{member: "two"})
	two.becomes(11, "absent")
	post := func(g *tableGate, token, body string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.admin+"/v1/filters/orders/ids", strings.NewReader(body))
		must(t, err)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(req)
		must(t, err)
		must(t, response.Body.Close())
		return response.StatusCode
	}
	for _, tc := range []struct {
		gate        *tableGate
		token, body string
		status      int
	}{
		{one, "", `{"ids":["11"]}`, 401},
		{one, "0123456789abcdeg", `{"ids":["11"]}`, 401},
		{two, "0123456789abcdef", `{"ids":["11"]}`, 403},
		{one, "0123456789abcdef", `{"ids":["1 1"]}`, 400},
		{one, "0123456789abcdef", `{"ids"`, 400},
		{one, "0123456789abcdef", `{"ids":["11","12"]}`, 200},
	} {
		if got := post(tc.gate, tc.token, tc.body); got != tc.status {
			t.Errorf("%s with token %q: %d, want %d", tc.body, tc.token, got, tc.status)
		}
	}
	if a, b := two.answer(11), two.answer(13); a != "maybe" || b != "absent" {
		t.Errorf("%s and %s", a, b)
	}
	c := newClient(t, redis.Addr())
	must(t, c.RPush(t.Context(), "ordergate:{orders}:inbox", "13", "14").Err())
	two.becomes(14, "maybe") // by the next read of the log
}

// TestTableSnapshot restarts from a snapshot: the table is asked for what is new only,
// and orders that were created meanwhile by way of the change log are there.
func TestTableSnapshot(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis := bed.Redis()
	table := mariaTable(t, bed, 1000)
	path := filepath.Join(t.TempDir(), "orders.snap")
	s := tableSettings{member: "one", filter: fmt.Sprintf(", snapshot: {path: %q}", path)}
	gate := table.gate(bed, redis.Addr(), s)
	gate.becomes(2000, "absent")
	must(t, gate.Stop())
	c := newClient(t, redis.Addr())
	must(t, c.RPush(t.Context(), "ordergate:{orders}:inbox", "2000").Err())
	gate = table.gate(bed, redis.Addr(), s)
	gate.becomes(2001, "absent")
	if a, b := gate.answer(2000), gate.answer(1000); a != "maybe" || b != "maybe" {
		t.Errorf("%s and %s", a, b)
	}
	if !gate.said("from its snapshot") {
		t.Error("the snapshot was not used")
	}
	// Everything in Redis is lost: what is in the table is not.
	table.insert(3000)
	must(t, c.FlushAll(t.Context()).Err())
	gate.becomes(3000, "maybe")
	gate.becomes(2001, "absent")
}

func newClient(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}
