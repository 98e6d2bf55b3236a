// Package locking is the locks of the rules: their Lockers in Redis, the limit of settlements
// in flight, the holds of calls with an unknown outcome, and the health of all these.
//
// Start with [New]. [Lockers.Prepare] opens the locks of a configuration, and
// [Lockers.Activate] makes them the active ones. Package redislock implements the locks.
package locking

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// Options are what the locks of all rules have in common.
type Options struct {
	Redis       redis.UniversalClient // nil if every lock has servers of its own
	RedisConfig *config.Redis         // the login for servers of quorums; nil: none
	Process     string                // names this process to an operator who inspects a lock
	Metrics     *metrics.Metrics
	Warnings    *recurring.Warnings // an outage of Redis causes one with each request
	Logger      *slog.Logger
}

// Lockers are the Lockers of the active rules, and those of earlier rules until their last
// call has ended. It is safe for concurrent use.
type Lockers struct {
	opts     Options
	inFlight inFlight
	lateEnds lateEnds

	mu      sync.Mutex
	current map[Use]*Unit
	opened  map[*Unit]struct{} // those that have a Locker, retired ones included
	closed  bool
	closing sync.WaitGroup
}

// New returns Lockers without rules.
func New(opts Options) *Lockers { return &Lockers{opts: opts} }

// Version is the locks of one configuration. None of them is active before
// [Lockers.Activate].
type Version struct {
	lockers *Lockers
	config  *config.Config
	units   map[Use]*Unit
}

// Prepare begins the version of a configuration. [Version.Locker] opens its locks. Activate
// or Discard the version.
func (s *Lockers) Prepare(c *config.Config) *Version {
	return &Version{lockers: s, config: c, units: make(map[Use]*Unit)}
}

// Activate replaces the active version. It returns the new units: run [Unit.Watch] for each.
func (s *Lockers) Activate(v *Version) (added []*Unit) {
	for use := range v.units {
		s.opts.Metrics.LockGauges(use.String(), s.sum(use, (*redislock.Locker).Held), s.sum(use, (*redislock.Locker).Waiting))
	}
	added = s.replace(v.units)
	s.inFlight.setLimits(flightLimitsOf(v.config))
	return added
}

// Discard closes the locks of a version that was never active.
func (s *Lockers) Discard(v *Version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for use, unit := range v.units {
		if s.current[use] != unit {
			s.retireLocked(unit)
		}
	}
}

// Units returns the active units, sorted by name.
func (s *Lockers) Units() []*Unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.current), func(a, b *Unit) int {
		return strings.Compare(a.use.String(), b.use.String())
	})
}

// Conditions returns the readiness of each active lock. The rules are the active ones.
func (s *Lockers) Conditions(rules []config.Rule) (list []health.Condition) {
	for _, unit := range s.Units() {
		list = append(list, unit.condition(rules))
	}
	return list
}

// UsesRedis reports whether an active rule keeps enforced locks in the common Redis.
func (s *Lockers) UsesRedis() bool {
	return slices.ContainsFunc(s.Units(), func(u *Unit) bool { return !u.use.Observe && u.eviction == nil })
}

// InFlight returns how many calls are in flight, held ones included, how many of these are
// held, and how many callers wait.
func (s *Lockers) InFlight() (calls, held, waiting int) { return s.inFlight.counts() }

// Usage returns how many Lockers are open, and how many calls use them.
func (s *Lockers) Usage() (open, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for unit := range s.opened {
		calls += unit.users
	}
	return len(s.opened), calls
}

// AwaitLateEnds blocks until Redis has taken every hold and every answer to be stored, or their
// leases have ended, or ctx ends.
func (s *Lockers) AwaitLateEnds(ctx context.Context) { s.lateEnds.await(ctx) }

// Close closes all Lockers, and waits until they are closed. No call may use them any more.
func (s *Lockers) Close() {
	s.lateEnds.close()
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

// of returns the active unit for a use, or nil.
func (s *Lockers) of(use Use) *Unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current[use]
}

// sum returns a function that adds a number up over a use's Lockers, retired ones included.
func (s *Lockers) sum(use Use, number func(*redislock.Locker) int) func() int {
	return func() (sum int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for unit := range s.opened {
			if unit.use == use {
				sum += number(unit.locker.Load())
			}
		}
		return sum
	}
}

// open opens a unit's Locker.
func (s *Lockers) open(u *Unit) error {
	u.set = s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLocked(u)
}

func (s *Lockers) openLocked(u *Unit) error {
	if s.closed {
		return redislock.ErrClosed
	}
	locker, shut, err := u.open()
	if err != nil {
		return err
	}
	u.locker.Store(locker)
	u.shut = shut
	if s.opened == nil {
		s.opened = make(map[*Unit]struct{})
	}
	s.opened[u] = struct{}{}
	return nil
}

// replace makes units the active ones, and retires those that they replace. It returns the
// new ones.
func (s *Lockers) replace(units map[Use]*Unit) (added []*Unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.current
	s.current = units
	for use, unit := range units {
		if old[use] != unit {
			added = append(added, unit)
		}
	}
	for use, unit := range old {
		if units[use] != unit {
			s.retireLocked(unit)
		}
	}
	return added
}

func (s *Lockers) retireLocked(u *Unit) {
	close(u.retired)
	s.closeIdle(u)
}

// closeIdle closes the Locker of a retired unit without users. It does not wait: the caller
// may be at the end of a call, or block others.
func (s *Lockers) closeIdle(u *Unit) {
	if _, open := s.opened[u]; !open || u.users > 0 || s.closed || !u.isRetired() {
		return
	}
	delete(s.opened, u)
	s.closing.Go(u.shut)
}

// enter returns the unit's Locker for a call; leave has to follow. A call that began under
// earlier rules may find the Locker closed. enter opens another one then.
func (u *Unit) enter() (*redislock.Locker, error) {
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

// leave ends the use of the Locker by a call, which holds no lease any more.
func (u *Unit) leave() {
	u.set.mu.Lock()
	defer u.set.mu.Unlock()
	u.users--
	u.set.closeIdle(u)
}

func (u *Unit) isRetired() bool {
	select {
	case <-u.retired:
		return true
	default:
		return false
	}
}
