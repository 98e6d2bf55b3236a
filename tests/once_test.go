package tests

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/headername"
	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestSettleOnce settles orders again: each gets the answer of its first settlement, and
// nothing reaches the backend.
func TestSettleOnce(t *testing.T) {
	t.Parallel()
	s, p := newOnceStack(t)

	t.Run("again", func(t *testing.T) {
		first := s.must("POST", "/orders/1/settle", `{"a":1}`)
		first.want(t, 200, "")
		for range 3 {
			again := s.must("POST", "/orders/1/settle", `{"a":2}`)
			again.want(t, 200, "replayed")
			if again.body != first.body || again.header.Get("Content-Type") != "application/json" {
				t.Errorf("%q, %q; want %q", again.body, again.header, first.body)
			}
			at, err := time.Parse(time.RFC3339, again.header.Get("X-Ordergate-Settled-At"))
			if err != nil || time.Since(at) > time.Minute || again.header.Get("Age") == "" {
				t.Errorf("settled at %v (%v), age %q", at, err, again.header.Get("Age"))
			}
		}
		p.wantPaid(t, "/orders/1/settle", 1)
	})
	t.Run("not acceptable", func(t *testing.T) { // Spring has paid by then
		s.must("POST", "/orders/150/settle?status=406", "").want(t, 406, "")
		s.must("POST", "/orders/150/settle?status=406", "").want(t, 409, "busy")
		p.wantPaid(t, "/orders/150/settle", 1)
	})
	t.Run("headers of one name", func(t *testing.T) {
		for range 2 {
			a := s.must("POST", "/orders/152/both?header=x-multi:a&header=x-multi:b", "")
			if strings.Join(a.header.Values("X-Multi"), " ") != "a b" {
				t.Errorf("%s: %q", a.verdict, a.header.Values("X-Multi"))
			}
		}
	})
	t.Run("without a type", func(t *testing.T) {
		s.must("POST", "/orders/153/settle?untyped", "").want(t, 200, "")
		again := s.must("POST", "/orders/153/settle?untyped", "")
		again.want(t, 200, "replayed")
		if got := again.header.Get("Content-Type"); got != "text/plain" {
			t.Errorf("content type %q", got)
		}
	})
	t.Run("another host", func(t *testing.T) {
		s.must("POST", "/orders/151/settle", "").want(t, 200, "")
		s.must("POST", "/orders/151/settle", "", "Host", "shop.example").want(t, 409, "duplicate")
		p.wantPaid(t, "/orders/151/settle", 1)
	})
	t.Run("crowd", func(t *testing.T) {
		var first, replayed, busy, other atomic.Int32
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				a, err := s.send(t.Context(), "POST", "/orders/2/settle?for=20ms", "")
				switch {
				case err != nil:
					other.Add(1)
				case a.status == 200 && a.verdict == "":
					first.Add(1)
				case a.status == 200 && a.verdict == "replayed" && strings.Contains(a.body, `"payment":1`):
					replayed.Add(1)
				case a.status == 409 && a.verdict == "busy":
					busy.Add(1)
				default:
					other.Add(1)
				}
			})
		}
		wg.Wait()
		t.Logf("first %d, replayed %d, busy %d", first.Load(), replayed.Load(), busy.Load())
		if first.Load() != 1 || other.Load() != 0 {
			t.Errorf("%d first answers, %d others", first.Load(), other.Load())
		}
		p.wantPaid(t, "/orders/2/settle", 1)
	})
	t.Run("not stored", func(t *testing.T) {
		for i, query := range []string{"status=500", "status=404", "break"} {
			path := fmt.Sprintf("/orders/%d/settle", 10+i)
			_, _ = s.send(t.Context(), "POST", path+"?"+query, "")
			if n := s.redis.Exists(t.Context(), redislock.StoredKey(fmt.Sprintf("order:lock:%d", 10+i), "commission")).Val(); n != 0 {
				t.Errorf("%s: stored", query)
			}
			if query == "break" {
				continue // its lock is held
			}
			bedtest.Eventually(t, query+": settled again", func() bool {
				return s.must("POST", path, "").verdict == ""
			})
			p.wantPaid(t, path, 2)
		}
		s.wantLogged("an answer was not stored", "its status 500 is not one of statuses")
	})
	t.Run("done, without an answer", func(t *testing.T) { // the client of each could choose what makes it so
		for i, query := range []string{
			"size=70000", "header=Vary:User-Agent", "header=Vary:*", "gzip&header=Vary:Accept-Encoding", "status=206", "status=303",
		} {
			path := fmt.Sprintf("/orders/%d/settle", 20+i)
			first := s.must("POST", path+"?"+query, "")
			if first.verdict != "" || first.status >= 400 {
				t.Errorf("%s: %d %s", query, first.status, first.verdict)
			}
			var again answer
			bedtest.Eventually(t, query+": its lock is free", func() bool {
				again = s.must("POST", path, "")
				return again.verdict != "busy"
			})
			again.want(t, 409, "duplicate")
			p.wantPaid(t, path, 1)
		}
	})
	t.Run("another caller", func(t *testing.T) {
		first := s.must("POST", "/orders/5/settle", "", "Authorization", "Bearer a", "Cookie", "session=1")
		first.want(t, 200, "")
		for _, other := range [][]string{
			nil, {"Authorization", "Bearer a"}, {"Authorization", "Bearer b", "Cookie", "session=1"}, {"Authorization", "Bearer a", "Cookie", "session=2"},
		} {
			s.must("POST", "/orders/5/settle", "", other...).want(t, 409, "duplicate")
		}
		if again := s.must("POST", "/orders/5/settle", "", "Authorization", "Bearer a", "Cookie", "session=1"); again.verdict != "replayed" || again.body != first.body {
			t.Errorf("the caller got %d %s %s", again.status, again.verdict, again.body)
		}
		p.wantPaid(t, "/orders/5/settle", 1)
	})
	t.Run("stored", func(t *testing.T) {
		for i, query := range []string{"gzip", "status=204", "header=Vary:Accept-Encoding", "header=Vary:Origin", "header=Location:/orders/7", "size=0", "size=65536"} {
			path := fmt.Sprintf("/orders/%d/settle", 30+i)
			first := s.must("POST", path+"?"+query, "", "Accept-Encoding", "gzip")
			again := s.must("POST", path, "", "Accept-Encoding", "gzip")
			again.want(t, first.status, "replayed")
			if again.body != first.body || again.header.Get("Content-Encoding") != first.header.Get("Content-Encoding") || again.header.Get("Location") != first.header.Get("Location") {
				t.Errorf("%s: %q %v, want %q %v", query, again.body, again.header, first.body, first.header)
			}
			p.wantPaid(t, path, 1)
		}
	})
	t.Run("in a browser", func(t *testing.T) {
		path, script := "/orders/80/settle", []string{"Origin", "https://shop.example"}
		s.must("POST", path+"?header=Access-Control-Allow-Origin:https://shop.example&header=Access-Control-Allow-Credentials:true", "", script...).want(t, 200, "")
		again := s.must("POST", path, "", script...)
		again.want(t, 200, "replayed")
		if h := again.header; h.Get("Access-Control-Allow-Origin") != script[1] || h.Get("Access-Control-Allow-Credentials") != "true" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", h)
		}
		s.must("POST", path, "", "Origin", "https://other.example").want(t, 409, "duplicate")
	})
	t.Run("undone", func(t *testing.T) {
		s.must("POST", "/orders/3/settle", "").want(t, 200, "")
		s.must("POST", "/orders/3/undo?status=404", "").want(t, 404, "")
		s.must("POST", "/orders/3/settle", "").want(t, 200, "replayed")
		s.must("POST", "/orders/3/undo?status=303", "").want(t, 303, "")
		s.must("POST", "/orders/3/settle", "").want(t, 200, "")
		p.wantPaid(t, "/orders/3/settle", 2)
		for i, status := range []string{"500", "302", "503"} { // which do not show whether it was undone
			order := fmt.Sprintf("/orders/%d/", 70+i)
			s.must("POST", order+"settle", "").want(t, 200, "")
			if a := s.must("POST", order+"undo?status="+status, ""); fmt.Sprint(a.status) != status {
				t.Fatalf("the undo: %d", a.status)
			}
			must(t, s.redis.Del(t.Context(), fmt.Sprintf("order:lock:%d", 70+i)).Err()) // a hold ends
			s.must("POST", order+"settle", "").want(t, 409, "duplicate")
			s.must("POST", order+"undo", "").want(t, 200, "")
			s.must("POST", order+"settle", "").want(t, 200, "")
			p.wantPaid(t, order+"settle", 2)
		}
	})
	t.Run("forgotten by hand", func(t *testing.T) {
		file := commandFile(t, s)
		s.must("POST", "/orders/4/settle", "").want(t, 200, "")
		if shown := s.operator(file, "once", "show", "4"); !strings.Contains(shown, ", status 200") || strings.Contains(shown, "payment") {
			t.Errorf("shown: %s", shown)
		}
		if text := s.operator(file, "once", "forget", "4"); !strings.Contains(text, "{order:lock:4}:ordergate_once:commission: forgotten") {
			t.Errorf("forgotten: %s", text)
		}
		if text := s.operator(file, "once", "forget", "4"); text != "no answer is stored\n" {
			t.Errorf("forgotten again: %s", text)
		}
		s.must("POST", "/orders/4/settle", "").want(t, 200, "")
		p.wantPaid(t, "/orders/4/settle", 2)
	})
	t.Run("batch", func(t *testing.T) {
		batch := func(ids, verdict string, status int) answer {
			t.Helper()
			a := s.must("POST", "/batch", `{"ids":[`+ids+`]}`, "Content-Type", jsonBody)
			a.want(t, status, verdict)
			return a
		}
		first := batch("50,51,52", "", 200)
		if again := batch("52,50,51", "replayed", 200); again.body != first.body {
			t.Errorf("%q, want %q", again.body, first.body)
		}
		batch("50,51", "duplicate", 409)
		batch("51,60", "duplicate", 409)
		s.must("POST", "/orders/51/settle", "").want(t, 409, "duplicate")
		s.must("POST", "/orders/60/settle", "").want(t, 200, "")
		batch("60,61", "duplicate", 409)
		s.must("POST", "/orders/61/settle", "").want(t, 200, "")
		p.wantPaid(t, "/batch", 1)
	})
	t.Run("metrics", func(t *testing.T) {
		for _, result := range []string{"stored", "replayed", "forgotten", "status", "too_large", "unfit", "duplicate"} {
			found := false
			for _, rule := range []string{"commission-settle", "batch", "undo"} {
				found = found || s.metric(fmt.Sprintf(`ordergate_once_total{result=%q,rule=%q}`, result, rule)) != ""
			}
			if !found {
				t.Errorf("nothing is counted as %s", result)
			}
		}
	})
}

