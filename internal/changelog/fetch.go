package changelog

import (
	"context"
	"slices"
	"time"
)

// fetchPage reads the page after the last entry, and returns its new entries. If the log is
// damaged, it reads the first page of what is left. If a snapshot can supply the start of the log,
// the error is errTrimmed.
func (r *reader) fetchPage(ctx context.Context, bridge bool) (p page, fresh []entry, err error) {
	l, m := r.log, r.log.member
	if r.beforeJoin {
		m = nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	for {
		own := l.beginPage()
		count := l.opts.PageSize + 1 // one more for the last entry read
		registerIn := ""             // else creators need not wait for this reader
		if r.caughtUp {
			registerIn, r.reported, r.registeringIn = r.leaseEpoch, int64(r.lastReceived().seq), r.leaseEpoch
		}
		received := r.received.after(r.last)
		p, err = l.requestPage(ctx, m, time.Now(), r.last, count, l.reader, registerIn, received.ends)
		if err != nil {
			return p, nil, err
		}
		full := len(p.entries) >= count
		if p.from > r.last.seq {
			p.entries = received.prepend(r.last, p.entries)
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
		case lost != nil: // append the entry again, even to a log that is read for the first time
			if bad == nil || bridge && p.startsAfter(r.last) {
				bad = lost
			}
		case bad == nil:
			return p, fresh, nil
		case bridge && p.logID == r.logID && p.startsAfter(r.last):
			return p, nil, errTrimmed
		case r.lenient && bad.kind == Gap && r.snapshotMark.Seq <= p.tail && p.logID == r.logID: // else the entries read so far are of another log
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

// skipMissing returns the new entries of a page of a damaged log, without the missing ones.
func (r *reader) skipMissing(p page, full bool) []entry {
	fresh := entriesAfter(p.entries, r.last)
	if !full && (len(fresh) == 0 || fresh[len(fresh)-1].seq < p.tail) {
		fresh = append(fresh, entry{seq: p.tail, malformed: "missing"})
	}
	return fresh
}

// lastMissing returns the number of the last missing entry.
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

// beginPage counts a page, and returns the newest entries acknowledged here. The log of the page
// must have them.
func (l *Log) beginPage() []ackedEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Reads++
	return l.unreadAcks
}

// acksToVerify returns the acknowledged entries that a page must have. These are the entries from
// before its request, and those acknowledged meanwhile in another lease epoch: a demoted primary
// may have sent that page.
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

// lostAck looks for the newest entries that were acknowledged here before the page was requested. A
// log without one of them has lost it, and perhaps entries of others. An entry acknowledged by
// another server must be in the page: the log may have another entry of that number.
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

// has reports whether a page contains an entry.
func (p page) has(e entry) bool {
	return slices.ContainsFunc(p.entries, func(other entry) bool {
		return other.seq == e.seq && other.sub == 0 && other.nonce == e.nonce
	})
}
