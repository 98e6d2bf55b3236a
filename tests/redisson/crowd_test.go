package redisson

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed"
)

// TestCrowd has many of both sides want one lock at once: never more of them are
// inside than may be, and although ours hand it on to each other, Java's get
// their turns.
func TestCrowd(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{})
	for _, sort := range []sort{exclusive, fair, write, semaphore} {
		t.Run(sort.name, func(t *testing.T) { crowd(t, s, sort) })
	}
}

func crowd(t *testing.T, s *stack, sort sort) {
	const javas, ours, turns = 3, 8, 10
	ctx, done := context.WithCancel(t.Context())
	defer done()
	var inside, served atomic.Int64
	cycle := func(p party) error {
		g, err := p.ask(ctx, sort, t.Name(), lease, untilFree)
		if err != nil {
			return err
		}
		if g == nil {
			t.Errorf("one waited for %v in vain", patience)
			return context.DeadlineExceeded
		}
		if n := inside.Add(1); n > int64(max(1, sort.permits)) {
			t.Errorf("%d are inside", n)
		}
		// Some time inside: a round trip.
		pinged := s.redis.Ping(context.WithoutCancel(ctx)).Err()
		inside.Add(-1)
		_, err = g.release(context.WithoutCancel(ctx))
		return errors.Join(pinged, err)
	}
	java, party := newJavaParty(s), newGoParty(t, s)
	provide(t, pair{holder: java}, sort)
	var javaTurns, ourTurns sync.WaitGroup
	for range ours {
		ourTurns.Go(func() {
			for ctx.Err() == nil {
				if err := cycle(party); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				served.Add(1)
			}
		})
	}
	for range javas {
		javaTurns.Go(func() {
			for range turns {
				if err := cycle(java); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	javaTurns.Wait()
	done()
	ourTurns.Wait()
	t.Logf("%d turns of ours while Java had %d", served.Load(), javas*turns)
}
