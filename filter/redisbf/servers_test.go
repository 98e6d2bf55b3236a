package redisbf

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestEviction has Redis run out of memory until it evicts the set.
func TestEviction(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			srv := single(t, "--maxmemory", "6mb", "--maxmemory-policy", "allkeys-lru")
			ctx := t.Context()
			s := loaded(t, srv, v.fill(), 2000)
			warning, err := s.CheckPolicy(ctx)
			must(t, err)
			t.Log(warning)
			if warning == "" {
				t.Error("no warning of eviction")
			}
			gone := func() bool {
				for shard := range s.opts.Shards {
					if srv.client.Exists(ctx, s.kind.keys(shard)...).Val() != int64(len(s.kind.keys(shard))) {
						return true
					}
				}
				return false
			}
			// Nothing reads the set meanwhile, so it is the first to go.
			for i := 0; !gone(); i++ {
				must(t, srv.client.Set(ctx, fmt.Sprint("junk:", i), make([]byte, 10_000), 0).Err())
				if i > 100_000 {
					t.Fatal("it is never evicted")
				}
			}
			orders := ids("order", 2000)
			noneAbsent := func() {
				bedtest.Each(len(orders), 50, func(i int) {
					if a, _ := s.Ask(ctx, orders[i]); a == presence.Absent {
						t.Errorf("%s is absent", orders[i])
					}
				})
			}
			noneAbsent()
			whole := 0
			for shard := range s.opts.Shards {
				i := 2000
				for s.hash.shard(fmt.Sprint("order-", i)) != shard {
					i++
				}
				if a, _ := s.Ask(ctx, fmt.Sprint("order-", i)); a == presence.Absent {
					whole++
				}
			}
			if whole == s.opts.Shards {
				t.Error("nothing is unknown of a set that was evicted")
			}
			// Java, say, goes on adding to what it does not know to be gone.
			_ = s.Add(ctx, []string{"late"})
			noneAbsent()
		})
	}
}

func TestCheckPolicy(t *testing.T) {
	srv := single(t)
	ctx, client := t.Context(), srv.client
	s := loaded(t, srv, Options{Kind: Bitmap, Key: "policy", Capacity: 100, Secret: secret, Shards: 3}, 10)
	check := func(maxmemory, policy, want string) {
		t.Helper()
		must(t, client.ConfigSet(ctx, "maxmemory", maxmemory).Err())
		must(t, client.ConfigSet(ctx, "maxmemory-policy", policy).Err())
		warning, err := s.CheckPolicy(ctx)
		must(t, err)
		if want == "" && warning != "" {
			t.Errorf("%s of %s: %s", policy, maxmemory, warning)
		}
		if want != "" {
			wantError(t, fmt.Errorf("%s", warning), nil, want, policy)
		}
	}
	check("0", "allkeys-lru", "")
	check("100mb", "noeviction", "")
	check("100mb", "allkeys-lru", "it may evict the filter")
	check("100mb", "allkeys-random", "it may evict the filter")
	check("100mb", "volatile-lru", "")
	must(t, client.Expire(ctx, "policy:{2}", time.Hour).Err())
	check("100mb", "volatile-lru", "policy:{2} has a time to live")
	// A user who may not ask.
	must(t, client.Do(ctx, "acl", "setuser", "default", "-info").Err())
	warning, err := s.CheckPolicy(ctx)
	if warning != "" || err != nil {
		t.Errorf("forbidden, it says %q (%v)", warning, err)
	}
}

// TestNoModule asks a Redis that has no Bloom filters.
func TestNoModule(t *testing.T) {
	client := connect(t, &redis.UniversalOptions{Addrs: []string{bedtest.New(t).Redis().Addr()}})
	s := unopened(t, server{"plain", client}, variant{opts: Options{Kind: Bloom}}.fill())
	wantError(t, s.Open(t.Context()), errTooOld)
	if n := client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys were made", n)
	}
	neverAbsent(t, s, "without the module")
	if err := s.Add(t.Context(), []string{"order-1"}); err == nil {
		t.Error("an ID was added without the module")
	}
}

