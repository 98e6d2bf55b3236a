package redisbf

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestEverySet is what every kind does on every topology.
func TestEverySet(t *testing.T) {
	onEvery(t, func(t *testing.T, srv server, opts Options) {
		for _, b := range []struct {
			name string
			test func(*testing.T, server, Options)
		}{
			{"loads", loads}, {"is opened by several", openedBySeveral}, {"tells what differs", differs},
			{"unmarks", unmarks}, {"loses a load", losesLoad}, {"has no false negatives", noFalseNegatives},
			{"is made again", madeAgain}, {"is whole never but when it is", faults}, {"is dropped", drops}, {"tells of itself", informs},
		} {
			b := b
			mine := opts
			mine.Key = fmt.Sprintf("%s:%d", opts.Key, lastKey.Add(1))
			t.Run(b.name, func(t *testing.T) { b.test(t, srv, mine) })
		}
	})
}

func loads(t *testing.T, srv server, opts Options) {
	ctx, n := t.Context(), 5000
	if bedtest.Race {
		n = 1000
	}
	s := unopened(t, srv, opts)
	neverAbsent(t, s, "not opened")
	must(t, s.Open(ctx))
	neverAbsent(t, s, "empty")
	wantError(t, s.MarkWhole(ctx), ErrLoadLost)
	must(t, s.Unmark(ctx))
	must(t, s.Add(ctx, ids("order", n)))
	neverAbsent(t, s, "loading")
	if there := count(t, s, ids("order", n), presence.Maybe); there != n {
		t.Errorf("%d of %d IDs are there while it is loading", there, n)
	}
	must(t, s.MarkWhole(ctx))
	must(t, s.MarkWhole(ctx)) // whose answer may have been lost
	works(t, s, n)
	must(t, s.Add(ctx, ids("order", n))) // again
	must(t, s.Add(ctx, nil))
	works(t, s, n)
	for _, id := range []string{"", "late", "ünïcode", "订单42", "a\x00b", "😀"} {
		must(t, s.Add(ctx, []string{id}))
		if a, err := s.Ask(ctx, id); a != presence.Maybe || err != nil {
			t.Errorf("%q is %v (%v)", id, a, err)
		}
	}
	// Another process sees the same.
	works(t, opened(t, srv, opts), n)
}

