package redislock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/testbed/bedtest"
)

// queued returns how many questions wait to be sent.
func queued(l *Locker) (n int) {
	p := &l.nodes[0].pipe
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, lane := range p.lanes {
		lane.mu.Lock()
		n += len(lane.waiting)
		lane.mu.Unlock()
	}
	return n
}

func wantQueued(t *testing.T, l *Locker, n int) {
	t.Helper()
	bedtest.Eventually(t, fmt.Sprintf("%d questions wait to be sent", n), func() bool { return queued(l) == n })
}

// jam is a Locker whose questions do not get through until it is opened: so what
// comes together goes together.
type jam struct {
	*probe
	locker  *Locker
	open    func()
	results chan result // of ask
	keys    []string    // of the flights that jam it
}

// jammed fills the flights of a Locker to the master of "first0".
func jammed(t *testing.T, c redis.UniversalClient) *jam {
	t.Helper()
	l := newLocker(t, c, Options{})
	j := &jam{probe: watch(t, c, l.opts.Kind, l.opts.Format), locker: l, results: make(chan result, 2000)}
	blocked, open := j.block(isDeed("acquire"))
	j.open = open
	t.Cleanup(open)
	for i := range maxFlights {
		j.keys = append(j.keys, fmt.Sprintf("{first0}%d", i))
		j.ask(t, j.keys[i])
		soon(t, "a flight", blocked)
	}
	return j
}

// ask acquires in the background.
func (j *jam) ask(t *testing.T, keys ...string) {
	for _, key := range keys {
		ctx := context.WithoutCancel(t.Context())
		go func() {
			lease, err := j.locker.Acquire(ctx, key)
			j.results <- result{lease, err}
		}()
	}
}

// drain opens the jam and releases so many grants, those of the flights included.
func (j *jam) drain(t *testing.T, n int) {
	t.Helper()
	j.open()
	for range n {
		release(t, soon(t, "a grant", j.results).ok(t))
	}
}

func names(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint(prefix, i))
	}
	return keys
}

// TestFewTripsForMany has what comes while all flights are on their way go in few trips,
// in the order in which it came.
func TestFewTripsForMany(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		j := jammed(t, c)
		var want []string
		for _, key := range names("k", 60) {
			j.ask(t, key)
			want = append(want, key)
			wantQueued(t, j.locker, len(want))
		}
		j.drain(t, maxFlights+len(want))
		var got [][]string
		for _, trip := range j.seen() {
			if !trip.has("acquire") || slices.Contains(j.keys[:maxFlights], trip.asked[0].key) {
				continue
			}
			var chunk []string
			for _, a := range trip.asked {
				if a.deed == "acquire" { // a release may have come in time
					chunk = append(chunk, a.key)
				}
			}
			got = append(got, chunk)
		}
		if most := (len(want) + minBatch - 1) / minBatch; len(got) > most {
			t.Errorf("%d trips, want %d at most", len(got), most)
		}
		slices.SortFunc(got, func(a, b []string) int { return slices.Index(want, a[0]) - slices.Index(want, b[0]) })
		if all := slices.Concat(got...); !slices.Equal(all, want) {
			t.Errorf("asked for %v, want %v", all, want)
		}
	})
}

// TestBatchIsBounded has more wait than go in one trip.
func TestBatchIsBounded(t *testing.T) {
	t.Parallel()
	j := jammed(t, single(t, 1)[0])
	const callers = 5 * maxFlights * maxBatch / 4 // so that the first batches are full
	j.ask(t, names("k", callers)...)
	wantQueued(t, j.locker, callers)
	j.drain(t, maxFlights+callers)
	asked, full := 0, 0
	for _, trip := range j.seen() {
		if len(trip.asked) > maxBatch {
			t.Errorf("a trip of %d, want %d at most", len(trip.asked), maxBatch)
		}
		if len(trip.asked) == maxBatch {
			full++
		}
		for _, a := range trip.asked {
			if a.deed == "acquire" {
				asked++
			}
		}
	}
	if asked != maxFlights+callers || full < 1 {
		t.Errorf("%d questions, want %d; %d trips of %d, want 1", asked, maxFlights+callers, full, maxBatch)
	}
}

