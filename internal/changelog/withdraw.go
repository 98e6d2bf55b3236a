package changelog

import (
	"context"
	"fmt"
	"time"
)

// Withdraw returns nil once no window holds anywhere, until everything is appended whose
// Append failed here: so a client may be told of such an order. It blocks for at most
// [Options.Lease], the longest window, and their margins. The error is ctx's, or says that this process is no member:
// it was none yet, or took its leave.
func (l *Log) Withdraw(ctx context.Context) error {
	if l.member == nil {
		return fmt.Errorf("withdrawing from %s: %w", l.keys[0], errNotMember)
	}
	if err := l.member.withdraw(ctx, over(l.longestWindow())); err != nil {
		return fmt.Errorf("withdrawing from %s: %w", l.keys[0], err)
	}
	return nil
}

// withdraw waits until the lease is certainly over, and for some time after that, and keeps it
// from being renewed until everything owed is paid.
func (m *Member) withdraw(ctx context.Context, after time.Duration) error {
	m.mu.Lock()
	if !m.hasPending() { // it has been paid meanwhile
		m.mu.Unlock()
		return m.log.WaitForPeers(ctx)
	}
	m.renewalPaused = true
	over := laterOf(laterOf(m.othersOver, m.leaseOver(m.renewedFrom.received)), m.joinedAt).Add(after)
	unknown := m.left || m.renewedFrom.received.IsZero() && !m.joined
	m.mu.Unlock()
	if unknown {
		return errNotMember
	}
	return waitUntil(ctx, over)
}