func openedBySeveral(t *testing.T, srv server, opts Options) {
	var wg sync.WaitGroup
	sets := make([]*Set, 8)
	for i := range sets {
		sets[i] = unopened(t, srv, opts)
		wg.Go(func() {
			if err := sets[i].Open(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	fillUp(t, sets[3], 100)
	for _, s := range sets {
		must(t, s.Open(t.Context())) // which changes nothing
		works(t, s, 100)
	}
}

func differs(t *testing.T, srv server, opts Options) {
	s := loaded(t, srv, opts, 100)
	key := s.kind.keys(0)[0]
	for name, change := range map[string]func(*Options){
		"capacity": func(o *Options) { o.Capacity += 10_000 },
		"rate":     func(o *Options) { o.FalsePositiveRate = 0.002 },
		"shards=":  func(o *Options) { o.Shards += 5 },
		"secret":   func(o *Options) { o.Secret[0]++ },
	} {
		other := opts
		change(&other)
		o, err := New(srv.client, other)
		if opts.Kind == Redisson && (name == "shards=" || name == "secret") {
			continue // it has one, and its bits are not keyed
		}
		must(t, err)
		err = o.Open(t.Context())
		if opts.Kind == Redisson {
			name = redissonName[name]
		}
		wantError(t, err, nil, key, name)
		for _, right := range []string{"capacity", "rate", "shards=", "secret"} {
			if right != name && strings.Contains(err.Error(), right) {
				t.Errorf("%q names what is not different", err)
			}
		}
		neverAbsent(t, o, "other "+name)
	}
	if opts.Shards > 1 {
		n := 0
		for shard := range opts.Shards + 5 {
			n += int(srv.client.Exists(t.Context(), fmt.Sprintf("%s:{%d}", opts.Key, shard)).Val())
		}
		if n != opts.Shards {
			t.Errorf("%d shards are there, not %d", n, opts.Shards)
		}
	}
	works(t, s, 100)
}

// redissonName is what Redisson calls a parameter.
var redissonName = map[string]string{"capacity": "expectedInsertions", "rate": "falseProbability"}

func unmarks(t *testing.T, srv server, opts Options) {
	ctx := t.Context()
	s, other := loaded(t, srv, opts, 100), opened(t, srv, opts)
	works(t, other, 100)
	// More often than a script looks ahead, so that the other set is far behind.
	for range 2*lookAhead + 3 {
		must(t, s.Unmark(ctx))
	}
	neverAbsent(t, s, "unmarked")
	neverAbsent(t, other, "unmarked by another")
	must(t, s.MarkWhole(ctx))
	works(t, s, 100)
	late := opened(t, srv, opts)
	works(t, late, 100)
	// The other finds its way by asking.
	for range 2*lookAhead + 4 {
		count(t, other, []string{"order-1"}, presence.Maybe)
		for shard := range opts.Shards { // each has its own
			_ = count(t, other, ids(fmt.Sprint("x", shard), 50), presence.Maybe)
		}
	}
	works(t, other, 100)
	must(t, opened(t, srv, opts).Unmark(ctx))
	neverAbsent(t, s, "unmarked by a third")
}

// madeAgain deletes a set that was loaded several times and has one of those who know
// that load another: whoever comes later, or knew more, or less, finds it whole, and
// nobody does once it is unmarked.
func madeAgain(t *testing.T, srv server, opts Options) {
	ctx := t.Context()
	less, maker, more := loaded(t, srv, opts, 100), opened(t, srv, opts), opened(t, srv, opts)
	for range 3 {
		fillUp(t, maker, 100)
	}
	if whole, err := less.Whole(ctx); err != nil || !whole {
		t.Fatalf("it is not whole: %v", err)
	}
	for range 3 {
		fillUp(t, more, 100)
	}
	must(t, maker.Drop(ctx))
	must(t, maker.Open(ctx))
	fillUp(t, maker, 100)
	everybody := []*Set{less, maker, more, opened(t, srv, opts)}
	for i, s := range everybody {
		if whole, err := s.Whole(ctx); err != nil || !whole {
			t.Errorf("set %d is not whole: %v", i, err)
		}
		works(t, s, 100)
	}
	must(t, opened(t, srv, opts).Unmark(ctx))
	for i, s := range everybody {
		neverAbsent(t, s, fmt.Sprintf("set %d, which is not whole", i))
		if whole, err := s.Whole(ctx); err != nil || whole {
			t.Errorf("set %d is whole still: %v", i, err)
		}
	}
}

func losesLoad(t *testing.T, srv server, opts Options) {
	ctx := t.Context()
	s, other := opened(t, srv, opts), opened(t, srv, opts)
	must(t, s.Unmark(ctx))
	must(t, s.Add(ctx, ids("order", 100)))
	must(t, other.Unmark(ctx)) // for an ID that the first has not seen
	wantError(t, s.MarkWhole(ctx), ErrLoadLost)
	neverAbsent(t, s, "unmarked meanwhile")
	must(t, other.Add(ctx, ids("order", 100)))
	must(t, other.MarkWhole(ctx))
	works(t, s, 100)

	must(t, s.Unmark(ctx))
	srv.flush(t)
	must(t, other.Open(ctx)) // makes it anew
	must(t, s.Add(ctx, ids("order", 10)))
	if err := s.MarkWhole(ctx); err == nil {
		t.Error("a set that was lost during its load is whole")
	}
	neverAbsent(t, s, "lost")
	neverAbsent(t, other, "lost")
}

// noFalseNegatives has 8 write and read at once: what is added is there at once,
// for everybody.
func noFalseNegatives(t *testing.T, srv server, opts Options) {
	s, other := loaded(t, srv, opts, 10), opened(t, srv, opts)
	var wg sync.WaitGroup
	var absent atomic.Int64
	for w := range 8 {
		wg.Go(func() {
			for i := range 25 {
				mine := ids(fmt.Sprintf("w%d-%d", w, i), 1+i)
				if err := s.Add(t.Context(), mine); err != nil {
					t.Error(err)
					return
				}
				answers := make([]presence.Answer, len(mine))
				if err := other.Has(t.Context(), mine, answers); err != nil {
					t.Error(err)
				}
				for _, a := range answers {
					if a != presence.Maybe {
						t.Errorf("an ID that was added is %v", a)
					}
				}
				if a, err := other.Ask(t.Context(), mine[i]); a != presence.Maybe {
					t.Errorf("an ID that was added is %v (%v)", a, err)
				}
				if a, _ := other.Ask(t.Context(), "nobody-"+mine[i]); a == presence.Absent {
					absent.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if absent.Load() < 190 {
		t.Errorf("%d of 200 foreign IDs were absent", absent.Load())
	}
}

// faults breaks what is in Redis.
func faults(t *testing.T, srv server, opts Options) {
	ctx := t.Context()
	s := loaded(t, srv, opts, 500)
	keys := s.kind.keys(0)
	restore := func() {
		t.Helper()
		for shard := range opts.Shards {
			must(t, srv.client.Del(ctx, s.kind.keys(shard)...).Err())
		}
		must(t, s.Open(ctx))
		neverAbsent(t, s, "opened again")
		fillUp(t, s, 500)
		works(t, s, 500)
	}
	// An ID of the shard that is broken, that was never added.
	probe := ""
	for i := 0; probe == ""; i++ {
		if id := fmt.Sprint("probe-", i); s.hash.shard(id) == 0 && count(t, s, []string{id}, presence.Absent) == 1 {
			probe = id
		}
	}
	gone := func(what string) {
		t.Helper()
		answers := []presence.Answer{presence.Absent}
		err := s.Has(ctx, []string{probe}, answers)
		if answers[0] == presence.Absent {
			t.Fatalf("%s: an ID is absent", what)
		}
		if a, _ := s.Ask(ctx, probe); a == presence.Absent {
			t.Fatalf("%s: an ID is absent when asked for", what)
		}
		t.Logf("%s: %v, %v", what, answers[0], err)
	}
	for _, key := range keys {
		must(t, srv.client.Del(ctx, key).Err())
		gone("deleted " + key)
		restore()
		// Another type, which is an error.
		must(t, srv.client.Del(ctx, key).Err())
		must(t, srv.client.RPush(ctx, key, "x").Err())
		gone("a list is " + key)
		wantError(t, s.Open(ctx), nil, key)
		restore()
		// A string, which is the right type for a bitmap.
		must(t, srv.client.Set(ctx, key, "whatever", 0).Err())
		gone("a string is " + key)
		if opts.Kind != Redisson || key != keys[0] { // where any string is a bitmap
			wantError(t, s.Open(ctx), nil, key)
		}
		must(t, srv.client.Set(ctx, key, string(make([]byte, 100_000)), 0).Err())
		gone("a long string is " + key)
		wantError(t, s.Open(ctx), nil, key)
		restore()
		must(t, srv.client.PExpire(ctx, key, time.Millisecond).Err())
		for srv.client.Exists(ctx, key).Val() == 1 {
			gone2(t, s) // while it goes
		}
		gone("expired " + key)
		restore()
	}
	// Deleted, and written to by somebody who has not noticed.
	must(t, srv.client.Del(ctx, keys[0]).Err())
	if err := s.Add(ctx, []string{probe}); opts.Kind != Redisson {
		wantError(t, err, ErrGone, keys[0])
	}
	gone("deleted and written to")
	restore()

	srv.flush(t)
	neverAbsent(t, s, "flushed")
	must(t, s.Open(ctx))
	neverAbsent(t, s, "flushed and opened")
	fillUp(t, s, 500)
	works(t, s, 500)

	// The filter of another set, also one that is whole.
	for what, change := range map[string]func(*Options){
		"capacity": func(o *Options) { o.Capacity *= 2 },
		"rate":     func(o *Options) { o.FalsePositiveRate = 0.01 },
		"secret":   func(o *Options) { o.Secret[5]++ },
	} {
		other := opts
		change(&other)
		if opts.Kind == Redisson && what == "secret" {
			continue // its bits are the same ones
		}
		o := unopened(t, srv, other)
		must(t, o.Drop(ctx))
		must(t, o.Open(ctx))
		fillUp(t, o, 500)
		works(t, o, 500)
		gone("another " + what)
		neverAbsent(t, s, "another "+what)
		if err := s.Add(ctx, []string{probe}); opts.Kind != Bloom { // which takes it: see Bloom
			wantError(t, err, ErrGone)
		}
		restore()
	}
	if opts.Kind != Redisson {
		// A copy under another name has the marks of its own.
		other := opts
		other.Key = opts.Key + ":copy"
		o := unopened(t, srv, other)
		if srv.name == "single" {
			for shard := range opts.Shards {
				dump, err := srv.client.Dump(ctx, s.kind.keys(shard)[0]).Result()
				must(t, err)
				must(t, srv.client.RestoreReplace(ctx, o.kind.keys(shard)[0], 0, dump).Err())
			}
			neverAbsent(t, o, "a copy")
		}
	}
}

// gone2 asks without caring for the answer.
func gone2(t *testing.T, s *Set) {
	t.Helper()
	if err := s.Has(t.Context(), []string{"order-1"}, make([]presence.Answer, 1)); err != nil {
		t.Fatal(err)
	}
}

func drops(t *testing.T, srv server, opts Options) {
	ctx := t.Context()
	s := loaded(t, srv, opts, 100)
	must(t, s.Drop(ctx))
	for shard := range opts.Shards {
		for _, key := range s.kind.keys(shard) {
			if srv.client.Exists(ctx, key).Val() != 0 {
				t.Errorf("%s is still there", key)
			}
		}
	}
	neverAbsent(t, s, "dropped")
	wantError(t, s.Add(ctx, []string{"order-1"}), ErrGone)
	wantError(t, s.Unmark(ctx), ErrGone)
	if err := s.MarkWhole(ctx); !errors.Is(err, ErrGone) && !errors.Is(err, ErrLoadLost) {
		t.Errorf("a set that is gone was declared whole (%v)", err)
	}
	must(t, s.Drop(ctx))
}

func informs(t *testing.T, srv server, opts Options) {
	ctx := t.Context()
	s := opened(t, srv, opts)
	info, err := s.Info(ctx)
	must(t, err)
	if info.Whole || info.IDs > 100 || len(info.Shards) != opts.Shards {
		t.Errorf("an empty one is %+v", info)
	}
	fillUp(t, s, 20_000)
	info, err = s.Info(ctx)
	must(t, err)
	if !info.Whole || info.IDs < 19_800 || info.IDs > 20_200 {
		t.Errorf("one of 20000 IDs has %d and is whole %v", info.IDs, info.Whole)
	}
	// Small shards of the kind Bloom have much room to spare.
	if p := info.EstimatedFalsePositiveRate; p < 0.00005 || p > 0.0013 {
		t.Errorf("its rate is %g", p)
	}
	if info.FillRatio < 0.35 || info.FillRatio > 0.55 || info.Bytes < 30_000 || info.Bytes > 300_000 {
		t.Errorf("its fill is %g of %d bytes", info.FillRatio, info.Bytes)
	}
	must(t, srv.client.Del(ctx, s.kind.keys(0)...).Err())
	info, err = s.Info(ctx)
	must(t, err)
	if info.Whole || info.Shards[0].State != Missing {
		t.Errorf("one that is missing is %+v", info.Shards[0])
	}
	must(t, srv.client.RPush(ctx, s.kind.keys(0)[0], 1).Err())
	info, err = s.Info(ctx)
	must(t, err)
	if info.Whole || info.Shards[0].State != Foreign || info.Shards[0].Problem == "" {
		t.Errorf("one that is foreign is %+v", info.Shards[0])
	}
}

// TestOverfull has a filter of Redisson that is so full that marks are there by
// chance: unmarked, it is not whole all the same.
func TestOverfull(t *testing.T) {
	srv := single(t)
	ctx := t.Context()
	s := loaded(t, srv, Options{Kind: Redisson, Key: "overfull", Capacity: 2000, FalsePositiveRate: 0.1}, 2000)
	// Not before it is whole: in a full filter, the random bits of the load's own mark can
	// be those that its generation's end still lacked.
	must(t, s.Add(ctx, ids("more", 10_000)))
	info, err := s.Info(ctx)
	must(t, err)
	n := s.kind.(*redisson).filter.Load().marks.n
	byChance := math.Pow(info.EstimatedFalsePositiveRate, float64(n))
	t.Logf("a mark is there by a chance of %.2f", byChance)
	if byChance < 0.1 {
		t.Error("the filter is not full enough for this test")
	}
	first := s.kind.(*redisson).filter.Load().marks.of(0).number
	for range 10 {
		must(t, s.Unmark(ctx))
		answers := make([]presence.Answer, 1000)
		must(t, s.Has(ctx, ids("nobody", 1000), answers))
		if slices.Contains(answers, presence.Absent) {
			t.Fatal("unmarked, an ID is absent")
		}
	}
	if last := s.kind.(*redisson).filter.Load().marks.of(0).number; last <= first+10 {
		t.Errorf("10 loads ended %d generations: none was marked by chance", last-first)
	}
	must(t, srv.client.Set(ctx, "overfull", strings.Repeat("\xff", 1198), 0).Err())
	neverAbsent(t, s, "full")
	wantError(t, s.Unmark(ctx), ErrFull)
	must(t, opened(t, srv, s.opts).Drop(ctx))
}
