package loader

import (
	"fmt"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/source/follow"
)

// followState is the state of this process's follower of a table, for its condition, its
// metrics and the log. It is safe for concurrent use.
type followState struct {
	problem *recurring.Problem

	mu      sync.Mutex
	at      time.Time // every row committed before is known; zero: this process does not follow
	trouble string    // why it does not follow; "": it does, or another instance does
}

// caughtUp notes that every row committed before a moment is known. It reports whether
// following has begun by that.
func (s *followState) caughtUp(at time.Time) (begins bool) {
	s.mu.Lock()
	begins = s.at.IsZero()
	s.at, s.trouble = at, ""
	s.mu.Unlock()
	if begins {
		s.problem.Close()
	}
	return begins
}

// lost notes why the table is not followed any more.
func (s *followState) lost(err error) {
	s.mu.Lock()
	s.at, s.trouble = time.Time{}, follow.OneLine(err)
	s.mu.Unlock()
	s.problem.Note("error", follow.OneLine(err))
}

// busy notes why the table is not followed yet: another follower uses what it takes.
func (s *followState) busy(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.trouble = time.Time{}, follow.OneLine(err)
}

// ended notes that this process follows no more.
func (s *followState) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = time.Time{}
}

// lag returns the age of the newest moment before which every committed row is known; 0 and
// false: this process does not follow.
func (s *followState) lag() (behind time.Duration, followed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() {
		return 0, false
	}
	return time.Since(s.at), true
}

// late returns why changes of a table that is followed are unknown for longer than a time; "": they
// are known, or this process does not follow.
func (s *followState) late(after time.Duration) string {
	behind, followed := s.lag()
	if !followed || behind <= after {
		return ""
	}
	return fmt.Sprintf("the table is followed, and its changes are known up to %s ago: a large transaction is read, or the database, Redis or ordergate is slow", behind.Round(time.Second))
}

// cause returns why this process does not follow; "": it does, or another instance does.
func (s *followState) cause() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}

// why returns why the table is not followed; "": it is, or another instance follows it.
func (s *followState) why() string {
	if cause := s.cause(); cause != "" {
		return "the table is not followed: " + cause
	}
	return ""
}
