package tests

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// shop is one of examples/shops behind the files that it comes with.
type shop struct {
	*stack
	*testbed.Shop
	db *sql.DB
}

var redisAddress = regexp.MustCompile(`\n  addresses: (\[.*?\])`)

// newShop starts the shop in the folder examples/shops/NAME, its database with the orders that
// the statement inserts, and in front ordergate and Envoy with the configuration that ordergate prints.
func newShop(t *testing.T, name, seed string, start func(*bedtest.Bed, *testbed.MariaDB) *testbed.Shop) *shop {
	t.Helper()
	bed := bedtest.New(t)
	server := bed.MariaDB("--log-bin", "--binlog-format=ROW", "--server-id=1")
	dsn := server.Config()
	dsn.MultiStatements = true
	db, err := sql.Open("mysql", dsn.FormatDSN())
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	folder := filepath.Join(bed.Root(), "examples", "shops", name)
	file := func(name string) string {
		text, err := os.ReadFile(filepath.Join(folder, name))
		must(t, err)
		return string(text)
	}
	_, err = db.ExecContext(t.Context(), file("schema.sql")+seed)
	must(t, err)
	s := &shop{Shop: start(bed, server), db: db}

	run := t.TempDir()
	secret := filepath.Join(run, "dsn")
	must(t, os.WriteFile(secret, []byte(server.DSN()), 0o600))
	s.stack = newStack(t, settings{
		backend: s.Shop.Addr(),
		printed: true,
		gate: func(example string) string {
			text := file("ordergate.yaml")
			for from, to := range map[string]string{
				"/run/ordergate/authz.sock": run + "/authz.sock",
				"/run/ordergate/proc.sock":  run + "/proc.sock",
				"127.0.0.1:9194":            "127.0.0.1:0",
				"[127.0.0.1:6379]":          redisAddress.FindStringSubmatch(example)[1],
				"dsn_env: ORDERS_DSN":       "dsn_file: " + secret,
			} {
				text = replaced(t, text, from, to)
			}
			return bedtest.WithLongWindow(t, text)
		},
	})
	return s
}

func replaced(t *testing.T, text, from, to string) string {
	t.Helper()
	if strings.Count(text, from) != 1 {
		t.Fatalf("%q is there %d times", from, strings.Count(text, from))
	}
	return bedtest.Replace(text, from, to)
}

// count returns what a query for one number finds.
func (s *shop) count(query string, args ...any) (n int) {
	s.t.Helper()
	must(s.t, s.db.QueryRowContext(s.t.Context(), query, args...).Scan(&n))
	return n
}

// wantNoneOf checks that no request with the text reached the shop.
func (s *shop) wantNoneOf(text string) {
	s.t.Helper()
	for _, l := range lines(s.t, s.AccessLog) {
		if strings.Contains(l, text) {
			s.t.Errorf("it reached the shop: %s", l)
		}
	}
}

// wantQuietStart checks that a right first start logs no trouble, and that check --live has none but
// shows three orders as each of the rules reads them.
func (s *shop) wantQuietStart(rules ...string) {
	s.t.Helper()
	wantNoLine(s.t, s.gate, "level=WARN", "level=ERROR", "[warning][dynamic_modules] [:]", "[error][dynamic_modules] [:]")
	shown := s.operator(s.gate.ConfigFile(), "check", "--live")
	for _, rule := range rules {
		if strings.Count(shown, "rule "+rule+" sees ") != 1 || strings.Count(shown, "\n") != len(rules) {
			s.t.Errorf("check --live, rule %s: %s", rule, shown)
		}
	}
}

// cookie is the session that an answer sets.
func (a answer) cookie() string {
	cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	return cookie
}

