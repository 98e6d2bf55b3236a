package changelog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A member's name is its instance ID, instanceSep, a nonce, and what it supports.
const (
	instanceSep = "#"
	// waitsSuffix marks a member that waits for the windows of others.
	waitsSuffix = "~"
	// snapshotSuffix marks a member with [Options.LoadSnapshot]. The log is trimmed only while
	// all members have it.
	snapshotSuffix = "+"
)

// errNotMember means that other instances do not wait for this process.
var errNotMember = errors.New("this ordergate is no member of the change log")

// Member is an instance that may send orders to clients before they are in the log. It holds a
// lease. While the lease is over, no window opens. A nil *Member has no pending writes. All methods
// are safe for concurrent use.
//
// The lease is a time of the server's clock. The member does not learn when it ends exactly, but
// when it is certainly over. A renewal grants [Options.Lease] from the time in an earlier reply of
// the server. So the lease is over one lease after that reply arrived, by the member's own clock,
// however long the renewal took.
type Member struct {
	log        *Log
	instanceID string
	name       string // the instance ID, and a suffix that is new after each start
	lease      time.Duration

	duplicate    atomic.Bool // another process with this instance ID is a member
	hadDuplicate atomic.Bool // there was a duplicate: another process with this instance ID is no predecessor

	mu        sync.Mutex
	joined    bool
	rejoins   bool // it has joined before
	unrenewed bool // it has joined, and not renewed its lease yet
	left      bool // it was joined, and has deregistered
	// joinedAt is when it last joined. Windows opened before do not depend on its lease.
	joinedAt    time.Time
	lastReply   serverTime // in the last reply
	confirmed   serverTime // in the last reply that had all acknowledged writes
	renewedFrom serverTime // the time that the last renewal named
	// othersOver is when two kinds of leases are certainly over: those that another server granted
	// to this member, and those of its predecessors. Until then, a reader of a demoted primary may
	// take them for this member's.
	othersOver  time.Time
	leaseEpochs []string  // all that were seen, the latest last
	epochSeen   time.Time // when the latest was first seen
	placeEpoch  string    // in which the stored place was the follower's; "": it has none

	roundTrip time.Duration // of an append, smoothed; 0: none was acknowledged yet

	pending       map[string]time.Time // since when; IDs, and doubts after doubtPrefix
	queue         []pendingWrite       // in the order of their times; some are acknowledged
	overflowedAt  time.Time            // when pending writes exceeded maxPending; zero: they have not
	renewalPaused bool                 // a caller waits for the end of the lease
}

// NewMember returns another member of the log: the follower of a database. Its lease lasts while
// everything in the database is in the log. All instances that follow the database share the
// instance ID, since each of them reports the truth. It joins with its first [Member.Renew].
func (l *Log) NewMember(instanceID string, lease time.Duration) *Member {
	return &Member{log: l, instanceID: instanceID, name: instanceID, lease: lease, pending: make(map[string]time.Time)}
}

// newSelf returns this process as a member, with a new name after each start.
func (l *Log) newSelf(instanceID string) *Member {
	m := l.NewMember(instanceID, l.opts.Lease)
	m.name += instanceSep + newNonce() + waitsSuffix
	if l.opts.LoadSnapshot != nil {
		m.name += snapshotSuffix
	}
	m.othersOver = m.leaseOver(time.Now()) // its predecessor has ended
	return m
}

// Name returns the member's name in the log.
func (m *Member) Name() string {
	if m == nil {
		return ""
	}
	return m.name
}

// join makes it a member if it is none. It blocks for one round trip to Redis.
func (m *Member) join(ctx context.Context) error {
	m.mu.Lock()
	joined, rejoins := m.joined, 0
	if m.rejoins {
		rejoins = 1
	}
	m.mu.Unlock()
	if joined {
		return nil
	}
	l, sent := m.log, time.Now()
	_, cmd := l.runScript(ctx, l.join, l.keys, m.instanceID, m.name, rejoins)
	reply, err := cmd.StringSlice()
	if err != nil || len(reply) != 5 {
		return errors.Join(err, fmt.Errorf("joining %s: %d values", l.keys[keyMembers], len(reply)))
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
	alone := rejoins == 0 && reply[3] == "0" && l.untilLeasesOver(age) <= 0
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joined, m.rejoins, m.unrenewed, m.left, m.joinedAt = true, true, true, false, time.Now()
	m.renewedFrom.leaseEpoch = "" // its earlier leases are void
	if !m.acceptEpoch(reply[1], sent) {
		return errDemoted
	}
	if alone && m.renewedFrom.received.IsZero() { // it has no known predecessor
		m.othersOver = time.Time{}
	}
	m.lastReply = serverTime{server, reply[1], time.Now()}
	return nil
}

func (m *Member) isJoined() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.joined
}

// Renew starts the lease anew, at the last reply of Redis before a time without pending writes. So
// the first lease takes two calls, and that after a failover needs [Member.IsPlaceKnown]. It blocks for one or two round trips. The error is
// [ErrUnavailable] or [ErrBroken].
func (m *Member) Renew(ctx context.Context, confirmedAt time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, m.log.opts.Timeout)
	defer cancel()
	if err := m.join(ctx); err != nil {
		return m.log.readError(err)
	}
	_, err := m.log.requestPage(ctx, m, confirmedAt, entry{seq: math.MaxUint64}, 1, "", "", "")
	if err == nil && m.IsPlaceKnown() {
		m.confirm()
	}
	return err
}

// Leave ends the membership if there are no pending writes. It blocks for one round trip. If a
// failover is not complete for this member, it leaves a doubt in the log.
func (m *Member) Leave(ctx context.Context) error {
	m.mu.Lock()
	leaves, leaseEpoch := m.joined && !m.hasPending(), m.confirmed.leaseEpoch
	if leaseEpoch == "" && len(m.leaseEpochs) == 1 {
		leaseEpoch = m.leaseEpochs[0] // it has confirmed nothing, but all its writes were acknowledged in this lease epoch
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
