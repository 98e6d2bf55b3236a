package tests

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// window is the default of freshness.window.
const window = 500 * time.Millisecond

// defaultWindow has the filter's window be the default.
func defaultWindow(yaml string) string {
	return bedtest.Replace(yaml, bedtest.LongWindow, fmt.Sprintf("{window: %v}", window))
}

// TestRedisHangsUnderAFlood has Redis hang, and made-up IDs looked up, 200 in a second: as long as
// the window holds each is refused, and after it each goes on, without a wait for Redis.
func TestRedisHangsUnderAFlood(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: defaultWindow})
	bedtest.Eventually(t, "a window is open", func() bool { return s.must("GET", "/orders/77", "").status == 404 })
	must(t, s.server.Pause())
	stopped := time.Now()
	type look struct {
		asked, took time.Duration // since Redis hangs, and until the answer
		status      int
	}
	var mu sync.Mutex
	var looks []look
	atOnce(200, func(n int) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		select {
		case <-time.After(time.Duration(n) * time.Second / 200):
		case <-ctx.Done():
		}
		asked := time.Now()
		a, err := s.send(ctx, http.MethodGet, fmt.Sprint("/orders/", 1000+n), "")
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		looks = append(looks, look{asked.Sub(stopped), time.Since(asked), a.status})
	})
	var passed []time.Duration
	for _, l := range looks {
		if l.status != 404 {
			passed = append(passed, l.took)
		} else if l.asked > window {
			t.Errorf("a lookup is refused %v after the last read of the log could begin", l.asked)
		}
	}
	if len(passed) == 0 || len(passed) == len(looks) {
		t.Fatalf("%d of %d lookups passed, want those after the window", len(passed), len(looks))
	}
	// Lookups that wait would all take as long as Redis may, a second. A busy machine holds up some.
	slices.Sort(passed)
	if median := passed[len(passed)/2]; median > window {
		t.Errorf("half of the lookups took more than %v while Redis hangs", median)
	}
	must(t, s.server.Resume())
	bedtest.Eventually(t, "a window is open again", func() bool { return s.must("GET", "/orders/77", "").status == 404 })
}

// TestUserWithoutXREAD has a user of Redis that may not run XREAD: new orders are read late, and the log
// says so once.
func TestUserWithoutXREAD(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, 100)
	must(t, k.redis.Do(t.Context(), "ACL", "SETUSER", "limited", "on", ">"+someSecret, "~*", "&*", "+@all", "-xread").Err())
	k.startAs("limited", "")
	k.want("absent", "3000001")
	k.mustSay("level=WARN", "XREAD fails")
	k.create("3000001")
	if got := k.ask("3000001"); got != "maybe" {
		t.Errorf("an order that a client was told of is %s", got)
	}
	k.create("3000002") // more than a second later, there were several tries
	k.want("absent", "3000003")
	k.want("maybe", "3000002")
	if n := strings.Count(logOf(t, k.gate), "XREAD fails"); n != 1 {
		t.Errorf("%d lines say that XREAD fails", n)
	}
}

// someSecret is the password of users of Redis that tests make.
const someSecret = "a password of a test"

// startAs starts an ordergate that is a user of Redis.
func (k *keeper) startAs(user, settings string) {
	k.t.Helper()
	k.config = bedtest.Replace(k.yaml(settings), "redis: {", "redis: {username: "+user+", password_env: REDIS_PASSWORD, ")
	k.gate = k.Gate(k.binary, k.config, "REDIS_PASSWORD="+someSecret)
}

