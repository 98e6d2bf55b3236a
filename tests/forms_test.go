package tests

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// textID returns an ID as its backend writes it. The canonical form of a UUID is in lower
// case; that of a pattern is the text itself.
func textID(n int) string { return fmt.Sprintf("ABCDEF00-0000-4000-8000-%012d", n) }

// figures returns an ID that has one canonical form.
func figures(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

const textPattern = "pattern, pattern: '[0-9a-fA-F-]{36}'"

// TestFullRedis creates an order while Redis takes no writes. The filter of the ordergate
// that created it needs all canonical forms of the ID, without the change log.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, lookup, create, asked, unasked string }{
		{"looked up in lower case", "uuid", textPattern, strings.ToLower(textID(1)), strings.ToLower(textID(2))},
		{"looked up as it came", textPattern, "uuid", textID(1), textID(2)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			here := settings{backend: newBackend(t).addr(), gate: edit(t,
				"{path: id, format: digits}\n    lookup", "{path: id, format: "+tc.lookup+"}\n    lookup",
				"{format: digits}", "{format: "+tc.create+"}")}
			s := newStack(t, here)
			refused := func(s *stack) func() bool {
				return func() bool { return s.must("GET", "/orders/"+tc.unasked, "").status == 404 }
			}
			s.must("GET", "/orders/"+tc.asked, "").want(t, 404, "absent")

			must(t, s.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
			s.must("POST", "/orders?do=create&id="+url.QueryEscape(`"`+textID(1)+`"`), "").want(t, 201, "")
			bedtest.Eventually(t, "it is certain of what it does not have", refused(s))
			s.must("GET", "/orders/"+tc.asked, "").want(t, 200, "")

			must(t, s.redis.ConfigSet(t.Context(), "maxmemory", "0").Err())
			other := s.second(here)
			for _, s := range []*stack{s, other} {
				bedtest.Eventually(t, "it is certain again", refused(s))
				s.must("GET", "/orders/"+tc.asked, "").want(t, 200, "")
			}
		})
	}
}

