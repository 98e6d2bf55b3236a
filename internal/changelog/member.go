package changelog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// placeEnd stands between a member's place and what tells it from those before.
	instanceSep = "#"
	// waiting is behind what tells a member from those before: it waits for the windows of others.
	waitsSuffix = "~"
	// mostOwed bounds what is remembered of the IDs owed.
	maxPending = 20_000
)

// errNoMember says that others do not look for this process, yet or any more.
var errNotMember = errors.New("this ordergate is no member of the change log")

// errReplaced says that a server answered as if nothing had happened since.
var errDemoted = errors.New("a server answered that another one has replaced")

// Member is somebody whose orders may be known to clients before they are in the
// log. It holds a lease; while that is over, no window is opened. A nil *Member
// owes nothing. All methods are safe for concurrent use.
//
// The lease is a time of the server's clock. The member never learns exactly when it
// ends, but when it is certainly over: a renewal grants [Options.Lease] from the time
// B that a reply of the server named, and was sent after that reply came. So at the
// moment of its coming, plus the lease, by the member's own clock, it is over, however
// long the renewal was on its way.
type Member struct {
	log        *Log
	instanceID string
	name       string // the place, and which of those that were there
	lease      time.Duration

	duplicate    atomic.Bool // another one is at the place, who came later or stayed
	hadDuplicate atomic.Bool // there was one: whoever is at the place is no predecessor

	mu        sync.Mutex
	joined    bool
	rejoins   bool // it has joined before
	unrenewed bool // it has just joined, and not renewed its lease yet
	left      bool // it was joined, and took its leave
	// entered is when it joined last: before, windows were opened without a look at it.
	joinedAt    time.Time
	lastReply   serverTime // of the last reply
	confirmed   serverTime // of the last reply as of which all is well
	renewedFrom serverTime // that the last renewal was sent with
	// clear is when no lease is certainly good any more that another server granted to
	// this member, or any server to who was at its place before. Somebody who asks a
	// server that was replaced takes that one for the member until then.
	othersOver  time.Time
	leaseEpochs []string  // that were seen, the latest last
	epochSeen   time.Time // when the latest was seen first

	roundTrip time.Duration // of an append, about; 0: none was acknowledged yet

	pending       map[string]time.Time // since when; IDs, and doubts with a blank before
	queue         []pendingWrite       // the oldest first; some are paid
	overflowedAt  time.Time            // when it came to owe more than it remembers; zero: it does not
	renewalPaused bool                 // somebody waits for the end of the lease
}

// moment is a time of the server's clock.
type serverTime struct {
	ms         int64 // ms
	leaseEpoch string
	received   time.Time // when the reply that has it came
}

type pendingWrite struct {
	text  string
	since time.Time
}

// Member returns somebody else who appends here: a follower of a database, whose
// lease lasts while everything that is in the database is in the log. Whoever follows
// it has the same place, since each says what is true. It joins with its first
// [Member.Renew].
func (l *Log) NewMember(instanceID string, lease time.Duration) *Member {
	return &Member{log: l, instanceID: instanceID, name: instanceID, lease: lease, pending: make(map[string]time.Time)}
}

// process returns this process as a member, which is another one after a restart.
func (l *Log) newSelf(instanceID string) *Member {
	m := l.NewMember(instanceID, l.opts.Lease)
	m.name += instanceSep + newNonce() + waitsSuffix
	if l.opts.LoadSnapshot != nil {
		m.name += snapshotSuffix
	}
	m.othersOver = m.leaseOver(time.Now()) // who was here before has ended
	return m
}

// Name returns what the log knows the member by.
func (m *Member) Name() string {
	if m == nil {
		return ""
	}
	return m.name
}

