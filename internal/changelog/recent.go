package changelog

// remembered is how many items are kept for a log that loses them: IDs of a minute at
// 150 new orders a second, or of what a replica that takes over lags behind.
const remembered = 10_000

// item is what an entry says: its field, "id" or "doubt", and the value of that.
type item struct{ field, value string }

// recent holds the items that were applied or appended last, in a ring, with the numbers of
// their entries. The zero value is empty.
type recent struct {
	items []item
	seqs  []uint64
	next  int
	// partly says that there were others before, which came by a mark or a snapshot.
	partly bool
}

func (r *recent) add(i item, seq uint64) {
	if len(r.items) < remembered {
		r.items, r.seqs = append(r.items, i), append(r.seqs, seq)
		return
	}
	r.items[r.next], r.seqs[r.next] = i, seq
	r.next = (r.next + 1) % remembered
}

// lacking returns the items that a log does not have, the oldest first, each once. Has are
// the numbers of the last entries that it has of each. There may be more if the entry of
// the oldest that is remembered is lacking, and there were older ones: that the log has an
// earlier entry of the same ID says nothing of those.
func (r *recent) lacking(has map[item]uint64) (items []item, more bool) {
	seen, older := make(map[item]bool, len(r.items)), r.partly || len(r.items) == remembered
	more = older && len(r.items) == 0
	for n := range r.items {
		at := (r.next + n) % len(r.items)
		i, seq := r.items[at], r.seqs[at]
		// An earlier doubt of the same words may have been cleared.
		if i != (item{}) && !seen[i] && (has[i] == 0 || i.field == "doubt" && has[i] < seq) {
			items = append(items, i)
		}
		more = more || n == 0 && older && i != (item{}) && has[i] < seq
		seen[i] = true
	}
	return items, more
}

// cleared forgets the doubts up to an entry of the log: a log that loses them lacks
// nothing.
func (r *recent) cleared(upTo uint64) {
	for at, i := range r.items {
		if i.field == "doubt" && r.seqs[at] <= upTo {
			r.items[at] = item{}
		}
	}
}

// renumbered is for another log: where the items stood in the one before says nothing.
func (r *recent) renumbered() {
	for at := range r.seqs {
		r.seqs[at] = 1
	}
}

// moved notes where a log has the items now, which was mended.
func (r *recent) moved(has map[item]uint64) {
	for at, i := range r.items {
		if seq := has[i]; seq > 0 {
			r.seqs[at] = seq
		}
	}
}
