package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestForeignKeys has something else at the key of an order's lock. Its settlement
// is refused and the key left alone; those of other orders go on.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	const key = "order:lock:1"
	for _, tt := range []struct {
		name, kind, path string
		put              func(*testing.T, redis.UniversalClient)
		says             string
	}{
		{"a list", "kind: exclusive", "/orders/1/settle", pushed, "WRONGTYPE"},
		{"a list at one key of a batch", "kind: exclusive", "/batch", pushed, "holds a list"},
		{"a string", "kind: fair", "/orders/1/settle", func(t *testing.T, c redis.UniversalClient) {
			must(t, c.Set(t.Context(), key, "worker-7", 0).Err())
		}, "WRONGTYPE"},
		{"a reader's lock", "kind: exclusive", "/orders/1/settle", taken(redislock.Read, key), "read-write lock"},
		{"an exclusive lock", "kind: write", "/orders/1/settle", taken(redislock.Exclusive, key), "no read-write lock"},
		{"a lock in Redisson's format", "format: string", "/orders/1/settle", taken(redislock.Exclusive, key), "WRONGTYPE"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			s := newStack(t, settings{backend: b.addr(), orders: 10, gate: both(ofKind(t, tt.kind), withBatch)})
			tt.put(t, s.redis)
			before := s.redis.Dump(t.Context(), key).Val()

			body := ""
			if tt.path == "/batch" {
				body = `{"ids":[3,1]}`
			}
			settle := func(lease string) answer {
				return s.must("POST", tt.path, body, "Content-Type", jsonBody, leaseHeader, lease)
			}
			settle("").want(t, 503, "unavailable")
			settle("somebody:1").want(t, 503, "unavailable")
			if n := len(b.seen()); n != 0 {
				t.Errorf("%d unlocked settlements reached the backend", n)
			}
			if s.redis.Dump(t.Context(), key).Val() != before {
				t.Error("what was at the key has changed")
			}
			status, reasons := s.readiness()
			if reason := reasons["lock settlement"]; status != 200 || !strings.Contains(reason, tt.says) || !strings.Contains(reason, "order:lock:") {
				t.Errorf("readiness %d, %q: want 200, and %q of the key", status, reason, tt.says)
			}
			s.wantLogged(`"settlement refused"`, "something else than this kind of lock")
			s.must("POST", "/orders/2/settle", "").want(t, 200, "")
			s.must("POST", "/orders/3/settle", "").want(t, 200, "") // the batch took none

			must(t, s.redis.Del(t.Context(), key).Err())
			settle("").want(t, 200, "")
		})
	}
}

// TestForeignPermit has something else at the key of a limit.
func TestForeignPermit(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: limited(t, 1)})
	taken(redislock.Exclusive, "merchant:settling:7")(t, s.redis)
	s.ofMerchant("7", "/orders/1/settle").want(t, 503, "unavailable")
	s.wantFate("1", released)
	if n := len(b.seen()); n != 0 {
		t.Errorf("%d settlements reached the backend", n)
	}
	if status, reasons := s.readiness(); status != 200 || !strings.Contains(reasons["lock merchants"], "merchant:settling:7") {
		t.Errorf("readiness %d: %q", status, reasons)
	}
	s.ofMerchant("8", "/orders/1/settle").want(t, 200, "")
}

