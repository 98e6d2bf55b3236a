package redislock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestOperators runs what operators do on each topology but the embedded one, which
// nobody else can look into.
func TestOperators(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*testing.T, redis.UniversalClient){
		"InspectLocker":   testInspectLocker,
		"InspectRedisson": testInspectRedisson,
		"InspectWaiters":  testInspectWaiters,
		"List":            testList,
		"ListForeign":     testListForeign,
		"ListStops":       testListStops,
		"Force":           testForceRelease,
		"ForceLeaves":     testForceReleaseLeavesNothing,
		"ForceRefuses":    testForceReleaseRefuses,
	}
	for _, top := range topologies {
		if top.name == "embedded" {
			continue
		}
		t.Run(top.name, func(t *testing.T) {
			t.Parallel()
			client := top.start(t, 1)[0]
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					flush(t, client)
					test(t, client)
				})
			}
		})
	}
}

func flush(t *testing.T, c redis.UniversalClient) {
	t.Helper()
	empty := func(ctx context.Context, node redis.Cmdable) error { return node.FlushAll(ctx).Err() }
	err := onMasters(t.Context(), c, empty)
	if err != nil {
		t.Fatal(err)
	}
}

// onMasters does something with every server that has keys, one by one.
func onMasters(ctx context.Context, c redis.UniversalClient, do func(context.Context, redis.Cmdable) error) error {
	cluster, ok := c.(*redis.ClusterClient)
	if !ok {
		return do(ctx, c)
	}
	var mu sync.Mutex
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return do(ctx, node)
	})
}

// lockKinds are the options of a Locker of every kind and format.
var lockKinds = []Options{
	{Kind: Exclusive},
	{Kind: Exclusive, Format: String},
	{Kind: Fair},
	{Kind: Read},
	{Kind: Write},
	{Kind: Semaphore, Permits: 3},
}

// onEveryKind runs a test for each of them, with a key of its own.
func onEveryKind(t *testing.T, test func(t *testing.T, opts Options, key string)) {
	for _, opts := range lockKinds {
		opts.ensureDefaults()
		name := fmt.Sprintf("%s-%s", opts.Kind, opts.Format)
		t.Run(name, func(t *testing.T) { test(t, opts, "order:lock:"+name) })
	}
}