// TestIdempotencyKey repeats calls by a key that the client makes.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s, p := newOnceStack(t)
	pay := func(body, key string, header ...string) answer {
		t.Helper()
		return s.must("POST", "/payments", body, append([]string{"Idempotency-Key", key}, header...)...)
	}
	first := pay("10", `"k-1"`)
	first.want(t, 200, "")
	for _, key := range []string{`"k-1"`, "k-1", `"k\-1"`} {
		again := pay("10", key)
		if key == `"k\-1"` { // no such escape
			again.want(t, 400, "invalid")
			continue
		}
		again.want(t, 200, "replayed")
		if again.body != first.body {
			t.Errorf("%q, want %q", again.body, first.body)
		}
	}
	for name, refused := range map[string]answer{
		"another body": pay("11", "k-1"), "another target": s.must("POST", "/payments?x=1", "10", "Idempotency-Key", "k-1"),
		"another host": pay("10", "k-1", "Host", "other.example"),
	} {
		if refused.status != 422 || refused.verdict != "mismatch" || refused.header.Get("Content-Type") != "application/problem+json" || !strings.Contains(refused.body, "docs/once.md") {
			t.Errorf("%s: %d %s %s", name, refused.status, refused.verdict, refused.body)
		}
	}
	missing := s.must("POST", "/payments", "10")
	if missing.status != 400 || missing.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("without a key: %d %v", missing.status, missing.header)
	}
	for _, key := range []string{strings.Repeat("k", 256), strings.Repeat("k", 10_000), "a b", "a,b", `"`, `""`, `"a`, `a"b`, "\x7f", "ä"} {
		a, err := s.send(t.Context(), "POST", "/payments", "10", "Idempotency-Key", key)
		if err == nil && a.status != 400 && a.status != 431 {
			t.Errorf("key %.20q: %d %s", key, a.status, a.verdict)
		}
	}
	a, err := s.send(t.Context(), "POST", "/payments", "10", "Idempotency-Key", "k-1", "Idempotency-Key", "k-2")
	if err != nil || a.status != 400 {
		t.Errorf("two keys: %d %v", a.status, err)
	}
	for _, alias := range []string{"X.Tenant", "Idempotency.Key"} {
		if a := pay("10", "k-1", alias, "b"); a.status != 400 {
			t.Errorf("beside %s: %d %s", alias, a.status, a.verdict)
		}
	}
	// Another tenant and another login have keys of their own.
	pay("10", "k-1", "X-Tenant", "b").want(t, 200, "")
	pay("10", "k-1", "Authorization", "Bearer b").want(t, 200, "")
	pay("10", "k-1", "Authorization", "Bearer b").want(t, 200, "replayed")
	p.wantPaid(t, "/payments", 3)

	// What is stored, by status.
	for status, verdict := range map[int]string{404: "replayed", 400: "replayed", 401: "", 403: "", 409: "", 429: "", 408: "", 425: "", 500: ""} {
		key, path := fmt.Sprint("s-", status), fmt.Sprintf("/payments?status=%d", status)
		s.must("POST", path, "10", "Idempotency-Key", key).want(t, status, "")
		var again answer
		bedtest.Eventually(t, "the first call has ended", func() bool {
			again = s.must("POST", path, "10", "Idempotency-Key", key)
			return again.verdict != "in_use"
		})
		again.want(t, status, verdict)
	}

	// The first is running: 409 at once, and its answer afterwards.
	paid := p.paid("/payments")
	done := make(chan answer, 1)
	go func() {
		a, _ := s.send(t.Context(), "POST", "/payments?hang", "10", "Idempotency-Key", "k-9")
		done <- a
	}()
	bedtest.Eventually(t, "the first call runs", func() bool { return p.paid("/payments") == paid+1 })
	inUse := s.must("POST", "/payments?hang", "10", "Idempotency-Key", "k-9")
	if inUse.status != 409 || inUse.verdict != "in_use" || inUse.header.Get("Retry-After") == "" {
		t.Errorf("in use: %d %s %v", inUse.status, inUse.verdict, inUse.header)
	}
	close(p.release)
	(<-done).want(t, 200, "")
	s.must("POST", "/payments?hang", "10", "Idempotency-Key", "k-9").want(t, 200, "replayed")
}

