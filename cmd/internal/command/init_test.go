package command

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// flagsOfInit are those that every file needs.
var flagsOfInit = []string{"init", "--backend", "spring", "--database", "mysql", "--table", "shop.orders", "--id-column", "order_no"}

// TestInit has each form of a request. Every file passes check, and explain finds the request's rule.
func TestInit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		flags   []string
		request string
		header  string
		want    string // of explain
	}{
		{"path", []string{"--lookup", "GET /orders/{id}", "--create", "POST /orders", "--settle", "POST /orders/{id}/pay"}, "POST /orders/42/pay", "", "lock key     order:lock:42"},
		{"a lookup", []string{"--lookup", "GET /orders/{orderNo}"}, "HEAD /orders/42", "", "found        42 in path segment {orderNo}"},
		{"UUIDs", []string{"--lookup", "GET /orders/{id}", "--id-format", "uuid", "--database", "postgres", "--dsn-env", "PG_DSN"}, "GET /orders/123e4567-e89b-12d3-a456-426614174000", "", "order ID     123e4567-e89b-12d3-a456-426614174000"},
		{"a front controller", []string{"--backend", "php-front-controller", "--settle", "GET|POST /index.php?route=pay%2Fconfirm&order_id={id}"}, "POST /index.php?route=pay/confirm&order_id=42", "", "found        42 in query parameter order_id"},
		{"a session", []string{"--backend", "php-paths", "--settle", "POST /confirm.php cookie:PHPSESSID", "--settle", "POST /pay json:order.id"}, "POST /confirm.php", "cookie: PHPSESSID=4f0c", "found        4f0c in cookie PHPSESSID"},
		{"a create with an ID", []string{"--create", "PUT /orders/{id}"}, "PUT /orders/42", "", "rule         order-create (create, observe)"},
		{"other words", []string{"--backend", "Spring", "--database", "MariaDB", "--table", "`shop`.`orders`", "--settle", "post|put /pay header:x-order"}, "PUT /pay", "x-order: 42", "lock key     order:lock:42"},
		{"odd names", []string{"--lookup", "GET /42/{id}?true=on&a=1.0", "--table", "a: b", "--id-column", "#no", "--redis", "[::1]:6379"}, "GET /42/42?true=on&a=1.0", "", "order ID     42"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "ordergate.yaml")
			args := append(append(append([]string{}, flagsOfInit...), "--out", dir), tt.flags...)
			code, stdout, stderr := command(t.Context(), args...)
			if code != exitDone || !strings.HasPrefix(stdout, "wrote "+file+", which only observes\nwrote "+filepath.Join(dir, "envoy.yaml")+" for a service") {
				t.Fatalf("exit code %d, %s%s", code, stdout, stderr)
			}
			if code, stdout, stderr := command(t.Context(), "check", "--config", file); code != exitDone || stdout+stderr != "" {
				text, _ := os.ReadFile(file)
				t.Errorf("exit code %d, %s%s\n%s", code, stdout, stderr, text)
			}
			args = []string{"explain", "--config", file, tt.request}
			if tt.header != "" {
				args = append(args, "-H", tt.header)
			}
			if _, stdout, stderr := command(t.Context(), args...); !strings.Contains(stdout, tt.want) {
				t.Errorf("%s%s, want %s", stdout, stderr, tt.want)
			}
			if code, _, stderr := command(t.Context(), append(append([]string{}, flagsOfInit...), "--out", dir)...); code != exitUsage || stderr != "init: "+file+" exists: --force replaces it\n" {
				t.Errorf("exit code %d, %s", code, stderr)
			}
			if code, _, stderr := command(t.Context(), append(append(append([]string{}, flagsOfInit...), "--out", dir, "--force"), tt.flags...)...); code != exitDone {
				t.Errorf("exit code %d, %s", code, stderr)
			}
		})
	}
}