// TestSpringShop is docs/shops-spring.md: orders that are created and paid by GET, failures
// with status 200, redirects to the login, and session numbers in paths.
func TestSpringShop(t *testing.T) {
	t.Parallel()
	s := newShop(t, "spring", "INSERT INTO shop_order (order_no) SELECT 17000000000000000 + seq FROM seq_1_to_100;",
		func(b *bedtest.Bed, db *testbed.MariaDB) *testbed.Shop { return b.SpringShop(db) })
	absent := func(n int) string { return fmt.Sprintf("1700000%010d", 9_000_000_000+n) }
	refused := func(n int) {
		s.t.Helper()
		a := s.must("GET", "/orders/"+absent(n), "")
		a.want(t, 404, "absent")
		if a.header.Get("Content-Type") != "text/html" {
			t.Errorf("the page has the type %q", a.header.Get("Content-Type"))
		}
	}

	bedtest.Eventually(t, "an order can be absent", func() bool {
		return s.must("GET", "/orders/17000008000000000", "").verdict == "absent"
	})
	s.wantQuietStart("order-page", "save-order", "pay")
	s.must("GET", "/", "").want(t, 200, "")
	s.must("GET", "/index;jsessionid=A1", "").want(t, 200, "")
	s.must("GET", "/orders/17000000000000001", "").want(t, 200, "")
	s.must("GET", "/orders/17000000000000001;jsessionid=A1", "").want(t, 200, "")
	refused(0)
	if a := s.must("GET", "/paySuccess?orderNo="+absent(1), ""); a.verdict != "absent" || !strings.Contains(a.body, `"resultCode":404`) {
		t.Errorf("the payment of an absent order: %d %s %s", a.status, a.verdict, a.body)
	}

	// Without a login no order is made, and refusals go on.
	for i := range 20 {
		if a := s.must("GET", "/saveOrder", ""); a.status != 302 || !strings.Contains(a.header.Get("Location"), "/login") {
			t.Errorf("without a login: %d to %s", a.status, a.header.Get("Location"))
		}
		refused(100 + i)
	}

	session := s.must("GET", "/login", "").cookie()
	var mu sync.Mutex
	var orders []string
	atOnce(10, func(int) {
		a := s.must("GET", "/saveOrder", "", "Cookie", session)
		_, order, found := strings.Cut(a.header.Get("Location"), "/orders/")
		if !found {
			t.Errorf("saveOrder: %d to %s", a.status, a.header.Get("Location"))
			return
		}
		if a := s.must("GET", "/orders/"+order, ""); a.status != 200 || a.verdict == "unknown" {
			t.Errorf("order %s was created, and then: %d %s", order, a.status, a.verdict)
		}
		mu.Lock()
		defer mu.Unlock()
		orders = append(orders, order)
	})
	refused(200)

	// Everything that Spring takes for the payment is one payment, or is refused.
	spellings := []string{"/paySuccess?orderNo=", "/paySuccess;jsessionid=A1?orderNo=", "/paySuccess/?orderNo=", "/%70aySuccess?orderNo=", "/paySuccess;a=b?orderNo="}
	atOnce(20*len(orders), func(i int) {
		order := orders[i%len(orders)]
		a := s.must("GET", spellings[i/len(orders)%len(spellings)]+order, "", "Cookie", session)
		switch {
		case a.status == 200 && strings.Contains(a.body, `"resultCode":200`), a.status == 409 && a.verdict == "busy", a.status == 400 && a.verdict == "ambiguous":
		default:
			t.Errorf("paying %s: %d %s %s", order, a.status, a.verdict, a.body)
		}
	})
	for _, order := range orders {
		if n := s.count("SELECT count(*) FROM payment WHERE order_no = ?", order); n != 1 {
			t.Errorf("order %s was paid %d times", order, n)
		}
		s.must("GET", "/paySuccess?orderNo="+order, "", "Cookie", session).want(t, 200, "replayed")
	}

	// A payment that failed with 200 is not stored: the next one pays.
	const order = "17000000000000002"
	_, err := s.db.ExecContext(t.Context(), "UPDATE shop_order SET status = 2 WHERE order_no = ?", order)
	must(t, err)
	pay := func(code string) {
		t.Helper()
		if a := s.must("GET", "/paySuccess?orderNo="+order, ""); a.status != 200 || a.verdict != "" || !strings.Contains(a.body, `"resultCode":`+code) {
			t.Errorf("got %d %s %s, want %s", a.status, a.verdict, a.body, code)
		}
	}
	pay("500")
	_, err = s.db.ExecContext(t.Context(), "UPDATE shop_order SET status = 0 WHERE order_no = ?", order)
	must(t, err)
	pay("200")

	// An order that another program makes is known by the binary log.
	_, err = s.db.ExecContext(t.Context(), "INSERT INTO shop_order (order_no) VALUES ('17000000000005000')")
	must(t, err)
	bedtest.Eventually(t, "the order of another program is known", func() bool {
		return s.must("GET", "/orders/17000000000005000", "").status == 200
	})
	s.wantNoneOf("1700000900")
}