// TestDoubleClick sends the same note twice at once: one is made, and both callers get its
// answer. A later one is a new note.
func TestDoubleClick(t *testing.T) {
	t.Parallel()
	s, p := newOnceStack(t)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if a, err := s.send(t.Context(), "POST", "/notes?for=50ms", "hello", "X-User", "a"); err != nil || a.status != 200 {
				t.Errorf("%d %v", a.status, err)
			}
		})
	}
	wg.Wait()
	p.wantPaid(t, "/notes", 1)
	s.must("POST", "/notes", "hello", "X-User", "b").want(t, 200, "")
	s.must("POST", "/notes", "other", "X-User", "b").want(t, 200, "")
	s.must("POST", "/notes", "other").want(t, 200, "")
	s.must("POST", "/notes", "other").want(t, 200, "") // no user, no key
	p.wantPaid(t, "/notes", 5)
	bedtest.Eventually(t, "the note is forgotten", func() bool {
		return s.must("POST", "/notes", "hello", "X-User", "b").verdict == ""
	})
}

// TestOnceBoth has a key and an order: the key's answer is the caller's own, and the order is
// settled once for all keys.
func TestOnceBoth(t *testing.T) {
	t.Parallel()
	s, p := newOnceStack(t)
	s.must("POST", "/orders/1/both", "a", "Idempotency-Key", "k1").want(t, 200, "")
	s.must("POST", "/orders/1/both", "a", "Idempotency-Key", "k1").want(t, 200, "replayed")
	s.must("POST", "/orders/1/both", "b", "Idempotency-Key", "k1").want(t, 422, "mismatch")
	s.must("POST", "/orders/1/both", "b", "Idempotency-Key", "k2").want(t, 200, "replayed")
	s.must("POST", "/orders/1/both", "b").want(t, 200, "replayed")
	p.wantPaid(t, "/orders/1/both", 1)
	s.must("POST", "/orders/1/undo", "").want(t, 200, "")
	s.must("POST", "/orders/1/both", "a", "Idempotency-Key", "k1").want(t, 409, "duplicate")
	p.wantPaid(t, "/orders/1/both", 1)
	s.must("POST", "/orders/1/both", "a", "Idempotency-Key", "k3").want(t, 200, "")
	s.must("POST", "/orders/1/both", "a", "Idempotency-Key", "k3").want(t, 200, "replayed")
	p.wantPaid(t, "/orders/1/both", 2)
	s.must("POST", "/orders/1/refund", "", "Idempotency-Key", "r1").want(t, 200, "")
	s.must("POST", "/orders/1/refund", "", "Idempotency-Key", "r1").want(t, 200, "replayed")
	p.wantPaid(t, "/orders/1/refund", 1)
	s.must("POST", "/orders/1/refund?size=70000", "", "Idempotency-Key", "r2").want(t, 200, "")
	s.must("POST", "/orders/1/refund?size=70000", "", "Idempotency-Key", "r2").want(t, 409, "duplicate")
	if got := p.headers["x-ordergate-key"]; got != "order:lock:1" {
		t.Errorf("the backend saw key %q", got)
	}
	for _, key := range s.redis.Keys(t.Context(), "ordergate:once:*").Val() {
		if strings.Contains(key, "k1") {
			t.Errorf("Redis shows the key of a client: %s", key)
		}
	}
}

