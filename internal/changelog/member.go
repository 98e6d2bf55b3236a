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
	placeEnd = "#"
	// waiting is behind what tells a member from those before: it waits for the windows of others.
	waiting = "~"
	// mostOwed bounds what is remembered of the IDs owed.
	mostOwed = 20_000
)

// errNoMember says that others do not look for this process, yet or any more.
var errNoMember = errors.New("this ordergate is no member of the change log")

// errReplaced says that a server answered as if nothing had happened since.
var errReplaced = errors.New("a server answered that another one has replaced")

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
	log   *Log
	place string
	name  string // the place, and which of those that were there
	lease time.Duration

	twin     atomic.Bool // another one is at the place, who came later or stayed
	seenTwin atomic.Bool // there was one: whoever is at the place is no predecessor

	mu     sync.Mutex
	joined bool
	again  bool // it has joined before
	anew   bool // it has just joined, and not renewed its lease yet
	left   bool // it was joined, and took its leave
	// entered is when it joined last: before, windows were opened without a look at it.
	entered time.Time
	last    moment // of the last reply
	reply   moment // of the last reply as of which all is well
	base    moment // that the last renewal was sent with
	// clear is when no lease is certainly good any more that another server granted to
	// this member, or any server to who was at its place before. Somebody who asks a
	// server that was replaced takes that one for the member until then.
	clear time.Time
	eras  []string  // that were seen, the latest last
	since time.Time // when the latest was seen first

	roundTrip time.Duration // of an append, about; 0: none was acknowledged yet

	owed     map[string]time.Time // since when; IDs, and doubts with a blank before
	queue    []debt               // the oldest first; some are paid
	overdrew time.Time            // when it came to owe more than it remembers; zero: it does not
	silent   bool                 // somebody waits for the end of the lease
}

// moment is a time of the server's clock.
type moment struct {
	server int64 // ms
	era    string
	at     time.Time // when the reply that has it came
}

type debt struct {
	what  string
	since time.Time
}

// Member returns somebody else who appends here: a follower of a database, whose
// lease lasts while everything that is in the database is in the log. Whoever follows
// it has the same place, since each says what is true. It joins with its first
// [Member.Renew].
func (l *Log) Member(place string, lease time.Duration) *Member {
	return &Member{log: l, place: place, name: place, lease: lease, owed: make(map[string]time.Time)}
}

// process returns this process as a member, which is another one after a restart.
func (l *Log) process(place string) *Member {
	m := l.Member(place, l.opts.Lease)
	m.name += placeEnd + newNonce() + waiting
	if l.opts.Bridge != nil {
		m.name += bridging
	}
	m.clear = m.over(time.Now()) // who was here before has ended
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
func (m *Member) enter(ctx context.Context) error {
	m.mu.Lock()
	joined, again := m.joined, 0
	if m.again {
		again = 1
	}
	m.mu.Unlock()
	if joined {
		return nil
	}
	l, sent := m.log, time.Now()
	_, cmd := l.run(ctx, l.join, l.keys, m.place, m.name, again)
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
	l.widest.heard(reply[1], time.Duration(window)*time.Millisecond, l.opts.Lease)
	l.mu.Unlock()
	alone := again == 0 && reply[3] == "0" && l.unsettled(age) <= 0
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joined, m.again, m.anew, m.left, m.entered = true, true, true, false, time.Now()
	m.base.era = "" // whatever was granted is gone
	if !m.see(reply[1], sent) {
		return errReplaced
	}
	if alone && m.base.at.IsZero() { // nobody was here before, as far as anybody knows
		m.clear = time.Time{}
	}
	m.last = moment{server, reply[1], time.Now()}
	return nil
}

// beside looks for another one at the place, of all members. Those before were removed
// when it joined.
func (m *Member) beside(members []string) {
	if m == nil || len(members) == 0 {
		return // they were not asked for
	}
	twin := slices.ContainsFunc(members, func(name string) bool {
		return name != m.name && strings.HasPrefix(name, m.place+placeEnd)
	})
	m.twin.Store(twin)
	if twin {
		m.seenTwin.Store(true)
	}
}

func (m *Member) hasTwin() bool { return m != nil && m.twin.Load() }

func (m *Member) isJoined() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.joined
}