// TestFrontShop is docs/shops-php.md: one script for all pages, errors with status 200,
// confirmations that name no order, and orders that no answer names.
func TestFrontShop(t *testing.T) {
	t.Parallel()
	s := newShop(t, "front", "INSERT INTO shop_order (session_id) SELECT 'x' FROM seq_1_to_100;",
		func(b *bedtest.Bed, db *testbed.MariaDB) *testbed.Shop { return b.FrontShop(db) })
	const orderPage = "/index.php?route=account/order.info&order_id="
	refused := func(n int) {
		s.t.Helper()
		a := s.must("GET", fmt.Sprint(orderPage, 9_000_000+n), "")
		a.want(t, 200, "absent")
		if a.header.Get("Content-Type") != "text/html" || !strings.Contains(a.body, "not found") {
			t.Errorf("the page: %s %s", a.header.Get("Content-Type"), a.body)
		}
	}
	bedtest.Eventually(t, "an order can be absent", func() bool {
		return s.must("GET", orderPage+"8000000", "").verdict == "absent"
	})
	s.wantQuietStart("order-page", "confirm-by-number")
	for _, page := range []string{"/", "/index.php", "/index.php?route=common/home", "/?route=common/home", "/index.php?route=other/page&order_id=9"} {
		s.must("GET", page, "").want(t, 200, "")
	}
	s.must("GET", orderPage+"2", "").want(t, 200, "")
	atOnce(20, refused)
	for _, path := range []string{"/?route=account/order.info&order_id=2", "/index.php?route=account/ord!er.info&order_id=2", "/index.php?route=account%2Forder.info&order_id=2", orderPage + "2&route=common/home"} {
		s.must("GET", path, "").want(t, 400, "ambiguous")
	}
	s.must("GET", orderPage+"4294967298", "").want(t, 400, "invalid")

	// Without a login no order is made, and refusals go on, once ordergate runs for longer than a
	// window.
	time.Sleep(2 * time.Second)
	for i := range 20 {
		s.must("GET", "/index.php?route=checkout/confirm", "").want(t, 302, "")
		refused(100 + i)
	}

	// Two sessions confirm orders one after the other, each by several clicks at once.
	confirm := []string{"/index.php?route=payment/cod.confirm", "/index.php?route=payment/cod!.confirm", "/?route=payment/cod.confirm", "/index.php?route=payment/c%6Fd.confirm"}
	for range 2 {
		session := s.must("GET", "/index.php?route=account/login", "").cookie()
		if a := s.must("GET", confirm[0], "", "Cookie", session); a.verdict != "" || !strings.Contains(a.body, "error") { // and it is not repeated
			t.Errorf("without an order: %d %s %s", a.status, a.verdict, a.body)
		}
		for range 2 {
			s.must("GET", "/index.php?route=checkout/confirm", "", "Cookie", session).want(t, 200, "")
			order := s.count("SELECT max(order_id) FROM shop_order")
			s.must("GET", fmt.Sprint(orderPage, order), "").want(t, 200, "") // at once
			refused(300 + order)
			atOnce(12, func(i int) {
				a := s.must("GET", confirm[i%len(confirm)], "", "Cookie", session)
				success := a.status == 200 && strings.Contains(a.body, "success")
				if i%len(confirm) == 0 && !success && a.verdict != "busy" || i%len(confirm) != 0 && (a.status != 400 || a.verdict != "ambiguous") {
					t.Errorf("%s: %d %s %s", confirm[i%len(confirm)], a.status, a.verdict, a.body)
				}
			})
			if n := s.count("SELECT count(*) FROM shop_order_history WHERE order_id = ?", order); n != 1 {
				t.Errorf("order %d was confirmed %d times", order, n)
			}
			s.must("GET", confirm[0], "", "Cookie", session).want(t, 200, "replayed")
			time.Sleep(5 * time.Second) // once.for: a customer needs longer for another order
		}
	}

	// The back office names the order.
	atOnce(10, func(int) {
		s.must("POST", "/index.php?route=api/order.history", "order_id=3", "Content-Type", "application/x-www-form-urlencoded")
	})
	if n := s.count("SELECT count(*) FROM shop_order_history WHERE order_id = 3"); n != 1 {
		t.Errorf("order 3 was confirmed %d times", n)
	}
	refused(200)
	s.wantNoneOf("order_id=9000")
}
