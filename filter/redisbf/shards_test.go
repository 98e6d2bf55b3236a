package redisbf

import (
	"context"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestManyShards has 300 shards of 3,000 IDs on a cluster, as thirty thousand million
// orders would be 300 of a hundred million.
func TestManyShards(t *testing.T) {
	const shards, lost = 300, 123
	each := 3_000
	if bedtest.Race {
		each = 300
	}
	const rate = 0.05 // of few bits an ID, which are what takes long here
	srv := cluster(t)
	s := opened(t, srv, Options{Kind: Bitmap, Key: "many", Capacity: uint64(shards * each), FalsePositiveRate: rate, Secret: secret, Shards: shards})
	must(t, s.Unmark(t.Context()))
	addMany(t, s, "order", shards*each)
	must(t, s.MarkWhole(t.Context()))

	t.Run("every node has its part", func(t *testing.T) { spread(t, s, srv.client.(*redis.ClusterClient), float64(each)) })
	t.Run("a lookup is one command", func(t *testing.T) { countCommands(t, s, srv.client.(*redis.ClusterClient)) })
	t.Run("no ID is missing", func(t *testing.T) {
		for from := 0; from < shards*each; from += shards * each / 10 {
			list := numbered("order", from, each)
			if there := count(t, s, list, presence.Maybe); there != len(list) {
				t.Errorf("%d of %d IDs are there", there, len(list))
			}
		}
		absent := rate * float64(each) // that pass, give or take five times the root
		if passed := count(t, s, ids("nobody", each), presence.Maybe); math.Abs(float64(passed)-absent) > 5*math.Sqrt(absent) {
			t.Errorf("%d of %d foreign IDs pass", passed, each)
		}
	})
	t.Run("many callers", func(t *testing.T) { manyCallers(t, s) })
	t.Run("a shard is lost", func(t *testing.T) { loseShard(t, s, srv, lost) })
}

// spread checks which node has how many shards, and which shard how many IDs.
func spread(t *testing.T, s *Set, cluster *redis.ClusterClient, each float64) {
	ctx, shards := t.Context(), float64(s.opts.Shards)
	var mu sync.Mutex
	var nodes []int64
	must(t, cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node.DBSize(ctx).Val())
		return nil
	}))
	// Of keys thrown into three nodes one has n/3, give or take the root of 2n/9.
	mean, deviation := shards/3, math.Sqrt(shards*2/9)
	total := int64(0)
	for _, keys := range nodes {
		if total += keys; math.Abs(float64(keys)-mean) > 5*deviation {
			t.Errorf("a node has %d of %v shards, want %.0f give or take %.0f", keys, shards, mean, 5*deviation)
		}
	}
	if len(nodes) != 3 || total != int64(shards) {
		t.Errorf("the nodes have %v shards", nodes)
	}
	slots := make(map[int64]bool)
	for shard := range s.opts.Shards {
		slots[cluster.ClusterKeySlot(ctx, s.kind.keys(shard)[0]).Val()] = true
	}
	// Of two shards one in 16,384 share a slot: fewer than three pairs of 300 on average.
	if len(slots) < s.opts.Shards-15 {
		t.Errorf("%d shards are in %d slots", s.opts.Shards, len(slots))
	}
	info, err := s.Info(ctx)
	must(t, err)
	least, most := math.Inf(1), 0.0
	for _, sh := range info.Shards {
		if sh.State != Whole {
			t.Errorf("%s is %s", sh.Key, sh.State)
		}
		least, most = min(least, float64(sh.IDs)), max(most, float64(sh.IDs))
	}
	t.Logf("nodes have %v shards in %d slots, shards %.0f to %.0f IDs; %d IDs in %d bytes", nodes, len(slots), least, most, info.IDs, info.Bytes)
	// The root of the number is the standard deviation; the count is of bits, and has
	// an error of its own, less than that: of 900,000 IDs 0.1% at most.
	if least < each-7*math.Sqrt(each) || most > each+7*math.Sqrt(each) {
		t.Errorf("shards have %.0f to %.0f IDs, want %.0f", least, most, each)
	}
	if off := float64(info.IDs)/(each*shards) - 1; math.Abs(off) > 0.001*math.Sqrt(3000/each) {
		t.Errorf("%d IDs are counted", info.IDs)
	}
}

