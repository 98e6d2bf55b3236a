package redisset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/internal/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	source []string
	broken atomic.Pointer[error] // of the source

	mu    sync.Mutex
	log   []string
	acked []string // of the log, those that were added as well

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
	log := slices.Clone(d.log)
	d.mu.Unlock()
	for _, ids := range [][]string{d.source, log} {
		for _, id := range ids {
			if err := add(id); err != nil {
				return err
			}
		}
	}
	return nil
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

func (n *node) ask(t testing.TB, id string) filter.Answer {
	t.Helper()
	a, err := n.Query(t.Context(), id)
	if err != nil && a != filter.Unknown {
		t.Fatalf("%s is %v with an error: %v", id, a, err)
	}
	return a
}

// settled asks until the answer is certain: on a busy machine the state may not be read in
// time.
func (n *node) settled(t testing.TB, id string) (a filter.Answer) {
	t.Helper()
	bedtest.Eventually(t, "the filter knows about "+id, func() bool {
		a = n.ask(t, id)
		return a != filter.Unknown
	})
	return a
}

// works counts how many of the source are there, and how many absent IDs are not.
func (n *node) works(t testing.TB) {
	t.Helper()
	for i := 0; i < len(n.d.source); i += 7 {
		if a := n.settled(t, n.d.source[i]); a != filter.Maybe {
			t.Fatalf("%s is %v", n.d.source[i], a)
		}
	}
	absent := 0
	for i := range 300 {
		if n.settled(t, fmt.Sprintf("nobody-%d", i)) == filter.Absent {
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
// cluster. The kinds run at the same time, so the test must leave other keys alone.
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
			{"days of arrival", Options{Segments: &filter.Segments{Keep: 3, Older: filter.Absent}, Bits: redisbf.Options{Capacity: 30_000}}},
		} {
			t.Run(srv.name+"/"+v.name, func(t *testing.T) { test(t, newDeployment(t, srv, v.opts)) })
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

func TestShared(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, d *deployment) {
		a, b := d.node(), d.node()
		a.ready(t)
		b.ready(t)
		a.works(t)
		b.works(t)
		must(t, a.learn(t.Context(), "new-5"))
		if got := b.settled(t, "new-5"); got != filter.Maybe {
			t.Errorf("a new ID is %v elsewhere", got)
		}
		bedtest.Eventually(t, "its size is known", func() bool { return b.Size().Count > 2_900 })
		if s := b.Size(); s.Count > 3_100 || s.Capacity < 10_000 || s.FillRatio <= 0 || s.Bytes == 0 {
			t.Errorf("size %+v", s)
		}
	})
}

// TestLost deletes what is in Redis, bit by bit and as a whole. Nothing is absent
// then but what never was there, and it is filled again.
func TestLost(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *deployment) {
		a, b := d.node(), d.node()
		a.ready(t)
		b.ready(t)
		must(t, a.learn(t.Context(), "new-5"))
		for range 3 {
			keys := keysOf(t, a)
			must(t, a.client.Del(t.Context(), keys[rand.IntN(len(keys))]).Err())
			d.neverAbsent(t, a, b)
			a.whole(t)
			a.works(t)
		}
		d.server.flush(t, a.client)
		d.neverAbsent(t, a, b)
		a.whole(t)
		b.works(t)
		c := d.node() // which has another secret, where it is kept in Redis
		c.whole(t)
		c.works(t)
	})
}

