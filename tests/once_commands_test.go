package tests

import (
	"context"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestHeldKey has the client of the first call with a key leave. An operator sees the lock of the
// key, and releases it. The next call with the key then reaches the backend.
func TestHeldKey(t *testing.T) {
	t.Parallel()
	s, p := newOnceStack(t)
	file := commandFile(t, s)
	const path = "/payments?hang"
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = s.send(ctx, "POST", path, "", "idempotency-key", "k")
	}()
	bedtest.Eventually(t, "the backend has the call", func() bool { return p.paid("/payments") == 1 })
	leave()
	<-left
	row := regexp.MustCompile(`(?m)^(ordergate:once:payment:\S+) +exclusive .* payment .*; left held: `)
	var listed string
	bedtest.Eventually(t, "the lock is held", func() bool {
		listed = s.operator(file, "locks", "list")
		return row.MatchString(listed)
	})
	s.must("POST", path, "", "idempotency-key", "k").want(t, 409, "in_use")
	key := row.FindStringSubmatch(listed)[1]
	if out := s.operator(file, "explain", "--live", "POST "+path, "-H", "idempotency-key: k"); !strings.Contains(out, "\nlock now     "+key+": held by ") {
		t.Errorf("explain --live of another call with the key:\n%s", out)
	}
	if out := s.operator(file, "locks", "show", key); !strings.Contains(out, "lock         once:payment (exclusive") || !strings.Contains(out, "left held  its call is over; ") {
		t.Errorf("locks show:\n%s", out)
	}
	s.operator(file, "locks", "release", "--yes", "--reason", "the client is gone", key)
	close(p.release)
	s.must("POST", path, "", "idempotency-key", "k").want(t, 200, "")
	p.wantPaid(t, "/payments", 2)
	s.wantLogged(`"a lock was released by hand"`, "lock=once:payment", "key="+key, `reason="the client is gone"`)
	bedtest.Eventually(t, "it is counted", func() bool { return s.metric(`ordergate_lock_forced_total{lock="once:payment"}`) == "1" })
}

// TestCommandsReadIDs gives the commands an ID as a person copies it: the order's latch, its stored
// answer and its lock are those of its requests.
func TestCommandsReadIDs(t *testing.T) {
	t.Parallel()
	const upper = "6F1C2B3A-9A01-4C2D-8E3F-0123456789AB"
	lower := strings.ToLower(upper)
	p := newPayer(t)
	s := newStack(t, settings{backend: p.addr(), orders: 10, gate: both(withOnceAndTenants(t),
		edit(t, "settle: {lock: tenants, once: {keep: 1h}}", `settle: {lock: tenants, once: {keep: 1h}, require: [{latch: "loaders:{tenant}/{id}"}]}`))})
	file := commandFile(t, s)
	settle := func() answer { return s.must("POST", "/tenants/"+upper, "", "x-tenant", "acme") }

	s.operator(file, "latch", "set", "--rule", "tenant", "acme/"+upper, "1")
	settle().want(t, 425, "not_ready")
	s.operator(file, "latch", "count-down", "loaders:acme/"+lower)
	settle().want(t, 200, "")
	settle().want(t, 200, "replayed")
	p.wantPaid(t, "/tenants/"+upper, 1)

	const key = "{tenant:lock:acme/6f1c2b3a-9a01-4c2d-8e3f-0123456789ab}:ordergate_once:tenant"
	if out := s.operator(file, "once", "show", "acme/"+upper); !matches(out, "tenant of lock tenants  "+key+": stored by rule tenant at ...Z, ... ago, status 200") {
		t.Errorf("once show: %s", out)
	}
	if out := s.operator(file, "once", "forget", "acme/"+upper); !matches(out, "tenant of lock tenants  "+key+": forgotten") {
		t.Errorf("once forget: %s", out)
	}
	settle().want(t, 200, "")
	p.wantPaid(t, "/tenants/"+upper, 2)
	if out := s.operator(file, "locks", "show", "--lock", "tenants", "acme/"+upper); !strings.Contains(out, "\nkey          tenant:lock:acme/"+lower+"\n") {
		t.Errorf("locks show: %s", out)
	}

	for _, args := range []string{
		"once show " + lower, "once forget Acme/" + lower, "once show nonsense", "once forget 042", "once show --lock nosuch 1",
		"latch set --rule tenant acme/42 1", "latch set loaders:acme/" + upper + " 1", "locks show --lock tenants " + lower, "locks release --yes --lock settlement 042",
	} {
		cmd := exec.CommandContext(t.Context(), s.Build("./cmd/sidecar", false), append(strings.Fields(args), "--config", file)...)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 2 || strings.Count(string(out), "\n") != 1 {
			t.Errorf("ordergate %s: %v, %s", args, err, out)
		}
	}
}
