package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

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
