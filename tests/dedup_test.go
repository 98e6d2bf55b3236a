package tests

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// dedupRules replace the example's rule of creates. They confirm however busy the machine is.
const dedupRules = `
  - name: refusing-create
    match: {methods: [POST], path: /refusing}
    id: {header: x-order-id}
    create: {filter: orders, learn: {response_json: orderId}, dedup: {confirm: orders-db, on_unavailable: refuse, timeout: 5s}}

  - name: observed-create
    match: {methods: [POST], path: /observed}
    id: {header: x-order-id}
    create: {filter: orders, learn: {response_json: orderId}, dedup: {confirm: orders-db, timeout: 5s}}
    mode: observe

  - name: order-create
    match: {methods: [POST], path: /orders}
    id: {header: x-order-id, optional: true}
    create: {filter: orders, learn: {response_json: orderId}, dedup: {confirm: orders-db, max_queries: 4, timeout: 5s}}
`

const (
	createRule = "\n  - name: order-create\n    match: {methods: [POST], path: /orders}\n    id: {format: digits}\n    create: {filter: orders, learn: {response_json: orderId}}\n"
	duplicate  = `{"error":"order already exists"}`
)

// storing is an order service that stores its orders in a table.
type storing struct {
	*httptest.Server
	table   *orderTable
	next    atomic.Int64
	created atomic.Int64 // requests that reached it
	asleep  atomic.Bool  // it answers, and stores nothing
}

