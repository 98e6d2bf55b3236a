package redisbf

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a Redis under test and a client of it.
type server struct {
	name   string
	client redis.UniversalClient
}

// connect returns a client as the sidecar has it, in what matters here.
func connect(tb testing.TB, opts *redis.UniversalOptions) redis.UniversalClient {
	opts.ContextTimeoutEnabled, opts.MaxRetries, opts.DialerRetries = true, 1, 1
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = 2*time.Second, 5*time.Second, 5*time.Second
	client := redis.NewUniversalClient(opts)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// single starts a Redis that has Bloom filters.
func single(tb testing.TB, args ...string) server {
	bed := bedtest.New(tb)
	addr := bed.Redis(append(bed.RedisBloomArgs(), args...)...).Addr()
	return server{"single", connect(tb, &redis.UniversalOptions{Addrs: []string{addr}})}
}

// cluster starts a Redis Cluster that has Bloom filters.
func cluster(tb testing.TB) server {
	bed := bedtest.New(tb)
	return server{"cluster", connect(tb, &redis.UniversalOptions{
		Addrs: bed.Cluster(bed.RedisBloomArgs()...).Addrs(), IsClusterMode: true,
	})}
}

// flush deletes everything.
func (s server) flush(t *testing.T) {
	t.Helper()
	if c, is := s.client.(*redis.ClusterClient); is {
		must(t, c.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			return node.FlushAll(ctx).Err()
		}))
		return
	}
	must(t, s.client.FlushAll(t.Context()).Err())
}

// variant is a kind of set as the suite has it.
type variant struct {
	name string
	opts Options
}

var variants = []variant{
	{"bitmap", Options{Kind: Bitmap}},
	{"bitmap in 7 shards", Options{Kind: Bitmap, Shards: 7}},
	{"bloom", Options{Kind: Bloom}},
	{"bloom in 7 shards", Options{Kind: Bloom, Shards: 7}},
	{"redisson", Options{Kind: Redisson}},
	{"redisson of strings", Options{Kind: Redisson, Codec: StringCodec}},
}

var secret = [16]byte{1, 2, 3}

var lastKey atomic.Int64

// fill sets what the variant leaves open: a key of its own, and 20,000 IDs.
func (v variant) fill() Options {
	opts := v.opts
	opts.Key = fmt.Sprintf("test:filter:%d", lastKey.Add(1))
	opts.Shards = max(1, opts.Shards)
	opts.Capacity, opts.FalsePositiveRate, opts.Secret = 20_000, 0.001, secret
	return opts
}

// onEvery runs a test against each variant and server. With the race detector a cluster has
// one variant: one that is spread over the cluster's servers.
func onEvery(t *testing.T, test func(*testing.T, server, Options)) {
	t.Helper()
	for _, start := range []func(testing.TB) server{func(tb testing.TB) server { return single(tb) }, cluster} {
		srv := start(t)
		for _, v := range variants {
			t.Run(srv.name+"/"+v.name, func(t *testing.T) {
				if srv.name == "cluster" && v.opts.Shards == 0 {
					bedtest.WithoutRace(t)
				}
				test(t, srv, v.fill())
			})
		}
	}
}

// unopened returns a set that ends with the test.
func unopened(tb testing.TB, srv server, opts Options) *Set {
	tb.Helper()
	s, err := New(srv.client, opts)
	must(tb, err)
	tb.Cleanup(s.Close)
	return s
}

// opened returns a set that was opened.
func opened(tb testing.TB, srv server, opts Options) *Set {
	tb.Helper()
	s := unopened(tb, srv, opts)
	must(tb, s.Open(tb.Context()))
	return s
}

// loaded returns a set that is whole with so many IDs of its own.
func loaded(tb testing.TB, srv server, opts Options, n int) *Set {
	tb.Helper()
	s := opened(tb, srv, opts)
	fillUp(tb, s, n)
	return s
}

func fillUp(tb testing.TB, s *Set, n int) {
	tb.Helper()
	ctx := tb.Context()
	must(tb, s.Unmark(ctx))
	must(tb, s.Add(ctx, ids("order", n)))
	must(tb, s.MarkWhole(ctx))
}

func ids(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return list
}

// has returns the answers for IDs.
func has(tb testing.TB, s *Set, list []string) []presence.Answer {
	tb.Helper()
	answers := make([]presence.Answer, len(list))
	must(tb, s.Has(tb.Context(), list, answers))
	return answers
}

// count returns how many of the IDs have an answer.
func count(tb testing.TB, s *Set, list []string, want presence.Answer) (n int) {
	tb.Helper()
	for _, a := range has(tb, s, list) {
		if a == want {
			n++
		}
	}
	return n
}

// neverAbsent fails the test if anything is Absent by Has or Ask, errors or not. The
// IDs are some that were added and some that were not.
func neverAbsent(t *testing.T, s *Set, what string) {
	t.Helper()
	list := append(ids("order", 200), ids("nobody", 200)...)
	answers := make([]presence.Answer, len(list))
	for i := range answers {
		answers[i] = presence.Absent // which has to go
	}
	_ = s.Has(t.Context(), list, answers)
	for i, a := range answers {
		if a == presence.Absent {
			t.Fatalf("%s: %s is absent", what, list[i])
		}
	}
	for _, id := range []string{"order-1", "nobody-1", "nobody-2"} {
		if a, _ := s.Ask(t.Context(), id); a == presence.Absent {
			t.Fatalf("%s: %s is absent when asked for", what, id)
		}
	}
}

// works fails the test if the set does not tell what is absent.
func works(t *testing.T, s *Set, n int) {
	t.Helper()
	if missing := n - count(t, s, ids("order", n), presence.Maybe); missing > 0 {
		t.Fatalf("%d of %d IDs are not there", missing, n)
	}
	if absent := count(t, s, ids("nobody", 1000), presence.Absent); absent < 980 {
		t.Fatalf("%d of 1000 foreign IDs are absent", absent)
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// wantError fails the test unless the error is this one or says all of that.
func wantError(t *testing.T, err, want error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if want != nil && !errors.Is(err, want) {
		t.Fatalf("the error is %q, not %q", err, want)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("the error is %q, without %q", err, part)
		}
	}
}
