package redisbf

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// oddIDs are written in different ways by the codecs.
var oddIDs = []string{"", "7", "42", "00000000000000000000000000000007", "000000000000000000000000000000007", "Ünïcode", "订单42", "😀", "a b\tc", "A-17_x"}

// TestWithRedisson shares filters with a Java service.
func TestWithRedisson(t *testing.T) {
	bed := bedtest.New(t)
	addr := bed.Redis().Addr()
	srv := server{"single", connect(t, &redis.UniversalOptions{Addrs: []string{addr}})}
	java := bed.RedissonThread(bed.Redisson(testbed.RedissonOptions{Addr: addr}))
	shareFilters(t, srv, java)
}

func TestWithRedissonOnCluster(t *testing.T) {
	bed := bedtest.New(t)
	addrs := bed.Cluster().Addrs()
	srv := server{"cluster", connect(t, &redis.UniversalOptions{Addrs: addrs, IsClusterMode: true})}
	java := bed.RedissonThread(bed.Redisson(testbed.RedissonOptions{Addr: addrs[0], Cluster: true}))
	shareFilters(t, srv, java)
}

func shareFilters(t *testing.T, srv server, java *testbed.RedissonThread) {
	for _, codec := range []struct {
		ours   Codec
		theirs testbed.RedissonCodec
	}{{StringCodec, testbed.StringCodec}, {DefaultCodec, testbed.DefaultCodec}} {
		for _, name := range []string{"orders", "orders:{tagged}"} {
			opts := Options{Kind: Redisson, Codec: codec.ours, Key: fmt.Sprintf("%s:%s", name, codec.ours), Secret: secret}
			t.Run(opts.Key, func(t *testing.T) {
				theirs := func() *testbed.RedissonBloomFilter { return java.BloomFilter(opts.Key, codec.theirs) }
				t.Run("Java fills", func(t *testing.T) { javaFills(t, srv, opts, theirs()) })
				must(t, unopened(t, srv, opts).Drop(t.Context()))
				t.Run("Java reads", func(t *testing.T) { javaReads(t, srv, opts, theirs()) })
				must(t, unopened(t, srv, opts).Drop(t.Context()))
				t.Run("Java replaces it", func(t *testing.T) { javaReplaces(t, srv, opts, theirs()) })
			})
		}
	}
}

func javaFills(t *testing.T, srv server, opts Options, theirs *testbed.RedissonBloomFilter) {
	ctx := t.Context()
	wantError(t, unopened(t, srv, opts).Open(ctx), nil, "missing")
	if made, err := theirs.TryInit(ctx, 1000, 0.001); err != nil || !made {
		t.Fatalf("Java did not make it (%v)", err)
	}
	s := opened(t, srv, opts) // with what Java chose
	added := append(ids("java", 100), oddIDs...)
	for _, id := range added[:50] {
		_, err := theirs.Add(ctx, id)
		must(t, err)
	}
	neverAbsent(t, s, "not declared whole")
	must(t, s.Unmark(ctx))
	for _, id := range added[50:] {
		_, err := theirs.Add(ctx, id)
		must(t, err)
	}
	must(t, s.MarkWhole(ctx))
	if n := count(t, s, added, presence.Maybe); n != len(added) {
		t.Errorf("%d of %d IDs that Java added are there", n, len(added))
	}
	if n := count(t, s, ids("nobody", 1000), presence.Absent); n < 980 {
		t.Errorf("%d of 1000 foreign IDs are absent", n)
	}
	// It goes on.
	_, err := theirs.Add(ctx, "late")
	must(t, err)
	if a, err := s.Ask(ctx, "late"); a != presence.Maybe || err != nil {
		t.Errorf("what Java added late is %v (%v)", a, err)
	}
	n, err := theirs.Count(ctx)
	must(t, err)
	info, err := s.Info(ctx)
	must(t, err)
	if info.IDs != uint64(n) || !info.Whole || info.Capacity != 1000 || info.FalsePositiveRate != 0.001 {
		t.Errorf("Java counts %d, and it is %+v", n, info)
	}
	if n < int64(len(added)) || n > int64(len(added))+25 { // the marks
		t.Errorf("Java counts %d of %d", n, len(added))
	}
	if a, err := s.Ask(ctx, "\xff"); a != presence.Unknown || err == nil {
		t.Errorf("what is no string in Java is %v (%v)", a, err)
	}
	answers := make([]presence.Answer, 3)
	wantError(t, s.Has(ctx, []string{"nobody", "\xff", "late"}, answers), errNotText)
	if answers[0] != presence.Absent || answers[1] != presence.Unknown || answers[2] != presence.Maybe {
		t.Errorf("beside what is no string they are %v", answers)
	}
	wantError(t, s.Add(ctx, []string{"ok", "\xff"}), errNotText)
}

