package tests

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestHotRestart restarts Envoy hot while clients look up, create and settle. Whoever
// asks which Envoy, no order is refused that exists and no two settle at once; calls of
// the first are finished there, and the second is all there is when it has ended.
func TestHotRestart(t *testing.T) {
	needsModule(t)
	t.Parallel()
	const drain, shutdown = 2 * time.Second, 10 * time.Second
	c := newClerk(t)
	for _, id := range []string{"1", "2"} {
		c.keep(id)
	}
	h := newHotRestart(t, c, both(shortLease, waitingUpTo(t, long)),
		"--drain-time-s", fmt.Sprint(drain.Seconds()), "--parent-shutdown-time-s", fmt.Sprint(shutdown.Seconds()))
	old := newStack(t, h.settings(first))
	load := newTraffic(t, old.url)
	running, longest := old.settles("1", first), old.settles("2", first)
	bedtest.Eventually(t, "the clerk settles", func() bool { return c.arrived("1") == 1 && c.arrived("2") == 1 })
	waiting := old.settles("1", first)
	bedtest.Eventually(t, "another one waits", func() bool { return old.listeners() == 1 })
	var staying []*visitor // clients of the first who say nothing
	for range 6 {
		v := newVisitor(t, old.url)
		_, err := v.find(t.Context(), "1")
		must(t, err)
		staying = append(staying, v)
	}

	bedtest.Eventually(t, "the first serves all kinds of clients", func() bool { return load.served(first) })
	began := time.Now()
	next := old.second(h.settings(second))
	next.takesOver()
	took := time.Now()
	if next.url != old.url {
		t.Fatalf("clients of %s would have to go to %s", old.url, next.url)
	}
	bedtest.Eventually(t, "both are members of the change log", func() bool { return old.members() == 2 })
	next.crosses(staying)
	late := next.settles("1", second)
	bedtest.Eventually(t, "one waits in each process", func() bool { return old.listeners() == 2 })
	if c.arrived("1") != 1 || c.arrived("2") != 1 {
		t.Error("a lock was not kept over the restart")
	}
	c.goOn("1")
	running.wantDone("the settlement that ran in the first")
	waiting.wantDone("the settlement that waited in the first")
	late.wantDone("the settlement that waited in the second")
	old.wantFate("1", released)

	must(t, old.gate.Wait(t.Context()))
	t.Logf("the first ended %v after the second was begun, and %v after that took over", time.Since(began), time.Since(took))
	if time.Since(began) < shutdown || time.Since(took) > shutdown+20*time.Second {
		t.Errorf("want %v, and what the end takes", shutdown)
	}
	if err := <-longest.done; err == nil {
		t.Error("a call was answered by an Envoy that had ended")
	}
	old.wantFate("2", held) // whatever its backend does
	if m := old.memberNames(); len(m) != 1 || !strings.Contains(m[0], fmt.Sprintf(" %d ", next.gate.PID())) {
		t.Errorf("members of the change log: %q, want the second only, whose process is %d", m, next.gate.PID())
	}
	next.must("GET", "/orders/777777", "").want(t, 404, "absent") // nobody waits for the first
	must(t, next.gate.WaitReady(t.Context()))
	if addr := next.GateAddr(next.gate, "admin"); addr != h.admin {
		t.Errorf("operators are answered at %s, want %s", addr, h.admin)
	}
	bedtest.Eventually(t, "the second serves all kinds of clients", func() bool { return load.served(second) })
	load.end(t)
	bedtest.Eventually(t, "only the lock is left that is held", func() bool {
		k := next.keys()
		return len(k) == 1 && k[0] == "order:lock:2"
	})
	for _, fault := range c.faults() {
		t.Error(fault)
	}
}

// crosses creates orders through either Envoy, and looks them up through the other. The
// visitors have a connection to the first, each for one request: it may be closed then.
func (s *stack) crosses(staying []*visitor) {
	s.t.Helper()
	ctx := s.t.Context()
	fresh := func() *visitor { return newVisitor(s.t, s.url) }
	var there, back int
	for i, v := range staying {
		if i%2 == 0 {
			id, by, err := fresh().create(ctx)
			must(s.t, err)
			seen, err := v.find(ctx, id)
			must(s.t, err)
			if by == second && seen == first {
				back++
			}
			continue
		}
		id, by, err := v.create(ctx)
		must(s.t, err)
		seen, err := fresh().find(ctx, id)
		must(s.t, err)
		if by == first && seen == second {
			there++
		}
	}
	if there == 0 || back == 0 {
		s.t.Errorf("%d orders of the first were looked up through the second, %d the other way round", there, back)
	}
}

// TestModuleDrains has Envoy fail its health checks, stop listening, and end. Calls that
// are on their way by then are finished as ever.
func TestModuleDrains(t *testing.T) {
	needsModule(t)
	t.Parallel()
	c := newClerk(t)
	c.keep("1")
	c.keep("2")
	s := newStack(t, settings{
		backend: strings.TrimPrefix(c.URL, "http://"), orders: clerksOrders, gate: both(shortLease, waitingUpTo(t, long)),
		envoy: named(t, first), envoyArgs: []string{"--drain-time-s", "1"},
	})
	running, longest := s.settles("1", first), s.settles("2", first)
	bedtest.Eventually(t, "the clerk settles", func() bool { return c.arrived("1") == 1 && c.arrived("2") == 1 })
	waiting := s.settles("1", first)
	bedtest.Eventually(t, "another one waits", func() bool { return s.listeners() == 1 })
	v := newVisitor(t, s.url)
	_, err := v.find(t.Context(), "1")
	must(t, err)

	s.tellEnvoy("/healthcheck/fail")
	if a, _, err := v.do(t.Context(), http.MethodGet, "/orders/777777"); err != nil || a.status != 404 {
		t.Errorf("with failing health checks: %d (%v)", a.status, err)
	}
	s.tellEnvoy("/drain_listeners?graceful")
	bedtest.Eventually(t, "Envoy takes no connection any more", func() bool {
		_, err := newVisitor(t, s.url).find(t.Context(), "1")
		return err != nil
	})
	if c.arrived("1") != 1 {
		t.Error("a lock was not kept")
	}
	c.goOn("1")
	running.wantDone("the settlement that ran")
	waiting.wantDone("the settlement that waited")
	s.wantFate("1", released)
	c.goOn("2")
	longest.wantDone("the settlement that ran for longer than the drain")
	s.wantFate("2", released)
	if n := s.members(); n != 1 {
		t.Errorf("%d members of the change log before its end", n)
	}
	must(t, s.gate.Signal(syscall.SIGTERM))
	must(t, s.gate.Wait(t.Context()))
	if n, k := s.members(), s.keys(); n != 0 || len(k) != 0 {
		t.Errorf("%d members of the change log and the locks %q are left", n, k)
	}
	for _, fault := range c.faults() {
		t.Error(fault)
	}
}

// tellEnvoy asks Envoy's own administration for something.
func (s *stack) tellEnvoy(what string) {
	s.t.Helper()
	resp, err := client.Post("http://"+s.envoy.AdminAddr()+what, "", nil)
	must(s.t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("Envoy answers %s with %d", what, resp.StatusCode)
	}
}
