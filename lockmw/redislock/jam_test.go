package redislock

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// wantQueued waits until so many calls of a Locker wait to be sent.
func wantQueued(t *testing.T, l *Locker, n int) {
	t.Helper()
	bedtest.Eventually(t, fmt.Sprintf("%d calls wait to be sent", n), func() bool { return l.nodes[0].batcher.Waiting() == n })
}

// jam is a Locker whose calls do not get through until it is opened: so calls that come
// together go together.
type jam struct {
	*probe
	locker  *Locker
	open    func()
	results chan result // of acquire
}

// jammed blocks the workers of a Locker to the primary of "first0".
func jammed(t *testing.T, c redis.UniversalClient) *jam {
	t.Helper()
	l := newLocker(t, c, Options{})
	j := &jam{probe: watch(t, c, l.opts.Kind, l.opts.Format), locker: l, results: make(chan result, 2000)}
	blocked, open := j.block(isDeed("acquire"))
	j.open = open
	t.Cleanup(open)
	for i := range redisbatch.MaxWorkers {
		j.acquire(t, fmt.Sprintf("{first0}%d", i))
		bedtest.Receive(t, "a batch", blocked)
	}
	return j
}

// acquire takes a lock in the background.
func (j *jam) acquire(t *testing.T, key string) {
	ctx := context.WithoutCancel(t.Context())
	go func() {
		lease, err := j.locker.Acquire(ctx, key)
		j.results <- result{lease, err}
	}()
}

// drain opens the jam and releases so many grants, those that jammed it included.
func (j *jam) drain(t *testing.T, n int) {
	t.Helper()
	j.open()
	for range n {
		release(t, bedtest.Receive(t, "a grant", j.results).ok(t))
	}
}

func names(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint(prefix, i))
	}
	return keys
}

// TestFarFewerTripsThanCalls has callers that come as they like.
func TestFarFewerTripsThanCalls(t *testing.T) {
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
	trips, calls := 0, 0
	for _, trip := range p.seen() {
		trips++
		for _, a := range trip.asked {
			if a.deed == "acquire" || a.deed == "release" {
				calls++
			}
		}
	}
	t.Logf("%d calls in %d trips", calls, trips)
	if calls != 2*callers*rounds || trips > calls/4 {
		t.Errorf("%d trips for %d calls, want %d calls and a quarter of the trips at most", trips, calls, 2*callers*rounds)
	}
}