// TestRefusedUser has a Redis whose access control lets ordergate do nothing but
// take locks, then all, then not that once more.
func TestRefusedUser(t *testing.T) {
	t.Parallel()
	const user, password = "gate", "a-password"
	b, bed := newBackend(t), bedtest.New(t)
	server := bed.Redis("--user", user, "on", ">"+password, "~*", "&*", "+@all", "-eval", "-evalsha")
	operator := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = operator.Close() })
	permit := func(rules ...any) {
		t.Helper()
		must(t, operator.Do(t.Context(), append([]any{"acl", "setuser", user}, rules...)...).Err())
	}
	file := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(file, []byte(password), 0o600))
	section := fmt.Sprintf("addresses: [%s]\n  username: %s\n  password_file: %s", server.Addr(), user, file)
	s := stackOn(t, bed, server, section, settings{backend: b.addr(), orders: 10, unready: true})

	refused := func() bool {
		status, reasons := s.readiness()
		reason := reasons["lock settlement"]
		return status == 503 && strings.HasPrefix(reason, "settlements are refused: redis does not serve locks: ") && strings.Contains(reason, "NOPERM")
	}
	bedtest.Eventually(t, "it is named before the first settlement", refused)
	s.wantLogged(`"no lock can be taken"`, "NOPERM")
	s.must("POST", "/orders/1/settle", "").want(t, 503, "unavailable")
	s.wantLogged(`"settlement refused"`, "NOPERM")
	s.must("GET", "/orders/1", "").want(t, 200, "")
	if n := b.arrived("/orders/1/settle"); n != 0 {
		t.Errorf("%d unlocked settlements reached the backend", n)
	}

	permit("+eval", "+evalsha")
	// Nobody settles, so it is ordergate that finds out.
	bedtest.Eventually(t, "ready", func() bool { status, _ := s.readiness(); return status == 200 })
	s.wantLogged(`"locks can be taken again"`, "settlement")
	s.must("POST", "/orders/1/settle", "").want(t, 200, "")
	bedtest.Eventually(t, "its lock is released", func() bool { // which says that locks are served
		return s.metric(`ordergate_lock_hold_seconds_count{lock="settlement"}`) == "1"
	})

	permit("-eval", "-evalsha")
	s.must("POST", "/orders/2/settle", "").want(t, 503, "unavailable")
	if !refused() {
		t.Error("still ready")
	}
	if n := b.arrived("/orders/2/settle"); n != 0 {
		t.Errorf("%d unlocked settlements reached the backend", n)
	}
}

// pushed makes the key of order 1 a list.
func pushed(t *testing.T, c redis.UniversalClient) {
	must(t, c.RPush(t.Context(), "order:lock:1", "x").Err())
}

// taken has another service hold a lock of another kind.
func taken(kind redislock.Kind, key string) func(*testing.T, redis.UniversalClient) {
	return func(t *testing.T, c redis.UniversalClient) {
		locker, err := redislock.New(c, redislock.Options{Kind: kind})
		must(t, err)
		defer locker.Close() // which leaves the lock to end by itself, in 30 s
		_, err = locker.Acquire(t.Context(), key)
		must(t, err)
	}
}

// wantLogged waits for a line of ordergate's log that has all the texts.
func (s *stack) wantLogged(texts ...string) {
	s.t.Helper()
	bedtest.Eventually(s.t, fmt.Sprintf("a line of the log with %q", texts), func() bool {
		log, err := os.ReadFile(s.gate.Output())
		must(s.t, err)
		for line := range strings.Lines(string(log)) {
			has := true
			for _, text := range texts {
				has = has && strings.Contains(line, text)
			}
			if has {
				return true
			}
		}
		return false
	})
}

// TestRefusalsAreLoggedInALine has a Redis that is out of reach for many settlements.
func TestRefusalsAreLoggedInALine(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s, w := breakable(t, settings{backend: b.addr(), orders: 100, gate: shortLease})
	s.must("POST", "/orders/1/settle", "").want(t, 200, "")
	w.set(cut)
	const refused = 20
	for i := range refused {
		s.must("POST", fmt.Sprintf("/orders/%d/settle", i+1), "").want(t, 503, "unavailable")
	}
	s.wantLogged("settlement refused", "order:lock:")
	log, err := os.ReadFile(s.gate.Output())
	must(t, err)
	if n := strings.Count(string(log), `msg="settlement refused"`); n != 1 {
		t.Errorf("%d lines for %d refused settlements, want 1", n, refused)
	}
	w.set(whole)
	bedtest.Eventually(t, "settlements are served", func() bool {
		return s.must("POST", "/orders/1/settle", "").status == 200
	})
}
