package changelog

import "fmt"

// integrityError is the reason why a log may lack entries.
type integrityError struct {
	kind   Kind
	reason string
	seq    uint64 // of the last missing entry, if a lenient reader found the gap
}

// doubt returns the doubt that it causes, about orders of any age.
func (d *integrityError) doubt() Doubt {
	return Doubt{Kind: d.kind, Reason: d.reason, Orders: true, Torn: true}
}

// gapError is the loss of entries by deletion or corruption.
func gapError(format string, args ...any) *integrityError {
	return &integrityError{kind: Gap, reason: fmt.Sprintf(format, args...)}
}

// failoverError is the loss of entries by a failover. Instances that have them append them again.
func failoverError(format string, args ...any) *integrityError {
	return &integrityError{kind: Failover, reason: fmt.Sprintf(format, args...)}
}

// newEntries returns the entries of p after last, the last entry applied. Its number is 0 if there
// is none, its nonce is empty if it is unknown. It returns an error unless p proves that no entry
// was missed. For that the log's ID must be the same, and the last entry must be at its place. No
// number may be missing, and the page must end at the tail or be full.
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
		// After a failover the log may have lost its newest entries and grown again. Then other
		// entries have their numbers.
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

// entriesAfter returns the entries after last.
func entriesAfter(entries []entry, last entry) []entry {
	for len(entries) > 0 && (entries[0].seq < last.seq || entries[0].seq == last.seq && entries[0].sub <= last.sub) {
		entries = entries[1:]
	}
	return entries
}
