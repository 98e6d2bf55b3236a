package faults

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// ledger is what a backend writes down of the settlements that come to it. It guards each
// order by the fence, as docs/locks.md shows, and notes everything that locks and fences
// are there to prevent. It is safe for concurrent use.
type ledger struct {
	mu       sync.Mutex
	orders   map[string]*account
	effects  int
	refused  int // writes, for their fence
	wrong    []string
	suspects []suspect
}

// account is one order.
type account struct {
	fence   int64                 // the greatest that was seen
	by      *settlement           // whose it is
	inside  map[*visit]bool       // the calls that are in progress
	effects map[int64]*settlement // by fence
}

// settlement is one call of a client, with the calls within it.
type settlement struct {
	asked  time.Time
	places map[int]bool // the sidecars that it went through; guarded by the ledger's mu
}

// visit is one call at the backend.
type visit struct {
	of     *settlement
	keys   []string // of the locks
	fences []int64
}

// suspect is a settlement that was not alone, or came late. It may be so only when its
// lease was lost.
type suspect struct {
	visit *visit
	key   string
	fence int64
	at    time.Time
	what  string
}

func newLedger() *ledger { return &ledger{orders: make(map[string]*account)} }

// enter notes that a call has arrived, and raises the fences of its orders. It reports
// whether the call may go on: not when one of its fences is behind.
func (l *ledger) enter(v *visit, place int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	v.of.places[place] = true
	now, current := time.Now(), true
	for i, key := range v.keys {
		o, fence := l.orders[key], v.fences[i]
		if o == nil {
			o = &account{inside: make(map[*visit]bool), effects: make(map[int64]*settlement)}
			l.orders[key] = o
		}
		switch {
		case fence < o.fence:
			current = false
			l.suspects = append(l.suspects, suspect{v, key, fence, now, fmt.Sprintf("came after fence %d", o.fence)})
		case fence == o.fence && o.by != v.of:
			l.wrong = append(l.wrong, fmt.Sprintf("%s: two settlements have fence %d", key, fence))
		}
		for other := range o.inside {
			if other.of == v.of {
				continue
			}
			first, second := other.at(key), fence
			if first < second {
				l.suspects = append(l.suspects, suspect{other, key, first, now, fmt.Sprintf("was still inside when fence %d came", second)})
			} else if second < first {
				l.suspects = append(l.suspects, suspect{v, key, second, now, fmt.Sprintf("came while fence %d was inside", first)})
			}
		}
		o.inside[v] = true
		if fence > o.fence {
			o.fence, o.by = fence, v.of
		}
	}
	return current
}

// at returns the fence of a lock.
func (v *visit) at(key string) int64 {
	for i, k := range v.keys {
		if k == key {
			return v.fences[i]
		}
	}
	return 0
}

// write has the effect of a call, unless a later one was there.
func (l *ledger) write(v *visit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, key := range v.keys {
		o, fence := l.orders[key], v.fences[i]
		if fence < o.fence {
			l.refused++
			continue
		}
		if by := o.effects[fence]; by != nil && by != v.of {
			l.wrong = append(l.wrong, fmt.Sprintf("%s: two settlements had an effect under fence %d", key, fence))
		}
		for earlier := range o.effects {
			if earlier > fence {
				l.wrong = append(l.wrong, fmt.Sprintf("%s: an effect under fence %d after one under %d", key, fence, earlier))
			}
		}
		o.effects[fence] = v.of
		l.effects++
	}
}

// leave notes that a call is over.
func (l *ledger) leave(v *visit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range v.keys {
		delete(l.orders[key].inside, v)
	}
}

// verdict returns all that was wrong, and how many suspects were excused. A suspect is
// whose lease was lost by no one's account.
func (l *ledger) verdict(lost func(suspect) bool) (wrong []string, excused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong = l.wrong
	for _, s := range l.suspects {
		if lost(s) {
			excused++
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s: the settlement with fence %d, asked for at %s through %v, lost no lease and %s at %s",
			s.key, s.fence, clockTime(s.visit.of.asked), s.visit.of.places, s.what, clockTime(s.at)))
	}
	return wrong, excused
}

// TestLedger has settlements do what they must not, and what they may.
func TestLedger(t *testing.T) {
	t.Parallel()
	type step struct {
		do    string // enter, write or leave
		who   int
		fence int64
	}
	for _, tt := range []struct {
		name     string
		steps    []step
		wrong    int
		suspects int
	}{
		{"one after the other", []step{{"enter", 1, 5}, {"write", 1, 5}, {"leave", 1, 5}, {"enter", 2, 6}, {"write", 2, 6}}, 0, 0},
		{"a call within", []step{{"enter", 1, 5}, {"enter", 1, 5}, {"write", 1, 5}, {"write", 1, 5}}, 0, 0},
		{"two with one fence", []step{{"enter", 1, 5}, {"leave", 1, 5}, {"enter", 2, 5}}, 1, 0},
		{"two effects under one fence", []step{{"enter", 1, 5}, {"write", 1, 5}, {"leave", 1, 5}, {"enter", 2, 5}, {"write", 2, 5}}, 2, 0},
		{"two at once", []step{{"enter", 1, 5}, {"enter", 2, 6}}, 0, 1},
		{"two at once, the earlier comes later", []step{{"enter", 2, 6}, {"enter", 1, 5}}, 0, 2},
		{"a fence that goes back", []step{{"enter", 2, 6}, {"leave", 2, 6}, {"enter", 1, 5}}, 0, 1},
		{"a stale write", []step{{"enter", 1, 5}, {"enter", 2, 6}, {"write", 2, 6}, {"write", 1, 5}}, 0, 1},
	} {
		l := newLedger()
		who := map[int]*settlement{1: {places: map[int]bool{}}, 2: {places: map[int]bool{}}}
		visits := make(map[int]*visit)
		for _, s := range tt.steps {
			switch s.do {
			case "enter":
				visits[s.who] = &visit{who[s.who], []string{"k"}, []int64{s.fence}}
				l.enter(visits[s.who], 0)
			case "write":
				l.write(visits[s.who])
			case "leave":
				l.leave(visits[s.who])
			}
		}
		wrong, excused := l.verdict(func(suspect) bool { return true })
		if len(wrong) != tt.wrong || excused != tt.suspects {
			t.Errorf("%s: wrong %v and %d suspects, want %d and %d", tt.name, wrong, excused, tt.wrong, tt.suspects)
		}
		if wrong, _ = l.verdict(func(suspect) bool { return false }); len(wrong) != tt.wrong+tt.suspects {
			t.Errorf("%s: without an excuse %v is wrong, want %d", tt.name, wrong, tt.wrong+tt.suspects)
		}
	}
}
