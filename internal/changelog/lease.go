package changelog

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ordergate/ordergate/internal/wait"
)

// errDemoted means that a reply comes from a demoted primary.
var errDemoted = errors.New("reply from a demoted primary")

// serverTime is a time of the server's clock.
type serverTime struct {
	ms         int64 // milliseconds since 1970
	leaseEpoch string
	received   time.Time // when the reply with it arrived
}

// maxLeaseEpochs bounds how many lease epochs are remembered. One that returns later is taken for
// new.
const maxLeaseEpochs = 64

// leaseOver returns when a lease granted from a time is certainly over.
func (m *Member) leaseOver(base time.Time) time.Time { return base.Add(m.lease + margin(m.lease)) }

// nextRenewal returns the server's time that a renewal sent now must name; zero: send none. At
// confirmedAt there were no pending writes.
func (m *Member) nextRenewal(confirmedAt time.Time) serverTime {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if !m.joined || m.renewalPaused || m.isOverdue(now) || m.confirmed.received.After(confirmedAt) || m.confirmed.leaseEpoch == "" || !m.acceptEpoch(m.confirmed.leaseEpoch, m.confirmed.received) {
		return serverTime{}
	}
	if m.confirmed.leaseEpoch == m.renewedFrom.leaseEpoch && m.confirmed.received.Sub(m.renewedFrom.received) < m.lease/renewals {
		return serverTime{}
	}
	if m.renewedFrom.leaseEpoch != m.confirmed.leaseEpoch {
		m.othersOver = laterOf(m.othersOver, m.leaseOver(m.renewedFrom.received))
	}
	m.renewedFrom = m.confirmed
	return m.renewedFrom
}

// noteReply stores a reply to a request sent at a time. It reports false if the reply comes from a
// demoted primary and proves nothing.
func (m *Member) noteReply(p page, sent time.Time) bool {
	at := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.acceptEpoch(p.leaseEpoch, sent) {
		return false
	}
	if !p.member {
		m.joined = false // it was removed, or the log was deleted
	}
	m.lastReply = serverTime{p.serverMs, p.leaseEpoch, at}
	return true
}

// confirm records that the last reply had all acknowledged writes.
func (m *Member) confirm() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.confirmed = m.lastReply
}

// serverTime returns the time of the server's clock in ms. It is exact, or late by up to
// [Options.Timeout]; 0 if it is unknown.
func (m *Member) serverTime() int64 {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lastReply.received.IsZero() {
		return 0
	}
	return m.lastReply.ms + (time.Since(m.lastReply.received) + m.log.opts.Timeout).Milliseconds() // no reply takes longer
}

func (m *Member) lastLeaseEpoch() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastReply.leaseEpoch
}

// acceptEpoch reports whether a lease epoch is the latest, given when its request was sent. A new
// one is the latest, unless the present one was first seen after that request: then it may have
// come and gone in between. An earlier one comes from a demoted primary.
func (m *Member) acceptEpoch(leaseEpoch string, sent time.Time) bool {
	switch at := slices.Index(m.leaseEpochs, leaseEpoch); {
	case at >= 0:
		return at == len(m.leaseEpochs)-1
	case sent.Before(m.epochSeen):
		return false
	case len(m.leaseEpochs) == maxLeaseEpochs:
		m.leaseEpochs = slices.Delete(m.leaseEpochs, 0, 1)
	}
	m.leaseEpochs, m.epochSeen = append(m.leaseEpochs, leaseEpoch), time.Now()
	return true
}

// ackValidFrom returns the earliest time at which an append may be acknowledged, given when it was
// sent and its lease epoch. A former lease epoch is an error. In a new one, the lease that readers
// of the demoted primary may still see must be over.
func (m *Member) ackValidFrom(leaseEpoch string, sent time.Time) (time.Time, error) {
	if m == nil {
		return time.Time{}, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.acceptEpoch(leaseEpoch, sent) {
		return time.Time{}, errDemoted
	}
	if m.renewedFrom.leaseEpoch != leaseEpoch {
		return laterOf(m.othersOver, m.leaseOver(m.renewedFrom.received)), nil
	}
	return m.othersOver, nil
}

// epochSeenAt returns when a lease epoch was first seen; false: it is not the latest.
func (m *Member) epochSeenAt(leaseEpoch string) (time.Time, bool) {
	if m == nil {
		return time.Time{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epochSeen, len(m.leaseEpochs) > 0 && m.leaseEpochs[len(m.leaseEpochs)-1] == leaseEpoch
}

// noteRoundTrip adds the duration of an append to the average, with a weight of 1/8.
func (m *Member) noteRoundTrip(roundTrip time.Duration) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.roundTrip == 0 {
		m.roundTrip = roundTrip
	}
	m.roundTrip += (roundTrip - m.roundTrip) / 8
}

// isFirstRenewalDue reports once whether the first lease since joining can be renewed. A duplicate
// that joins before that would take this member for a predecessor.
func (m *Member) isFirstRenewalDue() bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	begins := m.joined && m.unrenewed && m.confirmed.leaseEpoch != "" && !m.hasPending()
	if begins {
		m.unrenewed = false
	}
	return begins
}

// waitUntil blocks until a time, or until ctx ends.
func waitUntil(ctx context.Context, at time.Time) error {
	return wait.For(ctx, time.Until(at))
}