// TestOnceWithoutRedis refuses calls while Redis is away.
func TestOnceWithoutRedis(t *testing.T) {
	t.Parallel()
	s, p := newOnceStack(t)
	s.must("POST", "/orders/1/settle", "").want(t, 200, "")
	must(t, s.server.Stop())
	s.must("POST", "/orders/1/settle", "").want(t, http.StatusServiceUnavailable, "unavailable")
	s.must("POST", "/payments", "10", "Idempotency-Key", "k").want(t, http.StatusServiceUnavailable, "unavailable")
	p.wantPaid(t, "/orders/1/settle", 1)
	p.wantPaid(t, "/payments", 0)
}

// TestOnceWhileRedisHangs has Redis hang while the backend works. The client gets its answer, and
// so does the next one, once Redis is back.
func TestOnceWhileRedisHangs(t *testing.T) {
	t.Parallel()
	s, p := newOnceStack(t)
	answered := make(chan answer, 1)
	go func() { answered <- s.must("POST", "/orders/1/settle?hang", "") }()
	bedtest.Eventually(t, "the backend works", func() bool { return p.paid("/orders/1/settle") == 1 })
	must(t, s.server.Pause())
	close(p.release)
	first := <-answered
	first.want(t, 200, "")
	must(t, s.server.Resume())
	var again answer
	bedtest.Eventually(t, "the answer is given again", func() bool {
		again = s.must("POST", "/orders/1/settle", "")
		return again.verdict == "replayed"
	})
	if again.body != first.body {
		t.Errorf("%q, want %q", again.body, first.body)
	}
	p.wantPaid(t, "/orders/1/settle", 1)
}

// TestOncePlainAnswers has clients ask for encoded answers by names that PHP takes for
// Accept-Encoding, or for a form that it may not have. The backend gets none of the former, and
// may answer the latter in any form.
func TestOncePlainAnswers(t *testing.T) {
	t.Parallel()
	s, p := newOnceStack(t)
	for i, h := range [][2]string{{"Accept-Encoding", "gzip"}, {"Accept.Encoding", "gzip"}, {"Accept", "text/xml"}} {
		s.must("POST", fmt.Sprintf("/orders/%d/settle", 1+i), "", h[0], h[1]).want(t, 200, "")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, header := range p.received {
		for name := range header {
			if headername.Equal(name, "Accept-Encoding") {
				t.Errorf("call %d has %s", i+1, name)
			}
		}
	}
	if got := p.received[2].Values("Accept"); !slices.Equal(got, []string{"text/xml, */*;q=0.1"}) {
		t.Errorf("a settlement has Accept %q", got)
	}
}
