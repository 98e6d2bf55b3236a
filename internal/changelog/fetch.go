package changelog

import (
	"context"
	"slices"
	"time"
)

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

// has reports whether an entry stands in a page.
func (p page) has(e entry) bool {
	return slices.ContainsFunc(p.entries, func(other entry) bool {
		return other.seq == e.seq && other.sub == 0 && other.nonce == e.nonce
	})
}
