package redisbatch

import (
	"context"
	"errors"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestFewTripsForMany has calls that come while all workers wait for Redis go in few trips,
// in the order in which they came.
func TestFewTripsForMany(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		j := jammed(t, c)
		want := names("k", 60)
		for i, key := range want {
			j.run(t, incr, key)
			wantWaiting(t, j.batcher, i+1)
		}
		j.drain(t, len(want))
		var got [][]string
		for _, trip := range j.seen()[MaxWorkers:] {
			var keys []string
			for _, s := range trip.calls {
				keys = append(keys, s.key)
			}
			got = append(got, keys)
		}
		if most := (len(want) + MinScripts - 1) / MinScripts; len(got) > most {
			t.Errorf("%d trips, want %d at most", len(got), most)
		}
		slices.SortFunc(got, func(a, b []string) int { return slices.Index(want, a[0]) - slices.Index(want, b[0]) })
		if all := slices.Concat(got...); !slices.Equal(all, want) {
			t.Errorf("called for %v, want %v", all, want)
		}
	})
}

// TestBatchIsBounded has more calls wait than go in one trip.
func TestBatchIsBounded(t *testing.T) {
	t.Parallel()
	j := jammed(t, single(t))
	const callers = 5 * MaxWorkers * MaxScripts / 4 // so that the first batches are full
	for _, key := range names("k", callers) {
		j.run(t, incr, key)
	}
	wantWaiting(t, j.batcher, callers)
	j.drain(t, callers)
	calls, full := 0, 0
	for _, trip := range j.seen() {
		calls += len(trip.calls)
		if len(trip.calls) > MaxScripts {
			t.Errorf("a trip of %d, want %d at most", len(trip.calls), MaxScripts)
		}
		if len(trip.calls) == MaxScripts {
			full++
		}
	}
	if calls != MaxWorkers+callers || full < 1 {
		t.Errorf("%d calls, want %d; %d trips of %d, want 1", calls, MaxWorkers+callers, full, MaxScripts)
	}
}

// TestAloneSendsItself checks from where a call is sent: when nothing else is on its way,
// from the caller's own goroutine; otherwise from a worker, which ends.
func TestAloneSendsItself(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		b, p := newBatcher(t, c), watch(t, c)
		q, err := b.batcher.Queue(t.Context(), "k")
		bedtest.Check(t, err)
		for range 10 {
			quick := q.took.Load() <= int64(slowAfter)
			run(t, b, incr, "k")
			if trips := p.seen(); len(trips) != 1 || len(trips[0].calls) != 1 || trips[0].own != quick {
				t.Errorf("alone: %+v, want one from the caller's goroutine: %v", trips, quick)
			}
		}
		j := jammed(t, connect(t, c.(*redis.Client).Options().Addr))
		j.run(t, incr, "k")
		wantWaiting(t, j.batcher, 1)
		j.drain(t, 1)
		own := 0
		for _, trip := range j.seen() {
			if trip.own {
				own++
			}
		}
		if own != 1 {
			t.Errorf("%d callers sent their calls themselves, want the first", own)
		}
		// A server that was slow: a caller that leaves is not kept by its own call.
		q.took.Store(int64(time.Second))
		run(t, b, incr, "k")
		if trips := p.seen(); trips[0].own {
			t.Error("a caller sent a call to a slow server from its own goroutine")
		}
		for _, b := range []*ScriptBatcher{b, j.batcher} {
			b.Close() // blocks for ever if a worker did not end
			for _, q := range b.batcher.queues {
				if q.workers != 0 || len(q.waiting) != 0 {
					t.Errorf("%d workers and %d calls are left", q.workers, len(q.waiting))
				}
			}
		}
	})
}

// TestScriptForgotten has a server that knows one script of a batch and not the other:
// what was answered is not sent again, and the other comes with its text.
func TestScriptForgotten(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		j := jammed(t, c)
		known, unknown := names("known", 10), names("unknown", 10)
		bedtest.Check(t, c.ScriptFlush(t.Context()).Err())
		bedtest.Check(t, c.ScriptLoad(t.Context(), incr.Text).Err())
		for i := range known { // in turns with each other
			j.run(t, incr, known[i])
			wantWaiting(t, j.batcher, 2*i+1)
			j.run(t, decr, unknown[i])
			wantWaiting(t, j.batcher, 2*i+2)
		}
		j.drain(t, len(known)+len(unknown))
		byName, withText := 0, 0
		for _, trip := range j.seen() {
			for _, s := range trip.calls {
				switch {
				case s.script == incr && s.text:
					t.Errorf("%s was sent again with the text", s.key)
				case s.script == incr:
					byName++
				case s.text:
					withText++
				}
			}
		}
		if byName != MaxWorkers+len(known) || withText < 1 || withText > len(unknown) { // another batch may have brought it
			t.Errorf("%d calls by name, want %d; %d with the text, want 1 to %d",
				byName, MaxWorkers+len(known), withText, len(unknown))
		}
		for _, key := range append(known, unknown...) {
			if n, err := c.Get(t.Context(), key).Int(); err != nil || n*n != 1 {
				t.Errorf("%s is %d (%v): the script ran more than once", key, n, err)
			}
		}
		run(t, j.batcher, decr, "k")
		for _, trip := range j.seen() {
			if trip.calls[0].text {
				t.Error("a script came with its text although it is known by now")
			}
		}
	})
}

