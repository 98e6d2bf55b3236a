package loader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/probes"
	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
	"github.com/ordergate/ordergate/tests/testbed/redisconntest"
)

// TestTopologies does on each kind of Redis what ordergate does there, as a user
// who may do no more than the documentation says.
func TestTopologies(t *testing.T) {
	t.Parallel()
	const login = "username: ordergate, password_env: PW"
	secure := func(bed *bedtest.Bed) (args []string, section string) {
		c := bed.Certificates()
		return append(c.Args(), bedtest.DocumentedUserOnly(t)...), fmt.Sprintf("%s, tls: {ca: %s, cert: %s, key: %s}", login, c.CA, c.ClientCert, c.ClientKey)
	}
	tests := []struct {
		name  string
		start func(t *testing.T, bed *bedtest.Bed) (section string, nodes []*testbed.Redis)
	}{
		{"single", func(t *testing.T, bed *bedtest.Bed) (string, []*testbed.Redis) {
			r := bed.Redis(bedtest.DocumentedUserOnly(t)...)
			return fmt.Sprintf("{addresses: [%s], %s}", r.Addr(), login), []*testbed.Redis{r}
		}},
		{"socket", func(t *testing.T, bed *bedtest.Bed) (string, []*testbed.Redis) {
			dir, err := os.MkdirTemp("", "redis") // that of the test may be too long for a socket
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			r := bed.Redis("--unixsocket", dir+"/redis.sock")
			return fmt.Sprintf("{addresses: [unix:%s/redis.sock]}", dir), []*testbed.Redis{r}
		}},
		{"single with TLS", func(_ *testing.T, bed *bedtest.Bed) (string, []*testbed.Redis) {
			args, section := secure(bed)
			r := bed.Redis(args...)
			return fmt.Sprintf("{addresses: [%s], %s}", r.Addr(), section), []*testbed.Redis{r}
		}},
		{"sentinel", func(_ *testing.T, bed *bedtest.Bed) (string, []*testbed.Redis) {
			s := bed.Sentinel()
			return fmt.Sprintf("{mode: sentinel, addresses: %s}", redisconntest.List(s.Addrs()...)), s.Nodes()
		}},
		{"sentinel with TLS", func(t *testing.T, bed *bedtest.Bed) (string, []*testbed.Redis) {
			args, section := secure(bed)
			s := bed.Sentinel(args...)
			// The Sentinels have users of their own.
			for _, sentinel := range s.Sentinels() {
				admin := redisconntest.Admin(t, bed, sentinel)
				for _, user := range [][]string{bedtest.DocumentedUser(t, "watcher"), {"default", "off"}} {
					rule := append([]any{"acl", "setuser"}, anys(user)...)
					if err := admin.Do(t.Context(), rule...).Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
			return fmt.Sprintf("{mode: sentinel, addresses: %s, master: %s, sentinel_username: watcher, sentinel_password_env: SENTINEL_PW, %s}",
				redisconntest.List(s.Addrs()...), s.Master(), section), append(s.Nodes(), s.Sentinels()...)
		}},
		{"cluster", func(_ *testing.T, bed *bedtest.Bed) (string, []*testbed.Redis) {
			c := bed.Cluster()
			return fmt.Sprintf("{mode: cluster, addresses: [%s]}", c.Addrs()[0]), c.Nodes()
		}},
		{"cluster with TLS", func(_ *testing.T, bed *bedtest.Bed) (string, []*testbed.Redis) {
			args, section := secure(bed)
			c := bed.Cluster(args...)
			return fmt.Sprintf("{mode: cluster, addresses: %s, %s}", redisconntest.List(c.Addrs()...), section), c.Nodes()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bed := bedtest.New(t)
			section, nodes := tt.start(t, bed)
			client := redisconntest.Connect(t, section)
			appendAndWait(t, client)
			keepPlaces(t, client)
			lockAndWake(t, client)
			countProbes(t, client)
			shareFilters(t, client)
			for _, node := range nodes {
				denied, err := redisconntest.Admin(t, bed, node).Do(t.Context(), "acl", "log").Slice()
				if err != nil || len(denied) > 0 {
					t.Errorf("%s denied %v, %v", node.Name(), denied, err)
				}
			}
		})
	}
}

func anys(words []string) []any {
	list := make([]any, len(words))
	for i, word := range words {
		list[i] = word
	}
	return list
}

// shareFilters fills sets of order IDs, asks for some, and makes one larger.
func shareFilters(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	for _, kind := range []redisbf.Kind{redisbf.Bitmap, redisbf.Redisson} {
		opts := redisset.Options{
			Name: string(kind), Bits: redisbf.Options{Kind: kind, Key: "order:bloom:" + string(kind), Capacity: 1000},
			ViewAge: 50 * time.Millisecond, Grace: 50 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Fill:       func(_ context.Context, add func(string) error) error { return errors.Join(add("1"), add("2")) },
			LeaderLock: func(ctx context.Context) (context.Context, int64, func(), error) { return ctx, 1, func() {}, nil },
		}
		if kind == redisbf.Bitmap {
			opts.Bits.Shards, opts.AtFill, opts.By = 3, 0.9, 2
		}
		set, err := redisset.New(client, opts)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = set.Run(ctx) })
		bedtest.Eventually(t, "the set is whole", func() bool { s, _ := set.State(); return s == filter.StateReady })
		if kind == redisbf.Bitmap {
			err = set.Expand(t.Context())
		}
		err = errors.Join(err, set.Add(t.Context(), "3"))
		for id, want := range map[string]presence.Answer{"2": presence.Maybe, "3": presence.Maybe, "nobody": presence.Absent} {
			bedtest.Eventually(t, fmt.Sprintf("%s: %s is %v", kind, id, want), func() bool {
				got, err := set.Query(t.Context(), id)
				return got == want && err == nil // on a busy machine, the state may be too old for a while
			})
		}
		if err != nil {
			t.Error(err)
		}
		cancel()
		running.Wait()
		set.Close()
	}
}

