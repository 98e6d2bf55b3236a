package tests

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// certainlyAbsent reports whether an order that does not exist is refused.
func (s *stack) certainlyAbsent() bool {
	s.t.Helper()
	return s.must("GET", "/orders/777777", "").status == http.StatusNotFound
}

// The change log in the tests of a killed Envoy.
const deadLease, deadExpel = 500 * time.Millisecond, 10 * time.Second

// unsureUntilGone checks that nothing is refused while somebody is a member of the change
// log who was killed, then, and that this lasts for as long as the configuration says.
func (s *stack) unsureUntilGone(killed time.Time) {
	s.t.Helper()
	bedtest.Eventually(s.t, "nothing counts as absent", func() bool {
		return time.Since(killed) > deadLease && !s.certainlyAbsent()
	})
	s.t.Logf("nothing counts as absent after %v", time.Since(killed))
	refused := false
	bedtest.Eventually(s.t, "the dead one is taken for gone", func() bool {
		refused = refused || s.certainlyAbsent()
		return s.members() == 1
	})
	gone := time.Since(killed)
	s.t.Logf("it is taken for gone after %v", gone)
	if refused || gone < deadExpel-time.Second { // the lease may have been at its end
		s.t.Errorf("taken for gone after %v, want %v; refused something before: %v", gone, deadExpel, refused)
	}
	bedtest.Eventually(s.t, "what is absent is refused again", s.certainlyAbsent)
	s.t.Logf("what is absent is refused after %v", time.Since(killed))
}

// halfway is a hot restart in the middle of which the first Envoy is killed, while a
// settlement of order 1 runs there and another one waits in the second.
type halfway struct {
	*hotRestart
	clerk     *clerk
	old, next *stack
	gone      string // the first, as a member of the change log
	place     string // of it: up to what tells one start from another
	made      string // an order
	late      *settling
	killed    time.Time
}

func newHalfway(t *testing.T, args ...string) *halfway {
	c := newClerk(t)
	c.keep("1")
	log := edit(t, "    sources: [seed]\n", fmt.Sprintf("    sources: [seed]\n    change_log: {lease: %v, expel: %v}\n", deadLease, deadExpel))
	h := newHotRestart(t, c, both(both(shortLease, log), waitingUpTo(t, long)),
		append(args, "--drain-time-s", "600", "--parent-shutdown-time-s", "900")...)
	w := &halfway{hotRestart: h, clerk: c, old: newStack(t, h.settings(first))}
	running := w.old.settles("1", first)
	bedtest.Eventually(t, "the clerk settles", func() bool { return c.arrived("1") == 1 })
	w.gone = w.old.memberNames()[0]
	w.place = w.gone[:strings.IndexByte(w.gone, '#')+1]
	var err error
	w.made, _, err = newVisitor(t, w.old.url).create(t.Context())
	must(t, err)
	w.next = w.old.second(h.settings(second))
	w.next.takesOver()
	bedtest.Eventually(t, "the second is certain", w.next.certainlyAbsent)
	w.late = w.next.settles("1", second)
	bedtest.Eventually(t, "it waits", func() bool { return w.old.listeners() == 1 })
	w.killed = time.Now()
	w.old.gate.Kill()
	if err := <-running.done; err == nil {
		t.Error("a call was answered by an Envoy that was killed")
	}
	c.goOn("1")
	return w
}

// TestHotRestartKilled kills the first Envoy while both are there. The second goes on, as
// long as Envoy lets it.
func TestHotRestartKilled(t *testing.T) {
	needsModule(t)
	t.Parallel()
	t.Run("the second goes on", func(t *testing.T) {
		t.Parallel()
		w := newHalfway(t, "--skip-hot-restart-parent-stats")
		w.next.worksWith(t, w.made)
		w.next.unsureUntilGone(w.killed)
		w.late.wantDone("the settlement that waited for one of the first's")
		must(t, w.next.gate.WaitReady(t.Context()))
		if addr := w.next.GateAddr(w.next.gate, "admin"); addr != w.admin {
			t.Errorf("operators are answered at %s, want %s", addr, w.admin)
		}
		w.wantDone()
		w.next.gate.Kill() // asked to end, it would look for the first for 10 s more
	})
	// Envoy 1.40 asks the first for its statistics every 5 s, and ends itself when it has
	// got no answer 10 s later.
	t.Run("the second ends itself", func(t *testing.T) {
		t.Parallel()
		w := newHalfway(t)
		w.next.worksWith(t, w.made)
		w.late.wantDone("the settlement that waited for one of the first's")
		if err := w.next.gate.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "aborted") {
			t.Fatalf("the second ended: %v", err)
		}
		ended := time.Now()
		t.Logf("the second ended itself after %v", time.Since(w.killed))
		third := w.old.second(w.settings(third))
		bedtest.Eventually(t, "the third is where the first was", func() bool {
			return slices.ContainsFunc(third.memberNames(), func(m string) bool { return strings.HasPrefix(m, w.place) && m != w.gone })
		})
		if n := third.members(); n != 2 && time.Since(ended) < deadExpel {
			t.Errorf("members of the change log: %q, want the second, which nobody replaces, and the third", third.memberNames())
		}
		third.worksWith(t, w.made)
		third.unsureUntilGone(ended)
		w.wantDone()
	})
}

// worksWith makes calls that have to be served whoever was killed.
func (s *stack) worksWith(t *testing.T, made string) {
	t.Helper()
	id, _, err := newVisitor(t, s.url).create(t.Context())
	must(t, err)
	for _, id := range []string{"1", made, id} {
		s.must("GET", "/orders/"+id, "").want(t, 200, "")
	}
	s.must("POST", "/orders/3/settle", "").want(t, 200, "")
}

// wantDone checks what all of them leave behind.
func (w *halfway) wantDone() {
	w.t.Helper()
	bedtest.Eventually(w.t, "no lock is left", func() bool { return len(w.old.keys()) == 0 })
	for _, fault := range w.clerk.faults() {
		w.t.Error(fault)
	}
}
