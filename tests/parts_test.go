package tests

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const tenantPart = `parts: {tenant: {header: x-tenant, format: pattern, pattern: "[a-z0-9:-]{1,32}"}}`

// withTenants has the example's orders belong to tenants. These orders exist.
func withTenants(t testing.TB, orders ...string) func(string) string {
	file := filepath.Join(t.TempDir(), "tenants.csv")
	must(t, os.WriteFile(file, []byte(strings.Join(orders, "\n")+"\n"), 0o600))
	return both(shortLease, func(yaml string) string {
		before, rest, found := strings.Cut(yaml, "  seed: {kind: csv, path: ")
		_, after, ended := strings.Cut(rest, "}")
		if !found || !ended {
			t.Fatal("the example has no seed")
		}
		yaml = before + "  seed: {kind: csv, path: " + file + "}" + after
		yaml = edit(t, "sources: [seed]", "sources: [seed]\n    parts: [tenant]", `"order:lock:{id}"`, `"order:lock:{tenant}/{id}"`)(yaml)
		yaml = strings.ReplaceAll(yaml, "    id: {path: id, format: digits}\n", "    id: {path: id, format: digits}\n    "+tenantPart+"\n")
		return edit(t, "    id: {format: digits}\n", "    id: {format: digits}\n    "+tenantPart+"\n")(yaml) + `
  - name: batch
    match: {methods: [POST], path: /batch}
    id: {json: ids, list: true, max_list: 1000}
    ` + tenantPart + `
    settle: {lock: settlement}
  - name: queried
    match: {methods: [POST], path: "/queried/{id}"}
    id: {path: id}
    parts: {tenant: {query: tenant, format: pattern, pattern: "[a-z0-9:-]{1,32}"}}
    settle: {lock: settlement, require: [{missing: "frozen:{tenant}/{id}"}, {missing: "closed:{tenant}"}]}
`
	})
}

// TestTenants has two tenants with the same order numbers.
func TestTenants(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), gate: withTenants(t, "acme/1", "bolt/1", "acme/2", "a:1/2", "a/12"), envoy: withTestRoutes})
	of := func(tenant string) []string { return []string{"x-tenant", tenant} }

	t.Run("lookups", func(t *testing.T) {
		for _, tt := range []struct {
			target, verdict string
			status          int
			header          []string
		}{
			{"/orders/1", "", 200, of("acme")},
			{"/orders/1", "", 200, of("bolt")},
			{"/orders/2", "", 200, of("acme")},
			{"/orders/2", "absent", 404, of("bolt")},
			{"/orders/1", "absent", 404, of("cord")},
			{"/orders/1", "invalid", 400, nil},
			{"/orders/1", "invalid", 400, of("Acme")},
			{"/orders/1", "invalid", 400, of("acme/1")},
			{"/orders/1?x-tenant=bolt", "ambiguous", 400, of("acme")},
			{"/orders/1", "ambiguous", 400, []string{"x-tenant", "acme", "Cookie", "x-tenant=bolt"}},
		} {
			s.must("GET", tt.target, "", tt.header...).want(t, tt.status, tt.verdict)
		}
		// Envoy joins the lines of a header, or passes both.
		if a := s.must("GET", "/orders/1", "", "x-tenant", "acme", "x-tenant", "bolt"); a.status != 400 {
			t.Errorf("two tenants: %d %q", a.status, a.verdict)
		}
	})

	t.Run("creates", func(t *testing.T) {
		s.must("GET", "/orders/5000", "", of("acme")...).want(t, 404, "absent")
		s.must("POST", "/orders?do=create&id=5000", "", of("acme")...).want(t, 201, "")
		s.must("GET", "/orders/5000", "", of("acme")...).want(t, 200, "")
		s.must("GET", "/orders/5000", "", of("bolt")...).want(t, 404, "absent")
		s.must("POST", "/orders?do=create&id=5001", "").want(t, 400, "invalid")
	})

	t.Run("settlements", func(t *testing.T) {
		first := s.hang(b, "POST", "/orders/1/settle", "", of("acme")...)
		if got := first.ours("key"); got != "order:lock:acme/1" {
			t.Errorf("key %q", got)
		}
		s.must("POST", "/orders/1/settle", "", of("acme")...).want(t, 409, "busy")
		s.must("POST", "/queried/1?tenant=acme", "").want(t, 409, "busy")
		s.must("POST", "/queried/1?tenant=acme&tenant=bolt", "").want(t, 400, "ambiguous")
		s.must("POST", "/queried/1?tenant=bolt&Tenant=acme", "").want(t, 400, "ambiguous")
		s.must("POST", "/queried/1", "").want(t, 400, "invalid")
		// The other tenant's order is free, and the first one's lease is of no use there.
		s.must("POST", "/orders/1/settle", "", append(of("bolt"), leaseHeader, first.ours("lease"))...).want(t, 200, "")
		if b.last("key") != "order:lock:bolt/1" || b.last("fence") == "" || b.last("lease") == first.ours("lease") {
			t.Errorf("key %q, fence %q, lease %q", b.last("key"), b.last("fence"), b.last("lease"))
		}
		s.wantFate("bolt/1", released)
		// Within the first it is.
		s.must("POST", "/orders/1/settle", "", append(of("acme"), leaseHeader, first.ours("lease"))...).want(t, 200, "")
		if b.last("fence") != first.ours("fence") {
			t.Errorf("within: fence %q, want %q", b.last("fence"), first.ours("fence"))
		}
		b.goOn()
		first.wantAnswer(t)
		s.wantFate("acme/1", released)
		// A tenant with a colon makes no other's key.
		s.must("POST", "/orders/2/settle", "", of("a:1")...).want(t, 200, "")
		if got := b.last("key"); got != "order:lock:a:1/2" {
			t.Errorf("key %q", got)
		}
		s.must("POST", "/orders/2/settle", "", of("bolt")...).want(t, 404, "absent")
		s.must("POST", "/orders/2/settle", "").want(t, 400, "invalid")
	})

	t.Run("conditions", func(t *testing.T) {
		must(t, s.redis.MSet(t.Context(), "frozen:acme/9", "1", "frozen:9", "1", "closed:cord", "1").Err())
		s.must("POST", "/queried/9?tenant=acme", "").want(t, 425, "not_ready")
		s.must("POST", "/queried/8?tenant=acme", "").want(t, 200, "")
		s.must("POST", "/queried/9?tenant=bolt", "").want(t, 200, "")
		s.must("POST", "/queried/9?tenant=cord", "").want(t, 425, "not_ready")
	})

	t.Run("batches", func(t *testing.T) {
		s.must("POST", "/batch", `{"ids":[7,3]}`, "x-tenant", "acme", "Content-Type", jsonBody).want(t, 200, "")
		if got := b.last("key"); got != "order:lock:acme/3,order:lock:acme/7" {
			t.Errorf("keys %q", got)
		}
		s.must("POST", "/batch", `{"ids":[7,3]}`, "Content-Type", jsonBody).want(t, 400, "invalid")
		var ids []string
		for n := range 60 {
			ids = append(ids, fmt.Sprint(100+n))
		}
		s.must("POST", "/batch", `{"ids":[`+strings.Join(ids, ",")+`]}`, "x-tenant", "acme", "Content-Type", jsonBody).want(t, 200, "")
		if got := b.last("key"); got != "order:lock:acme/{id};60" {
			t.Errorf("keys %q", got)
		}
	})
}

