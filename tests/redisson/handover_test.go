package redisson

import (
	"slices"
	"testing"
	"time"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const (
	rounds = 20
	// prompt bounds how long after a release the waiter has the lock, in the
	// median. It takes about a millisecond; a poll or a lease would take an hour or
	// a minute.
	prompt = 50 * time.Millisecond
)

// rival is a lock that keeps the other side out of one.
type rival struct {
	name         string
	held, wanted sort
}

var rivals = []rival{
	{"exclusive", exclusive, exclusive},
	{"fenced", fenced, fenced},
	{"fair", fair, fair},
	{"writer after writer", write, write},
	{"writer after reader", read, write},
	{"reader after writer", write, read},
	{"semaphore", semaphore, semaphore},
}

// TestHandover has each side hold what the other wants.
func TestHandover(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{})
	for _, r := range rivals {
		t.Run(r.name, func(t *testing.T) { s.handOver(t, r) })
	}
}

// TestHandoverInCluster has them do so where messages stay in their shard.
func TestHandoverInCluster(t *testing.T) {
	t.Parallel()
	s := newClusterStack(t)
	for _, r := range rivals {
		t.Run(r.name, func(t *testing.T) { s.handOver(t, r) })
	}
}

func (s *stack) handOver(t *testing.T, r rival) {
	for _, p := range s.pairs(t) {
		t.Run(p.name, func(t *testing.T) {
			t.Run("exclusion", func(t *testing.T) { excludes(t, p, r) })
			t.Run("message", func(t *testing.T) { wakes(t, s, p, r) })
			if r.held.kind != redislock.Semaphore { // Redisson's permits have no lease
				t.Run("lease", func(t *testing.T) { ends(t, s, p, r) })
			}
		})
	}
}

// excludes checks that one side gets what the other holds only after that.
func excludes(t *testing.T, p pair, r rival) {
	provide(t, p, r.held)
	holder := take(t, p.holder, r.held, t.Name(), lease)
	if value(p.waiter.ask(t.Context(), r.wanted, t.Name(), lease, notAtAll))(t) != nil {
		t.Error("both have the lock")
	}
	release(t, holder)
	release(t, take(t, p.waiter, r.wanted, t.Name(), lease))
}

// wakes checks that a release wakes the other side's waiter. It has three attempts:
// on a busy machine a process may have to wait for its turn for that long.
func wakes(t *testing.T, s *stack, p pair, r rival) {
	provide(t, p, r.held)
	var median time.Duration
	for range 3 {
		if median = s.medianWake(t, p, r); median <= prompt {
			return
		}
	}
	t.Errorf("a release is noticed after %v, want within %v", median, prompt)
}

// medianWake returns how long after a release the waiter has the lock.
func (s *stack) medianWake(t *testing.T, p pair, r rival) time.Duration {
	t.Helper()
	var delays []time.Duration
	for range rounds {
		holder := take(t, p.holder, r.held, t.Name(), lease)
		waiter := s.wait(t, p.waiter, r.wanted, t.Name(), toBeWoken)
		released := release(t, holder)
		g := granted(t, waiter)
		delays = append(delays, g.at.Sub(released))
		release(t, g)
		bedtest.Eventually(t, "nobody listens any more", func() bool { return s.channels(t, t.Name()) == 0 })
	}
	slices.Sort(delays)
	t.Logf("from the release to the other side: median %v, longest %v", delays[rounds/2], delays[rounds-1])
	return delays[rounds/2]
}

// ends checks that a lease which nobody renews keeps the other side out, and no
// longer than it lasts.
func ends(t *testing.T, s *stack, p pair, r rival) {
	const short = time.Second
	start := time.Now()
	holder := take(t, p.holder, r.held, t.Name(), short)
	waiter := s.wait(t, p.waiter, r.wanted, t.Name(), untilFree)
	holder.abandon()
	g := granted(t, waiter)
	if after := g.at.Sub(start); after < short {
		t.Errorf("a lease of %v ended after %v", short, after)
	}
	release(t, g)
}

// provide gives a semaphore its permit, if the side that holds is Java's: ours
// does it by itself.
func provide(t *testing.T, p pair, held sort) {
	t.Helper()
	java, ok := p.holder.(*javaParty)
	if !ok || held.kind != redislock.Semaphore {
		return
	}
	if !value(java.thread().Semaphore(t.Name()).TrySetPermits(t.Context(), held.permits))(t) {
		t.Fatal("the semaphore has permits already")
	}
}
