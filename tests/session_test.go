package tests

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestSettleBySession settles what only the session names, through two ordergates.
func TestSettleBySession(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("a secret of 26 characters.\n"), 0o600))
	p := newPayer(t)
	bySession := settings{backend: p.addr(), orders: 10, gate: func(yaml string) string {
		return bedtest.Replace(shortLease(yaml), "\nlocks:\n", "\nlocks:\n  session: {key: \"session:lock:{id}\", wait: {up_to: 10s}, secret_file: "+secret+"}\n") + `
  - name: confirm
    match: {methods: [POST], path: /confirm}
    settle: {lock: session, by: [{cookie: OCSESSID}], once: {for: 2s}}
  - name: any
    match: {methods: [POST], path: /any}
    settle: {lock: session, by: [{cookie: OCSESSID}], once: {fingerprint: none}}
  - name: turn
    match: {methods: [POST], path: /turn}
    settle: {lock: session, by: [{cookie: OCSESSID}], once: {for: 0s}}
  - name: tenant-confirm
    match: {methods: [POST], path: /tenant/confirm}
    settle: {lock: session, by: [{cookie: OCSESSID}, {header: x-tenant}]}
`
	}}
	s := newStack(t, bySession)
	both := []*stack{s, s.second(bySession)}
	const session = "0a1b2c3d4e5f60718293a4b5c6"

	t.Run("one after the other", func(t *testing.T) {
		for i := range 10 {
			both[i%2].must("POST", "/turn", "", "Cookie", "OCSESSID="+session).want(t, 200, "")
		}
		p.wantPaid(t, "/turn", 10)
	})
	t.Run("a failure is not repeated", func(t *testing.T) {
		both[0].must("POST", "/confirm?status=500", "", "Cookie", "OCSESSID="+session).want(t, 500, "")
		both[1].must("POST", "/confirm?status=500", "", "Cookie", "OCSESSID="+session).want(t, 500, "")
	})
	t.Run("at once", func(t *testing.T) {
		for round := range 3 {
			var first, replayed, other atomic.Int32
			before := p.paid("/confirm")
			var wg sync.WaitGroup
			for i := range 40 {
				cookie := "OCSESSID=" + session
				if i%3 == 0 { // many databases compare so
					cookie = "OCSESSID=" + strings.ToUpper(session)
				}
				wg.Go(func() {
					a, err := both[i%2].send(t.Context(), "POST", "/confirm?for=500ms", "", "Cookie", cookie, "Host", "shop.example")
					switch {
					case err == nil && a.status == 200 && a.verdict == "":
						first.Add(1)
					case err == nil && a.status == 200 && a.verdict == "replayed":
						replayed.Add(1)
					default:
						t.Logf("%v %d %s", err, a.status, a.verdict)
						other.Add(1)
					}
				})
			}
			wg.Wait()
			answered := time.Now()
			if first.Load() != 1 || replayed.Load() != 39 || p.paid("/confirm") != before+1 {
				t.Errorf("round %d: %d first, %d replayed, %d others", round, first.Load(), replayed.Load(), other.Load())
			}
			// What comes later is a repeat for 2 seconds, and then the next order's.
			for i := 0; p.paid("/confirm") == before+1; i++ {
				both[i%2].must("POST", "/confirm?for=500ms", "", "Cookie", "OCSESSID="+session, "Host", "shop.example")
				if t.Failed() || time.Since(answered) > 10*time.Second {
					t.Fatalf("round %d: the next order was not confirmed", round)
				}
			}
			if took := time.Since(answered) - 500*time.Millisecond; took < 1500*time.Millisecond {
				t.Errorf("round %d: the next order's confirmation ran after %v", round, took)
			}
			time.Sleep(2 * time.Second) // the next round is another order's
		}
	})
	t.Run("another request waits and runs", func(t *testing.T) {
		before := p.paid("/confirm")
		var wg sync.WaitGroup
		for _, body := range []string{"a", "b", "c"} {
			wg.Go(func() {
				s.must("POST", "/confirm?for=100ms", body, "Cookie", "OCSESSID="+session).want(t, 200, "")
			})
		}
		wg.Wait()
		if n := p.paid("/confirm") - before; n != 3 {
			t.Errorf("%d ran", n)
		}
	})
	t.Run("a repeat with another time of jQuery", func(t *testing.T) {
		before := p.paid("/confirm")
		for _, target := range []string{"/confirm?a=b&_=1", "/confirm?_=2&a=b", "/confirm?a=b"} {
			if a := s.must("POST", target, "", "Cookie", "OCSESSID=jquery"); a.status != 200 {
				t.Errorf("%s: %d %s", target, a.status, a.verdict)
			}
		}
		if n := p.paid("/confirm") - before; n != 1 {
			t.Errorf("%d ran", n)
		}
	})
	t.Run("any request is a repeat", func(t *testing.T) {
		for _, body := range []string{"a", "b"} {
			if a := s.must("POST", "/any", body, "Cookie", "OCSESSID="+session); a.status != 200 {
				t.Errorf("%s: %d %s", body, a.status, a.verdict)
			}
		}
		p.wantPaid(t, "/any", 1)
	})
	t.Run("no session", func(t *testing.T) {
		for _, cookie := range []string{"a=b", "OCSESSID=", "OCSESSID=%61", "OCSESSID=a+b", "OCSESSID=a=b", "OCSESSID=a; OCSESSID=b", `OCSESSID="a"`} {
			if a := s.must("POST", "/confirm", "", "Cookie", cookie); a.status != 400 {
				t.Errorf("%s: %d %s", cookie, a.status, a.verdict)
			}
		}
		s.must("POST", "/tenant/confirm", "", "Cookie", "OCSESSID="+session).want(t, 400, "invalid")
		s.must("POST", "/tenant/confirm", "", "Cookie", "OCSESSID="+session, "X-Tenant", "acme").want(t, 200, "")
	})
	t.Run("in Redis", func(t *testing.T) {
		fences := 0
		for _, key := range s.redis.Keys(t.Context(), "*").Val() {
			value, _ := s.redis.Dump(t.Context(), key).Result()
			if strings.Contains(strings.ToLower(key+value), session) {
				t.Errorf("%s shows the session", key)
			}
			if strings.Contains(key, "session:lock:") && !strings.Contains(key, "ordergate/probe") {
				if ttl := s.redis.PTTL(t.Context(), key).Val(); ttl == -1 || ttl > 90*time.Second { // the lock may be gone by now
					t.Errorf("%s stays for %v", key, ttl)
				}
				fences++
			}
		}
		if fences == 0 {
			t.Error("there is no fence")
		}
	})
}
