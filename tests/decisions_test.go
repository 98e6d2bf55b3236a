package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// logging has ordergate log its decisions to a file.
func logging(path string) func(string) string {
	return func(yaml string) string {
		return fmt.Sprintf("log: {decisions: {to: %q}}\n", path) + yaml
	}
}

// decided is a line of the decision log.
type decided map[string]any

// decisionsIn returns the lines of a decision log, all of which are whole.
func decisionsIn(t *testing.T, path string) (lines []decided) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	for line := range strings.Lines(string(text)) {
		var d decided
		if err := json.Unmarshal([]byte(line), &d); err != nil || !strings.HasSuffix(line, "}\n") {
			t.Errorf("%v: %q", err, line)
		}
		lines = append(lines, d)
	}
	return lines
}

// countDecisions returns how often the lines have each series of ordergate_decisions_total.
func countDecisions(lines []decided) map[string]int {
	counts := make(map[string]int)
	for _, d := range lines {
		series := func(verdict any) string {
			return fmt.Sprintf("ordergate_decisions_total{action=%q,mode=%q,rule=%q,verdict=%q}", d["action"], d["mode"], d["rule"], verdict)
		}
		switch {
		case d["rule"] == nil, d["verdict"] == "none": // nothing was decided
			continue
		case d["verdict"] == "lost": // it had acquired its lock before
			counts[series("acquired")]++
		}
		counts[series(d["verdict"])]++
	}
	return counts
}

// tracing has Envoy trace its requests. No collector takes the spans.
func tracing(yaml string) string {
	return bedtest.Replace(yaml, "          stat_prefix: orders\n", `          stat_prefix: orders
          tracing:
            provider:
              name: envoy.tracers.opentelemetry
              typed_config:
                "@type": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig
                grpc_service: { envoy_grpc: { cluster_name: backend-reads } }
`)
}

// leaveWaiting sends a settlement, and leaves while it waits for its lock.
func (s *stack) leaveWaiting(path string, header ...string) {
	s.t.Helper()
	ctx, leave := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.send(ctx, http.MethodPost, path, "", header...)
		done <- err
	}()
	bedtest.Eventually(s.t, path+" waits", func() bool { return s.metric(`ordergate_lock_waiters{lock="patient"}`) == "1" })
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		s.t.Errorf("the client has not left: %v", err)
	}
}

// withPatient adds a rule whose calls wait for long.
func withPatient(yaml string) string {
	return bedtest.Replace(yaml, "\nlocks:\n", "\nlocks:\n  patient: {key: \"patient:{id}\", wait: {up_to: 40s}}\n") + `
  - name: patient
    match: {methods: [POST], path: "/patient/{id}"}
    id: {path: id, format: digits}
    settle: {lock: patient}
`
}

