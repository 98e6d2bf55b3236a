package redislock

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurns has a line by itself, with a clock of its own.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &Locker{opts: Options{Kind: Exclusive, MaxWaitersPerKey: 100, MaxWaiters: 100}}
		r := &l.waiters
		r.start(l)
		line := func() (seats []*waiter) {
			for i := range 2 * maxHandovers {
				s := &waiter{owner: fmt.Sprint(i)}
				if _, ok := r.enqueue("k", s); !ok {
					t.Fatal("no seat")
				}
				seats = append(seats, s)
			}
			return seats
		}
		empty := func(seats []*waiter) {
			for _, s := range seats {
				r.dequeue(s, false)
			}
			if r.total.Load() != 0 || len(r.queues) != 0 || len(r.byChannel) != 0 || len(r.perKey) != 0 {
				t.Errorf("left in the room: %d, %v, %v, %v", r.total.Load(), r.queues, r.byChannel, r.perKey)
			}
		}
		lock := &part{key: "k"}
		// othersTurn checks that the line keeps back, for as long as it should.
		othersTurn := func(head *waiter) {
			t.Helper()
			r.wake(Channel(Exclusive, "k"))
			if turn := r.nextAction(head, time.Now(), false); turn.ask || turn.wait != yieldTime {
				t.Errorf("the head: %+v, want to wait for %v", turn, yieldTime)
			}
		}

		seats := line()
		for i := range maxHandovers {
			if s := r.claim(lock, true); s != seats[i] {
				t.Fatalf("turn %d went to %v", i, s)
			}
			lock.handed, _ = lock.handed.more(time.Now())
		}
		if s := r.claim(lock, true); s != nil {
			t.Errorf("turn %d went to %s", maxHandovers, s.owner)
		}
		head := seats[maxHandovers]
		othersTurn(head)
		r.onReleased("k", 2) // another process has heard of it
		othersTurn(head)
		time.Sleep(yieldTime)
		if turn := r.nextAction(head, time.Now(), false); !turn.ask {
			t.Errorf("after the others' turn: %+v", turn)
		}
		if s := r.claim(lock, true); s != nil {
			t.Error("a seat was claimed whose question is on its way")
		}
		r.refused(head)
		lock.handed = handovers{} // the head's own lease: it has asked for it
		if s := r.claim(lock, true); s != head {
			t.Errorf("the next turn went to %v", s)
		}
		empty(seats)

		seats = line()
		if s := r.claim(lock, true); s != seats[0] {
			t.Errorf("the first turn went to %v", s)
		}
		lock.handed, _ = lock.handed.more(time.Now())
		time.Sleep(maxHandoverTime)
		if s := r.claim(lock, true); s != seats[1] {
			t.Errorf("the second turn went to %v", s)
		}
		time.Sleep(time.Nanosecond)
		if s := r.claim(lock, true); s != nil {
			t.Errorf("after %v a turn went to %s", maxHandoverTime, s.owner)
		}
		othersTurn(seats[2])
		r.onReleased("k", 1) // there is no other waiter
		if turn := r.nextAction(seats[2], time.Now(), false); !turn.ask {
			t.Errorf("with nobody else: %+v", turn)
		}
		r.refused(seats[2])
		for _, tt := range []struct {
			why  string
			part part
			able bool
		}{
			{"a re-entry", part{key: "k", entry: "e"}, true},
			{"another key", part{key: "other"}, true},
			{"a kind that cannot", part{key: "k"}, false},
		} {
			if s := r.claim(&tt.part, tt.able); s != nil {
				t.Errorf("%s: went to %s", tt.why, s.owner)
			}
		}
		empty(seats)
	})
}