// TestLongerWindowElsewhere has two ordergates with windows of different length. The one with the longer
// one is cut off from Redis: a create through the other one is answered when that window is
// over, although it is longer than its own would have it wait.
func TestLongerWindowElsewhere(t *testing.T) {
	t.Parallel()
	const long = 8 * time.Second
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 100, envoy: unhurried(t)})
	s.must("GET", "/orders/3000001", "").want(t, 404, "absent")
	must(t, s.redis.Do(t.Context(), "ACL", "SETUSER", "far", "on", ">"+someSecret, "~*", "&*", "+@all").Err())
	k := newKeeperOn(t, s.Bed, s.server, 100)
	k.member = "far"
	k.startAs("far", fmt.Sprintf("capacity: 5000; stale_after: 10s; freshness: {window: %v}", long))
	k.want("absent", "3000001")
	// Its long window counts when others have heard of it: a lease and its margin after it was noted.
	begun := time.Now()
	bedtest.Eventually(t, "the long window counts", func() bool { return time.Since(begun) > 4*time.Second })
	k.want("absent", "3000001")
	must(t, s.redis.Do(t.Context(), "ACL", "SETUSER", "far", "off").Err())
	must(t, s.redis.Do(t.Context(), "CLIENT", "KILL", "USER", "far").Err())
	cut := time.Now()
	a := s.must("POST", "/orders?do=create&id=3000002", "")
	told := time.Since(cut)
	a.want(t, 201, "")
	if got := k.ask("3000002"); got == "absent" {
		t.Errorf("an order is absent %v after Redis was cut off, of which a client was told after %v", time.Since(cut), told)
	}
	t.Logf("the client was told after %v", told)
}

// TestCallsOfAnIdleOrdergate counts the calls that Redis has from an ordergate while nothing is created,
// and while made-up IDs are looked up: a lookup makes none.
func TestCallsOfAnIdleOrdergate(t *testing.T) {
	t.Parallel()
	// Calls a second. For the log: eight reads (four in a window of half a second), and XREAD, which waits
	// for a second. Once a second, for all filters, the IDs that were asked for are counted, by PFADD (one
	// for each thousand different IDs), EXPIRE and now and then PFCOUNT. For the page, a PING every 10 s.
	limits := map[string]float64{"evalsha": 9, "xread": 1.5, "pfadd": 2, "expire": 2, "pfcount": 1, "get": 0.3, "ping": 0.3}
	const most = 10 // for the log
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: defaultWindow})
	bedtest.Eventually(t, "a window is open", func() bool { return s.must("GET", "/orders/77", "").status == 404 })
	for _, flood := range []bool{false, true} {
		before, begun, probes := s.calls(), time.Now(), 0
		for time.Since(begun) < 4*time.Second {
			if flood {
				s.probe(http.MethodGet, 100_000+probes, 200)
				probes += 200
			}
			<-time.After(50 * time.Millisecond)
		}
		after, seconds := s.calls(), time.Since(begun).Seconds()
		rates := make(map[string]float64)
		for command, limit := range limits {
			if command == "pfadd" {
				limit += float64(probes) / 1000 / seconds
			}
			rates[command] = float64(after[command]-before[command]) / seconds
			if rates[command] > limit {
				t.Errorf("%d probes: Redis has %.1f calls of %s a second", probes, rates[command], command)
			}
		}
		if log := rates["evalsha"] + rates["xread"]; log > most {
			t.Errorf("%d probes: Redis has %.1f calls a second for the log", probes, log)
		}
		if flood && after["evalsha"]-before["evalsha"] == 0 {
			t.Error("the log is not read")
		}
		for command := range after {
			if n := after[command] - before[command]; limits[command] == 0 && n > 0 && !inScripts[command] {
				t.Errorf("%d probes: %d calls of %s", probes, n, command)
			}
		}
		t.Logf("%d probes in %.1f s: calls a second: %v", probes, seconds, rates)
	}
}

// inScripts are the commands that scripts call, as often as they are run, INFO, which this test calls
// too, and those of a client that connects.
var inScripts = map[string]bool{
	"hexists": true, "hget": true, "hmget": true, "hset": true, "info": true, "llen": true, "persist": true, "time": true,
	"xrange": true, "zadd": true, "zcard": true, "zrange": true, "zrangebyscore": true, "zscore": true,
	"hello": true, "client|setname": true, "client|setinfo": true, "client": true, // before 7.0 with no more of the name
}

// calls returns how often Redis has run each command.
func (s *stack) calls() map[string]int {
	s.t.Helper()
	text, err := s.redis.Info(s.t.Context(), "commandstats").Result()
	must(s.t, err)
	calls := make(map[string]int)
	for line := range strings.Lines(text) {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls="); ok {
			var n int
			_, err := fmt.Sscanf(rest, "%d,", &n)
			must(s.t, err)
			calls[name] = n
		}
	}
	return calls
}
