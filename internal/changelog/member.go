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

// errNoMember says that others do not look for this process, yet or any more.
var errNotMember = errors.New("this ordergate is no member of the change log")

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

func (m *Member) isJoined() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.joined
}

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