// TestEmbedded asks the Redis that runs inside ordergate, which has no BITFIELD_RO.
func TestEmbedded(t *testing.T) {
	client := connect(t, &redis.UniversalOptions{Addrs: []string{miniredis.RunT(t).Addr()}})
	for _, v := range variants {
		if v.opts.Kind == Redisson {
			continue // it never answers what is asked in a transaction
		}
		s := unopened(t, server{"embedded", client}, v.fill())
		wantError(t, s.Open(t.Context()), errTooOld)
		neverAbsent(t, s, "embedded")
	}
}

// TestRESP2 speaks the older protocol, whose answers look different.
func TestRESP2(t *testing.T) {
	bed := bedtest.New(t)
	opts := &redis.UniversalOptions{Addrs: []string{bed.Redis(bed.RedisBloomArgs()...).Addr()}, Protocol: 2}
	srv := server{"single", connect(t, opts)}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			s := loaded(t, srv, v.fill(), 100)
			works(t, s, 100)
			info, err := s.Info(t.Context())
			must(t, err)
			if !info.Whole || info.IDs < 95 || info.IDs > 300 { // with the marks
				t.Errorf("it is %+v", info)
			}
			other := v.fill()
			other.Key, other.FalsePositiveRate = s.opts.Key, 0.01
			wantError(t, unopened(t, srv, other).Open(t.Context()), nil, s.opts.Key)
		})
	}
}

// TestFull fills a Bloom filter past its capacity.
func TestFull(t *testing.T) {
	srv := single(t)
	opts := Options{Kind: Bloom, Key: "full", Capacity: 100, Secret: secret}
	s := loaded(t, srv, opts, 100)
	works(t, s, 100)
	wantError(t, s.Add(t.Context(), ids("more", 2000)), ErrFull, "full:{0}")
	must(t, s.Add(t.Context(), ids("order", 100))) // which are there
	if n := count(t, s, ids("order", 100), presence.Maybe); n != 100 {
		t.Errorf("%d of 100 IDs are there", n)
	}
	// Nor are there marks to add: it stays whole, and that has to be known.
	wantError(t, s.Unmark(t.Context()), ErrFull)
}

// TestOutOfMemory adds to a Redis that has no room and evicts nothing.
func TestOutOfMemory(t *testing.T) {
	srv := single(t)
	s := loaded(t, srv, Options{Kind: Bitmap, Key: "oom", Capacity: 1000, Secret: secret}, 10)
	must(t, srv.client.ConfigSet(t.Context(), "maxmemory", "500kb").Err())
	if err := s.Add(t.Context(), []string{"more"}); err == nil {
		t.Error("an ID was added without memory")
	}
	works(t, s, 10)
}

// TestReplica asks servers that follow another.
func TestReplica(t *testing.T) {
	bed := bedtest.New(t)
	ctx := t.Context()
	var servers [2]server
	var addrs [2]string
	for i := range servers {
		addrs[i] = bed.Redis(append(bed.RedisBloomArgs(), "--repl-diskless-sync-delay", "0")...).Addr()
		servers[i].client = connect(t, &redis.UniversalOptions{Addrs: addrs[i : i+1]})
	}
	follow := func(server, master int) {
		t.Helper()
		host, port, err := net.SplitHostPort(addrs[master])
		must(t, err)
		must(t, servers[server].client.ReplicaOf(ctx, host, port).Err())
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			for _, srv := range servers {
				must(t, srv.client.ReplicaOf(ctx, "no", "one").Err())
			}
			opts := v.fill()
			s, other := loaded(t, servers[0], opts, 100), opened(t, servers[1], opts)
			neverAbsent(t, other, "empty")
			follow(1, 0)
			bedtest.Eventually(t, "the replica has the set", func() bool {
				n := servers[1].client.BitCount(ctx, s.kind.keys(0)[0], nil)
				return opts.Kind == Bloom && servers[1].client.Do(ctx, "bf.card", s.kind.keys(0)[0]).Val() == servers[0].client.Do(ctx, "bf.card", s.kind.keys(0)[0]).Val() ||
					opts.Kind != Bloom && n.Err() == nil && n.Val() == servers[0].client.BitCount(ctx, s.kind.keys(0)[0], nil).Val()
			})
			neverAbsent(t, other, "a replica")
			answers := make([]presence.Answer, 1)
			wantError(t, other.Has(ctx, []string{"nobody"}, answers), errReplica)
			wantError(t, other.Open(ctx), errReplica)
			// A master that has to follow, under the eyes of its clients.
			works(t, s, 100)
			must(t, servers[1].client.ReplicaOf(ctx, "no", "one").Err())
			must(t, other.Open(ctx))
			works(t, other, 100)
			follow(0, 1)
			neverAbsent(t, s, "a master before")
		})
	}
}