func TestInitBad(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		flags []string
		want  string
	}{
		{"nothing to do", nil, "init: give --lookup, --create or --settle, or run it on a terminal, where it asks"},
		{"another backend", []string{"--backend", "rails", "--lookup", "GET /o/{id}"}, `init: --backend: "rails" is not one of spring, tomcat, php-paths, php-front-controller, strict`},
		{"no method", []string{"--lookup", "/o/{id}"}, `init: "/o/{id}": want 'METHOD PATH'`},
		{"no ID", []string{"--settle", "POST /pay"}, `init: "POST /pay": where is the order's ID? Write {id}, json:MEMBER`},
		{"another place", []string{"--settle", "POST /pay xml:id"}, `init: "POST /pay xml:id": "xml:id" is not json:MEMBER`},
		{"no path", []string{"--settle", "POST /pay/%41/{id}"}, `init: --settle "POST /pay/%41/{id}": "/pay/%41/{id}" has the segment "%41"`},
		{"the same twice", []string{"--create", "POST /o", "--settle", "POST /o json:id"}, `init: --settle "POST /o json:id": these are the requests of --create "POST /o"`},
		{"the same by another name", []string{"--lookup", "GET /o/{id}", "--lookup", "GET /o/{no}"}, `init: --lookup "GET /o/{no}": never matches: --lookup "GET /o/{id}" before it`},
		{"Redis without a port", []string{"--lookup", "GET /o/{id}", "--redis", "redis://h"}, `init: --redis: "redis://h" has no valid port`},
		{"a secret as a name", []string{"--lookup", "GET /o/{id}", "--dsn-env", "u:pw@tcp(h)/shop"}, "init: --dsn-env: is not the name of an environment variable"},
		{"no table", []string{"--lookup", "GET /o/{id}", "--table", "a.b.c"}, `init: --table: "a.b.c" is not the name of a table`},
		{"no folder", []string{"--lookup", "GET /o/{id}", "--out", "/nowhere"}, "init: --out: /nowhere is not a folder"},
		{"a folder as a log", []string{"--log", "/"}, "init: /: is a directory"},
		{"no log", []string{"--log", "/nowhere.log"}, "init: open /nowhere.log: no such file or directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			code, stdout, stderr := command(t.Context(), append(append(append([]string{}, flagsOfInit...), "--out", dir), tt.flags...)...)
			if left, _ := filepath.Glob(filepath.Join(dir, "*")); code != exitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, tt.want) || len(left) > 0 {
				t.Errorf("exit code %d, %s%s, %v, want %s", code, stdout, stderr, left, tt.want)
			}
		})
	}
}

// shopLog is a log of a shop: its pages, how often each, and the status.
func shopLog(pages ...string) string {
	var b strings.Builder
	for _, p := range pages {
		for i := range 30 {
			request := strings.ReplaceAll(p, "#", fmt.Sprint(1000+i))
			fmt.Fprintf(&b, "10.0.0.1 - - [27/Nov/2026:10:00:%02d +0000] \"%s HTTP/1.1\" 200 12 \"-\" \"curl\"\n", i, request)
		}
	}
	return b.String()
}

