package changelog

import (
	"context"
	"errors"
	"slices"
	"time"
)

// errReplaced says that a server answered as if nothing had happened since.
var errDemoted = errors.New("a server answered that another one has replaced")

// moment is a time of the server's clock.
type serverTime struct {
	ms         int64 // ms
	leaseEpoch string
	received   time.Time // when the reply that has it came
}

// mostEras is how many are remembered: one that comes back later than that is taken
// for new.
const maxLeaseEpochs = 64

// over returns when a lease is certainly over that was granted from a moment.
func (m *Member) leaseOver(base time.Time) time.Time { return base.Add(m.lease + margin(m.lease)) }

// renewal returns the moment that a renewal which is sent now has to name; zero: none
// is to be sent. Nothing was owed as of the moment that is given.
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

// answered notes a reply to what was sent at a time. False: it is from a server that
// another one has replaced, and proves nothing.
func (m *Member) noteReply(p page, sent time.Time) bool {
	at := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.acceptEpoch(p.leaseEpoch, sent) {
		return false
	}
	if !p.member {
		m.joined = false // removed, or everything is gone
	}
	m.lastReply = serverTime{p.serverMs, p.leaseEpoch, at}
	return true
}

// vouch says that all is well as of the last reply.
func (m *Member) confirm() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.confirmed = m.lastReply
}

// serverTime returns what the server's clock shows now, in ms, or up to [Options.Limit]
// later; 0 if that is not known.
func (m *Member) serverTime() int64 {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lastReply.received.IsZero() {
		return 0
	}
	return m.lastReply.ms + (time.Since(m.lastReply.received) + m.log.opts.Timeout).Milliseconds() // a reply takes no longer
}

func (m *Member) lastLeaseEpoch() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastReply.leaseEpoch
}

// see reports whether an era is the latest, which a reply to what was sent at a time has.
// One that was not seen before is, unless the latest was seen after that: then it may
// have come and gone in between. One from before the latest comes from a server that was
// replaced.
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

// acknowledged returns from when on an append counts that was sent at a time, and
// acknowledged in an era. In a former era it never does. In a new one it does when the
// lease is certainly over that somebody may still see who asks the former server.
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

// sawFirst returns when an era was seen first that is the latest; false: it is not.
func (m *Member) epochSeenAt(leaseEpoch string) (time.Time, bool) {
	if m == nil {
		return time.Time{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epochSeen, len(m.leaseEpochs) > 0 && m.leaseEpochs[len(m.leaseEpochs)-1] == leaseEpoch
}

// took notes how long an append took, which counts for an eighth.
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

// begins reports whether a lease can be had for the first time since it joined, once: a
// twin that joins before that would take it for a predecessor.
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

// until waits for a moment.
func waitUntil(ctx context.Context, at time.Time) error {
	left := time.Until(at)
	if left <= 0 {
		return nil
	}
	wait := time.NewTimer(left)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