// over returns when a lease is certainly over that was granted from a moment.
func (m *Member) over(base time.Time) time.Time { return base.Add(m.lease + margin(m.lease)) }

// Renew has the lease begin anew, at the last answer of Redis that came before a
// moment as of which nothing is owed: so it takes two calls until there is one. It
// blocks for one or two round trips. The error is [ErrUnavailable] or [ErrBroken].
func (m *Member) Renew(ctx context.Context, asOf time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, m.log.opts.Limit)
	defer cancel()
	if err := m.enter(ctx); err != nil {
		return m.log.readError(err)
	}
	_, err := m.log.ask(ctx, m, asOf, entry{seq: math.MaxUint64}, 1, "", "", "")
	if err == nil {
		m.vouch() // it has nothing of its own: it is as of a moment after
	}
	return err
}

// Leave ends the membership of one that owes nothing. It blocks for one round trip. After
// a failover that it has not seen to the end, it leaves a doubt behind.
func (m *Member) Leave(ctx context.Context) error {
	m.mu.Lock()
	leaves, era := m.joined && !m.owing(), m.reply.era
	if era == "" && len(m.eras) == 1 {
		era = m.eras[0] // it saw nothing yet, but all that it was acknowledged is of this era
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
	_, cmd := m.log.run(ctx, m.log.leave, m.log.keys, m.name, era, reader)
	return cmd.Err()
}

// renewal returns the moment that a renewal which is sent now has to name; zero: none
// is to be sent. Nothing was owed as of the moment that is given.
func (m *Member) renewal(asOf time.Time) moment {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if !m.joined || m.silent || m.late(now) || m.reply.at.After(asOf) || m.reply.era == "" || !m.see(m.reply.era, m.reply.at) {
		return moment{}
	}
	if m.reply.era == m.base.era && m.reply.at.Sub(m.base.at) < m.lease/renewals {
		return moment{}
	}
	if m.base.era != m.reply.era {
		m.clear = latest(m.clear, m.over(m.base.at))
	}
	m.base = m.reply
	return m.base
}

// answered notes a reply to what was sent at a time. False: it is from a server that
// another one has replaced, and proves nothing.
func (m *Member) answered(p page, sent time.Time) bool {
	at := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.see(p.era, sent) {
		return false
	}
	if !p.member {
		m.joined = false // removed, or everything is gone
	}
	m.last = moment{p.server, p.era, at}
	return true
}

// vouch says that all is well as of the last reply.
func (m *Member) vouch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reply = m.last
}

// serverTime returns what the server's clock shows now, in ms, or up to [Options.Limit]
// later; 0 if that is not known.
func (m *Member) serverTime() int64 {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last.at.IsZero() {
		return 0
	}
	return m.last.server + (time.Since(m.last.at) + m.log.opts.Limit).Milliseconds() // a reply takes no longer
}

func (m *Member) lastEra() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last.era
}

// mostEras is how many are remembered: one that comes back later than that is taken
// for new.
const mostEras = 64

// see reports whether an era is the latest, which a reply to what was sent at a time has.
// One that was not seen before is, unless the latest was seen after that: then it may
// have come and gone in between. One from before the latest comes from a server that was
// replaced.
func (m *Member) see(era string, sent time.Time) bool {
	switch at := slices.Index(m.eras, era); {
	case at >= 0:
		return at == len(m.eras)-1
	case sent.Before(m.since):
		return false
	case len(m.eras) == mostEras:
		m.eras = slices.Delete(m.eras, 0, 1)
	}
	m.eras, m.since = append(m.eras, era), time.Now()
	return true
}

