package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// errStopped is why a log in phase Stopped cannot be waited for.
var errStopped = fmt.Errorf("%w: it is not read any more", ErrUnavailable)

// Run follows the log until ctx ends, and then returns nil: first all of it, or all
// behind the mark given to [Log.Resume], then whatever is new, as soon as it is appended, and
// at least every [Options.PollEvery]. A log that is unavailable or broken
// does not end it; see [Log.State]. A member joins when it begins, and leaves when it
// ends if it owes nothing. A log is run once: it returns an error the second time.
func (l *Log) Run(ctx context.Context) error {
	if !l.started.CompareAndSwap(false, true) {
		return fmt.Errorf("following %s: it was run before", l.keys[0])
	}
	r := &reader{log: l, reported: -1}
	r.resumeAtMark()
	rest := &pacer{
		reader: r, listener: l.startListener(ctx), poll: time.NewTicker(l.opts.PollEvery), interval: time.NewTimer(0),
		limiter: rate.NewLimiter(rate.Inf, readBurst),
	}
	defer rest.poll.Stop()
	defer rest.interval.Stop()
	for {
		asked := l.takeRead()
		rest.poll.Reset(l.opts.PollEvery)
		began := time.Now()
		err := r.readToTail(ctx)
		asked.finish(err)
		l.mu.Lock()
		l.state.ReadTook = time.Since(began)
		l.mu.Unlock()
		if rest.wait(ctx) != nil {
			l.setPhase(Stopped, errStopped, nil)
			l.takeRead().finish(errStopped)
			l.deregister(ctx)
			return nil
		}
	}
}

// farewell is the end of a member.
func (l *Log) deregister(ctx context.Context) {
	if l.member == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.Timeout)
	defer cancel()
	if err := l.member.Leave(ctx); err != nil {
		l.opts.Logger.Warn("leaving the change log failed: nothing counts as absent until this ordergate is back, or is taken for gone",
			"filter", l.filter, "error", err)
	}
}

// reader is what the one goroutine in Run knows.
type reader struct {
	log        *Log
	logID      string // "" until the log is open
	leaseEpoch string // of the last page
	last       entry  // applied most recently
	// starts counts how often it began anew, with a log that was not what it had been.
	restarts int64
	// lenient reads a log that is known to be damaged, or was never read: what is
	// missing in it has been told of, or is told of at the end.
	lenient         bool
	firstRead       bool              // nothing was read yet, and there was no mark
	missing         *integrityError   // found while lenient
	gapLoggedUpTo   uint64            // up to which number the log itself tells what is missing
	clearedUpTo     uint64            // up to which number the log says that doubts are cleared
	causes          []*integrityError // why it started over, none once that has been told of again
	members         []string          // as the last page has them, if it has
	blindReason     string            // of the last page
	duplicateLogged time.Time         // when it was said last that there is a twin
	restoring       bool              // members may have been forgotten
	beforeJoin      bool              // it reads before it joins
	snapshotMark    Mark              // of the snapshot that was taken, until its entry was read
	received        receivedEntries   // what was heard of behind that, and added
	lastReadOK      bool              // the last read was; else the next one has its time
	caughtUp        bool              // the tail was reached, and the log is what it was
	reported        int64             // up to which entry the last page said that it was applied, -1: none did
	registered      bool              // the log has it as a reader in this era
	registeringIn   string            // the era in which it asked to be noted last
	narrowUntil     time.Time         // a read that is sent by then opens a narrow window
	narrowWindow    time.Duration     // the longest that others had heard of in this era before its own
	windowsLogged   bool              // that others have another window
	opensWindow     bool              // the first page of this read was read by a noted reader
	rescanned       map[item]uint64   // found while lenient, with the numbers of the last, to see which are missing; nil: nobody asks
}

// readToTail applies everything up to where the log ended when the first of its
// pages was read. What is appended meanwhile is for the next time: under a steady
// stream of creations this one would never end.
func (r *reader) readToTail(ctx context.Context) error {
	r.log.removeSilentReaders(ctx)
	w := newWindow()
	away, err := r.readPages(ctx)
	phase := Following
	r.lastReadOK = err == nil
	if err == nil && !slices.Contains(r.log.opts.Require, away) {
		r.log.requiredJoined.Store(true)
	}
	switch {
	case err == nil && r.blindReason != "" && !r.log.opts.Ephemeral:
		phase, err = Blind, fmt.Errorf("%w: %s", ErrBlind, r.blindReason)
	case err == nil && r.log.member.hasDuplicate():
		phase, err = Away, fmt.Errorf("%w, this one is %q", ErrDuplicate, r.log.member.instanceID)
		r.logDuplicate(err)
	case err == nil && slices.Contains(r.log.opts.Require, away):
		phase, err = Away, fmt.Errorf("%w: %s", ErrNotFollowed, away)
	case err == nil && isEarlierRelease(away):
		phase, err = Away, fmt.Errorf("%w: %s", ErrEarlierRelease, away)
	case err == nil && away != "":
		phase, err = Away, fmt.Errorf("%w: %s", ErrAway, away)
	case err == nil:
		r.caughtUp = true
	case errors.Is(err, ErrBroken):
		phase = Broken
	case ctx.Err() != nil:
		return errStopped // Run ends for its own reason, not for Redis's
	default:
		phase = Unavailable
	}
	if w.length = r.windowLength(w.began); phase != Following || !r.opensWindow || w.length == 0 {
		w = nil
	}
	r.log.setPhase(phase, err, w)
	return err
}

