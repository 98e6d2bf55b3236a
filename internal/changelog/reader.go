package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ordergate/ordergate/internal/runbook"
)

// reader is the state of the goroutine in Run.
type reader struct {
	log        *Log
	logID      string // "" until the first page
	leaseEpoch string // of the last page
	last       entry  // the last entry applied
	// restarts counts how often the log was read from the beginning because it was damaged.
	restarts int64
	// lenient reads a log that is damaged, or that is read for the first time. Missing entries have
	// been reported, or are reported at the end.
	lenient         bool
	firstRead       bool              // the log is being read for the first time, without a mark
	missing         *integrityError   // what a lenient reader found missing
	gapLoggedUpTo   uint64            // number up to which the log itself has a gap entry
	clearedUpTo     uint64            // number up to which the log clears doubts
	causes          []*integrityError // why it started over; empty once they have been reported again
	members         []string          // of the last page that has them
	blindReason     string            // why the last page has no replication ID
	duplicateLogged time.Time         // when a duplicate was last logged
	restoring       bool              // the log may have lost its members
	beforeJoin      bool              // this page is read before joining
	snapshotMark    Mark              // of the snapshot that was loaded, until its entry was read
	received        receivedEntries   // entries received after last, and applied
	lastReadOK      bool              // the last read succeeded
	awayReads       int               // reads since the last one that found no member away
	caughtUp        bool              // the reader has reached the tail, and the log is intact
	reported        int64             // entry that the last page reported as applied, -1: none
	registered      bool              // the log lists it as a reader in this lease epoch
	registeringIn   string            // the lease epoch in which it last asked to be listed
	narrowUntil     time.Time         // a read sent by then opens a window of narrowWindow
	narrowWindow    time.Duration     // the longest window that the log knew in this lease epoch before this reader's
	windowsLogged   bool              // it was logged that windows differ
	opensWindow     bool              // a listed reader read the first page of this read
	rescanned       map[item]uint64   // items found while lenient, with their last sequence numbers; nil: the log is intact
}

// readToTail applies everything up to the tail that its first page reports. The next read applies
// entries appended meanwhile: under a steady stream of creates this one would never end.
func (r *reader) readToTail(ctx context.Context) error {
	r.log.removeSilentReaders(ctx)
	w := newWindow()
	away, err := r.readPages(ctx)
	r.lastReadOK = err == nil
	phase := Unavailable
	switch {
	case err == nil:
		phase, err = r.phaseAfterRead(away)
	case errors.Is(err, ErrBroken):
		phase = Broken
	case ctx.Err() != nil:
		return errStopped // Run ends, and Redis is not the cause
	}
	if w.length = r.windowLength(w.began); phase != Following || !r.opensWindow || w.length == 0 {
		w = nil
	}
	if r.awayReads++; phase != Away {
		r.awayReads = 0
	}
	r.log.setPhase(phase, err, w)
	return err
}

// phaseAfterRead returns the phase after a read that reached the tail and found a member away, "" if
// none. The error is the reason why no window may open.
func (r *reader) phaseAfterRead(away string) (Phase, error) {
	l := r.log
	requiredAway := slices.Contains(l.opts.Require, away)
	if !requiredAway {
		l.requiredJoined.Store(true)
	}
	switch {
	case r.blindReason != "" && !l.opts.Ephemeral:
		return Blind, fmt.Errorf("%w: %s", ErrBlind, r.blindReason)
	case l.member.hasDuplicate():
		err := fmt.Errorf("%w, this one is %q", ErrDuplicate, l.member.instanceID)
		r.logDuplicate(err)
		return Away, err
	case requiredAway:
		return Away, fmt.Errorf("%w: %s", ErrNotFollowed, away)
	case isEarlierRelease(away):
		return Away, fmt.Errorf("%w: %s", ErrEarlierRelease, away)
	case away != "":
		return Away, fmt.Errorf("%w: %s", ErrAway, away)
	}
	r.caughtUp = true
	return Following, nil
}

// windowLength returns how long a window may last after a read sent at a time. Creators may not
// know yet of a window that is longer than those in the log. It counts once all leases have been
// renewed: a creator that asks a demoted primary has lost its lease by then.
func (r *reader) windowLength(sent time.Time) time.Duration {
	if sent.After(r.narrowUntil) {
		return r.log.opts.Window
	}
	return min(r.narrowWindow, r.log.opts.Window)
}

// noteRegistration stores what a page reports about this reader.
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
				"filter", r.log.filter, "window", window, "longest", max(p.window, window),
				runbook.Windows.Do("give all ordergates the same window"))
		}
		r.registered = false
		if r.registeringIn != p.leaseEpoch { // else the window may be its own
			r.narrowWindow = p.window
		}
	}
}

// hasUnreported reports whether the log does not show yet that this reader has the last entry.
func (r *reader) hasUnreported() bool {
	return r.caughtUp && r.log.reader != "" && (!r.registered || r.reported < int64(r.lastReceived().seq))
}

// readPages reads to the tail. It returns a member that was away when its first page was read.
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
	var target uint64 // the tail, and later the end of the entries from the inbox
	var inbox, restarts int64 = 0, -1
	for inbox > 0 || restarts != r.restarts || r.last.seq < target {
		p, err := r.nextPage(ctx)
		if err != nil {
			return "", err
		}
		if len(r.causes) == 0 && !r.restoring {
			r.confirm() // a long read must not end the lease: no ordergate would answer Absent meanwhile
		}
		r.members = p.members
		if restarts != r.restarts { // the first page of this log
			restarts, away, target, inbox, r.opensWindow = r.restarts, p.away, p.tail, p.inbox, r.registered
			continue
		}
		if inbox > 0 { // the inbox is first in, first out: others that drain it only help
			inbox, target = inbox-inboxBatch, p.tail
			if p.inbox == 0 {
				inbox = 0
			}
		}
	}
	restored := r.restoring
	if err := r.recover(ctx); err != nil {
		return "", err
	}
	if !restored { // else the members would lack those that were restored
		r.log.setMembers(r.members)
	}
	if m := r.log.member; m != nil { // the log may have lost this member as well
		if err := r.ensureJoined(ctx, m); err != nil {
			return "", err
		}
	}
	r.confirm()
	return away, nil
}

// readBeforeJoin reads a page before this process is a member. Loading a snapshot may take long, or
// fail, and the member would be away meanwhile.
func (r *reader) readBeforeJoin(ctx context.Context, m *Member) error {
	if r.log.opts.LoadSnapshot == nil || m.isJoined() {
		return nil
	}
	r.beforeJoin = true
	defer func() { r.beforeJoin = false }()
	_, err := r.nextPage(ctx)
	return err
}

// ensureJoined makes this process a member if it is none.
func (r *reader) ensureJoined(ctx context.Context, m *Member) error {
	ctx, cancel := context.WithTimeout(ctx, r.log.opts.Timeout)
	defer cancel()
	if err := m.join(ctx); err != nil {
		return r.log.readError(err)
	}
	return nil
}

// confirm allows the lease to be renewed as of the last page: all writes acknowledged by its server
// are in the log. It does not if entries acknowledged by another server are unread.
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
