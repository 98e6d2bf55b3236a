package tests

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestConditionsThatCannotBeChecked has a user of Redis without the right to the key of a
// condition, and then a key that holds something else: readiness and the log name the condition.
func TestConditionsThatCannotBeChecked(t *testing.T) {
	t.Parallel()
	b, bed := newBackend(t), bedtest.New(t)
	server := bed.Redis("--user", "gate", "on", ">a-password", "~order:lock:*", "~{order:lock:*", "~redisson_*", "~ordergate:*", "~open:*", "&*", "+@all")
	operator := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = operator.Close() })
	file := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(file, []byte("a-password"), 0o600))
	section := fmt.Sprintf("addresses: [%s]\n  username: gate\n  password_file: %s", server.Addr(), file)
	s := stackOn(t, bed, server, section, settings{backend: b.addr(), orders: 10, unready: true,
		gate: edit(t, settleAction, `settle: {lock: settlement, require: [{missing: "open:{id}"}, {latch: "loaders:{id}"}]}`)})

	bedtest.Eventually(t, "the key is named before the first settlement", func() bool {
		status, reasons := s.readiness()
		const reason = "settlements are refused: condition latch, key loaders:ordergate-probe: NOPERM"
		return status == http.StatusServiceUnavailable && strings.HasPrefix(reasons["conditions of rule commission-settle"], reason)
	})
	s.wantLogged(`"no settlement can pass: a condition cannot be checked"`, "condition=latch key=loaders:ordergate-probe", "NOPERM")
	s.must("POST", "/orders/1/settle", "").want(t, 503, "unavailable")
	s.wantLogged(`"settlement refused"`, "rule=commission-settle order=1", "condition=latch key=loaders:1", "NOPERM")
	if got := s.metric(`ordergate_condition_total{condition="latch",result="unavailable",rule="commission-settle"}`); got != "1" {
		t.Errorf("%s checks of the latch failed, want 1", got)
	}
	if n := b.arrived("/orders/1/settle"); n != 0 {
		t.Errorf("%d settlements passed unchecked", n)
	}

	must(t, operator.Do(t.Context(), "acl", "setuser", "gate", "~loaders:*").Err())
	bedtest.Eventually(t, "ready", func() bool { status, _ := s.readiness(); return status == http.StatusOK })
	s.must("POST", "/orders/1/settle", "").want(t, 200, "")
}

// TestConditionOfAnotherType has a key of one order that holds something else. The line about the
// refused settlement names it.
func TestConditionOfAnotherType(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: requiring(t, `{time: {}}, {latch: "loaders:{id}"}`)})
	must(t, s.redis.RPush(t.Context(), "loaders:7", "a").Err())
	s.must("POST", "/batch", `{"ids":[6,7]}`, "Content-Type", jsonBody).want(t, 503, "unavailable")
	s.wantLogged(`"settlement refused"`, "rule=batch", "condition=latch key=loaders:7", "WRONGTYPE")
	s.wantLogged(`"a condition cannot be checked, and settlements are refused"`, "condition=latch", "key=loaders:{id}")
	if status, reasons := s.readiness(); status != http.StatusOK || reasons["conditions of rule batch"] != "" {
		t.Errorf("the key of one order: %d, %q", status, reasons)
	}
	s.must("POST", "/orders/6/settle", "").want(t, 200, "")
}
