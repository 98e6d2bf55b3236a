package engine

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ordergate/ordergate/lockmw/redislock"
)

// lockers are the units of the rules in force, and those of earlier rules until the
// last call has ended that goes by them. The zero value is empty. It is safe for
// concurrent use.
type lockers struct {
	mu      sync.Mutex
	current map[lockUse]*lockUnit
	opened  map[*lockUnit]struct{} // those that have a Locker, retired ones among them
	closed  bool
	closing sync.WaitGroup
	holds   holds
}

// of returns the unit in force for a use, or nil.
func (s *lockers) of(use lockUse) *lockUnit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current[use]
}

// list returns the units in force, by name.
func (s *lockers) list() []*lockUnit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.current), func(a, b *lockUnit) int {
		return strings.Compare(a.use.String(), b.use.String())
	})
}

// sum returns what adds up what a use's Lockers tell, those of retired units included.
func (s *lockers) sum(use lockUse, tell func(*redislock.Locker) int) func() int {
	return func() (sum int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for unit := range s.opened {
			if unit.use == use {
				sum += tell(unit.locker.Load())
			}
		}
		return sum
	}
}

// open makes a unit's Locker.
func (s *lockers) open(u *lockUnit) error {
	u.set = s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLocked(u)
}

func (s *lockers) openLocked(u *lockUnit) error {
	if s.closed {
		return redislock.ErrClosed
	}
	locker, shut, err := u.make()
	if err != nil {
		return err
	}
	u.locker.Store(locker)
	u.shut = shut
	if s.opened == nil {
		s.opened = make(map[*lockUnit]struct{})
	}
	s.opened[u] = struct{}{}
	return nil
}

// replace puts units in force, and retires those that they replace. It returns those
// that are new.
func (s *lockers) replace(units map[lockUse]*lockUnit) (fresh []*lockUnit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.current
	s.current = units
	for use, unit := range units {
		if old[use] != unit {
			fresh = append(fresh, unit)
		}
	}
	for use, unit := range old {
		if units[use] != unit {
			s.retireLocked(unit)
		}
	}
	return fresh
}

// discard gives up units that never were in force.
func (s *lockers) discard(units map[lockUse]*lockUnit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for use, unit := range units {
		if s.current[use] != unit {
			s.retireLocked(unit)
		}
	}
}

func (s *lockers) retireLocked(u *lockUnit) {
	close(u.retired)
	s.closeIdle(u)
}

// closeIdle closes the Locker of a retired unit that nobody uses. It does not wait for
// that: the caller may be at the end of a call, or hold up others'.
func (s *lockers) closeIdle(u *lockUnit) {
	if _, open := s.opened[u]; !open || u.users > 0 || s.closed || !u.isRetired() {
		return
	}
	delete(s.opened, u)
	s.closing.Go(u.shut)
}

// close closes all Lockers, and waits for it. Calls have ended by then.
func (s *lockers) close() {
	s.holds.close()
	s.mu.Lock()
	s.closed = true
	opened := s.opened
	s.opened = nil
	s.mu.Unlock()
	s.closing.Wait()
	for unit := range opened {
		unit.shut()
	}
}

// enter lends a unit's Locker to a call; leave has to follow. A call that began under
// rules which are not in force any more may find it closed, and has another made.
func (u *lockUnit) enter() (*redislock.Locker, error) {
	s := u.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, open := s.opened[u]; !open {
		if err := s.openLocked(u); err != nil {
			return nil, errors.Join(errRetired, err)
		}
	}
	u.users++
	return u.locker.Load(), nil
}

// errRetired is why a call that began before a reload gets no lock.
var errRetired = errors.New("making a lock of earlier rules")

// leave gives it back. The call holds no lease of it any more.
func (u *lockUnit) leave() {
	u.set.mu.Lock()
	defer u.set.mu.Unlock()
	u.users--
	u.set.closeIdle(u)
}

func (u *lockUnit) isRetired() bool {
	select {
	case <-u.retired:
		return true
	default:
		return false
	}
}
