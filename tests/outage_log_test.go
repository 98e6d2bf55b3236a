package tests

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// withFair adds settlements under a fair lock.
const withFair = `
  - name: fair-settle
    match: {methods: [POST], path: "/fair/{id}/settle"}
    id: {path: id, format: digits}
    settle: {lock: fairly}
`

// TestOutageIsLoggedOnce floods ordergate with requests of each kind while Redis is away, and
// counts the lines of the log, from the beginning of the outage until it is over. A line each
// have only leases that were lost.
func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		away, back func(*testing.T, *stack)
	}{
		{"killed", func(_ *testing.T, s *stack) { s.server.Kill() },
			func(t *testing.T, s *stack) { must(t, s.server.Restart(t.Context())) }},
		{"hanging", func(t *testing.T, s *stack) { must(t, s.server.Pause()) },
			func(t *testing.T, s *stack) { must(t, s.server.Resume()) }},
		{"full", func(_ *testing.T, s *stack) { s.empty = s.fill() },
			func(_ *testing.T, s *stack) { s.empty() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			s := newStack(t, settings{backend: b.addr(), orders: 1000, gate: both(
				edit(t, "\nrules:\n", "\nrules:"+withFair, "\nlocks:\n", "\nlocks:\n  fairly: {kind: fair, key: \"fair:{id}\", wait: {up_to: 300ms}}\n"),
				shortLease,
			)})
			var running []hanging // some end by themselves, some clients leave
			for i := range 20 {
				running = append(running, s.hang(b, "POST", fmt.Sprintf("/orders/%d/settle", 900+i), ""))
			}
			before := len(moduleOrGateLines(t, s))
			tt.away(t, s)
			for i := range 10 {
				running[i].leave()
			}
			requests := floodOfEachKind(t, s)
			b.goOn()
			for i := range running {
				<-running[i].done
			}
			during := moduleOrGateLines(t, s)[before:]
			tt.back(t, s)
			bedtest.Eventually(t, "settlements go on", func() bool { return s.must("POST", "/orders/6/settle", "").status == 200 })
			after := moduleOrGateLines(t, s)[before+len(during):]

			count := make(map[string]int) // by message and kind of lock
			for _, line := range append(during, after...) {
				count[message.FindString(line)+" "+lockName.FindString(line)]++
			}
			total := 0
			for what, n := range count {
				if strings.Contains(what, "lease lost") || strings.Contains(what, "a lock ended before it was held") {
					continue // one for each of those that ran
				}
				total += n
				if n > 3 {
					t.Errorf("%d lines: %s", n, what)
				}
			}
			t.Logf("%d lines for %d requests", total, requests)
			if total > 30 {
				t.Errorf("%d lines for %d requests: %v", total, requests, count)
			}
		})
	}
}

var (
	message  = regexp.MustCompile(`msg=("(\\.|[^"\\])*"|\S+)`)
	lockName = regexp.MustCompile(`lock=\S+`)
)

// moduleOrGateLines returns the lines of ordergate's log, which may be Envoy's.
func moduleOrGateLines(t *testing.T, s *stack) (lines []string) {
	t.Helper()
	for line := range strings.Lines(logOf(t, s.gate)) {
		if strings.Contains(line, "msg=") {
			lines = append(lines, line)
		}
	}
	return lines
}

// floodOfEachKind sends requests of each kind, whose answers do not matter. Of each some
// clients leave early.
func floodOfEachKind(t *testing.T, s *stack) (requests int) {
	kinds := []struct{ method, path, body string }{
		{"GET", "/orders/%d", ""},
		{"GET", "/orders/77%d", ""},
		{"POST", "/orders?do=create&id=5%d", "{}"},
		{"POST", "/orders?do=answer&status=201&body=%d", "{}"},
		{"POST", "/orders/%d/settle", ""},
		{"POST", "/orders/%d/settle", `{"amount":1}`},
		{"POST", "/orders/1/settle", ""},
		{"POST", "/fair/%d/settle", ""},
		{"POST", "/fair/1/settle", ""},
	}
	const each = 40
	atOnce(each*len(kinds), func(i int) {
		kind := kinds[i%len(kinds)]
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if i%4 == 0 {
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		}
		defer cancel()
		path := kind.path
		if strings.Contains(path, "%d") {
			path = fmt.Sprintf(path, 10+i)
		}
		_, _ = s.send(ctx, kind.method, path, kind.body, "Content-Type", "application/json")
	})
	return each * len(kinds)
}