// TestLostSecret has the secret that is kept in Redis be lost, when nobody runs who knows it.
func TestLostSecret(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, d *deployment) {
		a := d.node()
		a.ready(t)
		a.stop()
		must(t, a.client.Del(t.Context(), "ordergate:{"+d.opts.Name+"}:secret").Err())
		b := d.node()
		d.neverAbsent(t, b)
		b.ready(t)
		b.works(t)
	})
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
	for _, n := range nodes {
		for i := 0; i < len(known); i += 1 + len(known)/500 {
			if n.ask(t, known[i]) == filter.Absent {
				t.Fatalf("%s is absent", known[i])
			}
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

// TestExpand grows a set while eight write to it and eight ask, all from nodes of
// their own.
func TestExpand(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, d *deployment) {
		if d.opts.Bits.Kind == redisbf.Redisson {
			t.Skip("Java would not know")
		}
		d.opts.AtFill, d.opts.By = 0.9, 1.5
		nodes := []*node{d.node(), d.node(), d.node()}
		for _, n := range nodes {
			n.ready(t)
		}
		stop := d.traffic(t, nodes...)
		for range 2 {
			must(t, nodes[rand.IntN(3)].Expand(t.Context()))
		}
		stop()
		for _, n := range nodes {
			bedtest.Eventually(t, "all know of it", func() bool { v := n.view.Load(); return v.Generation == 3 && v.Old == 0 })
			n.works(t)
			d.neverAbsent(t, n)
		}
		if c := nodes[0].view.Load().Capacity; c < 2*d.opts.Bits.Capacity {
			t.Errorf("capacity %d after growing by half twice", c)
		}
		for _, key := range keysOf(t, nodes[0]) {
			if want := d.opts.Bits.Key + ":g3:"; len(key) < len(want) || key[:len(want)] != want {
				t.Errorf("%s is left", key)
			}
		}
	})
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
				if a, _ := nodes[(i+1)%len(nodes)].Query(ctx, id); a == filter.Absent {
					t.Errorf("%s is absent", id)
					return
				}
				time.Sleep(time.Millisecond) // as requests come
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// dying ends a client at its nth command: that and all later ones fail, as those of
// a process that was killed.
type dying struct {
	left   atomic.Int64
	killed context.CancelFunc
}

var errDead = errors.New("the process is dead")

func (d *dying) DialHook(next redis.DialHook) redis.DialHook { return next }
func (d *dying) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if d.dead() {
			cmd.SetErr(errDead)
			return errDead
		}
		return next(ctx, cmd)
	}
}

func (d *dying) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if d.dead() {
			for _, cmd := range cmds {
				cmd.SetErr(errDead)
			}
			return errDead
		}
		return next(ctx, cmds)
	}
}

func (d *dying) dead() bool {
	if d.left.Add(-1) >= 0 {
		return false
	}
	d.killed()
	return true
}

// TestExpandTakenOver kills the one that grows a set at each of its commands. While
// others write and ask, one of them ends the work.
func TestExpandTakenOver(t *testing.T) {
	t.Parallel()
	srv := alone(t)
	for _, opts := range []Options{{}, {Segments: &filter.Segments{Keep: 3, Day: dated}}} {
		after := 1
		for done := false; !done; after = after*4/3 + 1 {
			d := newDeployment(t, srv, opts)
			d.source = d.source[:300]
			d.opts.AtFill, d.opts.By = 0.9, 1.5
			nodes := []*node{d.node(), d.node()}
			for _, n := range nodes {
				n.ready(t)
			}
			ctx, cancel := context.WithCancel(t.Context())
			client := srv.connect(t)
			killer := &dying{killed: cancel}
			killer.left.Store(int64(after))
			client.AddHook(killer)
			doomed := d.idle(client)
			stop := d.traffic(t, nodes...)
			err := doomed.Expand(ctx)
			done = err == nil
			cancel()
			for _, n := range nodes {
				bedtest.Eventually(t, "another ends what was begun", func() bool {
					v := n.view.Load()
					return v.Next == 0 && v.Old == 0 && n.health.Load().complete
				})
			}
			stop()
			for _, n := range nodes {
				d.neverAbsent(t, n)
				n.works(t)
				n.stop()
			}
		}
		if after < 20 {
			t.Errorf("it was done after %d commands", after)
		}
	}
}

// TestFillTakenOver kills the one that fills a set at each of its commands.
func TestFillTakenOver(t *testing.T) {
	t.Parallel()
	srv := alone(t)
	for done, after := false, 1; !done; after = after*4/3 + 1 {
		d := newDeployment(t, srv, Options{Bits: redisbf.Options{Shards: 2}})
		ctx, cancel := context.WithCancel(t.Context())
		client := srv.connect(t)
		killer := &dying{killed: cancel}
		killer.left.Store(int64(after))
		client.AddHook(killer)
		doomed := d.idle(client)
		_, err := doomed.refresh(ctx)
		if err == nil {
			err = doomed.fill(ctx)
		}
		done = err == nil
		cancel()
		t.Logf("killed after %d commands: %v", after, err)
		n := d.node()
		n.ready(t)
		d.neverAbsent(t, n)
		n.works(t)
		n.stop()
	}
}

