package redisset

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// server is a Redis with Bloom filters: one, or a cluster.
type server struct {
	name string
	opts redis.UniversalOptions
}

func alone(tb testing.TB) server {
	bed := bedtest.New(tb)
	return server{"single", redis.UniversalOptions{Addrs: []string{bed.Redis(bed.RedisBloomArgs()...).Addr()}}}
}

func cluster(tb testing.TB) server {
	bed := bedtest.New(tb)
	return server{"cluster", redis.UniversalOptions{Addrs: bed.Cluster(bed.RedisBloomArgs()...).Addrs(), IsClusterMode: true}}
}

func (s server) connect(tb testing.TB) redis.UniversalClient {
	opts := s.opts
	opts.ContextTimeoutEnabled, opts.MaxRetries, opts.DialerRetries = true, 1, 1
	client := redis.NewUniversalClient(&opts)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// flush deletes everything.
func (s server) flush(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	if c, is := client.(*redis.ClusterClient); is {
		must(t, c.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			return node.FlushAll(ctx).Err()
		}))
		return
	}
	must(t, client.FlushAll(t.Context()).Err())
}

// deployment is what the ordergates of one have in common besides Redis: a source,
// the change log, and the lock by which they take turns.
type deployment struct {
	tb     testing.TB
	server server
	opts   Options
	broken atomic.Pointer[error] // of the source

	mu     sync.Mutex
	source []string // replaced, not changed
	log    []string
	acked  []string // of the log, those that were added as well

	turn  chan struct{}
	fence atomic.Int64
}

var lastName atomic.Int64

const viewAge = 40 * time.Millisecond

func newDeployment(tb testing.TB, srv server, opts Options) *deployment {
	d := &deployment{tb: tb, server: srv, turn: make(chan struct{}, 1), opts: opts}
	o := &d.opts
	o.Name = fmt.Sprintf("orders-%d", lastName.Add(1))
	o.Bits.Key = "order:bloom:" + o.Name
	if o.Bits.Kind == "" {
		o.Bits.Kind = redisbf.Bitmap
	}
	if o.Bits.Capacity == 0 {
		o.Bits.Capacity = 10_000
	}
	o.ViewAge, o.Grace, o.InfoEvery = viewAge, viewAge, viewAge
	o.Fill, o.LeaderLock = d.fill, d.takeTurn
	for i := range 3_000 {
		d.source = append(d.source, fmt.Sprintf("source-%d", i))
	}
	return d
}