// TestFarFewerTripsThanQuestions has callers that come as they like.
func TestFarFewerTripsThanQuestions(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	l := newLocker(t, c, Options{})
	p := watch(t, c, Exclusive, Redisson)
	const callers, rounds = 64, 20
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range rounds {
				lease, err := l.Acquire(t.Context(), fmt.Sprint("k", i))
				if err == nil {
					err = lease.Release(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	trips, questions := 0, 0
	for _, trip := range p.seen() {
		trips++
		for _, a := range trip.asked {
			if a.deed == "acquire" || a.deed == "release" {
				questions++
			}
		}
	}
	t.Logf("%d questions in %d trips", questions, trips)
	if questions != 2*callers*rounds || trips > questions/4 {
		t.Errorf("%d trips for %d questions, want %d questions and a quarter of the trips at most",
			trips, questions, 2*callers*rounds)
	}
}

// TestAloneAsksItself checks from where a caller's question is sent: when nobody
// else asks, from the caller's own goroutine; when somebody does, from one of the
// pipe, which ends.
func TestAloneAsksItself(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{})
		p := watch(t, c, Exclusive, Redisson)
		quick := func() bool {
			return len(l.nodes[0].pipe.lanes) == 0 || l.nodes[0].pipe.lanes[nil].took.Load() <= int64(slowAfter)
		}
		for range 10 {
			mine := quick()
			lease := acquire(t, l, "k")
			trips := p.seen()
			if len(trips) != 1 || len(trips[0].asked) != 1 || trips[0].own != mine {
				t.Errorf("alone: %+v, want one from the caller's goroutine: %v", trips, mine)
			}
			release(t, lease)
			p.seen()
		}
		j := jammed(t, another(t, c))
		j.ask(t, "k")
		wantQueued(t, j.locker, 1)
		j.drain(t, maxFlights+1)
		own := 0
		for _, trip := range j.seen() {
			if trip.has("acquire") && trip.own {
				own++
			}
		}
		if own != 1 { // that of the first
			t.Errorf("%d asked for themselves, want the first", own)
		}
		// A server that was slow: a caller that leaves is not kept by its own question.
		slow := l.nodes[0].pipe.lanes[nil]
		slow.took.Store(int64(time.Second))
		p.seen()
		release(t, acquire(t, l, "k"))
		if trips := p.seen(); trips[0].own {
			t.Error("a caller asked a slow server from its own goroutine")
		}
		for _, l := range []*Locker{l, j.locker} {
			l.nodes[0].pipe.close() // blocks for ever if a flight did not end
			for _, lane := range l.nodes[0].pipe.lanes {
				if lane.flights != 0 || len(lane.waiting) != 0 {
					t.Errorf("%d flights and %d questions are left", lane.flights, len(lane.waiting))
				}
			}
		}
	})
}

// TestScriptForgotten has a server that knows one script of a batch and not the
// other: what was answered is not asked again, and what was not comes with its
// text.
func TestScriptForgotten(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		j := jammed(t, c)
		var held []*Lease
		quiet := another(t, c)
		other := newLocker(t, quiet, Options{})
		for _, key := range names("held", 10) {
			lease := acquire(t, other, key)
			other.leases.remove(lease)
			lease.locker = j.locker // its release is one of the batch
			held = append(held, lease)
		}
		c.ScriptFlush(t.Context())
		c.ScriptLoad(t.Context(), j.locker.scripts.acquire.text)
		keys := names("k", 10)
		var wg sync.WaitGroup
		for i, lease := range held { // in turns with each other
			j.ask(t, keys[i])
			wantQueued(t, j.locker, 2*i+1)
			wg.Go(func() {
				if err := lease.Release(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			})
			wantQueued(t, j.locker, 2*i+2)
		}
		j.open()
		wg.Wait()
		var leases []*Lease
		for range maxFlights + len(keys) {
			leases = append(leases, soon(t, "a grant", j.results).ok(t))
		}
		acquired, again := 0, 0
		for _, trip := range j.seen() {
			for _, a := range trip.asked {
				switch {
				case a.deed == "acquire" && a.text:
					t.Errorf("%s was asked for again with the text", a.key)
				case a.deed == "acquire":
					acquired++
				case a.deed == "release" && a.text:
					again++
				}
			}
		}
		if acquired != maxFlights+len(keys) || again < 1 || again > len(held) { // another batch may have brought it
			t.Errorf("%d asked to acquire, want %d; %d releases with the text, want 1 to %d",
				acquired, maxFlights+len(keys), again, len(held))
		}
		if n := c.Exists(t.Context(), names("held", 10)...).Val(); n != 0 {
			t.Errorf("%d of those released are taken", n)
		}
		for _, lease := range leases {
			release(t, lease)
		}
		for _, trip := range j.seen() {
			for _, a := range trip.asked {
				if a.text && a.deed != "extend" { // of a lease that is held for a quarter of a second
					t.Errorf("%s came with its text although it is known by now", a.deed)
				}
			}
		}
	})
}