// window returns how long one may last that a read opens which was sent at a time. One that is longer
// than what creators have heard of counts when they certainly have: who has not, and asks another server
// by now, is missed by then.
func (r *reader) windowLength(sent time.Time) time.Duration {
	if sent.After(r.narrowUntil) {
		return r.log.opts.Window
	}
	return min(r.narrowWindow, r.log.opts.Window)
}

// note keeps what a page says of the reader.
func (r *reader) noteRegistration(p page) {
	window := r.log.opts.Window
	switch {
	case p.registered && !r.registered:
		r.registered, r.narrowUntil = true, time.Time{}
		if r.narrowWindow < window {
			r.narrowUntil = time.Now().Add(r.log.opts.Lease + margin(r.log.opts.Lease))
		}
	case !p.registered:
		if window > 0 && p.window != window && p.window > 0 && !r.windowsLogged {
			r.windowsLogged = true
			r.log.opts.Logger.Warn("ordergates have different windows: creates wait for the longest",
				"filter", r.log.filter, "window", window, "longest", max(p.window, window))
		}
		r.registered = false
		if r.registeringIn != p.leaseEpoch { // else it may be its own that it hears of
			r.narrowWindow = p.window
		}
	}
}

// unreported reports whether others do not know yet that this reader has the last entry.
func (r *reader) hasUnreported() bool {
	return r.caughtUp && r.log.reader != "" && (!r.registered || r.reported < int64(r.lastReceived().seq))
}

// isEarlier reports whether a member is of an earlier release.
func isEarlierRelease(member string) bool {
	return strings.Contains(member, instanceSep) && !strings.HasSuffix(strings.TrimSuffix(member, snapshotSuffix), waitsSuffix)
}

// tellTwin says once a minute that there is one: whoever looks at the log of either finds
// it there.
func (r *reader) logDuplicate(err error) {
	if now := time.Now(); now.Sub(r.duplicateLogged) >= time.Minute {
		r.duplicateLogged = now
		r.log.opts.Logger.Error("nothing counts as absent", "filter", r.log.filter, "error", err)
	}
}

// pages reads to the tail, and returns a member that was away when its first page was
// read.
func (r *reader) readPages(ctx context.Context) (string, error) {
	if m := r.log.member; m != nil {
		if err := r.readBeforeJoin(ctx, m); err != nil {
			return "", err
		}
		if err := r.ensureJoined(ctx, m); err != nil {
			return "", err
		}
	}
	var away string
	var goal uint64 // the tail, and then that behind what was in the inbox
	var inbox, starts int64 = 0, -1
	for inbox > 0 || starts != r.restarts || r.last.seq < goal {
		p, err := r.nextPage(ctx)
		if err != nil {
			return "", err
		}
		if len(r.causes) == 0 && !r.restoring {
			r.confirm() // a log that takes long to read ends no lease: no ordergate would refuse anything meanwhile
		}
		r.members = p.members
		if starts != r.restarts { // the first page, of this log
			starts, away, goal, inbox, r.opensWindow = r.restarts, p.away, p.tail, p.inbox, r.registered
			continue
		}
		if inbox > 0 { // first in, first out: whoever else takes some only helps
			inbox, goal = inbox-inboxBatch, p.tail
			if p.inbox == 0 {
				inbox = 0
			}
		}
	}
	recalled := r.restoring
	if err := r.recover(ctx); err != nil {
		return "", err
	}
	if !recalled { // or those would not be among them that were called back
		r.log.setMembers(r.members)
	}
	if m := r.log.member; m != nil { // it may have been forgotten as well
		if err := r.ensureJoined(ctx, m); err != nil {
			return "", err
		}
	}
	r.confirm()
	return away, nil
}

// readApart reads a page before this process is a member: to everybody else it would be
// away for as long as a snapshot takes, or cannot be had.
func (r *reader) readBeforeJoin(ctx context.Context, m *Member) error {
	if r.log.opts.LoadSnapshot == nil || m.isJoined() {
		return nil
	}
	r.beforeJoin = true
	defer func() { r.beforeJoin = false }()
	_, err := r.nextPage(ctx)
	return err
}

