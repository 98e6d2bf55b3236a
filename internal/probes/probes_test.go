package probes

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a Redis with a client on it.
func server(t *testing.T) (*testbed.Redis, *redis.Client) {
	t.Helper()
	srv := bedtest.New(t).Redis()
	client := redis.NewClient(&redis.Options{
		Addr: srv.Addr(), MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		ReadTimeout: time.Second, WriteTimeout: time.Second, DialTimeout: time.Second,
	})
	t.Cleanup(func() { _ = client.Close() })
	return srv, client
}

// run keeps a counter running until the test ends, or stop is called.
func run(t *testing.T, c *Counter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Run(ctx) })
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}

// noon is of a day that does not end during a test.
var noon = time.Date(2028, 2, 28, 12, 0, 0, 0, time.UTC)

// hasty tells Redis, and asks it, all the time.
var frequent = Options{SendEvery: time.Millisecond, CountEvery: time.Millisecond, Now: func() time.Time { return noon }}

// near allows for 2.5 standard errors.
func near(n uint64, want float64) bool { return math.Abs(float64(n)-want) <= 0.02*want }

const (
	prefix = "ordergate:{orders}:probed:"
	today  = prefix + "20280228"
)

// TestTwoCounters count 10^5 IDs on one Redis, half of them both.
func TestTwoCounters(t *testing.T) {
	_, client := server(t)
	a, b := New(client, "orders", frequent), New(client, "orders", frequent)
	stopA, stopB := run(t, a), run(t, b)
	const each = 200_000 / 3
	for i := range each {
		a.Add(fmt.Sprint(i))
		a.Add(fmt.Sprint(i)) // which is no ID more
		b.Add(fmt.Sprint(i + each/2))
	}
	bedtest.Eventually(t, "both know of all", func() bool {
		return near(a.Today(), 1.5*each) && near(b.Today(), 1.5*each)
	})
	stopA()
	stopB()
	n, err := client.PFCount(t.Context(), today).Result()
	if err != nil || !near(uint64(n), 1.5*each) {
		t.Errorf("Redis counts %d, %v", n, err)
	}
	if left, err := client.TTL(t.Context(), today).Result(); err != nil || left > keepFor || left < keepFor-time.Hour {
		t.Errorf("the key has %v left, %v", left, err)
	}
	if a.Dropped()+b.Dropped() > 0 {
		t.Errorf("dropped %d and %d", a.Dropped(), b.Dropped())
	}
	// A third knows what the others saw.
	c := New(client, "orders", frequent)
	run(t, c)
	bedtest.Eventually(t, "the third knows", func() bool { return c.Today() == uint64(n) })
}

// TestRedisAway has Redis away for a while: what was noted meanwhile arrives later.
func TestRedisAway(t *testing.T) {
	srv, client := server(t)
	c := New(client, "orders", frequent)
	stop := run(t, c)
	srv.Kill()
	for i := range 5000 {
		c.Add(fmt.Sprint(i))
	}
	if !near(c.Today(), 5000) {
		t.Errorf("counts %d without Redis", c.Today())
	}
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	bedtest.Eventually(t, "Redis has them", func() bool {
		n, err := client.PFCount(t.Context(), today).Result()
		return err == nil && near(uint64(n), 5000)
	})
	stop()
	if c.Dropped() != 0 {
		t.Errorf("dropped %d", c.Dropped())
	}
}

// TestFullQueue drops, says so, and makes up for it as soon as there is room and
// more IDs come.
func TestFullQueue(t *testing.T) {
	srv, client := server(t)
	opts := frequent
	opts.QueueBytes = 1024
	c := New(client, "orders", opts)
	run(t, c)
	srv.Kill()
	for i := range 20_000 {
		c.Add(fmt.Sprint(i))
	}
	if c.Dropped() == 0 || c.Today() > 2000 {
		t.Errorf("dropped %d, counts %d", c.Dropped(), c.Today())
	}
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	bedtest.Eventually(t, "all of them are counted", func() bool {
		for i := range 20_000 {
			c.Add(fmt.Sprint(i))
		}
		n, err := client.PFCount(t.Context(), today).Result()
		return err == nil && near(uint64(n), 20_000) && near(c.Today(), 20_000)
	})
}

// TestMidnight begins a new count.
func TestMidnight(t *testing.T) {
	_, client := server(t)
	var clock atomic.Int64
	midnight := time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC)
	clock.Store(midnight.Add(-time.Minute).Unix())
	opts := frequent
	opts.Now = func() time.Time { return time.Unix(clock.Load(), 0).In(time.FixedZone("east", 9*60*60)) }
	c := New(client, "orders", opts)
	run(t, c)
	count := func(day string) int64 { return client.PFCount(t.Context(), prefix+day).Val() }
	for i := range 30 {
		c.Add(fmt.Sprint(i))
	}
	bedtest.Eventually(t, "the 28th is counted", func() bool { return count("20280228") == 30 })
	clock.Store(midnight.Unix())
	bedtest.Eventually(t, "a new day begins", func() bool { return c.Today() == 0 })
	for i := range 7 {
		c.Add(fmt.Sprint(i))
	}
	bedtest.Eventually(t, "the 29th is counted", func() bool { return count("20280229") == 7 && c.Today() == 7 })
	clock.Store(midnight.Add(-time.Minute).Unix()) // set back
	c.Add("8")
	bedtest.Eventually(t, "the 29th goes on", func() bool { return count("20280229") == 8 && c.Today() == 8 })
	if n := count("20280228"); n != 30 {
		t.Errorf("the 28th has %d", n)
	}
}

// TestHere counts without a Redis.
func TestHere(t *testing.T) {
	c := New(nil, "orders", Options{})
	run(t, c)
	for i := range 100_000 {
		c.Add(fmt.Sprint(i))
	}
	if !near(c.Today(), 100_000) || c.Dropped() != 0 {
		t.Errorf("counts %d, dropped %d", c.Today(), c.Dropped())
	}
}

// TestNoteNeverWaits has Redis hang: a process that is stopped answers nothing.
func TestNoteNeverWaits(t *testing.T) {
	srv, client := server(t)
	c := New(client, "orders", frequent)
	run(t, c)
	if err := srv.Pause(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = srv.Resume() }()
	i := 0
	id := make([]byte, 0, 20)
	if n := testing.AllocsPerRun(20_000, func() {
		id = fmt.Appendf(id[:0], "%d", i)
		c.Add(string(id))
		i++
	}); n > 2 { // of the test's own: the number and the string
		t.Errorf("%g allocations", n)
	}
	if c.Dropped() > 0 || !near(c.Today(), 20_000) {
		t.Errorf("dropped %d, counts %d", c.Dropped(), c.Today())
	}
}

// BenchmarkNote is the cost to a lookup: of IDs that are new each time, and of ones
// that were seen.
func BenchmarkNote(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // asked by nobody
	defer client.Close()
	ids := make([]string, 1<<20)
	for i := range ids {
		ids[i] = fmt.Sprintf("%019d", i)
	}
	for name, among := range map[string]int{"new": 1 << 20, "seen": 1 << 10} {
		b.Run(name, func(b *testing.B) {
			c := New(client, "orders", Options{QueueBytes: 8 << 20})
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.Add(ids[i&(among-1)])
			}
		})
	}
}
