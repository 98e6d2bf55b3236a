package changelog

import "fmt"

// damage is why a log may lack entries that it had.
type integrityError struct {
	kind   Kind
	reason string
	seq    uint64 // of the last entry that is missing, of a gap that a lenient reader has found
}

// doubt is the doubt that it is a reason for: about orders, whatever their age.
func (d *integrityError) doubt() Doubt { return Doubt{Kind: d.kind, Reason: d.reason, Orders: true} }

// gap is damage that somebody did to the log.
func gapError(format string, args ...any) *integrityError {
	return &integrityError{kind: Gap, reason: fmt.Sprintf(format, args...)}
}

// back is damage that a failover does: whoever has the entries appends them again.
func failoverError(format string, args ...any) *integrityError {
	return &integrityError{kind: Failover, reason: fmt.Sprintf(format, args...)}
}

// after returns the entries of p that follow last, the entry applied most
// recently (of sequence number 0 if none was, without a nonce if it is not known). It
// is an error, which says what is wrong, unless p proves that nothing was missed: the
// log is the one we know, the entry that we applied last stands where it stood, no
// number is left out, and the page ends at the log's tail or is full.
func (p page) newEntries(logID string, last entry, full bool) ([]entry, *integrityError) {
	if p.logID != logID {
		return nil, gapError("it was recreated, or belongs to another deployment: its identity is %q, was %q", p.logID, logID)
	}
	if p.tail < last.seq {
		return nil, failoverError("it went back from entry %d to %d", last.seq, p.tail)
	}
	fresh := p.entries
	if last.nonce != "" {
		if len(fresh) == 0 || fresh[0].seq != last.seq {
			return nil, gapError("entry %d is gone", last.seq)
		}
		// A log that lost its newest entries in a failover and grew again has the
		// same numbers on other entries.
		if fresh[0].nonce != last.nonce {
			return nil, failoverError("entry %d is not the one read before", last.seq)
		}
	}
	fresh = entriesAfter(fresh, last)
	end := last.seq
	for _, e := range fresh {
		if e.malformed != "" {
			return nil, gapError("%s", e.malformed)
		}
		if e.seq != end+1 {
			return nil, gapError("entry %d is missing, the next is %d", end+1, e.seq)
		}
		end = e.seq
	}
	if end > p.tail || !full && end < p.tail {
		return nil, gapError("it ends at entry %d, but counts %d", end, p.tail)
	}
	return fresh, nil
}

// behind returns the entries that follow the last.
func entriesAfter(entries []entry, last entry) []entry {
	for len(entries) > 0 && (entries[0].seq < last.seq || entries[0].seq == last.seq && entries[0].sub <= last.sub) {
		entries = entries[1:]
	}
	return entries
}
