package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// requiring gives the example's rule conditions, and adds one for lists of orders and one that
// observes.
func requiring(t testing.TB, conditions string) func(string) string {
	require := "settle: {lock: settlement, require: [" + conditions + "]}"
	return both(shortLease, both(edit(t, settleAction, require), func(yaml string) string {
		return yaml + `
  - name: batch
    match: {methods: [POST], path: /batch}
    id: {json: ids, list: true, format: digits}
    ` + require + `
  - name: observed
    match: {methods: [POST], path: "/observed/{id}"}
    id: {path: id, format: digits}
    ` + require + `
    mode: observe
`
	}))
}

// onSingleAndCluster runs a test on a single Redis, and on a cluster, where the keys of the
// conditions are in several slots.
func onSingleAndCluster(t *testing.T, gate func(string) string, test func(*testing.T, *stack, *backend, redis.UniversalClient)) {
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		b := newBackend(t)
		s := newStack(t, settings{backend: b.addr(), orders: 10, gate: gate})
		test(t, s, b, s.redis)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		bed, b := bedtest.New(t), newBackend(t)
		cluster := bed.Cluster()
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		t.Cleanup(func() { _ = client.Close() })
		section := fmt.Sprintf("mode: cluster\n  addresses: [%s]", strings.Join(cluster.Addrs(), ", "))
		test(t, stackOn(t, bed, cluster.Nodes()[0], section, settings{backend: b.addr(), orders: 10, gate: gate}), b, client)
	})
}

// TestConditions fulfills the conditions of a settlement one after the other.
func TestConditions(t *testing.T) {
	t.Parallel()
	gate := requiring(t, `{latch: "loaders:{id}"},
      {exists: "open:{id}"}, {missing: "frozen:{id}", otherwise: {status: 423, body: "frozen", retry_after: 0s}},
      {value: {key: "day:{header:x-day}", is: closed}},
      {geo: {key: couriers, member: "{id}", to: "store:{header:x-store}", within: 500m}, otherwise: {retry_after: 90s}},
      {time: {}}`)
	onSingleAndCluster(t, gate, func(t *testing.T, s *stack, b *backend, client redis.UniversalClient) {
		ctx := t.Context()
		headers := []string{"x-day", "2026-11-24", "x-store", "7"}
		settle := func(path, body string) answer {
			return s.must("POST", path, body, append(headers, "Content-Type", jsonBody)...)
		}
		at := func(name string, latitude float64) *redis.GeoLocation {
			return &redis.GeoLocation{Name: name, Longitude: 13.361389, Latitude: latitude}
		}
		do := func(what string, err error, status int, retryAfter, body string) {
			t.Helper()
			must(t, err)
			before := b.arrived("/orders/1/settle") + b.arrived("/batch")
			for _, a := range []answer{settle("/orders/1/settle", ""), settle("/batch", `{"ids":[2,1]}`)} {
				if status == 200 {
					a.want(t, 200, "")
					continue
				}
				if a.want(t, status, "not_ready"); a.header.Get("Retry-After") != retryAfter || body != "" && a.body != body {
					t.Errorf("%s: Retry-After %q, body %s", what, a.header.Get("Retry-After"), a.body)
				}
			}
			if arrived := b.arrived("/orders/1/settle") + b.arrived("/batch") - before; (arrived > 0) != (status == 200) {
				t.Errorf("%s: %d at the backend", what, arrived)
			}
			s.must("POST", "/observed/1", "", headers...).want(t, 200, "") // whatever it would be
		}
		s.must("POST", "/orders/1/settle", "", "x-day", "2026-11-24").want(t, 400, "invalid")
		do("the key does not exist", client.Set(ctx, "open:2", "1", 0).Err(), 425, "1", `{"error":"order is not ready to be settled, try again later"}`)
		do("the latch stands at 2", client.Set(ctx, "loaders:1", "2", 0).Err(), 425, "1", "")
		do("the latch stands at 0, and no key", client.Set(ctx, "loaders:1", "0", 0).Err(), 425, "1", "")
		must(t, client.Set(ctx, "frozen:1", "1", 0).Err())
		do("frozen", client.Set(ctx, "open:1", "1", 0).Err(), 423, "", "frozen")
		do("no value", client.Del(ctx, "frozen:1").Err(), 425, "1", "")
		do("another value", client.Set(ctx, "day:2026-11-24", "open", 0).Err(), 425, "1", "")
		do("the value, and nobody near", client.Set(ctx, "day:2026-11-24", "closed", 0).Err(), 425, "90", "")
		do("one is near", client.GeoAdd(ctx, "couriers", at("store:7", 38.115556), at("2", 38.115556)).Err(), 425, "90", "")
		do("the other is too far", client.GeoAdd(ctx, "couriers", at("1", 38.125556)).Err(), 425, "90", "")
		do("all are near", client.GeoAdd(ctx, "couriers", at("1", 38.119556)).Err(), 200, "", "")
		must(t, client.Del(ctx, "loaders:1").Err())
		must(t, client.RPush(ctx, "loaders:1", "a").Err())
		for range 20 {
			settle("/orders/1/settle", "").want(t, 503, "unavailable")
		}
		settle("/orders/2/settle", "").want(t, 200, "")
		s.wantFate1(t, client)

		counts := map[string]string{
			`ordergate_condition_total{condition="latch",result="unavailable",rule="commission-settle"}`:             "20",
			`ordergate_condition_total{condition="latch",result="unmet",rule="commission-settle"}`:                   "1",
			`ordergate_condition_total{condition="exists",result="unmet",rule="commission-settle"}`:                  "2",
			`ordergate_condition_total{condition="missing",result="unmet",rule="observed"}`:                          "1",
			`ordergate_condition_total{condition="time",result="holds",rule="batch"}`:                                "1",
			`ordergate_condition_total{condition="time",result="unmet",rule="batch"}`:                                "0",
			`ordergate_decisions_total{action="settle",mode="enforce",rule="commission-settle",verdict="not_ready"}`: "9",
			`ordergate_decisions_total{action="settle",mode="observe",rule="observed",verdict="not_ready"}`:          "9",
			`ordergate_decisions_total{action="settle",mode="observe",rule="observed",verdict="acquired"}`:           "1",
			`ordergate_refused_total{reason="missing_header",rule="commission-settle"}`:                              "1",
		}
		for line, want := range counts {
			if got := s.metric(line); got != want {
				t.Errorf("%s is %s, want %s", line, got, want)
			}
		}
		log := strings.Join(moduleOrGateLines(t, s), "\n")
		if n := strings.Count(log, "a condition cannot be checked"); n != 1 || !strings.Contains(log, "key=loaders:{id}") {
			t.Errorf("the log has %d lines about a key that holds something else: %s", n, log)
		}
		if strings.Contains(log, "not_ready") {
			t.Errorf("the log has refusals: %s", log)
		}
	})
}