// TestInitProposes has logs of shops, and no terminal.
func TestInitProposes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		log  string
		want []string
	}{
		{"paths", shopLog("GET /orders/#", "GET /orders/#?page=2", "POST /orders", "POST /orders/#/settle", "GET /css/a.css", "GET /products/#", "GET /"), []string{
			"id: {path: id, format: digits}\n    lookup: {filter: orders}\n", `methods: [POST], path: /orders}`, `methods: [POST], path: "/orders/{id}/settle"}`,
		}},
		{"front controller", shopLog("GET /index.php?route=account/order.info&order_id=#", "GET /index.php?route=common/home", "POST /index.php?route=checkout/order.save"), []string{
			"path: /index.php, query: {route: account/order.info}}\n    id: {query: order_id, format: digits}\n    lookup", "path: /index.php, query: {route: checkout/order.save}}\n    create",
		}},
		{"the order by a short name", shopLog("GET /shop.php?act=view&oid=#"), []string{"path: /shop.php, query: {act: view}}\n    id: {query: oid, format: digits}\n    lookup"}},
		{"another front controller", shopLog("GET /index.php?main_page=account_history_info&order_id=#", "GET /index.php?main_page=index", "POST /index.php?main_page=checkout_address", "POST /index.php?main_page=checkout_process", "POST /admin/index.php?cmd=orders&oID=#&action=update_order"), []string{
			"query: {main_page: account_history_info}}\n    id: {query: order_id, format: digits}\n    lookup", "query: {main_page: checkout_process}}\n    create",
			"query: {cmd: orders, action: update_order}}\n    id: [{query: oID, format: digits}, {form: oID, format: digits}]   # a form's field may override it\n    lookup: {filter: orders}\n    settle",
		}},
		{"links that pay", shopLog("GET /orders/1795716760586#;jsessionid=AB", "GET /paySuccess?orderNo=1795716760586#"), []string{
			`path: "/orders/{id}"}`, "methods: [GET, HEAD], path: /paySuccess}\n    id: {query: orderNo, format: digits}\n    lookup: {filter: orders}\n    settle",
		}},
		{"requests of one path", shopLog("GET /orders/#", "GET /orders?id=#", "GET /orders?order_id=#", "POST /orders/#", "POST /orders/#?action=cancel"), []string{
			"path: \"/orders/{id}\", query: {action: cancel}}\n    id: [{path: id, format: digits}, {form: id, format: digits}]   # a form's field may override it\n    lookup: {filter: orders}\n    settle: {lock: settlement}\n\n  - name: order-lookup",
			"path: /orders}\n    id: {query: id, format: digits}\n    lookup", `methods: [POST], path: "/orders/{id}"}`,
		}},
		{"UUIDs", shopLog("GET /api/orders/123e4567-e89b-12d3-a456-42661417#"), []string{`id: {path: id, format: uuid}`}},
		{"codes", shopLog("GET /order/view/ORD-2026-#"), []string{`pattern: "[A-Za-z0-9_-]+"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			code, _, stderr := command(t.Context(), append(append([]string{}, flagsOfInit...), "--out", dir, "--log", writeFile(t, "access.log", tt.log))...)
			text, _ := os.ReadFile(filepath.Join(dir, "ordergate.yaml"))
			for _, want := range tt.want {
				if code != exitDone || !strings.Contains(string(text), want) {
					t.Errorf("exit code %d, %s%s, want %s", code, text, stderr, want)
				}
			}
		})
	}
}

// TestInitIgnoresScanners has requests in the log that no rule can be written for, and others that the
// service never answered.
func TestInitIgnoresScanners(t *testing.T) {
	t.Parallel()
	fileOf := func(log string) string {
		dir := t.TempDir()
		code, stdout, stderr := command(t.Context(), append(append([]string{}, flagsOfInit...), "--out", dir, "--log", writeFile(t, "access.log", log))...)
		text, err := os.ReadFile(filepath.Join(dir, "ordergate.yaml"))
		if code != exitDone || err != nil {
			t.Errorf("exit code %d, %v, %s%s", code, err, stdout, stderr)
		}
		return string(text)
	}
	ordinary := shopLog("GET /orders/#", "POST /orders/#/pay", "POST /orders")
	whole, want := ordinary, fileOf(ordinary)
	for _, odd := range []string{
		`GET /order list/42/pay`, `GET /%41orders/42`, `POST /orders/42/p%61y`, `GET /orders/{x}/42`, `GET /orders/../orders/42`, `POST /orders//42/pay`, `GET /orders/42/x.php/..;/admin/confirm`,
		`GET //orders/42`, `POST /checkout/\x0apay/confirm`, `GET /payment/<script>confirm`, `GET /orders/42/\x22#:{}/pay`, `POST /checkout/payment/confirm`, `POST /orders/42/refund`, `POST /order/create`,
	} {
		line := `10.0.0.9 - - [27/Nov/2026:10:01:00 +0000] "` + odd + ` HTTP/1.1" 404 12 "-" "scanner"` + "\n"
		whole += line
		if got := fileOf(ordinary + line + line); got != want {
			t.Errorf("%s: the file has\n%s", odd, got)
		}
	}
	if got := fileOf(whole); got != want {
		t.Errorf("with all of them, the file has\n%s", got)
	}
}

// visits returns a combined log of customers, each of whom makes the requests of a visit, one every
// second. A request is "METHOD TARGET STATUS"; # is the number of the customer's order.
func visits(customers int, requests ...string) string {
	var b strings.Builder
	at := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	for i := range customers {
		for _, r := range requests {
			f := strings.Fields(strings.ReplaceAll(r, "#", fmt.Sprint(1795716760586100+i)))
			at = at.Add(time.Second)
			fmt.Fprintf(&b, "10.0.0.%d - - [%s] \"%s %s HTTP/1.1\" %s 12\n", i%3, at.Format("02/Jan/2006:15:04:05 -0700"), f[0], f[1], f[2])
		}
	}
	return b.String()
}

// TestInitReadsVisits has the visits of customers of three public shops.
func TestInitReadsVisits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		visit  []string
		rules  string // their names and paths
		asides []string
	}{
		{"creates and settles by GET", []string{
			"POST /login 200", "GET / 304", "POST /shop-cart 200", "GET /shop-cart/settle 200", "GET /saveOrder 302", "GET /orders/# 200", "GET /selectPayType?orderNo=# 200",
			"GET /payPage?orderNo=#&payType=1 200", "GET /paySuccess?payType=1&orderNo=# 200", "GET /orders 200", "GET /orders/# 200", "PUT /orders/#/finish 200", "POST /pay/# 200", "GET /logout 302",
		}, "order-lookup-2 GET /payPage, order-lookup-3 GET /selectPayType, order-create GET /saveOrder, order-settle GET /paySuccess, " +
			"order-lookup GET /orders/{id}, order-settle-2 POST /pay/{id}, order-settle-3 PUT /orders/{id}/finish", nil},
		{"a session that has the order", []string{
			"GET /index.php?route=account/login 200", "POST /index.php?route=account/login.login 302", "GET /index.php?route=account/order.info&order_id=# 200", "POST /index.php?route=checkout/cart.add 200",
			"GET /index.php?route=checkout/checkout 200", "POST /index.php?route=checkout/shipping_address.save 200", "POST /index.php?route=checkout/shipping_method.save 200",
			"GET /index.php?route=checkout/payment_method.getMethods 200", "GET /index.php?route=checkout/confirm.confirm 200", "GET /index.php?route=extension/payment/cod.confirm 200", "GET /index.php?route=account/order 200",
		}, "order-lookup GET /index.php", []string{"checkout/checkout", "checkout/confirm.confirm", "extension/payment/cod.confirm"}},
		{"forms and a notice of the bank", []string{
			"GET /shop/order/new 200", "POST /shop/order/new 200", "GET /shop/order/list 200", "GET /shop/order/view?orderId=# 200", "POST /payment/notify 200", "GET /shop/account/signoff 302",
		}, "order-lookup GET /shop/order/view, order-create POST /shop/order/new", []string{"/payment/notify"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "ordergate.yaml")
			code, stdout, stderr := command(t.Context(), append(append([]string{}, flagsOfInit...), "--out", dir, "--log", writeFile(t, "access.log", visits(30, tt.visit...)))...)
			text, err := os.ReadFile(file)
			if code != exitDone || err != nil {
				t.Fatalf("exit code %d, %v, %s%s", code, err, stdout, stderr)
			}
			var rules []string
			for _, r := range regexp.MustCompile(`(?m)^  - name: (\S+)\n.*\n    match: \{methods: \[(\w+).*?\], path: ("[^"]*"|[^,}]*)`).FindAllStringSubmatch(string(text), -1) {
				rules = append(rules, strings.ReplaceAll(strings.Join(r[1:], " "), `"`, ""))
			}
			if got := strings.Join(rules, ", "); got != tt.rules {
				t.Errorf("rules %s, want %s", got, tt.rules)
			}
			asides := regexp.MustCompile(`(?m)^#(  - .*)$`).FindAllStringSubmatch(string(text), -1)
			for i, a := range asides {
				if i >= len(tt.asides) || !strings.Contains(a[1], tt.asides[i]) {
					t.Errorf("the log is said not to show: %s", a[1])
				}
			}
			if len(asides) != len(tt.asides) || (len(asides) > 0) != strings.Contains(stdout, "at the end of "+file) {
				t.Errorf("%d requests at the end, want %q: %s", len(asides), tt.asides, stdout)
			}

			// What is commented out is right once it is not.
			whole := regexp.MustCompile(`(?m)^#(locks:|  - |  \w+: )`).ReplaceAllString(string(text), "$1")
			if code, stdout, stderr := command(t.Context(), "check", "--config", writeFile(t, "whole.yaml", whole)); code != exitDone {
				t.Errorf("exit code %d, %s%s\n%s", code, stdout, stderr, whole)
			}
		})
	}
}