// TestFailover has masters change places under a set.
func TestFailover(t *testing.T) {
	bed := bedtest.New(t)
	c := bed.Cluster(bed.RedisBloomArgs()...)
	client := connect(t, &redis.UniversalOptions{Addrs: c.Addrs(), IsClusterMode: true})
	ctx := t.Context()
	var sets []*Set
	for _, v := range variants {
		sets = append(sets, loaded(t, server{"cluster", client}, v.fill(), 100))
	}
	for _, moved := range sets[:2] {
		_, err := c.Failover(ctx, moved.kind.keys(0)[0])
		must(t, err)
		for _, s := range sets {
			neverAbsentOf(t, s, "order", 100)
			bedtest.Eventually(t, "the set works at its new master", func() bool {
				answers := make([]presence.Answer, 50) // of all shards
				return s.Has(ctx, ids("nobody", 50), answers) == nil && answers[0] == presence.Absent
			})
			works(t, s, 100)
		}
		must(t, c.Settle(ctx))
	}
}

// neverAbsentOf is neverAbsent for IDs that are in a set which works.
func neverAbsentOf(t *testing.T, s *Set, prefix string, n int) {
	t.Helper()
	answers := make([]presence.Answer, n)
	_ = s.Has(t.Context(), ids(prefix, n), answers)
	for i, a := range answers {
		if a == presence.Absent {
			t.Fatalf("%s-%d is absent", prefix, i)
		}
	}
}

// TestNoServer asks one that does not answer.
func TestNoServer(t *testing.T) {
	bed := bedtest.New(t)
	r := bed.Redis(bed.RedisBloomArgs()...)
	client := connect(t, &redis.UniversalOptions{Addrs: []string{r.Addr()}})
	var sets []*Set
	for _, v := range variants {
		sets = append(sets, loaded(t, server{"single", client}, v.fill(), 100))
	}
	must(t, r.Pause())
	for _, s := range sets {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if a, err := s.Ask(ctx, "nobody"); a != presence.Unknown || err == nil {
			t.Errorf("without an answer it is %v (%v)", a, err)
		}
		answers := []presence.Answer{presence.Absent}
		if err := s.Has(ctx, []string{"nobody"}, answers); answers[0] != presence.Unknown || err == nil {
			t.Errorf("without an answer it is %v (%v)", answers[0], err)
		}
		cancel()
	}
	must(t, r.Resume())
	for _, s := range sets {
		works(t, s, 100)
	}
	must(t, r.Restart(t.Context())) // which loses everything, the scripts too
	for _, s := range sets {
		bedtest.Eventually(t, "the server answers", func() bool {
			return s.Has(t.Context(), []string{"nobody"}, make([]presence.Answer, 1)) == nil
		})
		neverAbsent(t, s, "restarted")
		must(t, s.Open(t.Context()))
		neverAbsent(t, s, "opened again")
		fillUp(t, s, 100)
		works(t, s, 100)
	}
}