// acknowledged returns from when on an append counts that was sent at a time, and
// acknowledged in an era. In a former era it never does. In a new one it does when the
// lease is certainly over that somebody may still see who asks the former server.
func (m *Member) acknowledged(era string, sent time.Time) (time.Time, error) {
	if m == nil {
		return time.Time{}, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.see(era, sent) {
		return time.Time{}, errReplaced
	}
	if m.base.era != era {
		return latest(m.clear, m.over(m.base.at)), nil
	}
	return m.clear, nil
}

// sawFirst returns when an era was seen first that is the latest; false: it is not.
func (m *Member) sawFirst(era string) (time.Time, bool) {
	if m == nil {
		return time.Time{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.since, len(m.eras) > 0 && m.eras[len(m.eras)-1] == era
}

// took notes how long an append took, which counts for an eighth.
func (m *Member) took(roundTrip time.Duration) {
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
func until(ctx context.Context, at time.Time) error {
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
func (m *Member) begins() bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	begins := m.joined && m.anew && m.reply.era != "" && !m.owing()
	if begins {
		m.anew = false
	}
	return begins
}

// late reports whether something has been owed for too long to be certain of it.
func (m *Member) late(now time.Time) bool {
	for len(m.queue) > 0 {
		first := m.queue[0]
		if since, ok := m.owed[first.what]; ok && since.Equal(first.since) {
			return !m.overdrew.IsZero() || now.Sub(first.since) > patience(m.roundTrip, m.lease)
		}
		m.queue = m.queue[1:]
	}
	return !m.overdrew.IsZero()
}

func (m *Member) owing() bool { return !m.overdrew.IsZero() || len(m.owed) > 0 }

// owe notes what is about to be appended.
func (m *Member) owe(what ...string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, w := range what {
		_, again := m.owed[w]
		if again && !strings.HasPrefix(w, doubtMark) {
			continue
		}
		if !again && len(m.owed) >= mostOwed {
			m.overdrew = now
			return
		}
		m.owed[w] = now
		m.queue = append(m.queue, debt{w, now})
	}
}

// paid notes what was acknowledged.
func (m *Member) paid(what ...string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range what {
		delete(m.owed, w)
	}
	m.settled()
}

// settled lets the lease be renewed again if nothing is owed.
func (m *Member) settled() {
	if !m.owing() {
		m.silent, m.queue = false, nil
	}
}

// doubtMark makes a doubt unlike any ID, which has no line break in it.
const doubtMark = "\n"

// oweDoubt notes a doubt that is about to be appended, and returns when: it covers all
// that was owed by then. One of the same text that is owed already is owed since now: its
// order may have been created after what is under way was appended.
func (m *Member) oweDoubt(text string) time.Time {
	m.owe(doubtMark + text)
	return time.Now()
}

// paidDoubt notes a doubt that was acknowledged: what had been owed by then is among the
// orders that it is about, if it is about those of any age.
func (m *Member) paidDoubt(text string, covers time.Time, anyAge bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for what, since := range m.owed {
		if !since.After(covers) && (anyAge || what == doubtMark+text) {
			delete(m.owed, what)
		}
	}
	if anyAge && !m.overdrew.After(covers) {
		m.overdrew = time.Time{}
	}
	m.settled()
}

// withdraw waits until the lease is certainly over, and for some time after that, and keeps it
// from being renewed until everything owed is paid.
func (m *Member) withdraw(ctx context.Context, after time.Duration) error {
	m.mu.Lock()
	if !m.owing() { // it has been paid meanwhile
		m.mu.Unlock()
		return m.log.Spread(ctx)
	}
	m.silent = true
	over := latest(latest(m.clear, m.over(m.base.at)), m.entered).Add(after)
	unknown := m.left || m.base.at.IsZero() && !m.joined
	m.mu.Unlock()
	if unknown {
		return errNoMember
	}
	return until(ctx, over)
}

// Withdraw returns nil once no window holds anywhere, until everything is appended whose
// Append failed here: so a client may be told of such an order. It blocks for at most
// [Options.Lease], the longest window, and their margins. The error is ctx's, or says that this process is no member:
// it was none yet, or took its leave.
func (l *Log) Withdraw(ctx context.Context) error {
	if l.member == nil {
		return fmt.Errorf("withdrawing from %s: %w", l.keys[0], errNoMember)
	}
	if err := l.member.withdraw(ctx, over(l.longestWindow())); err != nil {
		return fmt.Errorf("withdrawing from %s: %w", l.keys[0], err)
	}
	return nil
}

// count returns how much is owed.
func (m *Member) count() int {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.owed)
}