// TestCanonicalForms adds orders to filters by every path. Lookups find each order in all
// canonical forms of its ID, and the change log has the ID as it came.
func TestCanonicalForms(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis := newClient(t, bed.Redis().Addr())
	table := mariaTable(t, bed, 0, "--log-bin", "--binlog-format=ROW", "--server-id=1")
	table.exec("CREATE TABLE texts (n BIGINT AUTO_INCREMENT PRIMARY KEY, id VARCHAR(36) NOT NULL)")
	seed := filepath.Join(t.TempDir(), "seed.csv")
	must(t, os.WriteFile(seed, []byte(textID(1)+"\n"), 0o600))
	table.exec("INSERT INTO texts (id) VALUES ('" + textID(2) + "')")

	filters := []string{"memory", "redis"}
	config := `
listen: {authz: 127.0.0.1:0, proc: "", admin: 127.0.0.1:0, token_env: TOKEN}
redis: {addresses: [` + redis.Options().Addr + `], member: %s}
filters:
  memory: {capacity: 10_000, sources: [seed, table], expand: {at_fill: 0.8, by: 2, how: rebuild}}
  redis: {kind: redis-bitmap, capacity: 10_000, sources: [seed, table]}
sources:
  seed: {kind: csv, path: ` + seed + `}
  table: {kind: mysql, dsn_env: ORDERS_DSN, table: texts, id_column: id, cursor_column: n, overlap: 1s, follow: binlog}
rules:
`
	for _, filter := range filters {
		for i, format := range []string{"uuid", "uuid", "uuid", textPattern} {
			config += fmt.Sprintf("  - {name: %[1]s-%[2]d, match: {methods: [GET], path: \"/%[1]s/%[2]d/{id}\"}, id: {path: id, format: %[3]s}, lookup: {filter: %[1]s}}\n",
				filter, i, format)
		}
	}
	binary, env := bed.Build("./cmd/sidecar", false), []string{"ORDERS_DSN=" + table.dsn, "TOKEN=0123456789abcdef"}
	var gates []*tableGate
	for _, member := range []string{"one", "two"} {
		g := asTableGate(t, bed, bed.Gate(binary, fmt.Sprintf(config, member), env...))
		gates = append(gates, g)
	}
	answer := func(g *tableGate, filter, id string) string {
		var r struct{ Answer string }
		g.get("/filters/"+filter+"/contains?id="+id, &r)
		return r.Answer
	}
	// entries counts the entries of the change log by their IDs, and those that repeat the
	// ID of the entry before. A busy machine may append a whole batch twice: this counts no
	// repeats.
	entries := func(filter string) (n map[string]int, repeats int) {
		all, err := redis.XRange(t.Context(), "ordergate:{"+filter+"}:log", "-", "+").Result()
		must(t, err)
		n = make(map[string]int)
		before := ""
		for _, e := range all {
			id, ok := e.Values["id"].(string)
			if ok && id == before {
				repeats++
			}
			if before = id; ok {
				n[id]++
			}
		}
		return n, repeats
	}
	for _, g := range gates {
		for _, filter := range filters {
			bedtest.Eventually(t, filter+" is certain", func() bool { return answer(g, filter, textID(0)) == "absent" })
		}
	}

	const rows = 1000
	table.exec(fmt.Sprintf("INSERT INTO texts (id) SELECT CONCAT('00000000-0000-4000-8000-', LPAD(seq, 12, '0')) FROM seq_1_to_%d", rows))
	table.exec("INSERT INTO texts (id) VALUES ('" + textID(3) + "')")
	for _, filter := range filters {
		must(t, redis.RPush(t.Context(), "ordergate:{"+filter+"}:inbox", textID(4)).Err())
		posted := []string{textID(5)}
		for n := range rows {
			posted = append(posted, figures(rows+1+n))
		}
		gates[0].post("/v1/filters/"+filter+"/ids", `{"ids":["`+strings.Join(posted, `","`)+`"]}`)
		gates[0].post("/filters/"+filter+"/ids", `{"ids":["`+textID(6)+`"]}`)
		load := exec.CommandContext(t.Context(), binary, "load", "--filter", filter, "--csv", "-", "--config", gates[0].ConfigFile())
		load.Env, load.Stdin = append(os.Environ(), env...), strings.NewReader(textID(7)+"\n")
		if out, err := load.CombinedOutput(); err != nil {
			t.Fatalf("load: %v: %s", err, out)
		}
	}
	there := func() {
		t.Helper()
		for i, g := range gates {
			for _, filter := range filters {
				for n := 1; n <= 7; n++ {
					for _, id := range []string{textID(n), strings.ToLower(textID(n))} {
						bedtest.Eventually(t, fmt.Sprintf("ordergate %d, filter %s: order %s is known", i, filter, id), func() bool {
							return answer(g, filter, id) == "maybe"
						})
					}
				}
			}
		}
	}
	there()
	for _, filter := range filters {
		count, repeats := entries(filter)
		missing := 0
		for n := 1; n <= 2*rows; n++ {
			if count[figures(n)] == 0 {
				missing++
			}
		}
		if missing > 0 || repeats > 0 {
			t.Errorf("filter %s: of %d orders %d have no entry, and %d entries repeat the one before", filter, 2*rows, missing, repeats)
		}
		for _, n := range []int{3, 5, 6, 7} {
			if upper, lower := count[textID(n)], count[strings.ToLower(textID(n))]; upper == 0 || lower != 0 {
				t.Errorf("filter %s: %d entries for order %s and %d in lower case", filter, upper, textID(n), lower)
			}
		}
	}
	for i, g := range gates { // rebuilt from the sources and the change log
		bedtest.Eventually(t, fmt.Sprintf("ordergate %d, filter memory is rebuilt", i), func() bool {
			return g.tryPost("/filters/memory/expand", "") == http.StatusOK // not while it is cut off from Redis
		})
	}
	there()
}

