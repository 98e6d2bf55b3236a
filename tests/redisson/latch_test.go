package redisson

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestLatch has Java and ordergate use one countdown latch.
func TestLatch(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		s := newStack(t, testbed.RedissonOptions{})
		testLatch(t, newLatchSide(t, s, "loaders:42"))
		testLatch(t, newLatchSide(t, s, "loaders:{42}:of"))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		s := newClusterStack(t)
		testLatch(t, newLatchSide(t, s, "loaders:42"))
		bracesInCluster(t, s)
	})
}

// latchSide is ordergate's side of a latch, and the Java threads of the other one.
type latchSide struct {
	*stack
	t                    *testing.T
	key, binary, file    string
	java, waiter, looker *testbed.RedissonThread
	require              conditions
}

func newLatchSide(t *testing.T, s *stack, key string) *latchSide {
	t.Helper()
	template := bedtest.Replace(key, "42", "{id}")
	l := &latchSide{
		stack: s, t: t, key: key, binary: s.Build("./cmd/sidecar", false), file: filepath.Join(t.TempDir(), "ordergate.yaml"),
		java: s.thread(), waiter: s.thread(), looker: s.thread(),
		require: newConditions(t, s, `{latch: "`+template+`"}`),
	}
	must(t, os.WriteFile(l.file, []byte(s.settling(`{latch: "`+template+`"}`)), 0o600))
	return l
}

// command runs ordergate latch with the key behind the verb, and checks its output.
func (l *latchSide) command(want, verb string, args ...string) {
	l.t.Helper()
	args = append([]string{"latch", verb, l.key, "--config", l.file}, args...)
	out, err := exec.CommandContext(l.t.Context(), l.binary, args...).CombinedOutput()
	if got := strings.TrimPrefix(strings.TrimSpace(string(out)), l.key+": "); got != want {
		l.t.Errorf("ordergate %q prints %q (%v), want %q", args, got, err, want)
	}
}

// sees checks the count that Java sees, and ordergate's condition.
func (l *latchSide) sees(when string, count int64) {
	l.t.Helper()
	if n := value(l.java.Latch(l.key).Count(l.t.Context()))(l.t); n != count {
		l.t.Errorf("%s: %s: Java counts %d, want %d", l.key, when, n, count)
	}
	if holds := l.require.hold(l.t, "42"); holds != (count == 0) {
		l.t.Errorf("%s: %s: the condition holds: %v, with count %d", l.key, when, holds, count)
	}
}

// await has a Java thread wait until only a message or the end of its patience wakes it.
func (l *latchSide) await() <-chan outcome[bool] {
	l.t.Helper()
	done := background(func() (bool, error) { return l.waiter.Latch(l.key).Await(l.t.Context(), patience) })
	bedtest.Eventually(l.t, "a thread waits for the latch", func() bool {
		return value(l.looker.Waiting(l.t.Context()))(l.t) == 1 && l.channels(l.t, l.key) > 0
	})
	return done
}

// woken checks that a waiter was woken by a message.
func (l *latchSide) woken(by string, done <-chan outcome[bool]) {
	l.t.Helper()
	if !receive(l.t, done) {
		l.t.Errorf("%s: %s did not wake the Java thread", l.key, by)
	}
	bedtest.Eventually(l.t, "nobody listens any more", func() bool { return l.channels(l.t, l.key) == 0 })
}

func testLatch(t *testing.T, l *latchSide) {
	ctx, latch := t.Context(), l.java.Latch(l.key)
	l.sees("at first", 0)
	l.command("open, no key", "show")

	if !value(latch.TrySetCount(ctx, 2))(t) {
		t.Error("Java cannot set a new latch")
	}
	l.sees("set by Java", 2)
	l.command("closed, count 2", "show")
	l.command(`latch: setting latch "`+l.key+`": the latch is set (--replace gives it another count)`, "set", "5")
	waiter := l.await()
	l.command("closed, count 1; waiters notified: 0", "count-down")
	l.sees("counted down once by ordergate", 1)
	l.command("open, no key; waiters notified: 1", "count-down")
	l.woken("latch count-down", waiter)
	l.sees("counted down twice by ordergate", 0)

	l.command("closed, count 1; waiters notified: 0", "set", "1")
	if value(latch.TrySetCount(ctx, 7))(t) {
		t.Error("Java sets a latch that ordergate has set")
	}
	l.sees("set by ordergate", 1)
	waiter = l.await()
	l.command("closed, count 3; waiters notified: 1", "set", "3", "--replace")
	l.sees("replaced by ordergate", 3)
	l.command("open, no key; waiters notified: 1", "set", "0", "--replace")
	l.woken("latch set 0", waiter)
	l.sees("opened by ordergate", 0)

	l.command("closed, count 2; waiters notified: 0", "set", "2")
	must(t, latch.CountDown(ctx))
	l.sees("counted down once by Java", 1)
	must(t, latch.CountDown(ctx))
	l.sees("counted down twice by Java", 0)
	l.command("open, no key", "show")
}

// bracesInCluster has a name with braces, which Redisson cannot use in a cluster: the channel of
// the latch is in another slot. ordergate needs no channel.
func bracesInCluster(t *testing.T, s *stack) {
	l := newLatchSide(t, s, "loaders:{42}:of")
	if ok, err := l.java.Latch(l.key).TrySetCount(t.Context(), 2); err == nil {
		t.Errorf("Java sets a latch with braces in a cluster: %v", ok)
	}
	l.command("closed, count 1; waiters notified: 0", "set", "1")
	l.sees("set by ordergate", 1)
	l.command("open, no key; waiters notified: 0", "count-down")
	l.sees("opened by ordergate", 0)
}