// waysToCall are Do and Start. Each calls then once.
var waysToCall = map[string]func(*ScriptBatcher, context.Context, *ScriptCall, func(int64, error)){
	"do": func(b *ScriptBatcher, ctx context.Context, c *ScriptCall, then func(int64, error)) {
		c.Queue = true
		go func() { then(b.Do(ctx, c)) }()
	},
	"start": (*ScriptBatcher).Start,
}

// TestLeavingCallers has callers leave before their calls were sent and after.
func TestLeavingCallers(t *testing.T) {
	t.Parallel()
	for name, call := range waysToCall {
		t.Run(name, func(t *testing.T) {
			onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) { testLeavingCallers(t, c, call) })
		})
	}
}

func testLeavingCallers(t *testing.T, c redis.UniversalClient, call func(*ScriptBatcher, context.Context, *ScriptCall, func(int64, error))) {
	j := jammed(t, c)
	ctx, leave := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	then := func(_ int64, err error) { errs <- err }
	call(j.batcher, ctx, NewCall(incr, "withdrawn"), then)
	wantWaiting(t, j.batcher, 1)
	leave()
	err := bedtest.Receive(t, "the error", errs)
	if !errors.Is(err, context.Canceled) || IsAmbiguous(err) {
		t.Errorf("before it was sent: %v, ambiguous: %v", err, IsAmbiguous(err))
	}
	wantWaiting(t, j.batcher, 0)
	call(j.batcher, ctx, NewCall(incr, "withdrawn"), then)
	if err := bedtest.Receive(t, "the error", errs); !errors.Is(err, context.Canceled) || IsAmbiguous(err) {
		t.Errorf("of a caller that had left: %v, ambiguous: %v", err, IsAmbiguous(err))
	}

	open := j.open
	blocked, openLast := j.block(func(t trip) bool { return t.has("abandoned") })
	defer openLast()
	open()

	ctx, leave = context.WithCancel(t.Context())
	call(j.batcher, ctx, NewCall(incr, "abandoned"), then)
	bedtest.Receive(t, "the call", blocked)
	leave()
	err = bedtest.Receive(t, "the error", errs)
	var abandoned AbandonedError
	if !errors.Is(err, context.Canceled) || !IsAmbiguous(err) || !errors.As(err, &abandoned) {
		t.Fatalf("after it was sent: %v, ambiguous: %v", err, IsAmbiguous(err))
	}
	if abandoned.Refused(ctx) {
		t.Error("refused before it was answered")
	}
	openLast()
	for range 2 { // several goroutines may call it
		if abandoned.Refused(t.Context()) {
			t.Error("refused although the script ran")
		}
	}
	for key, want := range map[string]int64{"withdrawn": 0, "abandoned": 1} {
		if n := c.Exists(t.Context(), key).Val(); n != want {
			t.Errorf("%s: %d keys, want %d", key, n, want)
		}
	}
	j.drain(t, 0)
}

// TestStart has calls answered, or refused, without goroutines that wait.
func TestStart(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		const callers = 500
		j := jammed(t, c)
		bedtest.Check(t, c.Set(t.Context(), "text", "a", 0).Err())
		before, answers, errs := runtime.NumGoroutine(), make(chan int64, callers), make(chan error, callers)
		for i := range callers {
			key := "k"
			if i%5 == 0 {
				key = "text"
			}
			j.batcher.Start(t.Context(), NewCall(incr, key), func(n int64, err error) {
				if err != nil {
					errs <- err
					return
				}
				answers <- n
			})
		}
		bedtest.Eventually(t, "they need no goroutines", func() bool { return runtime.NumGoroutine() < before+callers/2 })
		j.drain(t, 0)
		var sum int64
		for range callers - callers/5 {
			sum += bedtest.Receive(t, "an answer", answers)
		}
		if n := int64(callers - callers/5); sum != n*(n+1)/2 {
			t.Errorf("the answers are %d in all", sum)
		}
		for range callers / 5 {
			if err := bedtest.Receive(t, "an error", errs); !strings.Contains(err.Error(), "integer") {
				t.Errorf("the error is %v", err)
			}
		}
	})
}