// TestDecisionLog has each verdict in each way to ask for it. Its lines are those that the metrics count,
// and their fields those that the page lists.
func TestDecisionLog(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	path := filepath.Join(t.TempDir(), "decisions.log")
	gate := both(both(both(flying(t, "max_in_flight: 2, max_in_flight_per_client: 2", "60s"), shortLease), withOnceAndConditions), both(logging(path), withPatient))
	if *attachment != asModule {
		gate = both(gate, edit(t, "\nlisten:\n", "\nlisten:\n  http: 127.0.0.1:0\n"))
	}
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: gate, envoy: tracing})
	secret := []string{"Authorization", "Bearer hunter2", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	send := func(method, path, verdict string, header ...string) {
		t.Helper()
		if a := s.must(method, path, `{"pin":"hunter3"}`, append(header, secret...)...); a.verdict != verdict {
			t.Errorf("%s %s: %d %q, want %q", method, path, a.status, a.verdict, verdict)
		}
	}
	s.must("GET", "/orders/1", "")
	send("GET", "/orders/77", "absent")
	send("GET", "/orders/abc", "invalid")
	send("GET", "/orders/1?_method=POST", "ambiguous")
	s.redis.HSet(t.Context(), "order:lock:5", "another:1", 1)
	send("POST", "/orders/5/settle", "busy")
	s.redis.HSet(t.Context(), "patient:5", "another:1", 1)
	s.leaveWaiting("/patient/5", secret...)
	send("POST", "/orders/6/settle", "")
	send("POST", "/orders?do=create&id=4711", "")
	send("POST", "/orders?do=answer&status=400", "")
	s.redis.Set(t.Context(), "loaders:6", 1, 0)
	send("POST", "/ready/6", "not_ready")
	send("POST", "/payments?do=answer&status=200&body=ok", "", "Idempotency-Key", "1")
	send("POST", "/payments?do=answer&status=200&body=ok", "replayed", "Idempotency-Key", "1")
	send("POST", "/payments?do=answer&status=200&body=other", "mismatch", "Idempotency-Key", "1")
	send("POST", "/payments?do=answer&status=200&body=large", "", "Idempotency-Key", "2")
	send("POST", "/payments?do=answer&status=200&body=large", "duplicate", "Idempotency-Key", "2")
	pays := s.hang(b, "POST", "/payments", "", "Idempotency-Key", "3")
	send("POST", "/payments?do=hang", "in_use", "Idempotency-Key", "3")
	one, leaves := s.hang(b, "POST", "/orders/1/settle", ""), s.hang(b, "POST", "/orders/2/settle", "")
	send("POST", "/orders/3/settle", "overloaded")
	s.redis.Del(t.Context(), "order:lock:1")
	if instead := <-one.done; !strings.Contains(instead, `503 "lost"`) {
		t.Errorf("its lease was lost: %s", instead)
	}
	leaves.leave()
	s.wantFate("2", held)
	b.goOn()
	pays.wantAnswer(t)
	others := 0 // verdicts without a rule
	if *attachment != asModule {
		ask := func(target string, header ...string) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.GateAddr(s.gate, "http")+"/check/envoy"+target, nil)
			must(t, err)
			for i := 0; i < len(header); i += 2 {
				req.Header.Set(header[i], header[i+1])
			}
			resp, err := client.Do(req)
			must(t, err)
			must(t, resp.Body.Close())
		}
		ask("/orders/78")
		ask("/elsewhere", "x-ordergate-lease-lost", "true")
		others = 1
	}
	s.server.Kill()
	bedtest.Eventually(t, "lookups are unknown", func() bool { return s.must("GET", "/orders/9999", "").status == 200 })
	send("POST", "/payments", "unavailable", "Idempotency-Key", "4")

	want := make(map[string]int)
	got := func() map[string]int { return countDecisions(decisionsIn(t, path)) }
	matches := func() bool {
		clear(want)
		for _, line := range strings.Split(s.metrics(), "\n") {
			var n int
			if series, count, ok := strings.Cut(line, "} "); ok && strings.HasPrefix(series, "ordergate_decisions_total") {
				_, err := fmt.Sscan(count, &n)
				must(t, err)
				if n > 0 { // those that alerts look at begin at zero
					want[series+"}"] = n
				}
			}
		}
		return maps.Equal(want, got())
	}
	for begin := time.Now(); !matches(); time.Sleep(50 * time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("decisions of the metrics, and of the log (-want +got):\n%s", cmp.Diff(want, got()))
		}
	}
	lines := decisionsIn(t, path)
	if *attachment != asModule {
		other := filepath.Join(t.TempDir(), "unlocked.log")
		blind := newStack(t, settings{backend: b.addr(), orders: 10, gate: both(byBody, logging(other)), envoy: edit(t, noOverride...)})
		blind.must("POST", "/settle", `{"order":1}`, "Content-Type", jsonBody).want(t, 503, "unlocked")
		bedtest.Eventually(t, "it is logged", func() bool { return len(decisionsIn(t, other)) > 0 })
		lines = append(lines, decisionsIn(t, other)...)
	}

	left := slices.DeleteFunc(slices.Clone(lines), func(d decided) bool { return d["action"] != "settle" || d["verdict"] != "none" })
	if len(left) != 1 || left[0]["order"] != "5" || left[0]["outcome"] != "not_forwarded" || left[0]["wait_ms"] == nil || left[0]["held_ms"] != nil {
		t.Errorf("a client has left while it waited: %v", left)
	}
	verdicts, fields, unruled := make(map[string]bool), make(map[string]bool), 0
	for _, d := range lines {
		verdicts[fmt.Sprint(d["verdict"])] = true
		for field := range d {
			fields[field] = true
		}
		if d["rule"] == nil {
			unruled++
		}
		if trace, _ := d["trace"].(string); len(trace) != 32 && d["rule"] != nil && d["order"] != "78" && d["order"] != "9999" && *attachment == asSidecar && d["verdict"] != "unlocked" {
			t.Errorf("a line has no trace: %v", d)
		}
		if strings.Contains(fmt.Sprint(d), "hunter") || len(fmt.Sprint(d["request"])) != 36 && d["rule"] != nil && d["order"] != "78" {
			t.Errorf("a line says %v", d)
		}
	}
	missing := slices.DeleteFunc(slices.Clone(config.Verdicts), func(v string) bool { return verdicts[v] || *attachment == asModule && v == "unlocked" })
	if len(missing) > 0 || unruled != others {
		t.Errorf("no line has the verdicts %v; %d have no rule, want %d", missing, unruled, others)
	}
	text, err := os.ReadFile(filepath.Join(s.Root(), "docs", "explain.md"))
	must(t, err)
	_, table, _ := strings.Cut(string(text), "## The decision log")
	table, _, _ = strings.Cut(table, "\n## ")
	listed := make(map[string]bool)
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			listed[name[1]] = true
		}
	}
	delete(listed, "orders")
	if diff := cmp.Diff(listed, fields); diff != "" {
		t.Errorf("fields of the page, and of the log (-want +got):\n%s", diff)
	}
}
