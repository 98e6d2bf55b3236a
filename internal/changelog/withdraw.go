package changelog

import (
	"context"
	"fmt"
	"time"
)

// Withdraw returns nil once no window holds anywhere. None opens until all pending writes are
// acknowledged, so clients may receive orders whose Append failed. It blocks for at most
// [Options.Lease], the longest window, and their margins. The error is that of ctx, or means that
// this process is no member: it has not joined yet, or has deregistered.
func (l *Log) Withdraw(ctx context.Context) error {
	if l.member == nil {
		return fmt.Errorf("withdrawing from %s: %w", l.keys[keyLog], errNotMember)
	}
	if err := l.member.withdraw(ctx, over(l.longestWindow())); err != nil {
		return fmt.Errorf("withdrawing from %s: %w", l.keys[keyLog], err)
	}
	return nil
}

// withdraw waits until the lease is certainly over, and for some time after that. It pauses renewal
// until all pending writes are acknowledged.
func (m *Member) withdraw(ctx context.Context, after time.Duration) error {
	m.mu.Lock()
	if !m.hasPending() { // they have been acknowledged meanwhile
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