// appendAndWait runs every script of the change log, as a member that sees another one
// come and go, and all members lost.
func appendAndWait(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	var seen sync.Map
	const table, inbox, members = "source:db", "ordergate:{orders}:inbox", "ordergate:{orders}:members"
	doubts := make(chan changelog.Doubt, 100)
	log, err := changelog.New(client, "orders", func(id string) { seen.Store(id, true) }, changelog.Options{
		Member: "here", Require: []string{table}, MinEntries: 10_000, Timeout: 10 * time.Second,
		OnDoubt: func(d changelog.Doubt) { doubts <- d },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- log.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	follower := log.NewMember(table, time.Minute)
	sure := func() {
		t.Helper()
		bedtest.Eventually(t, "nobody is away", func() bool {
			return follower.Renew(ctx, time.Now()) == nil && log.Wait(ctx) == nil
		})
	}
	sure()
	err = errors.Join(log.Append(ctx, "1001"), log.RecordDoubt(ctx, changelog.Doubt{Kind: changelog.Lost, Reason: "a test"}),
		client.RPush(ctx, inbox, "1002").Err())
	if err != nil {
		t.Fatal(err)
	}
	bedtest.Eventually(t, "it knows the other one", func() bool { return slices.Contains(log.Members(), table) })
	sure()
	if err := client.Del(ctx, members).Err(); err != nil { // they are called back
		t.Fatal(err)
	}
	sure()
	for _, id := range []string{"1001", "1002"} {
		if _, ok := seen.Load(id); !ok {
			t.Errorf("the log does not have %s", id)
		}
	}
	kinds := make(map[changelog.Kind]bool)
	for len(doubts) > 0 {
		kinds[(<-doubts).Kind] = true
	}
	if !kinds[changelog.Lost] || !kinds[changelog.Gap] {
		t.Errorf("doubts of the kinds %v", kinds)
	}
	if err := follower.Leave(ctx); err != nil {
		t.Error(err)
	}
}

// keepPlaces keeps what whoever follows a table, and whoever loads a filter for others,
// keeps in Redis.
func keepPlaces(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	log, err := changelog.New(client, "orders", func(string) {}, changelog.Options{Timeout: 10 * time.Second})
	bedtest.Check(t, err)
	following := &follower{table: "db", changes: log, member: log.NewMember("db", time.Minute), key: "ordergate:{orders}:follow"}
	err = following.append(ctx, []string{"1001"}, place{"chain", "mysql-bin.000001:4"}, nil)
	if at, getErr := following.member.RecordedAt(ctx, following.key, following.table); parsePlace(at) != (place{"chain", "mysql-bin.000001:4"}) {
		t.Errorf("the place is %q, %v", at, getErr)
	}
	err = errors.Join(err, client.HDel(ctx, following.key, following.table).Err())

	set, impossible := redisset.New(client, redisset.Options{Name: "orders", Bits: redisbf.Options{Kind: redisbf.Bitmap, Key: "order:bloom:orders", Capacity: 1000, Shards: 16}})
	if impossible != nil {
		t.Fatal(impossible)
	}
	defer set.Close()
	marks := &checkpointStore{client: client, keys: []string{"ordergate:{orders}:places", redisset.StateKey("orders")}, set: set, tables: []*tableSource{{name: "db", identity: "db"}}}
	err = errors.Join(err, client.HSet(ctx, marks.keys[1], "generation", 1, "capacity", 1000, "shards", 16).Err())
	_, discarded := marks.Discard(ctx, 1)
	err = errors.Join(err, discarded, marks.BeginFill(ctx))
	marks.filled["db"] = json.RawMessage(`{}`)
	err = errors.Join(err, marks.Commit(ctx, 1))
	has, lookErr := marks.HasAll(ctx, 1)
	at, readErr := marks.read(ctx, marks.tables[0])
	if err = errors.Join(err, lookErr, readErr); !has || string(at.mark) != "{}" || at.history == "" {
		t.Errorf("the mark is %q of history %q", at.mark, at.history)
	}
	if _, cluster := client.(*redis.ClusterClient); cluster != (at.others != "") {
		t.Errorf("the others are %q", at.others)
	}

	path := filepath.Join(t.TempDir(), "snapshot")
	err = errors.Join(err, os.WriteFile(path, []byte("bits"), 0o600))
	f := &snapshotCache{client: client, prefix: "ordergate:fleet:orders", stamp: "today"}
	chunks, uploaded := f.upload(ctx, path, "token")
	pipe := client.TxPipeline()
	pipe.HSet(ctx, f.prefix, "token", "token", "chunks", chunks, "stamp", f.stamp)
	pipe.Expire(ctx, f.prefix, time.Minute)
	_, kept := pipe.Exec(ctx)
	if err := errors.Join(err, uploaded, kept); err != nil {
		t.Fatal(err)
	}
	shared, ok := f.found(ctx)
	chunk, err := client.Get(ctx, f.chunk(shared.Token, 0)).Result()
	if !ok || shared.Chunks != 1 || chunk != "bits" {
		t.Errorf("there is %+v of %q, %v", shared, chunk, err)
	}
}

// lockAndWake takes a lock that another waits for, with nothing but the message of
// its release to wake it.
func lockAndWake(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	locker, err := redislock.New(client, redislock.Options{
		Wait: redislock.Wait{Tries: 2, Every: time.Hour}, MaxWaitersPerKey: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	const key = "order:lock:1001"
	first, err := locker.Acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		lease *redislock.Lease
		err   error
	}
	second := make(chan result, 1)
	go func() {
		lease, err := locker.Acquire(t.Context(), key)
		second <- result{lease, err}
	}()
	bedtest.Eventually(t, "the second waits", func() bool { return locker.Waiting() == 1 })
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-second:
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.lease.Fence() <= first.Fence() {
			t.Errorf("fence %d after %d", r.lease.Fence(), first.Fence())
		}
		if err := r.lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("nobody woke the second")
	}
}

// countProbes has Redis count absent IDs, and tell how many there were.
func countProbes(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	opts := probes.Options{SendEvery: time.Millisecond, CountEvery: time.Millisecond}
	seen, knows := probes.New(client, "orders", opts), probes.New(client, "orders", opts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- seen.Run(ctx) }()
	go func() { done <- knows.Run(ctx) }()
	seen.Add("1001")
	seen.Add("1002")
	bedtest.Eventually(t, "the other counter knows", func() bool { return knows.Today() == 2 })
	cancel()
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
