package changelog

import "fmt"

// receivedEntries are the entries that the listener received after the last entry read.
type receivedEntries struct {
	entries []entry
	ends    string // the last entry of each batch, as page.lua expects them
}

// after returns the entries that are left when a page was read: all or none, since a page contains
// all of them or none.
func (h receivedEntries) after(last entry) receivedEntries {
	if len(h.entries) > 0 && h.entries[0].seq == last.seq+1 {
		return h
	}
	return receivedEntries{}
}

// prepend returns a page as if it began with the last entry read, and not with the last entry
// received. page.lua has found the entries between them in its log.
func (h receivedEntries) prepend(last entry, page []entry) (entries []entry) {
	if len(h.entries) == 0 {
		return page
	}
	if last.seq > 0 {
		entries = append(entries, last)
	}
	return append(append(entries, h.entries[:len(h.entries)-1]...), page...)
}

// receive applies IDs as soon as they arrive. They may come from a demoted primary, and follow
// entries that this reader lacks. So they count only once page.lua has found the last of each batch
// in its log. Until then the position stays. It reports whether to read the log: no if a page has
// brought these entries meanwhile.
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

// lastReceived returns the last entry whose ID was applied.
func (r *reader) lastReceived() entry {
	if h := r.received.after(r.last); len(h.entries) > 0 {
		return h.entries[len(h.entries)-1]
	}
	return r.last
}