// wantFate1 waits until order 1 is free.
func (s *stack) wantFate1(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	bedtest.Eventually(t, "order 1 is free", func() bool { return client.Exists(t.Context(), "order:lock:1").Val() == 0 })
}

// TestConditionsWithinAnother settles within a settlement: the conditions must hold for it, too.
func TestConditionsWithinAnother(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: requiring(t, `{missing: "day:closed"}`)})
	outer := s.hang(b, "POST", "/orders/1/settle", "")
	must(t, s.redis.Set(t.Context(), "day:closed", "1", 0).Err())
	lease := outer.ours("lease")
	s.must("POST", "/orders/1/settle", "", leaseHeader, lease).want(t, 425, "not_ready")
	s.must("POST", "/orders/2/settle", "", leaseHeader, lease).want(t, 425, "not_ready")
	s.must("POST", "/orders/2/settle", "", leaseHeader, "00000000-0000-4000-8000-000000000000:1").want(t, 425, "not_ready")
	s.must("POST", "/batch", `{"ids":[1,2]}`, leaseHeader, lease, "Content-Type", jsonBody).want(t, 425, "not_ready")
	s.wantFate("2", released)
	must(t, s.redis.Del(t.Context(), "day:closed").Err())
	s.must("POST", "/orders/1/settle", "", leaseHeader, lease).want(t, 200, "")
	must(t, s.redis.Set(t.Context(), "day:closed", "1", 0).Err())
	b.goOn()
	outer.wantAnswer(t)
	s.wantFate("1", released)
	s.must("POST", "/orders/1/settle", "", leaseHeader, lease).want(t, 425, "not_ready")
}