// TestGrowthEndsAtMax grows by itself and by an operator, and no further than is allowed.
func TestGrowthEndsAtMax(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, alone(t), Options{Bits: redisbf.Options{Kind: redisbf.Bitmap, Capacity: 4_000}, AtFill: 0.8, By: 4, Max: 6_000})
	n := d.node()
	n.ready(t)
	for i := range 4_000 {
		must(t, n.learn(t.Context(), fmt.Sprintf("new-%d", i)))
	}
	bedtest.Eventually(t, "it has grown as far as it may", func() bool { v := n.view.Load(); return v.Capacity == 6_000 && v.Old == 0 })
	bedtest.Eventually(t, "it says that it is full", n.AtMax)
	if err := n.Expand(t.Context()); !errors.Is(err, filter.ErrAtMax) {
		t.Errorf("expanding past the most: %v", err)
	}
	n.works(t)
	d.neverAbsent(t, n)
	if v := n.view.Load(); v.Generation != 2 || v.Capacity != 6_000 {
		t.Errorf("generation %d of %d", v.Generation, v.Capacity)
	}
}

// TestGrowsByItself fills a set beyond its threshold.
func TestGrowsByItself(t *testing.T) {
	t.Parallel()
	srv := alone(t)
	for _, kind := range []redisbf.Kind{redisbf.Bitmap, redisbf.Bloom} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t, srv, Options{Bits: redisbf.Options{Kind: kind, Capacity: 4_000}, AtFill: 0.8, By: 2})
			a, b := d.node(), d.node()
			a.ready(t)
			for i := range 1_500 { // to 4,500 of 4,000
				err := a.learn(t.Context(), fmt.Sprintf("new-%d", i))
				if err != nil && !errors.Is(err, redisbf.ErrFull) {
					t.Fatal(err)
				}
			}
			for _, n := range []*node{a, b} {
				bedtest.Eventually(t, "it has grown", func() bool { v := n.view.Load(); return v.Capacity == 8_000 && v.Old == 0 })
				n.ready(t)
				n.works(t)
				d.neverAbsent(t, n)
			}
			bedtest.Eventually(t, "its size is known", func() bool { return b.Size().Count > 4_400 })
			if g := a.view.Load().Generation; g != 2 {
				t.Errorf("generation %d", g)
			}
		})
	}
}

// TestKeepsWhatItHas has the source fail, or forget, while the set grows.
func TestKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, alone(t), Options{AtFill: 0.8, By: 2})
	a := d.node()
	a.ready(t)
	broken := errors.New("the database is away")
	d.broken.Store(&broken)
	if err := a.Expand(t.Context()); !errors.Is(err, broken) {
		t.Fatalf("growing: %v", err)
	}
	a.works(t)
	d.broken.Store(nil)
	all := d.source
	d.source = d.source[:100]
	if err := a.Expand(t.Context()); err == nil || !strings.Contains(err.Error(), " IDs were read again, of ") {
		t.Errorf("growing with a source that has lost most: %v", err)
	}
	d.source = all
	a.works(t)
	bedtest.Eventually(t, "it has grown in the end", func() bool { v := a.view.Load(); return v.Generation == 2 && v.Old == 0 })
	a.works(t)
}

// TestForgottenState deletes the state of a set that has grown, and has another
// process know nothing of it.
func TestForgottenState(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, alone(t), Options{AtFill: 0.9, By: 2})
	a := d.node()
	a.ready(t)
	must(t, a.Expand(t.Context()))
	must(t, a.client.Del(t.Context(), a.key).Err())
	bedtest.Eventually(t, "it is restored", func() bool {
		return a.client.HGet(t.Context(), a.key, "generation").Val() == "2"
	})
	b := d.node()
	b.ready(t)
	b.works(t)
	must(t, a.client.HSet(t.Context(), a.key, "capacity", "many").Err())
	bedtest.Eventually(t, "damage is told", func() bool { _, reason := a.State(); return reason != "" })
	d.neverAbsent(t, a, b)
}

// TestExpandAfterAnother grows a set of which somebody left an older generation.
func TestExpandAfterAnother(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, alone(t), Options{AtFill: 0.9, By: 2})
	a := d.idle(d.server.connect(t))
	_, err := a.refresh(t.Context())
	must(t, err)
	must(t, a.fill(t.Context()))
	must(t, a.client.HSet(t.Context(), a.key, "old", 7, "old_shards", 1).Err())
	must(t, a.Expand(t.Context()))
	if v := a.view.Load(); v.Generation != 2 || v.Old != 0 || v.Capacity != 20_000 {
		t.Errorf("%+v", v.state)
	}
	a.run()
	a.works(t)
}

