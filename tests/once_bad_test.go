package tests

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/codes"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// wantStored checks how many answers Redis has.
func (s *stack) wantStored(t testing.TB, what string, n int) {
	t.Helper()
	keys, err := s.redis.Keys(t.Context(), "*:ordergate_once:*").Result()
	must(t, err)
	if len(keys) != n {
		t.Errorf("%s: stored are %q, want %d", what, keys, n)
	}
}

// TestOnceOddAnswers has answers that are stored as they are, or of which only what was done is
// stored: of an order and of a key.
func TestOnceOddAnswers(t *testing.T) {
	t.Parallel()
	p := newPayer(t)
	s := newStack(t, settings{backend: p.addr(), orders: 100, envoy: overHTTP2, gate: onceRules})
	id := 0
	calls := func(query string) (send [2]func() answer, paths [2]string) {
		id++
		order, key := fmt.Sprintf("/orders/%d/settle", id), fmt.Sprint("k", id)
		send[0] = func() answer { return s.must("POST", order+"?"+query, "") }
		send[1] = func() answer { return s.must("POST", "/payments?"+query, "", "Idempotency-Key", key) }
		return send, [2]string{order, "/payments"}
	}
	for _, tt := range []struct {
		query  string
		status int
		size   int // of the body; -1: any
		stored bool
	}{
		{"size=10485760", 200, 10 << 20, false},
		{"size=10485760&status=201", 201, 10 << 20, false},
		{"size=0&trailer", 200, 0, false},
		{"size=0&trailer&status=202", 202, 0, false},
		{"trailer", 200, -1, false},
		{"status=204", 204, 0, true},
		{"status=205&size=0", 205, 0, true},
		{"status=299", 299, -1, true},
		{"hint=103", 200, -1, true},
		{"hint=102&hint=103&status=201", 201, -1, true},
	} {
		t.Run(tt.query, func(t *testing.T) {
			send, paths := calls(tt.query)
			for i, call := range send {
				must(t, s.redis.FlushAll(t.Context()).Err())
				before := p.paid(paths[i])
				first := call()
				if first.want(t, tt.status, ""); tt.size >= 0 && len(first.body) != tt.size {
					t.Errorf("%d bytes, want %d", len(first.body), tt.size)
				}
				if !tt.stored {
					bedtest.Eventually(t, "it is unlocked, and refused", func() bool {
						again := call()
						return again.status == 409 && again.verdict == "duplicate"
					})
					s.wantStored(t, paths[i], 1)
					if n := p.paid(paths[i]) - before; n != 1 {
						t.Errorf("%s: paid %d times", paths[i], n)
					}
					continue
				}
				s.wantStored(t, paths[i], 1)
				again := call()
				again.want(t, tt.status, "replayed")
				if n := p.paid(paths[i]) - before; n != 1 || again.body != first.body {
					t.Errorf("%s: paid %d times; %q after %q", paths[i], n, again.body, first.body)
				}
			}
		})
	}
}

// TestOnceCalledGRPC has requests that say that they are gRPC calls, which the backend answers by
// HTTP. Such an answer is stored. Envoy gives it to the client in gRPC's form.
func TestOnceCalledGRPC(t *testing.T) {
	t.Parallel()
	s, p := newOnceStack(t)
	for _, contentType := range []string{"application/grpc", "application/grpc;x=1"} {
		for _, path := range []string{"/orders/1/settle", "/payments"} {
			must(t, s.redis.FlushAll(t.Context()).Err())
			before := p.paid(path)
			for _, verdict := range []string{"", "replayed"} {
				s.must("POST", path, "x", "Content-Type", contentType, "Idempotency-Key", "k").want(t, 200, verdict)
			}
			p.wantPaid(t, path, before+1)
		}
	}
}