func (d *deployment) fill(_ context.Context, add func(string) error) error {
	if err := d.broken.Load(); err != nil {
		return *err
	}
	d.mu.Lock()
	source, log := d.source, slices.Clone(d.log)
	d.mu.Unlock()
	for _, ids := range [][]string{source, log} {
		for _, id := range ids {
			if err := add(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// setSource replaces what the source has.
func (d *deployment) setSource(ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.source = ids
}

func (d *deployment) takeTurn(ctx context.Context) (context.Context, int64, func(), error) {
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, nil, ctx.Err()
	}
	return ctx, d.fence.Add(1), func() { <-d.turn }, nil
}

// node is one ordergate.
type node struct {
	*Set
	d      *deployment
	client redis.UniversalClient
	stop   func() // and waits
}

// node starts one.
func (d *deployment) node() *node {
	d.tb.Helper()
	n := d.idle(d.server.connect(d.tb))
	n.run()
	return n
}

// idle is an ordergate that does nothing by itself yet.
func (d *deployment) idle(client redis.UniversalClient) *node {
	d.tb.Helper()
	opts := d.opts
	opts.Logger = slog.New(slog.NewTextHandler(d.tb.Output(), nil))
	set, err := New(client, opts)
	must(d.tb, err)
	d.tb.Cleanup(set.Close)
	return &node{Set: set, d: d, client: client}
}

func (n *node) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = n.Run(ctx)
	}()
	n.stop = func() { cancel(); <-done }
	n.d.tb.Cleanup(n.stop)
}

// learn is what filter.Filter does with a new ID.
func (n *node) learn(ctx context.Context, id string) error {
	n.d.mu.Lock()
	n.d.log = append(n.d.log, id)
	n.d.mu.Unlock()
	err := n.Add(ctx, id)
	if err == nil {
		n.d.mu.Lock()
		n.d.acked = append(n.d.acked, id)
		n.d.mu.Unlock()
	}
	return err
}

func (n *node) ready(t testing.TB) {
	t.Helper()
	bedtest.Eventually(t, "the filter is ready", func() bool { s, _ := n.State(); return s == filter.StateReady })
}

func (n *node) ask(t testing.TB, id string) presence.Answer {
	t.Helper()
	a, err := n.Query(t.Context(), id)
	if err != nil && a != presence.Unknown {
		t.Errorf("%s is %v with an error: %v", id, a, err)
	}
	return a
}

// askAll asks for many IDs at once, and returns an answer for each.
func (n *node) askAll(t testing.TB, ids []string) []presence.Answer {
	t.Helper()
	answers := make([]presence.Answer, len(ids))
	bedtest.Each(len(ids), 50, func(i int) { answers[i] = n.ask(t, ids[i]) })
	return answers
}

// settled asks until the answer is certain: on a busy machine the state may not be read in
// time.
func (n *node) settled(t testing.TB, id string) (a presence.Answer) {
	t.Helper()
	bedtest.Eventually(t, "the filter knows about "+id, func() bool {
		a = n.ask(t, id)
		return a != presence.Unknown
	})
	return a
}

// settledAll is settled for many IDs at once.
func (n *node) settledAll(t testing.TB, ids []string) []presence.Answer {
	t.Helper()
	answers := n.askAll(t, ids)
	for i, a := range answers {
		if a == presence.Unknown {
			answers[i] = n.settled(t, ids[i])
		}
	}
	return answers
}

// works counts how many of the source are there, and how many absent IDs are not.
func (n *node) works(t testing.TB) {
	t.Helper()
	var known, others []string
	for i := 0; i < len(n.d.source); i += 7 {
		known = append(known, n.d.source[i])
	}
	for i := range 300 {
		others = append(others, fmt.Sprintf("nobody-%d", i))
	}
	for i, a := range n.settledAll(t, known) {
		if a != presence.Maybe {
			t.Fatalf("%s is %v", known[i], a)
		}
	}
	absent := 0
	for _, a := range n.settledAll(t, others) {
		if a == presence.Absent {
			absent++
		}
	}
	if absent < 290 {
		t.Fatalf("%d of 300 IDs are absent that were never added", absent)
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// variants runs a test for each kind of set that ordergates share, on one Redis and on a
// cluster. The kinds run at the same time, so the test must leave other keys alone. With the
// race detector a cluster has one kind: one that is spread over the cluster's servers.
func variants(t *testing.T, test func(*testing.T, *deployment)) {
	t.Helper()
	eachVariant(t, func(t *testing.T, d *deployment) {
		t.Parallel()
		test(t, d)
	})
}

// eachVariant is variants for a test that deletes every key: one kind after the other.
func eachVariant(t *testing.T, test func(*testing.T, *deployment)) {
	t.Helper()
	for _, start := range []func(testing.TB) server{alone, cluster} {
		srv := start(t)
		for _, v := range []struct {
			name string
			opts Options
		}{
			{"bitmap", Options{}},
			{"bitmap in shards", Options{Bits: redisbf.Options{Shards: 5, Secret: [16]byte{7}}}},
			{"bloom in shards", Options{Bits: redisbf.Options{Kind: redisbf.Bloom, Shards: 3}}},
			{"redisson", Options{Bits: redisbf.Options{Kind: redisbf.Redisson}}},
			{"days", Options{Segments: &filter.Segments{Keep: 3, Day: dated}, Bits: redisbf.Options{Capacity: 30_000}}},
			{"days of arrival", Options{Segments: &filter.Segments{Keep: 3, Older: presence.Absent}, Bits: redisbf.Options{Capacity: 30_000}}},
		} {
			t.Run(srv.name+"/"+v.name, func(t *testing.T) {
				if srv.opts.IsClusterMode && v.opts.Bits.Shards != 5 {
					bedtest.WithoutRace(t)
				}
				test(t, newDeployment(t, srv, v.opts))
			})
		}
	}
}

// dated gives every third ID a day, by its last figure before today.
func dated(id string) (time.Time, bool) {
	last := id[len(id)-1] - '0'
	if last > 3 {
		return time.Time{}, false
	}
	return time.Now().AddDate(0, 0, -int(last)), true
}

// whole waits until the set is, and known to be.
func (n *node) whole(t testing.TB) {
	t.Helper()
	bedtest.Eventually(t, "the set is whole again", func() bool {
		v := n.view.Load()
		if v == nil {
			return false
		}
		lacking, err := v.current.incomplete(t.Context())
		return err == nil && len(lacking) == 0
	})
	n.ready(t)
}

func (d *deployment) neverAbsent(t testing.TB, nodes ...*node) {
	t.Helper()
	d.mu.Lock()
	known := slices.Concat(d.source, d.acked)
	d.mu.Unlock()
	var some []string
	for i := 0; i < len(known); i += 1 + len(known)/500 {
		some = append(some, known[i])
	}
	for _, n := range nodes {
		if i := slices.Index(n.askAll(t, some), presence.Absent); i >= 0 {
			t.Fatalf("%s is absent", some[i])
		}
	}
}

// keysOf returns the keys of the bits that there are.
func keysOf(t testing.TB, n *node) (keys []string) {
	t.Helper()
	var mu sync.Mutex
	scan := func(ctx context.Context, c *redis.Client) error {
		some, err := c.Keys(ctx, n.opts.Bits.Key+"*").Result()
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, some...)
		return err
	}
	switch c := n.client.(type) {
	case *redis.ClusterClient:
		must(t, c.ForEachMaster(t.Context(), scan))
	case *redis.Client:
		must(t, scan(t.Context(), c))
	}
	return keys
}

// traffic has eight goroutines learn IDs and eight look for those that are known,
// until stop is called. None may be absent.
func (d *deployment) traffic(t testing.TB, nodes ...*node) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	known := slices.Clone(d.source)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := 0; ctx.Err() == nil && k < 400; k++ { // so many fit
				id := fmt.Sprintf("new-%d-%d", i, k)
				if err := nodes[i%len(nodes)].learn(ctx, id); err != nil {
					if ctx.Err() == nil {
						t.Errorf("learning %s: %v", id, err)
					}
					return
				}
				mu.Lock()
				known = append(known, id)
				mu.Unlock()
				time.Sleep(time.Millisecond) // as requests come
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				id := known[len(known)-1]
				if rand.IntN(2) == 0 {
					id = known[rand.IntN(len(known))]
				}
				mu.Unlock()
				if a, _ := nodes[(i+1)%len(nodes)].Query(ctx, id); a == presence.Absent {
					t.Errorf("%s is absent", id)
					return
				}
				time.Sleep(5 * time.Millisecond) // as requests come
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}
