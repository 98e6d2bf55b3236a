// Package outside attacks examples/envoy as it is shipped, with HTTP alone, from many
// addresses: a real Envoy, ordergate, Redis and MariaDB, and the PHP order service with as
// many workers as the example says. Only ports and paths are replaced.
//
// Begin with [newSite]. The tests of one attack each come first; TestAllAtOnce has all of
// them at the same time, and then looks into the backend's own books. docs/security.md is
// what they hold ordergate to.
package outside

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	workers = 32      // of the backend, as the circuit breakers of the example say
	seeded  = 100_000 // orders that exist from the beginning: 1..seeded
	others  = 80_000  // 1..others are settled by attackers only
)

// site is an order service on the internet.
type site struct {
	*bedtest.Bed
	t      testing.TB
	server *testbed.Redis
	redis  *redis.Client
	orders *testbed.Orders
	data   string // directory of the order service
	db     *sql.DB
	gate   *testbed.Gate
	envoy  *testbed.Envoy
	addr   string // where clients go
	fields int    // of a line of Envoy's access log

	backend *backend // nil: the order service is PHP
}

// change is what a test has otherwise than the examples: nil is nothing.
type change struct {
	envoy, gate func(string) string
	backend     bool // the order service is a backend, and not PHP
}

// onBoth runs a test with ordergate beside Envoy and inside.
func onBoth(t *testing.T, c change, test func(*testing.T, *site)) {
	t.Helper()
	for _, attachment := range []string{"sidecar", "module"} {
		t.Run(attachment, func(t *testing.T) {
			t.Parallel()
			test(t, newSite(t, attachment, c))
		})
	}
}

// newSite starts everything.
func newSite(t testing.TB, attachment string, c change) *site {
	t.Helper()
	bed := bedtest.New(t)
	s := &site{Bed: bed, t: t, server: bed.Redis("--maxmemory-policy", "noeviction"), fields: 14}
	if attachment == "module" {
		s.fields = 15
	}
	s.redis = redis.NewClient(&redis.Options{Addr: s.server.Addr()})
	t.Cleanup(func() { _ = s.redis.Close() })
	var backend string
	if c.backend {
		s.backend = newBackend(t)
		backend = s.backend.addr()
	} else {
		s.data = t.TempDir()
		orders, err := bed.Bed.PHP(t.Context(), s.data, seeded, workers)
		bedtest.Check(t, err)
		s.orders, backend = orders, orders.Addr()
	}
	dsn := s.startTable()

	// A socket's path has 107 bytes at most, which a test's directory may exceed.
	run, err := os.MkdirTemp("", "og")
	bedtest.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	gate := s.text(bed.GateAsShipped(s.server.Addr(), run, dsn))
	gate, envoy := changed(gate, c.gate), func(text string, err error) (string, error) {
		return changed(text, c.envoy), err
	}
	if attachment == "module" {
		s.envoy, s.gate = bed.EnvoyWithModule(bed.Module(), gate, func(file string) (string, error) {
			return envoy(bed.ModuleAsShipped(file, backend))
		})
		bedtest.Check(t, s.gate.WaitReady(t.Context()))
	} else {
		s.gate = bed.Gate(bed.Build("./cmd/sidecar", true), gate)
		s.envoy = bed.Envoy(s.text(envoy(bed.EnvoyAsShipped("unix:"+run+"/authz.sock", "unix:"+run+"/proc.sock", backend))))
	}
	s.addr = bed.ListenerAddr(s.envoy, "orders")
	bedtest.Eventually(t, "the filter is certain", func() bool {
		_, header := s.ask("127.0.0.1", "GET", "/orders/123456789012")
		return header.Get("x-ordergate-verdict") == "absent"
	})
	return s
}

// startTable makes the table of orders, and returns the file with its data source name.
func (s *site) startTable() (dsn string) {
	s.t.Helper()
	maria := s.MariaDB("--log-bin", "--binlog-format=ROW", "--server-id=1")
	db, err := sql.Open("mysql", maria.DSN())
	bedtest.Check(s.t, err)
	s.t.Cleanup(func() { _ = db.Close() })
	s.db = db
	for _, statement := range []string{
		"CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY)",
		fmt.Sprintf("INSERT INTO orders SELECT seq FROM seq_1_to_%d", seeded),
	} {
		_, err := db.ExecContext(s.t.Context(), statement)
		bedtest.Check(s.t, err)
	}
	dsn = filepath.Join(s.t.TempDir(), "dsn")
	bedtest.Check(s.t, os.WriteFile(dsn, []byte(maria.DSN()), 0o600))
	return dsn
}

func (s *site) text(text string, err error) string {
	s.t.Helper()
	bedtest.Check(s.t, err)
	return text
}

func changed(text string, f func(string) string) string {
	if f == nil {
		return text
	}
	return f(text)
}

// longWindow has the filter certain although a busy machine holds ordergate up.
func longWindow(t testing.TB) func(string) string {
	return func(text string) string { return bedtest.WithLongWindow(t, text) }
}

// replaced replaces parts of an example, which have to be there once: pairs of what is
// and what shall be.
func replaced(t testing.TB, pairs ...string) func(string) string {
	return func(text string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if n := strings.Count(text, pairs[i]); n != 1 {
				t.Fatalf("the example has %q %d times", pairs[i], n)
			}
			text = bedtest.Replace(text, pairs[i], pairs[i+1])
		}
		return text
	}
}

// dial connects from an address of loopback, which is the client that Envoy sees.
func (s *site) dial(ctx context.Context, from string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return d.DialContext(ctx, "tcp", s.addr)
}

// client is one that keeps its connections, at an address of its own. The caller closes
// its idle connections.
func (s *site) client(from string) *http.Client {
	return &http.Client{
		Timeout:   35 * time.Second, // longer than any route of the example
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx, from) }},
	}
}

// waiting counts the requests that the order service has yet to read: those in its accept
// queue, whose client may have left long ago.
func (s *site) waiting() (n int) {
	s.t.Helper()
	text, err := os.ReadFile("/proc/net/tcp")
	bedtest.Check(s.t, err)
	_, port, err := net.SplitHostPort(s.orders.Addr())
	bedtest.Check(s.t, err)
	number, err := strconv.Atoi(port)
	bedtest.Check(s.t, err)
	for line := range strings.Lines(string(text)) {
		// proc(5): the local address is the second field, the bytes that wait, as
		// sent:received, the fifth. Of a listener these are connections.
		fields := strings.Fields(line)
		if strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", number)) && !strings.HasSuffix(fields[4], ":00000000") {
			n++
		}
	}
	return n
}

// locks returns the keys of the locks that are taken, or held.
func (s *site) locks() []string {
	keys, err := s.redis.Keys(s.t.Context(), "order:lock:*").Result()
	bedtest.Check(s.t, err)
	return keys
}

// paid counts the payments of each order.
func (s *site) paid() map[int64]int {
	s.t.Helper()
	lines, err := s.orders.Payments()
	bedtest.Check(s.t, err)
	paid := make(map[int64]int)
	for _, line := range lines {
		id, _, _ := strings.Cut(strings.TrimPrefix(line, "order="), " ")
		n, err := strconv.ParseInt(id, 10, 64)
		bedtest.Check(s.t, err)
		paid[n]++
	}
	return paid
}