// TestOnceGRPC has calls of gRPC, whose answers are never stored: in headers alone, and with a
// message. That a call was done is stored if its status is OK.
func TestOnceGRPC(t *testing.T) {
	t.Parallel()
	s, o, conn := newGRPCStack(t, settings{orders: 10, gate: edit(t,
		"    lookup: {filter: orders}\n    settle: {lock: settlement}\n  - name: grpc-report", "    settle: {lock: settlement, once: {}}\n    once: {by: idempotency-key}\n  - name: grpc-report")})
	for _, do := range []string{"status=0", "status=5", "late-status=5", "slow"} {
		before := o.count("Settle")
		done := do == "status=0" || do == "slow"
		must(t, s.redis.FlushAll(t.Context()).Err())
		for n := range 2 {
			r := callRPC(t.Context(), conn, "Settle", "x-order-id", "1", "x-do", do, "idempotency-key", "k")
			if refused := r.verdict == "duplicate" && r.code == codes.AlreadyExists; refused != (done && n == 1) || r.code == codes.Unavailable {
				t.Errorf("%s: %+v", do, r)
			}
			s.wantFate("1", released)
			bedtest.Eventually(t, "the key is free", func() bool { return len(s.redis.Keys(t.Context(), "ordergate:once:*").Val()) == 0 })
		}
		calls, stored := 2, 0
		if done {
			calls, stored = 1, 2
		}
		s.wantStored(t, do, stored)
		if n := o.count("Settle") - before; n != calls {
			t.Errorf("%s: %d calls at the backend", do, n)
		}
	}
}

// TestOnceHead has a request whose answer has a length and no body.
func TestOnceHead(t *testing.T) {
	t.Parallel()
	p := newPayer(t)
	s := newStack(t, settings{backend: p.addr(), gate: func(yaml string) string {
		return yaml + `
  - name: heads
    match: {methods: [HEAD, POST], path: /heads}
    once: {by: idempotency-key}
  - name: pay
    match: {methods: [GET, HEAD], path: "/pay/{id}"}
    id: {path: id}
    settle: {lock: settlement, once: {}}
`
	}, envoy: func(yaml string) string { // the example has GET and HEAD past ext_proc
		return strings.ReplaceAll(yaml, `regex: "GET|HEAD"`, `regex: "TRACE"`)
	}})
	head := func() answer { return s.must("HEAD", "/heads", "", "Idempotency-Key", "k") }
	head().want(t, 200, "")
	head().want(t, 200, "replayed")
	s.must("POST", "/heads", "", "Idempotency-Key", "k").want(t, 422, "mismatch")
	s.must("POST", "/heads", "", "Idempotency-Key", "k2").want(t, 200, "")
	p.wantPaid(t, "/heads", 2)
	s.must("HEAD", "/pay/1", "").want(t, 200, "")
	s.must("GET", "/pay/1", "").want(t, 409, "duplicate") // the answer to HEAD has no body
	s.must("HEAD", "/pay/1", "").want(t, 200, "replayed")
	s.must("GET", "/pay/2", "").want(t, 200, "")
	s.must("HEAD", "/pay/2", "").want(t, 200, "replayed")
	if a := s.must("GET", "/pay/2", ""); a.verdict != "replayed" || a.body == "" {
		t.Errorf("GET after HEAD after GET: %s, %q", a.verdict, a.body)
	}
	p.wantPaid(t, "/pay/1", 1)
	p.wantPaid(t, "/pay/2", 1)
	post := func() answer { return s.must("POST", "/heads?size=0", "", "Idempotency-Key", "k3") }
	if first, again := post(), post(); first.header.Get("Content-Type") == "" || again.header.Get("Content-Type") != "" || again.verdict != "replayed" {
		t.Errorf("docs/once.md says that Envoy removes the content-type: %v after %v", again.header, first.header)
	}
}