func inspect(t *testing.T, c redis.UniversalClient, opts Options, key string) State {
	t.Helper()
	s, err := Inspect(t.Context(), c, opts.Kind, opts.Format, key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// play runs commands as one would type them, one a line. In them k stands for the
// key, as a word and in braces.
func play(t *testing.T, c redis.UniversalClient, key, commands string) {
	t.Helper()
	for line := range strings.Lines(commands) {
		var args []any
		for _, word := range strings.Fields(line) {
			if word == "k" {
				word = key
			}
			args = append(args, strings.ReplaceAll(word, "{k}", "{"+key+"}"))
		}
		if len(args) == 0 {
			continue
		}
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
}

func testInspectLocker(t *testing.T, c redis.UniversalClient) {
	onEveryKind(t, func(t *testing.T, opts Options, key string) {
		if s := inspect(t, c, opts, key); s.Held() || s.TTL != 0 || s.Foreign != "" {
			t.Errorf("a lock that nobody ever took is %+v", s)
		}
		opts.Process, opts.Lease, opts.Hold = "gate-7", time.Minute, time.Hour
		l := newLocker(t, c, opts)
		before := time.Now()
		lease := acquire(t, l, key, Request("settle 42"))
		inner := acquire(t, l, key, Reenter(lease.Owner()), Request("settle 42"))
		var s State
		bedtest.Eventually(t, "it is on record", func() bool {
			s = inspect(t, c, opts, key)
			return len(s.Holders) == 1 && s.Holders[0].Recorded
		})
		h := s.Holders[0]
		want := Holder{
			Owner: lease.Owner(), Entered: 2, Fence: lease.Fence(), Recorded: true,
			Process: "gate-7", Request: "settle 42",
		}
		if opts.Kind.shared() {
			want.Fence = 0 // another's may have come since
		}
		if opts.Kind == Semaphore {
			want.Entered = 1 // a re-entry shares the permit
		}
		if diff := gocmp.Diff(want, h, cmpopts.IgnoreFields(Holder{}, "Since", "TTL")); diff != "" {
			t.Errorf("holder (-want +got):\n%s", diff)
		}
		if h.Since.Before(before.Truncate(0)) || h.Since.After(time.Now()) {
			t.Errorf("held since %v, want about %v", h.Since, before)
		}
		if h.TTL <= 30*time.Second || h.TTL > time.Minute {
			t.Errorf("held for another %v, want about a minute", h.TTL)
		}
		if s.Key != key || s.Kind != opts.Kind || s.Format != opts.Format || s.Fence != lease.Fence() || !s.Held() {
			t.Errorf("got %+v", s)
		}
		if age := time.Since(s.At); age < -time.Second || age > time.Minute {
			t.Errorf("it is of %v ago", age)
		}
		wantTTL := h.TTL
		if opts.Kind == Semaphore {
			wantTTL = NoEnd
			if s.Free != 2 || s.Permits != 3 {
				t.Errorf("%d of %d permits are free, want 2 of 3", s.Free, s.Permits)
			}
		}
		if s.TTL.Round(time.Second) != wantTTL.Round(time.Second) {
			t.Errorf("the key ends in %v, want %v", s.TTL, wantTTL)
		}

		release(t, inner)
		if err := lease.Hold(t.Context(), "outcome unknown"); err != nil {
			t.Fatal(err)
		}
		h = inspect(t, c, opts, key).Holders[0]
		if !h.Held || h.Reason != "outcome unknown" || h.Request != "settle 42" || h.Entered != 1 || h.TTL < 59*time.Minute {
			t.Errorf("left held it is %+v", h)
		}
	})
}

// TestInspectWithoutRecord looks at a lease before it is on record: the fence
// tells since when.
func TestInspectWithoutRecord(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	onEveryKind(t, func(t *testing.T, opts Options, key string) {
		l := newLocker(t, c, opts)
		lease := acquire(t, l, key)
		l.Close() // nor is it put on record any more
		play(t, c, key, "del {k}:ordergate_holders")
		h := inspect(t, c, opts, key).Holders[0]
		want := time.UnixMicro(lease.Fence())
		if opts.Kind.shared() {
			want = time.Time{} // the last fence need not be this holder's
		}
		if h.Recorded || !h.Since.Equal(want) {
			t.Errorf("held since %v, want %v", h.Since, want)
		}
	})
}

const java, other = "0b0dd1f4-6d29-4d4b-8c7f-d5b8b1b8c7e1:52", "0b0dd1f4-6d29-4d4b-8c7f-d5b8b1b8c7e1:53"

// testInspectRedisson plays Redisson's part with the keys that it was seen to
// make, and that of others who share keys with us.
func testInspectRedisson(t *testing.T, c redis.UniversalClient) {
	tests := []struct {
		name     string
		opts     Options
		commands string // one a line; k is the key
		want     State  // no times, no key
	}{
		{
			"lock", Options{Kind: Exclusive}, "hset k " + java + " 2\npexpire k 30000",
			State{TTL: 30 * time.Second, Holders: []Holder{{Owner: java, Entered: 2, TTL: 30 * time.Second}}},
		},
		{
			"lock without an end", Options{Kind: Exclusive}, "hset k " + java + " 1",
			State{TTL: NoEnd, Holders: []Holder{{Owner: java, Entered: 1, TTL: NoEnd}}},
		},
		{
			"fenced lock", Options{Kind: Exclusive}, "hset k " + java + " 1\npexpire k 30000\nset redisson_lock_token:{k} 7",
			State{TTL: 30 * time.Second, Fence: 7, Holders: []Holder{{Owner: java, Entered: 1, Fence: 7, TTL: 30 * time.Second}}},
		},
		{
			"lock after one of ours", Options{Kind: Exclusive}, "hset k " + java + " 1\nset redisson_lock_token:{k} 1700000000000000",
			State{TTL: NoEnd, Fence: 1700000000000000, Holders: []Holder{{
				Owner: java, Entered: 1, Fence: 1700000000000000, Since: time.Unix(1700000000, 0), TTL: NoEnd,
			}}},
		},
		{
			"fence of a time to come", Options{Kind: Exclusive}, "hset k " + java + " 1\nset redisson_lock_token:{k} 9000000000000000",
			State{TTL: NoEnd, Fence: 9000000000000000, Holders: []Holder{{Owner: java, Entered: 1, Fence: 9000000000000000, TTL: NoEnd}}},
		},
		{
			"fair lock with a line", Options{Kind: Fair},
			"hset k " + java + " 1\npexpire k 30000\n" +
				"rpush redisson_lock_queue:{k} dead:1 a:1 b:2 never:3\nzadd redisson_lock_timeout:{k} 5 dead:1 9000000000000 a:1 9000000000001 b:2",
			State{
				TTL: 30 * time.Second, Holders: []Holder{{Owner: java, Entered: 1, TTL: 30 * time.Second}}, Waiting: 4,
				Line: []Waiter{{"a:1", time.UnixMilli(9000000000000)}, {"b:2", time.UnixMilli(9000000000001)}},
			},
		},
		{
			"readers", Options{Kind: Read},
			"hset k mode read " + java + " 2 " + other + " 1 dead:1 1\npexpire k 30000\n" +
				"set {k}:" + java + ":rwlock_timeout:1 1 px 20000\nset {k}:" + java + ":rwlock_timeout:2 1 px 30000\n" +
				"set {k}:" + other + ":rwlock_timeout:1 1 px 10000",
			State{TTL: 30 * time.Second, Holders: []Holder{
				{Owner: java, Entered: 2, TTL: 30 * time.Second}, {Owner: other, Entered: 1, TTL: 10 * time.Second},
			}},
		},
		{
			"readers seen from the writers' side", Options{Kind: Write},
			"hset k mode read " + java + " 1\npexpire k 30000\nset {k}:" + java + ":rwlock_timeout:1 1 px 30000",
			State{Kind: Read, TTL: 30 * time.Second, Holders: []Holder{{Owner: java, Entered: 1, TTL: 30 * time.Second}}},
		},
		{
			"writer who reads", Options{Kind: Write},
			"hset k mode write " + java + ":write 1 " + java + " 1\npexpire k 30000\nset {k}:" + java + ":rwlock_timeout:1 1 px 30000",
			State{TTL: 30 * time.Second, Holders: []Holder{{Owner: java, Entered: 1, TTL: 30 * time.Second}}},
		},
		{
			"writer seen from the readers' side", Options{Kind: Read}, "hset k mode write " + java + ":write 1\npexpire k 30000",
			State{Kind: Write, TTL: 30 * time.Second, Holders: []Holder{{Owner: java, Entered: 1, TTL: 30 * time.Second}}},
		},
		{"semaphore of Java's", Options{Kind: Semaphore}, "set k 3", State{TTL: NoEnd, Free: 3}},
		{"semaphore of Java's, all taken", Options{Kind: Semaphore}, "set k 0", State{TTL: NoEnd}},
		{
			"semaphore that both use", Options{Kind: Semaphore},
			"set k 1\nset {k}:ordergate_permits 5\nzadd {k}:ordergate_leases 5 dead:1 9000000000000 a:1",
			State{TTL: NoEnd, Free: 2, Permits: 5, Holders: []Holder{{Owner: "a:1", Entered: 1}}},
		},
		{
			"semaphore whose counter was evicted", Options{Kind: Semaphore},
			"set {k}:ordergate_permits 5\nzadd {k}:ordergate_leases 9000000000000 a:1",
			State{Free: 4, Permits: 5, Holders: []Holder{{Owner: "a:1", Entered: 1}}},
		},
		{
			"string by hand", Options{Kind: Exclusive, Format: String}, "set k worker-7 px 30000",
			State{TTL: 30 * time.Second, Holders: []Holder{{Owner: "worker-7", Entered: 1, TTL: 30 * time.Second}}},
		},
		{"another type", Options{Kind: Exclusive}, "rpush k a", State{TTL: NoEnd, Foreign: "a list"}},
		{"a lock by hand", Options{Kind: Exclusive}, "set k worker-7 px 30000", State{TTL: 30 * time.Second, Foreign: "a string"}},
		{"a hash where a string is", Options{Format: String}, "hset k a 1", State{TTL: NoEnd, Foreign: "a hash"}},
		{"a sorted set", Options{Kind: Semaphore}, "zadd k 1 a", State{TTL: NoEnd, Foreign: "a sorted set"}},
		{"a counter that is none", Options{Kind: Semaphore}, "set k much", State{TTL: NoEnd, Foreign: "a string that is no number"}},
		{"a hash of data", Options{Kind: Exclusive}, "hset k name Smith", State{TTL: NoEnd, Foreign: "a hash that is no lock"}},
		{"a hash of two counters", Options{Kind: Fair}, "hset k a 1 b 2", State{TTL: NoEnd, Foreign: "a hash that is no lock"}},
		{"a hash with a mode", Options{Kind: Read}, "hset k mode dark a 1", State{TTL: NoEnd, Foreign: "a hash that is no lock"}},
		{"a read-write lock", Options{Kind: Exclusive}, "hset k mode read a 1", State{TTL: NoEnd, Foreign: "a read-write lock"}},
		{"no read-write lock", Options{Kind: Write}, "hset k a 1", State{TTL: NoEnd, Foreign: "a lock that is no read-write lock"}},
		{"a large string", Options{Format: String}, "setrange k 1000000 x", State{TTL: NoEnd, Foreign: "a string of 1000001 bytes"}},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.opts.ensureDefaults()
			key := fmt.Sprintf("k%d", i)
			play(t, c, key, tt.commands)
			want := tt.want
			want.Key, want.Format, want.Kind = key, tt.opts.Format, cmp.Or(want.Kind, tt.opts.Kind)
			got := inspect(t, c, tt.opts, key)
			slices.SortFunc(got.Holders, func(a, b Holder) int { return cmp.Compare(a.Owner, b.Owner) })
			ignore := []gocmp.Option{
				cmpopts.IgnoreFields(State{}, "At"),
				gocmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() < 5*time.Second }),
			}
			if tt.opts.Kind == Semaphore {
				ignore = append(ignore, cmpopts.IgnoreFields(Holder{}, "TTL")) // of a date far away
			}
			if diff := gocmp.Diff(want, got, ignore...); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func testInspectWaiters(t *testing.T, c redis.UniversalClient) {
	onEveryKind(t, func(t *testing.T, opts Options, key string) {
		if opts.Kind == Semaphore {
			opts.Permits = 1
		}
		holder := opts
		if opts.Kind == Read { // or nobody has to wait
			holder.Kind = Write
		}
		lease := acquire(t, newLocker(t, c, holder), key)
		opts.Wait = Wait{UpTo: time.Hour} // polled, or a fair lock takes them for dead
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error)
		var line []Waiter
		for n := 1; n <= 2; n++ {
			l := newLocker(t, c, opts) // as many processes
			go func() {
				_, err := l.Acquire(ctx, key)
				done <- err
			}()
			bedtest.Eventually(t, "it waits", func() bool { return inspect(t, c, opts, key).Waiting == n })
			s := inspect(t, c, opts, key)
			if s.Kind == Fair && len(s.Line) != n || s.Kind != Fair && s.Line != nil {
				t.Fatalf("the line is %+v with %d waiting", s.Line, n)
			}
			for i := range line { // who came before is still before
				if s.Line[i].Owner != line[i].Owner || !s.Line[i].Until.After(s.At) {
					t.Errorf("the line is %+v after %+v", s.Line, line)
				}
			}
			line = s.Line
		}
		cancel()
		for range 2 {
			if err := <-done; err == nil {
				t.Error("a waiter got the lock")
			}
		}
		bedtest.Eventually(t, "nobody waits", func() bool { return inspect(t, c, opts, key).Waiting == 0 })
		release(t, lease)
	})
}

// TestInspectManyReaders shows only some of more than anybody would read.
func TestInspectManyReaders(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	play(t, c, "k", "hset k mode read")
	many(t, c, 5000, func(p redis.Pipeliner, i int) {
		p.HSet(t.Context(), "k", fmt.Sprintf("%s-%d", java, i), 1)
		p.Set(t.Context(), fmt.Sprintf("{k}:%s-%d:rwlock_timeout:1", java, i), 1, time.Hour)
	})
	s := inspect(t, c, Options{Kind: Read, Format: Redisson}, "k")
	// HSCAN takes its COUNT as a hint, and names the mode as well.
	if n := len(s.Holders); n < mostListed/2 || n > 2*mostListed || n+s.More != 5000 {
		t.Errorf("%d holders and %d more, want about %d of 5000", n, s.More, mostListed)
	}
	if _, err := ForceRelease(t.Context(), c, s); err == nil || c.Exists(t.Context(), "k").Val() == 0 {
		t.Errorf("released more than was shown: %v", err)
	}
}

func TestInspectErrors(t *testing.T) {
	t.Parallel()
	redisServer := bedtest.New(t).Redis()
	c := redis.NewClient(&redis.Options{Addr: redisServer.Addr(), MaxRetries: -1})
	defer c.Close()
	// One who may read locks, and not who listens.
	play(t, c, "", "acl setuser reader on nopass ~* &* +@all -pubsub")
	reader := redis.NewClient(&redis.Options{Addr: redisServer.Addr(), Username: "reader", Password: "any"})
	defer reader.Close()
	acquire(t, newLocker(t, c, Options{}), "k")
	if s := inspect(t, reader, Options{Kind: Exclusive, Format: Redisson}, "k"); s.Waiting != -1 || !s.Held() {
		t.Errorf("got %+v, want one that does not say who waits", s)
	}
	play(t, c, "", "acl setuser reader -evalsha -eval")
	if s, err := Inspect(t.Context(), reader, Exclusive, Redisson, "k"); !redis.HasErrorPrefix(err, "NOPERM") {
		t.Errorf("got %+v, %v, want NOPERM", s, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Inspect(ctx, c, Exclusive, Redisson, "k"); err == nil {
		t.Error("no error although the context had ended")
	}
}
