package changelog

import (
	"strings"
	"time"
)

// maxPending bounds the pending writes that a member remembers.
const maxPending = 20_000

type pendingWrite struct {
	text  string
	since time.Time
}

// doubtPrefix marks a doubt. An ID has no line break.
const doubtPrefix = "\n"

// track adds writes that are about to be appended.
func (m *Member) track(what ...string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, w := range what {
		_, again := m.pending[w]
		if again && !strings.HasPrefix(w, doubtPrefix) {
			continue
		}
		if !again && len(m.pending) >= maxPending {
			m.overflowedAt = now
			return
		}
		m.pending[w] = now
		m.queue = append(m.queue, pendingWrite{w, now})
	}
}

// ack removes writes that were acknowledged.
func (m *Member) ack(what ...string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range what {
		delete(m.pending, w)
	}
	m.resumeRenewal()
}

// trackDoubt adds a doubt that is about to be appended. It returns the present time: the doubt
// covers all writes pending by then. The same doubt added again gets the new time, since its order
// may be younger than the append under way.
func (m *Member) trackDoubt(text string) time.Time {
	m.track(doubtPrefix + text)
	return time.Now()
}

// ackDoubt removes a doubt that was acknowledged. A doubt about orders of any age also covers the
// writes that were pending by then.
func (m *Member) ackDoubt(text string, covers time.Time, anyAge bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for what, since := range m.pending {
		if !since.After(covers) && (anyAge || what == doubtPrefix+text) {
			delete(m.pending, what)
		}
	}
	if anyAge && !m.overflowedAt.After(covers) {
		m.overflowedAt = time.Time{}
	}
	m.resumeRenewal()
}

// resumeRenewal lets the lease be renewed again if there are no pending writes.
func (m *Member) resumeRenewal() {
	if !m.hasPending() {
		m.renewalPaused, m.queue = false, nil
	}
}

// isOverdue reports whether a write has been pending for longer than patience allows.
func (m *Member) isOverdue(now time.Time) bool {
	for len(m.queue) > 0 {
		first := m.queue[0]
		if since, ok := m.pending[first.text]; ok && since.Equal(first.since) {
			return !m.overflowedAt.IsZero() || now.Sub(first.since) > patience(m.roundTrip, m.lease)
		}
		m.queue = m.queue[1:]
	}
	return !m.overflowedAt.IsZero()
}

func (m *Member) hasPending() bool { return !m.overflowedAt.IsZero() || len(m.pending) > 0 }

// pendingCount returns the number of pending writes.
func (m *Member) pendingCount() int {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pending)
}