// countCommands asks for one ID after the other and counts what that costs, by what the
// servers say. With n shards and k bits an ID a filter that asked every shard would
// read n*k bits.
func countCommands(t *testing.T, s *Set, cluster *redis.ClusterClient) {
	const lookups = 600
	ctx := t.Context()
	seen := &sizes{}
	cluster.AddHook(seen)
	must(t, cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return node.ConfigResetStat(ctx).Err() }))
	for _, id := range append(numbered("order", 0, lookups/2), numbered("nobody", 0, lookups/2)...) {
		_, err := s.Ask(ctx, id)
		must(t, err)
	}
	calls := make(map[string]int)
	var mu sync.Mutex
	must(t, cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		text, err := node.Info(ctx, "commandstats").Result()
		mu.Lock()
		defer mu.Unlock()
		for _, m := range commandCalls.FindAllStringSubmatch(text, -1) {
			n, _ := strconv.Atoi(m[2])
			calls[m[1]] += n
		}
		return err
	}))
	for command, n := range calls {
		switch {
		case command == "bitfield_ro" && n != lookups:
			t.Errorf("%d lookups are %d commands", lookups, n)
		case command == "bitfield_ro", strings.HasPrefix(command, "cluster|"), strings.HasPrefix(command, "config|"),
			strings.HasPrefix(command, "client|"), command == "hello", command == "auth", command == "info",
			command == "ping", command == "replconf", command == "psync", command == "readonly":
			// The last ones are of replicas, and of clients that connect.
		default:
			t.Errorf("%d lookups are %d commands %s besides", lookups, n, command)
		}
	}
	if calls["bitfield_ro"] == 0 {
		t.Errorf("the servers counted %v", calls)
	}
	// A read for each two bits of the ID, and one for the seal.
	words, _ := layout(s.opts.FalsePositiveRate)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.reads) != 1 || seen.reads[1+words] != lookups {
		t.Errorf("reads of so many places, by their number: %v; want %d of %d", seen.reads, lookups, 1+words)
	}
}

var commandCalls = regexp.MustCompile(`(?m)^cmdstat_(\S+?):calls=(\d+)`)

// sizes is a hook that counts the reads of BITFIELD_RO, by how many places each
// reads.
type sizes struct {
	mu    sync.Mutex
	reads map[int]int
}

func (s *sizes) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (s *sizes) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s *sizes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		s.mu.Lock()
		if s.reads == nil {
			s.reads = make(map[int]int)
		}
		for _, c := range commands {
			if c.Name() == "bitfield_ro" {
				s.reads[(len(c.Args())-2)/3]++ // get, what and where
			}
		}
		s.mu.Unlock()
		return next(ctx, commands)
	}
}

// manyCallers ask at once, and share what goes to a node.
func manyCallers(t *testing.T, s *Set) {
	var callers sync.WaitGroup
	for caller := range 10 {
		callers.Go(func() {
			for _, id := range numbered("order", caller*100, 100) {
				if a, err := s.Ask(t.Context(), id); a != presence.Maybe || err != nil {
					t.Errorf("%s is %v (%v)", id, a, err)
				}
			}
		})
	}
	callers.Wait()
}

// loseShard deletes the key of one shard: only its IDs are unknown, until they are
// added again.
func loseShard(t *testing.T, s *Set, srv server, lost int) {
	ctx := t.Context()
	const asked = 30_000
	list := append(numbered("order", 0, asked), ids("nobody", asked)...)
	before := has(t, s, list)
	must(t, srv.client.Unlink(ctx, s.kind.keys(lost)...).Err())
	after := has(t, s, list)
	var mine []string // IDs of the shard
	for i, id := range list {
		want := before[i]
		if s.hash.shard(id) == lost {
			want = presence.Unknown
			mine = append(mine, id)
		}
		if after[i] != want {
			t.Fatalf("%s of shard %d is %v, want %v", id, s.hash.shard(id), after[i], want)
		}
	}
	if len(mine) < 50 { // of 200
		t.Fatalf("only %d IDs are of the shard", len(mine))
	}
	for _, id := range mine[:50] {
		if a, err := s.Ask(ctx, id); a != presence.Unknown || err != nil {
			t.Fatalf("%s is %v (%v)", id, a, err)
		}
	}
	info, err := s.Info(ctx)
	must(t, err)
	if info.Whole || info.Shards[lost].State != Missing || info.Shards[lost+1].State != Whole {
		t.Errorf("whole %v, the shard is %s", info.Whole, info.Shards[lost].State)
	}

	must(t, s.Open(ctx)) // which makes it
	if after := has(t, s, mine); after[0] != presence.Unknown {
		t.Errorf("an ID of an empty shard is %v", after[0])
	}
	// The others have all their bits, so that its own IDs are all that is missing.
	must(t, s.Unmark(ctx))
	var again []string
	for _, id := range numbered("order", 0, int(s.opts.Capacity)) {
		if s.hash.shard(id) == lost {
			again = append(again, id)
		}
	}
	must(t, s.Add(ctx, again))
	must(t, s.MarkWhole(ctx))
	for i, a := range has(t, s, list) {
		if a != before[i] {
			t.Fatalf("%s is %v once its shard is back, and was %v", list[i], a, before[i])
		}
	}
}

// addMany adds as a loader in a hurry does: the server works on one part while the
// next is made.
func addMany(tb testing.TB, s *Set, prefix string, n int) {
	tb.Helper()
	const part = 20_000
	parts := make(chan int)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for from := range parts {
				if err := s.Add(tb.Context(), numbered(prefix, from, min(part, n-from))); err != nil {
					tb.Error(err)
				}
			}
		})
	}
	for from := 0; from < n; from += part {
		parts <- from
	}
	close(parts)
	wg.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
}

// numbered is ids from a number on.
func numbered(prefix string, from, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = prefix + "-" + strconv.Itoa(from+i)
	}
	return list
}