// joined makes a member of this process, if it is none.
func (r *reader) ensureJoined(ctx context.Context, m *Member) error {
	ctx, cancel := context.WithTimeout(ctx, r.log.opts.Timeout)
	defer cancel()
	if err := m.join(ctx); err != nil {
		return r.log.readError(err)
	}
	return nil
}

// vouch lets the lease be renewed as of the last page: what was acknowledged here is
// in the log that it came from. That is not sure of what was acknowledged by another server
// and is yet to be read.
func (r *reader) confirm() {
	l := r.log
	if l.member == nil {
		return
	}
	l.mu.Lock()
	own := l.unreadAcks
	l.mu.Unlock()
	latest := l.member.lastLeaseEpoch()
	if !slices.ContainsFunc(own, func(e ackedEntry) bool { return e.leaseEpoch != latest }) {
		l.member.confirm()
	}
}

// forget forgets what was acknowledged here and has been read: up to the last entry in the
// era of the page, which has all that was acknowledged in that, and in another one up to an
// entry that stands in the page.
func (r *reader) dropReadAcks(p page) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unreadAcks = slices.DeleteFunc(slices.Clone(l.unreadAcks), func(e ackedEntry) bool {
		there := e.logID == p.logID && (e.leaseEpoch == p.leaseEpoch && e.seq <= r.last.seq || p.has(e.entry))
		if there {
			l.recent.markRead(p.logID, e.leaseEpoch, e.seq)
		}
		return there
	})
	l.recent.markRead(p.logID, p.leaseEpoch, r.last.seq)
	l.readAcks = ackedEntry{entry{seq: r.last.seq}, p.logID, p.leaseEpoch}
}

// has reports whether an entry stands in a page.
func (p page) has(e entry) bool {
	return slices.ContainsFunc(p.entries, func(other entry) bool {
		return other.seq == e.seq && other.sub == 0 && other.nonce == e.nonce
	})
}

// page reads and applies one page.
func (r *reader) nextPage(ctx context.Context) (page, error) {
	p, fresh, err := r.fetchPage(ctx, r.log.opts.LoadSnapshot != nil)
	for errors.Is(err, errTrimmed) {
		var done bool
		if done, err = r.loadSnapshot(ctx, p); err == nil {
			p, fresh, err = r.fetchPage(ctx, done)
		}
	}
	if err != nil {
		return p, err
	}
	r.leaseEpoch, r.blindReason = p.leaseEpoch, p.blindReason
	r.log.member.checkDuplicate(p.members)
	for _, e := range fresh {
		r.apply(e)
	}
	r.dropReadAcks(p)
	r.publish(p.tail)
	return p, nil
}

func (r *reader) apply(e entry) {
	switch {
	case e.malformed != "":
	case e.id == "":
		r.applyDoubt(e)
	default:
		r.log.apply(e.id)
		r.remember(item{"id", e.id}, e.seq)
	}
	r.last = e
}