// TestOnceEndless has a request and an answer that never end.
func TestOnceEndless(t *testing.T) {
	t.Parallel()
	p := newPayer(t)
	s := newStack(t, settings{backend: p.addr(), orders: 10, gate: onceRules, envoy: edit(t, "request_timeout: 20s", "request_timeout: 2s")})
	for _, path := range []string{"/orders/1/settle", "/payments"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		must(t, err)
		must(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
		_, err = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: shop\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n")
		must(t, err)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for chunk := "2000\r\n" + strings.Repeat("x", 0x2000) + "\r\n"; err == nil; {
				_, err = io.WriteString(conn, chunk)
			}
		}()
		resp, failed := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, failed)
		if resp.StatusCode != http.StatusRequestEntityTooLarge && resp.StatusCode != http.StatusRequestTimeout {
			t.Errorf("%s: a request without an end gets %d", path, resp.StatusCode)
		}
		must(t, resp.Body.Close())
		must(t, conn.Close())
		<-sent
		p.wantPaid(t, path, 0)
	}
	s.wantStored(t, "requests without an end", 0)
	for _, path := range []string{"/orders/2/settle", "/payments"} {
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", s.url+path+"?endless&size=10000", http.NoBody)
		must(t, err)
		req.Header.Set("Idempotency-Key", "k")
		resp, err := client.Do(req)
		must(t, err)
		_, err = io.CopyN(io.Discard, resp.Body, 1<<20)
		must(t, err)
		leave()
		must(t, resp.Body.Close())
		verdict := "busy"
		if path == "/payments" {
			verdict = "in_use"
		}
		s.must("POST", path+"?endless&size=10000", "", "Idempotency-Key", "k").want(t, 409, verdict) // its outcome is unknown
		p.wantPaid(t, path, 1)
	}
	s.wantStored(t, "answers without an end", 0)
}

// TestOnceBadKeys has keys that no client of HTTP sends.
func TestOnceBadKeys(t *testing.T) {
	t.Parallel()
	s, p := newOnceStack(t)
	for _, key := range []string{
		"a\x00b", "a\x01b", "\"a\tb\"", "a\tb", "a\x1b[0m", "a\x7fb", "\"a\x80b\"", "a\r\n b", "\"a", `"a"b`, `"a";p=1`, "",
		strings.Repeat("k", 10_000), `"` + strings.Repeat("k", 10_000) + `"`, strings.Repeat("k", 70_000),
	} {
		status, err := s.raw("HTTP/1.1", "POST", "/payments", []string{"Content-Length: 0", "Idempotency-Key: " + key})
		if err == nil && status != 400 && status != 431 {
			t.Errorf("key %.20q: %d", key, status)
		}
	}
	s.must("POST", "/payments", "", "Idempotency-Key", "k", "X-Tenant", strings.Repeat("t", 4097)).want(t, 400, "invalid")
	if n := s.metric(`ordergate_refused_total{reason="long_key",rule="payment"}`); n != "1" {
		t.Errorf("%s headers are too long, want 1", n)
	}
	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		s.must(method, "/payments", "").want(t, 400, "ambiguous")
	}
	p.wantPaid(t, "/payments", 0)
	s.wantStored(t, "bad keys", 0)
}

// TestOnceConditions has conditions that cannot be checked, or do not hold, before an answer is
// stored and after it.
func TestOnceConditions(t *testing.T) {
	t.Parallel()
	p := newPayer(t)
	s := newStack(t, settings{backend: p.addr(), orders: 10, gate: both(shortLease, edit(t, settleAction,
		`settle: {lock: settlement, once: {}, require: [{latch: "loaders:{id}"}, {geo: {key: couriers, member: "{id}", to: store, within: 500m}}]}`))})
	ctx := t.Context()
	settle := func(status int, verdict string) {
		t.Helper()
		s.must("POST", "/orders/1/settle", "").want(t, status, verdict)
	}
	place := func(name string) {
		t.Helper()
		must(t, s.redis.GeoAdd(ctx, "couriers", &redis.GeoLocation{Name: name, Longitude: 13, Latitude: 38}).Err())
	}
	place("store")
	must(t, s.redis.RPush(ctx, "loaders:1", "a").Err())
	settle(503, "unavailable")
	must(t, s.redis.Del(ctx, "loaders:1").Err())
	must(t, s.redis.Set(ctx, "loaders:1", "many", 0).Err())
	settle(503, "unavailable")
	must(t, s.redis.Del(ctx, "loaders:1").Err())
	settle(425, "not_ready") // the member is missing
	p.wantPaid(t, "/orders/1/settle", 0)
	s.wantStored(t, "unmet conditions", 0)
	place("1")
	settle(200, "")
	must(t, s.redis.Del(ctx, "couriers").Err())
	must(t, s.redis.RPush(ctx, "loaders:1", "a").Err())
	settle(200, "replayed")
	p.wantPaid(t, "/orders/1/settle", 1)
}

