package tests

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// ofKind gives the example's lock another kind.
func ofKind(t testing.TB, kind string) func(string) string {
	return both(shortLease, edit(t, settlementLock, settlementLock+"    "+kind+"\n"))
}

// waitingUpTo has the example's lock waited for longer.
func waitingUpTo(t testing.TB, d time.Duration) func(string) string {
	return edit(t, "wait: {tries: 3, every: 100ms}", fmt.Sprintf("wait: {up_to: %v}", d))
}

// TestLegacyFair queues settlements of one order at two sidecars, and lets go: the
// service gets them in the order of their arrival.
func TestLegacyFair(t *testing.T) {
	t.Parallel()
	fair := both(ofKind(t, "kind: fair"), waitingUpTo(t, 40*time.Second))
	onEveryLegacy(t, settings{gate: fair, envoy: patiently(t)}, func(t *testing.T, s *stack, orders *testbed.Orders) {
		other := s.second(settings{backend: orders.Addr(), orders: seeded, gate: fair, envoy: patiently(t)})
		java, err := redislock.New(s.redis, redislock.Options{Kind: redislock.Fair}) // the part of another service
		must(t, err)
		defer java.Close()
		lease, err := java.Acquire(t.Context(), "order:lock:7")
		must(t, err)

		const callers = 6
		answers := make(chan answer, callers)
		for i := range callers {
			via := []*stack{s, other}[i%2]
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				a, _ := via.send(ctx, "POST", fmt.Sprintf("/orders/7/settle?slow=1&caller=%d", i), "") // an answer of no status
				answers <- a
			}()
			bedtest.Eventually(t, fmt.Sprintf("caller %d stands in line", i), func() bool {
				return s.redis.LLen(t.Context(), "redisson_lock_queue:{order:lock:7}").Val() == int64(i+1)
			})
		}
		must(t, lease.Release(t.Context()))
		for range callers {
			if a := <-answers; a.status != 200 {
				t.Errorf("got %d %s (%s)", a.status, a.verdict, a.body)
			}
		}
		var order []string
		for _, line := range lines(t, orders.AccessLog) {
			if _, caller, ok := strings.Cut(line, "caller="); ok {
				order = append(order, strings.Fields(caller)[0])
			}
		}
		if got := strings.Join(order, ""); got != "012345" {
			t.Errorf("they came in the order %s", got)
		}
		s.wantFate("7", released)
	})
}

// readersAndWriters makes the example's lookups readers and its settlements
// writers of one lock, and has Envoy pass reads through both filters.
func readersAndWriters(t testing.TB) settings {
	return settings{
		orders: 10,
		gate: both(ofKind(t, "kind: write"), edit(t,
			settlementLock, "  reading: {kind: read, key: \"order:lock:{id}\", lease: 10s}\n"+settlementLock,
			"    lookup: {filter: orders}", "    lookup: {filter: orders}\n    settle: {lock: reading}")),
		envoy: edit(t, `regex: "GET|HEAD"`, `regex: "NONE"`),
	}
}

func TestReadersAndWriters(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	change := readersAndWriters(t)
	change.backend = b.addr()
	s := newStack(t, change)
	other := s.second(change)
	bedtest.Eventually(t, "the first has seen the other join", s.certainlyAbsent)

	s.must("GET", "/orders/77", "").want(t, 404, "absent") // before any lock
	first := s.hang(b, "GET", "/orders/1", "")
	second := other.hang(b, "GET", "/orders/1", "")
	if first.ours("key") != "order:lock:1" || second.ours("key") != "order:lock:1" || first.ours("lease") == second.ours("lease") {
		t.Errorf("readers hold %q and %q", first.ours("key"), second.ours("key"))
	}
	s.must("POST", "/orders/1/settle", "").want(t, 409, "busy")
	s.must("GET", "/orders/1", "").want(t, 200, "")
	s.must("POST", "/orders/2/settle", "").want(t, 200, "")
	// One reader leaves: the other still keeps writers out.
	first.leave()
	<-first.done
	s.must("POST", "/orders/1/settle", "").want(t, 409, "busy")
	b.goOn()
	second.wantAnswer(t)

	b = newBackend(t)
	change.backend = b.addr()
	s = newStack(t, change)
	writer := s.hang(b, "POST", "/orders/1/settle", "")
	s.must("POST", "/orders/1/settle", "").want(t, 409, "busy")
	s.must("GET", "/orders/1", "").want(t, 409, "busy")
	s.must("GET", "/orders/2", "").want(t, 200, "")
	b.goOn()
	writer.wantAnswer(t)
	s.wantFate("1", released)
	s.must("GET", "/orders/1", "").want(t, 200, "")
	s.wantFate("1", released)
}