// TestQueuesOfACluster has the calls of a cluster's primaries go apart: each trip to one of
// them, and what is on its way to one holds up no other.
func TestQueuesOfACluster(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	b, p := newBatcher(t, c), watch(t, c)
	primary := func(key string) string {
		node, err := c.MasterForKey(t.Context(), key)
		if err != nil {
			t.Error(err)
			return ""
		}
		return node.Options().Addr
	}
	slow := primary("k0")
	blocked, open := p.block(func(t trip) bool { return primary(t.calls[0].key) == slow })
	t.Cleanup(open)
	behind, others := make(chan struct{}, 100), make(chan struct{}, 100)
	nBehind, nOthers := 0, 0
	for _, key := range names("k", 60) {
		done := others
		if primary(key) == slow {
			done = behind
			nBehind++
		} else {
			nOthers++
		}
		go func() {
			run(t, b, incr, key)
			done <- struct{}{}
		}()
		if done == behind && nBehind <= MaxWorkers { // one by one, or they would share a batch
			bedtest.Receive(t, "a batch to the slow primary", blocked)
		}
	}
	if nBehind <= MaxWorkers || nOthers == 0 {
		t.Fatalf("%d keys are of the slow primary, %d of others", nBehind, nOthers)
	}
	for range nOthers { // while those batches are still on their way
		bedtest.Receive(t, "an answer of another primary", others)
	}
	open()
	for range nBehind {
		bedtest.Receive(t, "an answer of the slow primary", behind)
	}
	calls := make(map[string]int)
	for _, trip := range p.seen() {
		to := primary(trip.calls[0].key)
		calls[to] += len(trip.calls)
		for _, s := range trip.calls {
			if primary(s.key) != to {
				t.Errorf("a trip went to %s and %s", to, primary(s.key))
			}
		}
	}
	if len(calls) != 3 {
		t.Errorf("the calls went to %d primaries: %v", len(calls), calls)
	}
}

// TestQueueOfAnOldNode has a cluster's queues end that were not used for long, when another
// node is first called.
func TestQueueOfAnOldNode(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	b := newBatcher(t, c)
	at := make(map[*redis.Client]string) // keys by their nodes
	for _, key := range names("k", 100) {
		node, err := c.MasterForKey(t.Context(), key)
		bedtest.Check(t, err)
		at[node] = key
	}
	keys := slices.Collect(maps.Values(at))
	queues := func(want int) {
		t.Helper()
		b.batcher.mu.Lock()
		defer b.batcher.mu.Unlock()
		if len(b.batcher.queues) != want {
			t.Errorf("%d queues, want %d", len(b.batcher.queues), want)
		}
		for _, q := range b.batcher.queues {
			q.used.Add(-int64(queueUnused))
		}
	}
	run(t, b, incr, keys[0])
	queues(1)
	run(t, b, incr, keys[0]) // it is used again
	run(t, b, incr, keys[1])
	queues(2)
	run(t, b, incr, keys[2])
	queues(1)
}

func TestIsAmbiguous(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"not sent", unsentError{context.Canceled}, false},
		{"no connection", &net.OpError{Op: "dial", Err: errors.New("refused")}, false},
		{"broken connection", &net.OpError{Op: "read", Err: errors.New("reset")}, true},
		{"not replicated", ErrNotReplicated, true},
		{"left on its way", AbandonedError{context.Canceled, nil}, true},
	} {
		if got := IsAmbiguous(tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestEnsureErrors has a pipeline fail with and without errors of its commands.
func TestEnsureErrors(t *testing.T) {
	failed, own := errors.New("failed"), errors.New("its own")
	for _, tc := range []struct{ err, of, want error }{{nil, nil, nil}, {failed, nil, failed}, {failed, own, nil}} {
		cmds := []redis.Cmder{redis.NewIntCmd(t.Context(), "a"), redis.NewIntCmd(t.Context(), "b")}
		if tc.of != nil {
			cmds[1].SetErr(tc.of)
		}
		EnsureErrors(cmds, tc.err)
		if got := cmds[0].Err(); !errors.Is(got, tc.want) || (tc.want == nil) != (got == nil) {
			t.Errorf("%v and %v: %v, want %v", tc.err, tc.of, got, tc.want)
		}
	}
}

// TestRepeated has a client send a call twice: an answer that there is nothing to do means
// that the first time may have done it.
func TestRepeated(t *testing.T) {
	c := NewCall(incr, strings.Repeat("k", 2))
	c.Repeated = 7
	c.prepare(t.Context())
	for times, want := range []int64{0, 7} {
		if _, err := c.sent.MarshalBinary(); err != nil {
			t.Fatal(err)
		}
		if got := c.value(); got != want {
			t.Errorf("sent %d times: %d, want %d", times+1, got, want)
		}
	}
}