// remember keeps what an entry says, for a log that loses it.
func (r *reader) remember(i item, seq uint64) {
	if r.rescanned != nil {
		r.rescanned[i] = seq
		return
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.recent.add(i, seq)
}

func (r *reader) applyDoubt(e entry) {
	if e.doubt.Kind == cleared {
		if n := e.doubt.clearsUpTo(r.logID); n > 0 {
			r.clearedUpTo = max(r.clearedUpTo, n)
			r.remember(item{clearedField, e.text}, e.seq)
			// Read once more, it was said before the present doubts of other logs.
			r.log.opts.OnCleared(Mark{LogID: r.logID, Seq: n}, len(r.causes) > 0)
		}
		return
	}
	e.doubt.Entry = Mark{LogID: r.logID, Seq: e.seq, Nonce: e.nonce}
	r.log.reportDoubt(e.doubt)
	if !e.doubt.Kind.isAboutOrders() {
		r.remember(item{"doubt", e.text}, e.seq)
	}
	r.restoring = r.restoring || e.doubt.Kind == Failover
	if e.doubt.Kind == Gap {
		// What is behind it is another gap: it may name the numbers of another log.
		r.gapLoggedUpTo = max(r.gapLoggedUpTo, min(e.doubt.missingUpTo(), e.seq-1))
	}
}

// fetch reads the page that follows the last entry, and returns what is new in it.
// After damage that is the first page of the log that there is. If a log that begins later
// can be bridged, the error is errBegins.
func (r *reader) fetchPage(ctx context.Context, bridge bool) (p page, fresh []entry, err error) {
	l, m := r.log, r.log.member
	if r.beforeJoin {
		m = nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	for {
		own := l.beginPage()
		count := l.opts.PageSize + 1 // one more for the entry that we have
		in := ""                     // else nobody need wait for it
		if r.caughtUp {
			in, r.reported, r.registeringIn = r.leaseEpoch, int64(r.lastReceived().seq), r.leaseEpoch
		}
		ahead := r.received.after(r.last)
		p, err = l.requestPage(ctx, m, time.Now(), r.last, count, l.reader, in, ahead.ends)
		if err != nil {
			return p, nil, err
		}
		full := len(p.entries) >= count
		if p.from > r.last.seq {
			p.entries = ahead.prepend(r.last, p.entries)
		}
		r.noteRegistration(p)
		own = l.acksToVerify(own, p)
		if r.logID == "" {
			r.logID, r.lenient = p.logID, true
		}
		fresh, bad := p.newEntries(r.logID, r.last, full)
		lost := p.lostAck(own, full)
		if bad == nil {
			bad = r.checkSnapshot(p.tail, fresh)
		}
		switch {
		case lost != nil: // it is to be given back, even to a log that is read for the first time
			if bad == nil || bridge && p.startsAfter(r.last) {
				bad = lost
			}
		case bad == nil:
			return p, fresh, nil
		case bridge && p.logID == r.logID && p.startsAfter(r.last):
			return p, nil, errTrimmed
		case r.lenient && bad.kind == Gap && r.snapshotMark.Seq <= p.tail && p.logID == r.logID: // else what was read is not what there is
			r.missing = bad
			fresh = r.skipMissing(p, full)
			r.missing.seq = max(bad.seq, lastMissing(r.last, fresh))
			return p, fresh, nil
		}
		other := p.logID != r.logID
		if r.startOver(bad); other {
			l.mu.Lock()
			l.recent.renumber()
			l.mu.Unlock()
		}
	}
}

// skip returns what is new in a page of a damaged log. What it lacks is passed over.
func (r *reader) skipMissing(p page, full bool) []entry {
	fresh := entriesAfter(p.entries, r.last)
	if !full && (len(fresh) == 0 || fresh[len(fresh)-1].seq < p.tail) {
		fresh = append(fresh, entry{seq: p.tail, malformed: "missing"})
	}
	return fresh
}

// lastMissing returns the number of the last entry that should be among others and is not.
func lastMissing(last entry, fresh []entry) (seq uint64) {
	for _, e := range fresh {
		switch {
		case e.malformed != "":
			seq = e.seq
		case e.seq != last.seq+1:
			seq = e.seq - 1
		}
		last = e
	}
	return seq
}

// lostOwn looks for the newest entries that were appended here and acknowledged before the
// page was asked for. A log without one has lost it, and perhaps others' too. One that another
// server acknowledged has to be seen: what was read may have another entry in its place.
func (p page) lostAck(all []ackedEntry, full bool) *integrityError {
	end := p.tail
	if full {
		end = p.entries[len(p.entries)-1].seq
	}
	for _, own := range all {
		switch {
		case own.logID != p.logID:
			return gapError("it was recreated: its identity is %q, was %q when entry %d was acknowledged", p.logID, own.logID, own.seq)
		case p.tail < own.seq:
			return failoverError("it lost entry %d, which was acknowledged, and ends at %d", own.seq, p.tail)
		case own.seq <= end && !p.has(own.entry) && (own.leaseEpoch != p.leaseEpoch || own.seq >= p.firstSeq()):
			return failoverError("entry %d is not the one that was acknowledged", own.seq)
		}
	}
	return nil
}

// applied publishes how far the reader is.
func (r *reader) publish(tail uint64) {
	l := r.log
	l.position.Store(r.last.seq)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Tail = tail
	if !r.lenient && r.snapshotMark == (Mark{}) { // else it is not sure yet that there is all up to there
		l.mark = Mark{LogID: r.logID, Seq: r.last.seq, Nonce: r.last.nonce}
	}
}

// asking counts a page, and returns the newest entries of our own, which must be in its
// log from now on.
func (l *Log) beginPage() []ackedEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Reads++
	return l.unreadAcks
}

// looked returns which entries of our own a page is to be looked through for: those from
// before it was asked for, and those that were acknowledged meanwhile in another era than
// its own. A server that was replaced may have done that while the page was on its way.
func (l *Log) acksToVerify(before []ackedEntry, p page) (own []ackedEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Tail = p.tail
	for _, e := range l.unreadAcks {
		if e.leaseEpoch != p.leaseEpoch {
			own = append(own, e)
		}
	}
	for _, e := range before {
		if e.leaseEpoch == p.leaseEpoch {
			own = append(own, e)
		}
	}
	return own
}
