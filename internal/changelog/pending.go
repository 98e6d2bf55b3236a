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

// doubtMark makes a doubt unlike any ID, which has no line break in it.
const doubtPrefix = "\n"

// owe notes what is about to be appended.
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

// paid notes what was acknowledged.
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

// oweDoubt notes a doubt that is about to be appended, and returns when: it covers all
// that was owed by then. One of the same text that is owed already is owed since now: its
// order may have been created after what is under way was appended.
func (m *Member) trackDoubt(text string) time.Time {
	m.track(doubtPrefix + text)
	return time.Now()
}

// paidDoubt notes a doubt that was acknowledged: what had been owed by then is among the
// orders that it is about, if it is about those of any age.
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

// settled lets the lease be renewed again if nothing is owed.
func (m *Member) resumeRenewal() {
	if !m.hasPending() {
		m.renewalPaused, m.queue = false, nil
	}
}

// late reports whether something has been owed for too long to be certain of it.
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

// count returns how much is owed.
func (m *Member) pendingCount() int {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pending)
}
