package loader

import (
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/source/follow"
)

// followState is how the following of a table goes in this process, for its condition, its
// metrics and the log. It is safe for concurrent use.
type followState struct {
	trouble *recurring.Problem

	mu    sync.Mutex
	at    time.Time // up to when everything that was committed is known; zero: it is not followed here
	cause string    // why it is not; "": it is, or it is not this process's turn
}

// caughtUp notes that everything is known that was committed before a moment. It reports
// whether that is news: the table was not followed before.
func (s *followState) caughtUp(at time.Time) (begins bool) {
	s.mu.Lock()
	begins = s.at.IsZero()
	s.at, s.cause = at, ""
	s.mu.Unlock()
	if begins {
		s.trouble.Close()
	}
	return begins
}

// lost notes why it is not followed any more.
func (s *followState) lost(err error) {
	s.mu.Lock()
	s.at, s.cause = time.Time{}, follow.OneLine(err)
	s.mu.Unlock()
	s.trouble.Note("error", follow.OneLine(err))
}

// ended notes the end of this process's turn.
func (s *followState) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = time.Time{}
}

// lag returns how long ago everything was known that was committed; 0 and false: it is not
// followed here.
func (s *followState) lag() (behind time.Duration, followed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() {
		return 0, false
	}
	return time.Since(s.at), true
}

// why returns why it is not followed; "": it is, or it is not this process's turn.
func (s *followState) why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}