func javaReads(t *testing.T, srv server, opts Options, theirs *testbed.RedissonBloomFilter) {
	ctx := t.Context()
	opts.Capacity, opts.FalsePositiveRate = 1000, 0.0001 // which Java writes as 1.0E-4
	s := opened(t, srv, opts)
	if made, err := theirs.TryInit(ctx, 1000, 0.0001); err != nil || made {
		t.Errorf("Java made another one (%v)", err)
	}
	ours := srv.client.HGetAll(ctx, s.kind.keys(0)[1]).Val()
	added := append(ids("go", 100), oddIDs...)
	must(t, s.Unmark(ctx))
	must(t, s.Add(ctx, added))
	must(t, s.MarkWhole(ctx))
	for _, id := range added {
		if there, err := theirs.Contains(ctx, id); err != nil || !there {
			t.Errorf("%q is not there for Java (%v)", id, err)
		}
	}
	passed := 0
	for _, id := range ids("nobody", 100) {
		if there, err := theirs.Contains(ctx, id); err != nil {
			t.Error(err)
		} else if there {
			passed++
		}
	}
	if passed > 2 {
		t.Errorf("%d of 100 foreign IDs are there for Java", passed)
	}
	// Byte for byte what Java makes of the same: the same configuration, and of the
	// same IDs the same bits.
	bits := srv.client.Get(ctx, opts.Key).Val()
	must(t, s.Drop(ctx))
	if made, err := theirs.TryInit(ctx, 1000, 0.0001); err != nil || !made {
		t.Fatalf("Java did not make it (%v)", err)
	}
	if java := srv.client.HGetAll(ctx, s.kind.keys(0)[1]).Val(); fmt.Sprint(java) != fmt.Sprint(ours) {
		t.Errorf("we configured %v, Java %v", ours, java)
	}
	must(t, srv.client.Del(ctx, opts.Key).Err())
	for _, id := range added {
		_, err := theirs.Add(ctx, id)
		must(t, err)
	}
	java := srv.client.Get(ctx, opts.Key).Val()
	extra := 0
	for i := range len(java) {
		if java[i]&^bits[i] != 0 {
			t.Fatalf("byte %d is %02x by Java and %02x by us", i, java[i], bits[i])
		}
		if java[i] != bits[i] {
			extra++
		}
	}
	// What is set besides are the marks: the load, whole, and the end of the generation
	// before, of three items each.
	if marks := 3 * 3 * 13; extra > marks {
		t.Errorf("%d bytes have more bits, at most %d can be marks", extra, marks)
	}
}

func javaReplaces(t *testing.T, srv server, opts Options, theirs *testbed.RedissonBloomFilter) {
	ctx := t.Context()
	opts.Capacity, opts.FalsePositiveRate = 1000, 0.001
	s := loaded(t, srv, opts, 100)
	works(t, s, 100)
	keys := s.kind.keys(0)
	// Another configuration of the same bits.
	must(t, srv.client.Del(ctx, keys[1]).Err())
	neverAbsent(t, s, "without its configuration")
	if made, err := theirs.TryInit(ctx, 5000, 0.001); err != nil || !made {
		t.Fatalf("Java did not make it (%v)", err)
	}
	neverAbsent(t, s, "of another size")
	wantError(t, s.Add(ctx, []string{"late"}), ErrGone)
	wantError(t, s.Unmark(ctx), ErrGone)
	info, err := s.Info(ctx)
	must(t, err)
	if info.Whole || info.Shards[0].State != Foreign {
		t.Errorf("of another size it is %+v", info)
	}
	wantError(t, s.Open(ctx), nil, keys[1], "expectedInsertions 5000, not 1000")
	// All of it anew, of the same size.
	must(t, s.Drop(ctx))
	if made, err := theirs.TryInit(ctx, 1000, 0.001); err != nil || !made {
		t.Fatalf("Java did not make it (%v)", err)
	}
	neverAbsent(t, s, "made anew")
	_, err = theirs.Add(ctx, "order-5")
	must(t, err)
	neverAbsent(t, s, "made anew and added to")
	must(t, s.Open(ctx))
	fillUp(t, s, 100)
	works(t, s, 100)
	// The bits are evicted, and Java goes on as if nothing was.
	must(t, srv.client.Del(ctx, keys[0]).Err())
	_, err = theirs.Add(ctx, "order-5")
	must(t, err)
	neverAbsent(t, s, "with new bits")
}