// TestOnceDamaged has stored answers that somebody has changed by hand: each is refused, and
// stays as it is.
func TestOnceDamaged(t *testing.T) {
	t.Parallel()
	s, p := newOnceStack(t)
	pay := func() answer { return s.must("POST", "/payments", "", "Idempotency-Key", "k") }
	settle := func() answer { return s.must("POST", "/orders/1/settle", "") }
	pay().want(t, 200, "")
	settle().want(t, 200, "")
	for path, call := range map[string]func() answer{"/payments": pay, "/orders/1/settle": settle} {
		var key string
		for _, key = range s.redis.Keys(t.Context(), "*:ordergate_once:*").Val() {
			if (key == redislock.StoredKey("order:lock:1", "commission")) == (path != "/payments") {
				break
			}
		}
		whole := s.redis.Get(t.Context(), key).Val()
		line, body, found := strings.Cut(whole, "\n")
		if !found || !strings.Contains(line, `"status":200`) {
			t.Fatalf("%s: stored is %q", key, whole)
		}
		changed := func(from, to string) string { return bedtest.Replace(line, from, to) + "\n" + body }
		for _, text := range []string{
			"", "\n", "paid", body, line[:len(line)/2], "[]\n", "null\n", "{}\n" + body, "\x00\xff" + whole,
			changed(`"rule":`, `"ruler":`),
			changed(`"status":200`, `"status":-1`), changed(`"status":200`, `"status":7`), changed(`"status":200`, `"status":100`),
			changed(`"status":200`, `"status":101`), changed(`"status":200`, `"status":600`), changed(`"status":200`, `"status":99999999999`),
			changed(`"status":200`, `"status":"200"`),
			changed(`"content-type"`, `":status"`), changed(`"content-type"`, `""`), changed(`"content-type"`, `"a b"`),
			changed(`"content-type"`, `"a\r\nb"`), changed(`"application/json"`, `"a\r\nx-b: c"`), changed(`"application/json"`, `"\u0000"`),
		} {
			if text == whole {
				t.Fatalf("%q is not damaged", text)
			}
			must(t, s.redis.Set(t.Context(), key, text, time.Hour).Err())
			a, err := s.send(t.Context(), "POST", path, "", "Idempotency-Key", "k")
			if err != nil || a.status != 503 || a.verdict != "unavailable" {
				t.Errorf("%s, stored %q: %d %q %q, error %v", path, text, a.status, a.verdict, a.body, err)
			}
			if now := s.redis.Get(t.Context(), key).Val(); now != text {
				t.Errorf("%s, stored %q: it became %q", path, text, now)
			}
		}
		must(t, s.redis.Del(t.Context(), key).Err())
		must(t, s.redis.RPush(t.Context(), key, whole).Err())
		call().want(t, 503, "unavailable")
		p.wantPaid(t, path, 1)
		must(t, s.redis.Del(t.Context(), key).Err())
		must(t, s.redis.Set(t.Context(), key, whole, time.Hour).Err())
		call().want(t, 200, "replayed")
	}
	s.wantLogged("what is stored is no answer")
}