// enter joins, if need be. It blocks for one round trip to Redis.
func (m *Member) join(ctx context.Context) error {
	m.mu.Lock()
	joined, again := m.joined, 0
	if m.rejoins {
		again = 1
	}
	m.mu.Unlock()
	if joined {
		return nil
	}
	l, sent := m.log, time.Now()
	_, cmd := l.runScript(ctx, l.join, l.keys, m.instanceID, m.name, again)
	reply, err := cmd.StringSlice()
	if err != nil || len(reply) != 5 {
		return errors.Join(err, fmt.Errorf("joining %s: %d values", l.keys[2], len(reply)))
	}
	server, err1 := strconv.ParseInt(reply[0], 10, 64)
	age, err2 := strconv.ParseInt(reply[2], 10, 64)
	window, err3 := strconv.ParseInt(reply[4], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	l.mu.Lock()
	l.peers.note(reply[1], time.Duration(window)*time.Millisecond, l.opts.Lease)
	l.mu.Unlock()
	alone := again == 0 && reply[3] == "0" && l.untilLeasesOver(age) <= 0
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joined, m.rejoins, m.unrenewed, m.left, m.joinedAt = true, true, true, false, time.Now()
	m.renewedFrom.leaseEpoch = "" // whatever was granted is gone
	if !m.acceptEpoch(reply[1], sent) {
		return errDemoted
	}
	if alone && m.renewedFrom.received.IsZero() { // nobody was here before, as far as anybody knows
		m.othersOver = time.Time{}
	}
	m.lastReply = serverTime{server, reply[1], time.Now()}
	return nil
}

// beside looks for another one at the place, of all members. Those before were removed
// when it joined.
func (m *Member) checkDuplicate(members []string) {
	if m == nil || len(members) == 0 {
		return // they were not asked for
	}
	twin := slices.ContainsFunc(members, func(name string) bool {
		return name != m.name && strings.HasPrefix(name, m.instanceID+instanceSep)
	})
	m.duplicate.Store(twin)
	if twin {
		m.hadDuplicate.Store(true)
	}
}

func (m *Member) hasDuplicate() bool { return m != nil && m.duplicate.Load() }

func (m *Member) isJoined() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.joined
}

// over returns when a lease is certainly over that was granted from a moment.
func (m *Member) leaseOver(base time.Time) time.Time { return base.Add(m.lease + margin(m.lease)) }

// Renew has the lease begin anew, at the last answer of Redis that came before a
// moment as of which nothing is owed: so it takes two calls until there is one. It
// blocks for one or two round trips. The error is [ErrUnavailable] or [ErrBroken].
func (m *Member) Renew(ctx context.Context, confirmedAt time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, m.log.opts.Timeout)
	defer cancel()
	if err := m.join(ctx); err != nil {
		return m.log.readError(err)
	}
	_, err := m.log.requestPage(ctx, m, confirmedAt, entry{seq: math.MaxUint64}, 1, "", "", "")
	if err == nil {
		m.confirm() // it has nothing of its own: it is as of a moment after
	}
	return err
}

// Leave ends the membership of one that owes nothing. It blocks for one round trip. After
// a failover that it has not seen to the end, it leaves a doubt behind.
func (m *Member) Leave(ctx context.Context) error {
	m.mu.Lock()
	leaves, leaseEpoch := m.joined && !m.hasPending(), m.confirmed.leaseEpoch
	if leaseEpoch == "" && len(m.leaseEpochs) == 1 {
		leaseEpoch = m.leaseEpochs[0] // it saw nothing yet, but all that it was acknowledged is of this era
	}
	m.joined, m.left = m.joined && !leaves, m.left || leaves
	m.mu.Unlock()
	if !leaves {
		return nil
	}
	reader := ""
	if m == m.log.member {
		reader = m.log.reader
	}
	_, cmd := m.log.runScript(ctx, m.log.leave, m.log.keys, m.name, leaseEpoch, reader)
	return cmd.Err()
}

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

// mostEras is how many are remembered: one that comes back later than that is taken
// for new.
const maxLeaseEpochs = 64

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

// settled lets the lease be renewed again if nothing is owed.
func (m *Member) resumeRenewal() {
	if !m.hasPending() {
		m.renewalPaused, m.queue = false, nil
	}
}

// doubtMark makes a doubt unlike any ID, which has no line break in it.
const doubtPrefix = "\n"

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

// count returns how much is owed.
func (m *Member) pendingCount() int {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pending)
}