// TestLegacyReadersAndWriters reads an order while it is settled: no reader is in
// another's way.
func TestLegacyReadersAndWriters(t *testing.T) {
	t.Parallel()
	onEveryLegacy(t, readersAndWriters(t), func(t *testing.T, s *stack, orders *testbed.Orders) {
		atOnce(20, func(int) { s.must("GET", "/orders/3", "").want(t, 200, "") })
		atOnce(20, func(i int) {
			method, path := "GET", "/orders/3"
			if i%2 == 0 {
				method, path = "POST", "/orders/3/settle"
			}
			if a := s.must(method, path, ""); a.status != 200 && a.status != 409 {
				t.Errorf("%s: %d %s", method, a.status, a.body)
			}
		})
		if n, err := orders.PaymentsOf(3); err != nil || n > 1 {
			t.Errorf("paid %d times (%v)", n, err)
		}
		s.wantGone("order:lock:*")
	})
}

// TestStringFormat shares the lock with a service that takes it by hand.
func TestStringFormat(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: ofKind(t, "format: string")})
	ctx, key := t.Context(), "order:lock:1"
	byHand := func() bool {
		return s.redis.SetArgs(ctx, key, "worker-7", redis.SetArgs{Mode: "NX", TTL: time.Minute}).Err() == nil
	}
	if !byHand() {
		t.Fatal("the lock is taken")
	}
	s.must("POST", "/orders/1/settle", "").want(t, 409, "busy")
	if v := s.redis.Get(ctx, key).Val(); v != "worker-7" {
		t.Errorf("the other's lock holds %q", v)
	}
	s.redis.Del(ctx, key)

	h := s.hang(b, "POST", "/orders/1/settle", "")
	if v := s.redis.Get(ctx, key).Val(); v != h.ours("lease") || v == "" {
		t.Errorf("the key holds %q, want the lease %q", v, h.ours("lease"))
	}
	if left := s.redis.PTTL(ctx, key).Val(); left <= 0 || left > lease {
		t.Errorf("the lock ends in %v", left)
	}
	if byHand() {
		t.Error("taken by hand while it was held")
	}
	b.goOn()
	h.wantAnswer(t)
	s.wantFate("1", released)
	if !byHand() {
		t.Error("not free by hand after the call")
	}
}

// TestSemaphoreAsTheLock counts settlements of one order.
func TestSemaphoreAsTheLock(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: ofKind(t, "kind: semaphore\n    permits: 2")})
	first, second := s.hang(b, "POST", "/orders/1/settle", ""), s.hang(b, "POST", "/orders/1/settle", "")
	s.must("POST", "/orders/1/settle", "").want(t, 409, "busy")
	s.must("POST", "/orders/2/settle", "").want(t, 200, "")
	b.goOn()
	first.wantAnswer(t)
	second.wantAnswer(t)
	bedtest.Eventually(t, "both permits came back", func() bool { return s.redis.Get(t.Context(), "order:lock:1").Val() == "2" })
	s.must("POST", "/orders/1/settle", "").want(t, 200, "")
}