// TestTrust has others fill a set.
func TestTrust(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, alone(t), Options{Bits: redisbf.Options{Kind: redisbf.Redisson}})
	java := d.idle(d.server.connect(t))
	_, err := java.refresh(t.Context())
	must(t, err)
	must(t, java.fill(t.Context()))
	d.opts.Fill, d.opts.LeaderLock = nil, nil
	d.opts.Bits.Capacity = 0
	must(t, java.view.Load().current.unmark(t.Context()))
	n := d.node()
	bedtest.Eventually(t, "it waits to be trusted", func() bool { s, _ := n.State(); return s == filter.StateUnknown })
	d.neverAbsent(t, n)
	if a := n.ask(t, "nobody"); a != filter.Unknown {
		t.Errorf("nobody is %v", a)
	}
	d.neverAbsent(t, n)
	must(t, n.Trust(t.Context()))
	n.ready(t)
	n.works(t)
}

// TestCanonicalForms adds IDs of two forms, and fills a set with one.
func TestCanonicalForms(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, alone(t), Options{CanonicalForms: func(id string) (string, []string) {
		if lower := strings.ToLower(id); lower != id {
			return lower, []string{id}
		}
		return id, nil
	}})
	d.source = append(d.source, "FILLED")
	n := d.node()
	n.ready(t)
	must(t, n.learn(t.Context(), "ADDED"))
	for _, id := range []string{"FILLED", "filled", "ADDED", "added"} {
		if a := n.settled(t, id); a != filter.Maybe {
			t.Errorf("%s is %v", id, a)
		}
	}
	n.works(t)
}

// TestDaysTurn has days go by.
func TestDaysTurn(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(time.Now().Unix())
	today := func() time.Time { return time.Unix(now.Load(), 0) }
	// An ID is a day before or after the first, and a number.
	first := today()
	day := func(id string) (time.Time, bool) {
		var offset, n int
		_, err := fmt.Sscanf(id, "%d:%d", &offset, &n)
		return first.AddDate(0, 0, offset), err == nil
	}
	d := newDeployment(t, alone(t), Options{Segments: &filter.Segments{Keep: 2, Day: day, Older: filter.Absent}, Now: today})
	d.source = nil
	for offset := -4; offset <= 6; offset++ {
		for i := range 50 {
			d.source = append(d.source, fmt.Sprintf("%d:%d", offset, i))
		}
	}
	a, b := d.node(), d.node()
	a.ready(t)
	b.ready(t)
	kept := func(from, to int) {
		t.Helper()
		for _, n := range []*node{a, b} {
			for offset := from; offset <= to; offset++ {
				for i := range 50 {
					if got := n.settled(t, fmt.Sprintf("%d:%d", offset, i)); got != filter.Maybe {
						t.Fatalf("%d:%d is %v", offset, i, got)
					}
				}
			}
			if got := n.settled(t, "0:77"); got != filter.Absent {
				t.Fatalf("one of today that was never added is %v", got)
			}
		}
	}
	kept(-4, 6) // the oldest are strays, as they were read
	reads := a.idsRead.Load() + b.idsRead.Load()
	for passed := 1; passed <= 4; passed++ {
		now.Add(24 * 60 * 60)
		for _, n := range []*node{a, b} {
			bedtest.Eventually(t, "tomorrow is made", func() bool {
				v := n.view.Load()
				lacking, err := v.current.incomplete(t.Context())
				return err == nil && len(lacking) == 0 && v.LastDay == int(filter.DayOf(today())+1)
			})
		}
		must(t, a.learn(t.Context(), fmt.Sprintf("%d:60", passed)))
		kept(passed-2, 6)
		if got := b.settled(t, fmt.Sprintf("%d:60", passed)); got != filter.Maybe {
			t.Errorf("a new one of day %d is %v", passed, got)
		}
	}
	if n := a.idsRead.Load() + b.idsRead.Load(); n != reads {
		t.Errorf("%d IDs were read for days that nobody can have had IDs of", n-reads)
	}
	for _, key := range keysOf(t, a) {
		for offset := range 1 {
			if old := d.opts.Bits.Key + ":" + (filter.DayOf(first) + filter.Day(offset)).String(); len(key) > len(old) && key[:len(old)] == old {
				t.Errorf("%s is left", key)
			}
		}
	}
	// All were away for days: tomorrow is not the one segment that lacks.
	a.stop()
	b.stop()
	now.Add(3 * 24 * 60 * 60)
	c := d.node()
	c.whole(t)
	for i := range 50 {
		if got := c.settled(t, fmt.Sprintf("6:%d", i)); got != filter.Maybe {
			t.Fatalf("6:%d is %v", i, got)
		}
	}
	if c.idsRead.Load() == 0 {
		t.Error("days that nobody kept were declared whole")
	}
}
