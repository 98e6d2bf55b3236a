package tests

import (
	"os/exec"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// operator runs a command of ordergate, and returns what it prints.
func (s *stack) operator(file string, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.Build("./cmd/sidecar", false), append(args, "--config", file)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("ordergate %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestForcedRelease takes the lock of a settlement that runs away: every ordergate logs who
// did it and why, and counts it, and the command shows it later.
func TestForcedRelease(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	file := commandFile(t, s)
	forced := `ordergate_lock_forced_total{lock="settlement"}`
	if n := s.metric(forced); n != "0" {
		t.Errorf("%s forced releases at the start", n)
	}
	running := s.hang(b, "POST", "/orders/5/settle", "")
	bedtest.Eventually(t, "the holder is on record", func() bool {
		return matches(s.operator(file, "locks", "show", "order:lock:5"), "request    commission-settle ...")
	})
	s.operator(file, "locks", "release", "--yes", "--reason", "ticket 4711: the pod\nis gone", "order:lock:5")
	s.wantLogged(`"a lock was released by hand"`, "who=", "@", "lock=settlement", "key=order:lock:5", `ticket 4711: the pod\nis gone`, "commission-settle")
	bedtest.Eventually(t, "it is counted", func() bool { return s.metric(forced) == "1" })
	shown := s.operator(file, "locks", "audit")
	if !matches(shown, `...Z  ...@...  released  order:lock:5 (settlement)  ...  commission-settle...  ticket 4711: the pod\x0ais gone`) {
		t.Errorf("the audit:\n%s", shown)
	}
	b.goOn()
	running.wantAnswer(t)

	// One that starts later counts what comes from then on.
	other := s.second(settings{backend: b.addr(), orders: 10})
	bedtest.Eventually(t, "both count it", func() bool {
		must(t, s.redis.HSet(t.Context(), "order:lock:6", "0b0dd1f4-6d29-4d4b-8c7f-d5b8b1b8c7e1:52", 1).Err())
		s.operator(file, "locks", "release", "--yes", "order:lock:6")
		return s.metric(forced) != "1" && other.metric(forced) != "0"
	})
}

// TestLatchByHand opens a latch by the command. The settlement that it kept back goes on, and
// every ordergate logs who replaced the count and why.
func TestLatchByHand(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: requiring(t, `{latch: "loaders:{id}"}`)})
	file := commandFile(t, s)
	settle := func() answer { return s.must("POST", "/orders/5/settle", "") }
	s.operator(file, "latch", "set", "--rule", "commission-settle", "5", "2")
	settle().want(t, 425, "not_ready")
	s.operator(file, "latch", "count-down", "loaders:5")
	settle().want(t, 425, "not_ready")
	s.operator(file, "latch", "set", "loaders:5", "0", "--replace", "--reason", "loader 2 is gone")
	settle().want(t, 200, "")
	s.wantLogged(`"a latch was set by hand"`, "who=", "@", "key=loaders:5", "count=0", `reason="loader 2 is gone"`)
	if shown := s.operator(file, "locks", "audit"); !matches(shown, `...Z  ...@...  set  loaders:5 (latch, count 0)  -  ...  loader 2 is gone`) {
		t.Errorf("the audit:\n%s", shown)
	}
}

// TestAddedByHand adds orders by the command: the ordergate that serves it logs who did it.
func TestAddedByHand(t *testing.T) {
	t.Parallel()
	s := newStack(t, settings{backend: newBackend(t).addr(), orders: 10, gate: withToken(t)})
	file := commandFile(t, s)
	s.operator(file, "filter", "add", "orders", "11", "12", "--reason", "restored from a backup")
	s.wantLogged(`"order IDs were added by hand"`, "filter=orders", "ids=2", "first=11", "@", `reason="restored from a backup"`)
	if status, text := s.admin("POST", "/filters/orders/ids", `{"ids":["13"]}`, "Authorization", "Bearer "+adminToken); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	s.wantLogged(`"order IDs were added by hand"`, "ids=1", "first=13", "from=127.0.0.1")

	// Without an ordergate: the command speaks to Redis.
	ids := idFile(t, 20)
	s.operator(file, "load", "--filter", "orders", "--csv", ids, "--reason", "imported")
	if shown := s.operator(file, "locks", "audit"); !matches(shown, `...Z  ...@...  loaded  filter orders  -  ...20 IDs ...imported`) {
		t.Errorf("the audit:\n%s", shown)
	}
	s.wantLogged(`"order IDs were added by hand"`, "filter=orders", "ids=20", "reason=imported")
}