// tenantTable has a table of orders of tenants, and an ordergate whose filter has it.
const tenantConfig = `
listen: {authz: 127.0.0.1:0, proc: "", admin: 127.0.0.1:0}
redis: {addresses: [%s], member: "one"}
filters:
  orders: {capacity: 100_000, sources: [orders-db], parts: [tenant]}
sources:
  orders-db: {kind: %s, dsn_env: ORDERS_DSN, table: tenants, id_column: order_no, cursor_column: id, part_columns: {tenant: tenant_id}, overlap: 1s%s}
rules:
  - name: lookup
    match: {methods: [GET], path: "/orders/{id}"}
    id: {path: id, format: digits}
    parts: {tenant: {header: x-tenant, format: pattern, pattern: "[a-z]{1,32}"}}
    lookup: {filter: orders}
`

// TestTenantTables follows a table with a column of tenants, in each way.
func TestTenantTables(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		table  func(t testing.TB, bed *bedtest.Bed, rows int, args ...string) *orderTable
		args   []string
		follow string
	}{
		{"mariadb binlog", mariaTable, []string{"--log-bin", "--binlog-format=ROW", "--server-id=1"}, ", follow: binlog"},
		{"postgres logical", postgresTable, []string{"-c", "wal_level=logical"}, ", follow: logical"},
		{"mariadb poll", mariaTable, nil, ", follow: poll, every: 100ms"},
		{"postgres poll", postgresTable, nil, ", follow: poll, every: 100ms"},
		{"mariadb", mariaTable, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bed := bedtest.New(t)
			o := tt.table(t, bed, 0, tt.args...)
			number := map[string]string{"mysql": "BIGINT AUTO_INCREMENT", "postgres": "BIGSERIAL"}[o.kind]
			o.exec("CREATE TABLE tenants (id " + number + " PRIMARY KEY, tenant_id VARCHAR(20) NOT NULL, order_no INT NOT NULL, UNIQUE (tenant_id, order_no))")
			o.exec("INSERT INTO tenants (tenant_id, order_no) VALUES ('acme', 1), ('bolt', 1), ('acme', 2)")
			addr := bed.Redis().Addr()
			gate := bed.Gate(bed.Build("./cmd/sidecar", true), fmt.Sprintf(tenantConfig, addr, o.kind, tt.follow), "ORDERS_DSN="+o.dsn)
			g := asTableGate(t, bed, gate)
			want := func(id, answer string) {
				t.Helper()
				bedtest.Eventually(t, id+" is "+answer, func() bool { return g.answerTo(id) == answer })
			}
			want("bolt/2", "absent")
			want("acme/1", "maybe")
			want("bolt/1", "maybe")
			want("acme/2", "maybe")
			want("cord/1", "absent")
			if tt.follow == "" {
				return
			}
			o.exec("INSERT INTO tenants (tenant_id, order_no) VALUES ('bolt', 2)")
			want("bolt/2", "maybe")
			want("cord/2", "absent")
			// An ID without its parts is a doubt, until the table was read again.
			must(t, newClient(t, addr).RPush(t.Context(), "ordergate:{orders}:inbox", "3").Err())
			bedtest.Eventually(t, "there is a doubt", func() bool { return g.info().Log.Doubts["lost"] > 0 })
			want("bolt/3", "absent")
			if strings.Contains(tt.follow, "poll") {
				return // it sees new rows only
			}
			if o.kind == "postgres" { // or its log does not show which rows have another tenant
				return
			}
			o.exec("UPDATE tenants SET tenant_id = 'cord' WHERE tenant_id = 'bolt' AND order_no = 2")
			want("cord/2", "maybe")
		})
	}
}

// answerTo is answer for an ID with its parts.
func (g *tableGate) answerTo(id string) string {
	g.t.Helper()
	var r struct{ Answer string }
	g.get("/filters/orders/contains?id="+url.QueryEscape(id), &r)
	return r.Answer
}