// TestFormatsOfInstances runs two ordergates on one change log, whose rules have different formats,
// as during a rolling change of the configuration. Each finds the orders of the other, also after a
// restart.
func TestFormatsOfInstances(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	server := newClient(t, bed.Redis().Addr())
	const config = `
listen: {authz: 127.0.0.1:0, proc: "", admin: 127.0.0.1:0, token_env: TOKEN}
redis: {addresses: [%s], member: %s}
filters:
  orders: {capacity: 10_000}
rules:
  - {name: lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, format: %s}, lookup: {filter: orders}}
`
	var gates [2]*tableGate
	formats := []string{"uuid", textPattern}
	for i, format := range formats {
		gates[i] = asTableGate(t, bed, bed.Gate(bed.Build("./cmd/sidecar", false), fmt.Sprintf(config, server.Options().Addr, "m"+fmt.Sprint(i), format), "TOKEN=0123456789abcdef"))
	}
	answer := func(g *tableGate, id string) string {
		var r struct{ Answer string }
		g.get("/filters/orders/contains?id="+id, &r)
		return r.Answer
	}
	certain := func(g *tableGate) {
		bedtest.Eventually(t, "it is certain", func() bool { return answer(g, textID(0)) == "absent" })
	}
	for _, g := range gates {
		certain(g)
	}
	gates[0].post("/v1/filters/orders/ids", `{"ids":["`+textID(1)+`"]}`)
	gates[1].post("/v1/filters/orders/ids", `{"ids":["`+textID(2)+`"]}`)
	must(t, server.RPush(t.Context(), "ordergate:{orders}:inbox", textID(3)).Err())
	there := func() {
		for i, g := range gates {
			certain(g)
			for n := 1; n <= 3; n++ {
				id := textID(n)
				if formats[i] == "uuid" { // the form that its lookups have
					id = strings.ToLower(id)
				}
				bedtest.Eventually(t, fmt.Sprintf("ordergate %d knows order %d", i, n), func() bool { return answer(g, id) == "maybe" })
			}
		}
	}
	there()
	for i := range gates {
		must(t, gates[i].Stop())
		must(t, gates[i].Restart(t.Context()))
		gates[i] = asTableGate(t, bed, gates[i].Gate)
	}
	there()
}

// post sends something to the admin address, with the token.
func (g *tableGate) post(path, body string) {
	g.t.Helper()
	if status := g.tryPost(path, body); status != http.StatusOK {
		g.t.Fatalf("POST %s: %d", path, status)
	}
}

// tryPost is post where another answer may be right.
func (g *tableGate) tryPost(path, body string) (status int) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, g.admin+path, strings.NewReader(body))
	must(g.t, err)
	req.Header.Set("Authorization", "Bearer 0123456789abcdef")
	response, err := client.Do(req)
	must(g.t, err)
	must(g.t, response.Body.Close())
	return response.StatusCode
}

// TestFollowedRowsAreChecked writes rows into a followed table whose IDs no rule accepts. As in a
// table that is polled, nothing is absent until they are corrected.
func TestFollowedRowsAreChecked(t *testing.T) {
	t.Parallel()
	for _, tc := range follows {
		if strings.Contains(tc.source, "poll") {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			server := bed.Redis().Addr()
			table := tc.table(t, bed, 0, tc.args...)
			table.exec("ALTER TABLE orders ADD code VARCHAR(36)")
			config := table.config(server, tableSettings{member: "one", source: tc.source})
			config = bedtest.Replace(config, "id_column: id", "id_column: code, cursor_column: id")
			g := asTableGate(t, bed, bed.Gate(bed.Build("./cmd/sidecar", true), config, "ORDERS_DSN="+table.dsn))
			g.becomes(42, "absent")
			table.exec("INSERT INTO orders (id, code) VALUES (1, '000042')")
			g.becomes(42, "unknown")
			if reason := g.info().Reason; !strings.Contains(reason, `"000042" does not have the form of an order ID`) {
				t.Errorf("the reason is %q", reason)
			}
			table.exec("UPDATE orders SET code = '42' WHERE id = 1")
			g.becomes(42, "maybe")
			g.becomes(43, "absent")
		})
	}
}