// TestQuorum settles on three servers, which have the user of the section redis;
// then one of them is lost, and then the majority.
func TestQuorum(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	bed := bedtest.New(t)
	var servers []*testbed.Redis
	var clients []*redis.Client
	var addresses []string
	for range 3 {
		server := bed.Redis("--user", "default", "off")
		c := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: testbed.User, Password: testbed.Password})
		t.Cleanup(func() { _ = c.Close() })
		servers, clients, addresses = append(servers, server), append(clients, c), append(addresses, server.Addr())
	}
	password := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(password, []byte(testbed.Password), 0o600))
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: both(
		ofKind(t, "kind: quorum\n    quorum: {addresses: ["+strings.Join(addresses, ", ")+"]}"),
		edit(t, "redis:\n", "redis:\n  username: "+testbed.User+"\n  password_file: "+password+"\n"))})
	holders := func(id string) (n int) {
		for _, c := range clients {
			if c.Exists(t.Context(), "order:lock:"+id).Val() == 1 {
				n++
			}
		}
		return n
	}

	h := s.hang(b, "POST", "/orders/1/settle", "")
	if n := holders("1"); n < 2 {
		t.Errorf("held on %d servers", n)
	}
	if n := s.redis.Exists(t.Context(), "order:lock:1").Val(); n != 0 {
		t.Error("held on the server of everything else")
	}
	s.must("POST", "/orders/1/settle", "").want(t, 409, "busy")
	b.goOn()
	h.wantAnswer(t)
	bedtest.Eventually(t, "released everywhere", func() bool { return holders("1") == 0 })

	fence := h.ours("fence")
	servers[0].Kill()
	s.must("POST", "/orders/1/settle", "").want(t, 200, "")
	if got := b.last("fence"); got <= fence { // of the same length until the year 2286
		t.Errorf("fence %s after %s", got, fence)
	}
	servers[1].Kill()
	arrived := len(b.seen())
	s.must("POST", "/orders/2/settle", "").want(t, 503, "unavailable")
	if len(b.seen()) != arrived {
		t.Error("an unlocked settlement reached the backend")
	}
	if status, _ := s.readiness(); status != 200 {
		t.Errorf("readiness %d: lookups go on", status)
	}
}

// withBatch adds a rule that settles all orders of a list.
func withBatch(yaml string) string {
	return yaml + `
  - name: batch
    match: {methods: [POST], path: /batch}
    id: {json: ids, list: true}
    settle: {lock: settlement}
`
}

// TestBatchInOneStep locks the orders of a list, all or none, in one script.
func TestBatchInOneStep(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: both(shortLease, withBatch)})
	settle := func(ids string) answer { return s.must("POST", "/batch", `{"ids":`+ids+`}`, "Content-Type", jsonBody) }
	settle("[8,9]").want(t, 200, "") // Redis knows the scripts from here on
	s.wantGone("order:lock:*")

	commands := s.monitor()
	h := s.hang(b, "POST", "/batch", `{"ids":[3,"1",10]}`, "Content-Type", jsonBody)
	var taking []string // whoever takes a lock counts its fence
	for _, line := range commands() {
		if strings.Contains(line, "redisson_lock_token") && !strings.Contains(line, " lua]") {
			taking = append(taking, line)
		}
	}
	if len(taking) != 1 {
		t.Errorf("%d commands took the locks, want 1: %q", len(taking), taking)
	}
	if h.ours("key") != "order:lock:1,order:lock:10,order:lock:3" {
		t.Errorf("keys %q", h.ours("key"))
	}
	fences, owner := strings.Split(h.ours("fence"), ","), h.ours("lease")
	for i, key := range strings.Split(h.ours("key"), ",") {
		if n := s.redis.HGet(t.Context(), key, owner).Val(); n != "1" {
			t.Errorf("%s: entered %q times by %s", key, n, owner)
		}
		if f := s.redis.Get(t.Context(), redislock.FenceKey(key)).Val(); i >= len(fences) || f != fences[i] {
			t.Errorf("%s: fence %s, told as %v", key, f, fences)
		}
	}
	settle("[4,3]").want(t, 409, "busy")
	s.must("POST", "/orders/4/settle", "").want(t, 200, "") // not left behind
	s.must("POST", "/orders/3/settle", "").want(t, 409, "busy")
	b.goOn()
	h.wantAnswer(t)
	s.wantGone("order:lock:*")
	settle("[4,3]").want(t, 200, "")
}

// monitor writes down what Redis is asked from now on. The function that it returns
// gives what there was so far, and ends it.
func (s *stack) monitor() func() []string {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.server.Addr())
	must(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	must(s.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = conn.Write([]byte("MONITOR\r\n"))
	must(s.t, err)
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n') // it is on from this answer
	must(s.t, err)
	if line != "+OK\r\n" {
		s.t.Fatalf("MONITOR: %s", line)
	}
	return func() (lines []string) {
		const end = "the end of what was asked"
		must(s.t, s.redis.Echo(s.t.Context(), end).Err())
		for {
			line, err := r.ReadString('\n')
			must(s.t, err)
			if strings.Contains(line, end) {
				_ = conn.Close()
				return lines
			}
			lines = append(lines, line)
		}
	}
}