func newStoring(t testing.TB, table *orderTable) *storing {
	s := &storing{table: table}
	s.next.Store(1000)
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *storing) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		return
	}
	s.created.Add(1)
	id := r.Header.Get("x-order-id")
	if id == "" {
		id = fmt.Sprint(s.next.Add(1))
	}
	w.Header().Set("Content-Type", "application/json")
	if strings.HasPrefix(r.URL.Path, "/begun") { // as old services do: the page begins before the order exists
		fmt.Fprint(w, "<title>Thank you</title>")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(20 * time.Millisecond)
		_, _ = s.table.db.ExecContext(r.Context(), "INSERT INTO orders VALUES ('"+id+"', 'created')")
		fmt.Fprint(w, "Your order is ", id)
		return
	}
	if !s.asleep.Load() {
		if _, err := s.table.db.ExecContext(r.Context(), "INSERT INTO orders VALUES ('"+id+"', 'created')"); err != nil {
			w.WriteHeader(http.StatusConflict)
			fmt.Fprintf(w, `{"error":"the backend has it","orderId":%q}`, id)
			return
		}
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"orderId":%q}`, id)
}

// dedupStack is a stack with a backend that stores orders, and the database.
type dedupStack struct {
	*stack
	backend *storing
	server  *testbed.Process
	table   *orderTable
}

// dedupTables have the orders 1 to 10.
var dedupTables = []struct {
	kind  string
	table func(t testing.TB, bed *bedtest.Bed) (*orderTable, *testbed.Process)
}{
	{"mysql", func(t testing.TB, bed *bedtest.Bed) (*orderTable, *testbed.Process) {
		m := bed.MariaDB()
		return newOrderTable(t, "mysql", m.DSN(), 10, "INSERT INTO orders SELECT seq, 'x' FROM seq_1_to_%d"), m.Process
	}},
	{"postgres", func(t testing.TB, bed *bedtest.Bed) (*orderTable, *testbed.Process) {
		p := bed.Postgres()
		return newOrderTable(t, "postgres", p.DSN(), 10, "INSERT INTO orders SELECT n, 'x' FROM generate_series(1, %d) n"), p.Process
	}},
}

// onDedupStacks runs a test with a database of each kind.
func onDedupStacks(t *testing.T, change settings, test func(t *testing.T, s *dedupStack)) {
	for _, tt := range dedupTables {
		t.Run(tt.kind, func(t *testing.T) {
			if tt.kind != "mysql" {
				needsSidecar(t, "the database lies behind the gate")
			}
			t.Parallel()
			table, server := tt.table(t, bedtest.New(t))
			s := &dedupStack{backend: newStoring(t, table), server: server, table: table}
			settings := change
			settings.backend = strings.TrimPrefix(s.backend.URL, "http://")
			settings.gate = both(edit(t, createRule, dedupRules), table.fromTable())
			if change.gate != nil {
				settings.gate = both(settings.gate, change.gate)
			}
			s.stack = newStack(t, settings)
			test(t, s)
		})
	}
}

// patientAuthz has Envoy wait for a verdict however busy the machine is. The module needs none.
func patientAuthz(yaml string) string {
	return strings.Replace(yaml, "timeout: 0.5s", "timeout: 10s", 1)
}

// create creates an order; "": the backend chooses its ID.
func (s *dedupStack) create(path, id string) answer {
	s.t.Helper()
	return s.must("POST", path, "", "x-order-id", id)
}

// reaches checks how many creates reach the backend meanwhile.
func (s *dedupStack) reaches(want int64, do func()) {
	s.t.Helper()
	before := s.backend.created.Load()
	do()
	if n := s.backend.created.Load() - before; n != want {
		s.t.Errorf("%d creates reached the backend, want %d", n, want)
	}
}

func (s *dedupStack) confirmed(rule, result string) string {
	s.t.Helper()
	return s.metric(fmt.Sprintf(`ordergate_dedup_confirm_total{result="%s",rule="%s"}`, result, rule))
}

// TestCreateDedup creates orders that exist, and orders that do not.
func TestCreateDedup(t *testing.T) {
	t.Parallel()
	onDedupStacks(t, settings{envoy: patientAuthz}, func(t *testing.T, s *dedupStack) {
		s.reaches(0, func() {
			a := s.create("/orders", "5")
			a.want(t, 409, "duplicate")
			if a.body != duplicate || a.header.Get("Content-Type") != "application/json" {
				t.Errorf("%q of type %q", a.body, a.header.Get("Content-Type"))
			}
			s.create("/refusing", "5").want(t, 409, "duplicate")
			s.create("/orders", "05").want(t, 400, "invalid")
		})
		s.reaches(5, func() {
			s.must("GET", "/orders/11", "").want(t, 404, "absent")
			s.create("/orders", "11").want(t, 201, "")
			s.must("GET", "/orders/11", "").want(t, 200, "")
			s.create("/orders", "11").want(t, 409, "duplicate")
			s.create("/orders", "").want(t, 201, "")
			s.create("/orders", "1001").want(t, 409, "duplicate")
			// The filter has it still.
			s.table.exec("DELETE FROM orders WHERE id = 7")
			s.create("/orders", "7").want(t, 201, "")
			s.create("/orders", "7").want(t, 409, "duplicate")
			// What is observed goes on, and the backend itself refuses it.
			if a := s.create("/observed", "5"); a.status != 409 || a.verdict != "" || a.body == duplicate {
				t.Errorf("observed: %+v", a)
			}
			s.create("/observed", "12").want(t, 201, "")
		})
		for line, want := range map[string]string{
			`ordergate_decisions_total{action="create",mode="enforce",rule="order-create",verdict="duplicate"}`:    "4",
			`ordergate_decisions_total{action="create",mode="enforce",rule="order-create",verdict="none"}`:         "3",
			`ordergate_decisions_total{action="create",mode="observe",rule="observed-create",verdict="duplicate"}`: "1",
			`ordergate_dedup_confirm_total{result="exists",rule="order-create"}`:                                   "4",
			`ordergate_dedup_confirm_total{result="new",rule="order-create"}`:                                      "1",
			`ordergate_dedup_confirm_seconds_count{rule="order-create"}`:                                           "5",
			`ordergate_filter_probed_ids{filter="orders"}`:                                                         "1", // creates are no probes
		} {
			if got := s.metric(line); got != want {
				t.Errorf("%s is %s, want %s", line, got, want)
			}
		}
	})
}

// TestCreateDedupAtOnce has 200 creates of one order at once.
func TestCreateDedupAtOnce(t *testing.T) {
	t.Parallel()
	onDedupStacks(t, settings{envoy: patientAuthz}, func(t *testing.T, s *dedupStack) {
		s.reaches(0, func() {
			var all sync.WaitGroup
			for range 200 {
				all.Go(func() {
					a, err := s.send(t.Context(), "POST", "/orders", "", "x-order-id", "5")
					if err != nil || a.status != 409 || a.verdict != "duplicate" {
						t.Errorf("%d %q, %v", a.status, a.verdict, err)
					}
				})
			}
			all.Wait()
		})
		if got := s.confirmed("order-create", "exists"); got != "200" {
			t.Errorf("%s were confirmed, want 200", got)
		}
	})
}

// TestCreateLock has many creates of one new order at once. With its lock, one of them makes the
// order, and the others find it.
func TestCreateLock(t *testing.T) {
	t.Parallel()
	locked := edit(t, "id: {header: x-order-id, optional: true}\n    create: {filter: orders,", "id: {header: x-order-id, optional: true}\n    create: {lock: settlement, filter: orders,",
		"max_queries: 4, ", "", "wait: {tries: 3, every: 100ms}", "wait: {up_to: 20s}")
	onDedupStacks(t, settings{gate: locked, envoy: patientAuthz}, func(t *testing.T, s *dedupStack) {
		var made, refused, busy atomic.Int64
		s.reaches(1, func() {
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					a, err := s.send(t.Context(), "POST", "/orders", "", "x-order-id", "21")
					switch {
					case err == nil && a.status == 201:
						made.Add(1)
					case err == nil && a.status == 409 && a.verdict == "duplicate":
						refused.Add(1)
					case err == nil && a.status == 409 && a.verdict == "busy":
						busy.Add(1)
					default:
						t.Errorf("%d %q, %v", a.status, a.verdict, err)
					}
				})
			}
			all.Wait()
		})
		if made.Load() != 1 || refused.Load() == 0 {
			t.Errorf("%d made the order, %d found it, %d were busy", made.Load(), refused.Load(), busy.Load())
		}
		s.must("GET", "/orders/21", "").want(t, 200, "")
		s.create("/orders", "").want(t, 201, "") // no order to lock
	})
}

// TestCreateDedupWithoutTheTable has the table locked, and then the database away.
func TestCreateDedupWithoutTheTable(t *testing.T) {
	t.Parallel()
	impatient := func(yaml string) string { return strings.ReplaceAll(defaultWindow(yaml), ", timeout: 5s}", "}") }
	onDedupStacks(t, settings{gate: impatient}, func(t *testing.T, s *dedupStack) {
		s.create("/orders", "5").want(t, 409, "duplicate")
		s.backend.asleep.Store(true) // or it would wait for the table
		inTime := func(path, id string, status int, verdict string) {
			t.Helper()
			began := time.Now()
			a := s.create(path, id)
			a.want(t, status, verdict)
			if took := time.Since(began); took > 4*time.Second { // the table is locked for longer
				t.Errorf("answered after %v", took)
			}
			if status == 503 && a.header.Get("Retry-After") != "1" {
				t.Errorf("retry after %q", a.header.Get("Retry-After"))
			}
		}
		unconfirmed := func() {
			t.Helper()
			s.reaches(2, func() {
				inTime("/orders", "5", 201, "")
				inTime("/refusing", "5", 503, "unavailable")
				inTime("/refusing", fmt.Sprint(20+s.backend.created.Load()), 201, "") // the filter knows that it is new
			})
		}
		unlock := lockTable(t, s.table)
		unconfirmed()
		unlock()
		bedtest.Eventually(t, "it is confirmed again", func() bool { return s.create("/refusing", "5").status == 409 })

		must(t, s.server.Stop())
		unconfirmed()
		readiness := s.ready()
		if !strings.Contains(readiness, "dedup of rule order-create") || !strings.Contains(readiness, "refused") {
			t.Errorf("readiness: %s", readiness)
		}
		if got := s.confirmed("order-create", "unavailable"); got != "2" {
			t.Errorf("%s were not confirmed, want 2", got)
		}
		must(t, s.server.Restart(t.Context()))
		bedtest.Eventually(t, "it is confirmed again", func() bool { return s.create("/orders", "5").status == 409 })
		bedtest.Eventually(t, "the other rule's is, too", func() bool { return s.create("/refusing", "5").status == 409 })
		if readiness := s.ready(); strings.Contains(readiness, "dedup of rule") {
			t.Errorf("readiness: %s", readiness)
		}
		log, err := os.ReadFile(s.gate.Output())
		must(t, err)
		if n := strings.Count(string(log), "cannot be looked up in its table"); n != 1 {
			t.Errorf("%d lines about it, want 1", n)
		}
		if strings.Contains(string(log), s.password()) {
			t.Error("the log has the password")
		}
	})
}

// ready returns what /readyz says.
func (s *dedupStack) ready() string {
	s.t.Helper()
	resp, err := client.Get("http://" + s.GateAddr(s.gate, "admin") + "/readyz?verbose")
	must(s.t, err)
	defer resp.Body.Close()
	var text strings.Builder
	must(s.t, resp.Write(&text))
	if resp.StatusCode != http.StatusOK {
		s.t.Errorf("not ready: %s", text.String())
	}
	return text.String()
}

// password returns the password in the data source name.
func (s *dedupStack) password() string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(s.table.dsn, "postgres://"), ":")
	password, _, _ := strings.Cut(rest, "@")
	return password
}

// lockTable locks a table for others until unlock is called.
func lockTable(t testing.TB, o *orderTable) (unlock func()) {
	t.Helper()
	conn, err := o.db.Conn(t.Context())
	must(t, err)
	lock, free := []string{"LOCK TABLES orders WRITE"}, "UNLOCK TABLES"
	if o.kind == "postgres" {
		lock, free = []string{"BEGIN", "LOCK TABLE orders"}, "ROLLBACK"
	}
	for _, statement := range lock {
		_, err := conn.ExecContext(t.Context(), statement)
		must(t, err)
	}
	var once sync.Once
	unlock = func() {
		once.Do(func() {
			_, err := conn.ExecContext(t.Context(), free)
			must(t, err)
			must(t, conn.Close())
		})
	}
	return unlock
}