// TestConditionChangedDuringAWait has a settlement change what the next one requires, while
// that one waits for the lock.
func TestConditionChangedDuringAWait(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: both(requiring(t, `{missing: "settled:{id}"}`), waitingUpTo(t, 40*time.Second))})
	first := s.hang(b, "POST", "/orders/1/settle", "")
	second := make(chan answer, 1)
	go func() { second <- s.must("POST", "/orders/1/settle", "") }()
	bedtest.Eventually(t, "the second one waits", func() bool { return s.metric(`ordergate_lock_waiters{lock="settlement"}`) == "1" })
	must(t, s.redis.Set(t.Context(), "settled:1", "1", 0).Err())
	b.goOn()
	first.wantAnswer(t)
	(<-second).want(t, 425, "not_ready")
	if n := b.arrived("/orders/1/settle"); n != 1 {
		t.Errorf("%d settlements of one order", n)
	}
	s.wantFate1(t, s.redis)
}

// TestConditionsAway loses Redis, and gets another one.
func TestConditionsAway(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: requiring(t, `{latch: "loaders:{id}"}`)})
	s.must("POST", "/orders/1/settle", "").want(t, 200, "")
	s.server.Kill()
	before := b.arrived("/orders/1/settle")
	atOnce(20, func(int) { s.must("POST", "/orders/1/settle", "").want(t, 503, "unavailable") })
	if n := b.arrived("/orders/1/settle"); n != before {
		t.Errorf("%d settlements passed without Redis", n-before)
	}
	s.must("POST", "/observed/1", "").want(t, 200, "")
	must(t, s.server.Restart(t.Context()))
	bedtest.Eventually(t, "settlements are served again", func() bool { return s.must("POST", "/orders/2/settle", "").status == 200 })
	must(t, s.redis.Set(t.Context(), "loaders:2", "1", 0).Err())
	s.must("POST", "/orders/2/settle", "").want(t, 425, "not_ready")
}

// TestConditionsOfAClosedWindow has a window that is closed now, and one that is open.
func TestConditionsOfAClosedWindow(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	now := time.Now().UTC()
	from, to := now.Add(2*time.Hour).Format("15:04"), now.Add(4*time.Hour).Format("15:04")
	r := newReloads(t, settings{backend: b.addr(), orders: 10, gate: requiring(t, fmt.Sprintf(`{time: {from: "%s", to: "%s"}}`, from, to))})
	r.must("POST", "/orders/1/settle", "").want(t, 425, "not_ready")
	r.must("POST", "/observed/1", "").want(t, 200, "")
	open := fmt.Sprintf(`{time: {from: "%s", to: "%s"}}`, to, from) // the rest of the day
	r.wantAfter("applied", func() {
		r.rewrite(strings.ReplaceAll(r.text, fmt.Sprintf(`{time: {from: "%s", to: "%s"}}`, from, to), open))
	})
	r.must("POST", "/orders/1/settle", "").want(t, 200, "")
}

// TestConditionsReloaded changes conditions while settlements arrive: each is judged by one of
// the two configurations.
func TestConditionsReloaded(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	r := newReloads(t, settings{backend: b.addr(), orders: 10, gate: requiring(t, `{exists: "open:{id}"}`)})
	must(t, r.redis.Set(t.Context(), "loaders:1", "1", 0).Err())
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if a := r.must("POST", "/orders/1/settle", ""); a.verdict != "not_ready" && a.verdict != "invalid" {
					t.Errorf("%d %s", a.status, a.verdict)
				}
			}
		}
	}()
	for _, next := range []string{
		`{latch: "loaders:{id}"}`, `{exists: "open:{header:x-store}"}`, `{time: {}}, {latch: "loaders:{id}"}, {exists: "open:{id}"}`, `{exists: "open:{id}", otherwise: {status: 409}}`,
	} {
		r.wantAfter("applied", func() { r.rewrite(strings.ReplaceAll(r.text, `{exists: "open:{id}"}`, next)) })
	}
	close(stop)
	<-done
	r.must("POST", "/orders/1/settle", "").want(t, 409, "not_ready")
	must(t, r.redis.Set(t.Context(), "open:1", "1", 0).Err())
	r.must("POST", "/orders/1/settle", "").want(t, 200, "")
}