// TestLanesOfACluster has the questions of a cluster's masters go apart: each trip
// to one of them, and what is on its way to one in nobody else's way.
func TestLanesOfACluster(t *testing.T) {
	t.Parallel()
	c := cluster(t, 1)[0].(*redis.ClusterClient)
	l := newLocker(t, c, Options{})
	p := watch(t, c, Exclusive, Redisson)
	master := func(key string) string {
		node, err := c.MasterForKey(t.Context(), key)
		if err != nil {
			t.Error(err)
			return ""
		}
		return node.Options().Addr
	}
	slow := master("k0")
	blocked, open := p.block(func(t trip) bool { return master(t.asked[0].key) == slow })
	defer open()
	behind, others := make(chan result, 100), make(chan result, 100)
	nBehind, nOthers := 0, 0
	for _, key := range names("k", 60) {
		results := others
		if master(key) == slow {
			results = behind
			nBehind++
		} else {
			nOthers++
		}
		go func() {
			lease, err := l.Acquire(context.WithoutCancel(t.Context()), key)
			results <- result{lease, err}
		}()
		if results == behind && nBehind <= maxFlights { // one by one, or they would share a flight
			soon(t, "a flight to the slow master", blocked)
		}
	}
	if nBehind <= maxFlights || nOthers == 0 {
		t.Fatalf("%d keys are of the slow master, %d of others", nBehind, nOthers)
	}
	for range nOthers { // while those flights are still on their way
		release(t, soon(t, "a grant by another master", others).ok(t))
	}
	open()
	for range nBehind {
		release(t, soon(t, "a grant by the slow master", behind).ok(t))
	}
	lanes := make(map[string]int)
	for _, trip := range p.seen() {
		to := master(trip.asked[0].key)
		lanes[to] += len(trip.asked)
		for _, a := range trip.asked {
			if master(a.key) != to {
				t.Errorf("a trip went to %s and %s", to, master(a.key))
			}
		}
	}
	if len(lanes) != 3 {
		t.Errorf("the questions went to %d masters: %v", len(lanes), lanes)
	}
}

// TestLaneOfAnOldNode has a cluster's lanes end that were not used for long, when another
// node is first asked.
func TestLaneOfAnOldNode(t *testing.T) {
	t.Parallel()
	c := cluster(t, 1)[0].(*redis.ClusterClient)
	l := newLocker(t, c, Options{})
	at := make(map[*redis.Client]string) // keys by their nodes
	for _, key := range names("k", 100) {
		node, err := c.MasterForKey(t.Context(), key)
		bedtest.Check(t, err)
		at[node] = key
	}
	keys := slices.Collect(maps.Values(at))
	lanes := func(want int) {
		t.Helper()
		p := &l.nodes[0].pipe
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.lanes) != want {
			t.Errorf("%d lanes, want %d", len(p.lanes), want)
		}
		for _, lane := range p.lanes {
			lane.used.Add(-int64(laneUnused))
		}
	}
	release(t, acquire(t, l, keys[0]))
	lanes(1)
	release(t, acquire(t, l, keys[0])) // it is used again
	release(t, acquire(t, l, keys[1]))
	lanes(2)
	release(t, acquire(t, l, keys[2]))
	lanes(1)
}
