package changelog

import "fmt"

// heard is what was heard of behind the last entry that was read.
type receivedEntries struct {
	entries []entry
	ends    string // the last of each batch, as page.lua has them
}

// behind returns what is left of it when more was read: all or nothing, as a page has all that was heard of
// or none of it.
func (h receivedEntries) after(last entry) receivedEntries {
	if len(h.entries) > 0 && h.entries[0].seq == last.seq+1 {
		return h
	}
	return receivedEntries{}
}

// before returns a page as it would be if it began with the last entry that was read, and not with the last
// that was heard of: they are the same that page.lua has found in its log.
func (h receivedEntries) prepend(last entry, page []entry) (entries []entry) {
	if len(h.entries) == 0 {
		return page
	}
	if last.seq > 0 {
		entries = append(entries, last)
	}
	return append(append(entries, h.entries[:len(h.entries)-1]...), page...)
}

// hear adds IDs as soon as they come, and has more brought. They may come from a server that another one
// has replaced, and follow entries that this reader has not. So they count only when page.lua has found the last
// of each batch in the log that it reads. Until then they are what was heard of, and the position stays.
// It reports whether the log is to be read: not when what comes was read meanwhile.
func (r *reader) receive(n *listener, entries []entry) bool {
	n.requested = false
	r.received = r.received.after(r.last)
	fresh := entriesAfter(entries, r.lastReceived())
	known := len(entries) > 0 && len(fresh) == 0
	for i, e := range fresh {
		if !r.caughtUp || e.seq != r.lastReceived().seq+1 {
			fresh = fresh[:i]
			break
		}
		r.log.apply(e.id)
		r.received.entries = append(r.received.entries, e)
	}
	if len(fresh) > 0 {
		end := r.lastReceived()
		r.received.ends += fmt.Sprintf("%d-0 %s ", end.seq, end.nonce)
	}
	return !known
}

// heardUpTo returns the last entry whose ID was added.
func (r *reader) lastReceived() entry {
	if h := r.received.after(r.last); len(h.entries) > 0 {
		return h.entries[len(h.entries)-1]
	}
	return r.last
}
