package changelog

import "maps"

// remembered is how many items are kept for a log that loses them: IDs of a minute at
// 150 new orders a second, or of what a replica that takes over lags behind.
const remembered = 10_000

// item is what an entry says: its field, "id" or "doubt", and the value of that.
type item struct{ field, value string }

// recent holds the items that were read last, in a ring, with the numbers of their entries,
// and those that were acknowledged here and are yet to be read: these stay, however much is
// read before them. The zero value is empty.
type recent struct {
	items []item
	seqs  []uint64
	next  int
	// partly says that there were others before, which came by a mark or a snapshot.
	partly bool
	ahead  map[ownItem]struct{} // yet to be read; [remembered] at most
	left   ownItem              // the last for which there was no room there
}

// ownItem is what an entry says that was acknowledged here, its log and its number.
type ownItem struct {
	item
	epoch string
	seq   uint64
}

// acknowledged adds an item that was appended here.
func (r *recent) acknowledged(i ownItem) {
	if len(r.ahead) >= remembered {
		r.left = i
		return
	}
	if r.ahead == nil {
		r.ahead = make(map[ownItem]struct{})
	}
	r.ahead[i] = struct{}{}
}

// read forgets what was ahead in a log that was read up to an entry.
func (r *recent) read(epoch string, upTo uint64) {
	maps.DeleteFunc(r.ahead, func(i ownItem, _ struct{}) bool { return i.epoch == epoch && i.seq <= upTo })
	if r.left.epoch == epoch && r.left.seq <= upTo {
		r.left = ownItem{}
	}
}

// add adds one that was read.
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
	given, older := make(map[item]bool), r.partly || len(r.items) == remembered
	lacks := func(i item, seq uint64) {
		// An earlier doubt of the same words may have been cleared.
		if !given[i] && (has[i] == 0 || i.field == "doubt" && has[i] < seq) {
			items = append(items, i)
			given[i] = true
		}
	}
	oldest := true
	for n := range r.items {
		at := (r.next + n) % len(r.items)
		i, seq := r.items[at], r.seqs[at]
		if i == (item{}) {
			continue
		}
		more = more || oldest && older && has[i] < seq
		oldest = false
		lacks(i, seq)
	}
	for i := range r.ahead {
		lacks(i.item, i.seq)
	}
	return items, more || oldest && older || r.left.seq > 0
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

// mended takes what was read of a log while it was mended, which has all that it lacked, for
// what was read before.
func (r *recent) mended(epoch string, has map[item]uint64, again recent) {
	maps.DeleteFunc(r.ahead, func(i ownItem, _ struct{}) bool {
		seq := has[i.item]
		return seq > 0 && (i.epoch != epoch || seq >= i.seq)
	})
	if r.left.epoch != epoch { // else it may have come since: there is a doubt of those before
		r.left = ownItem{}
	}
	r.partly = r.partly || len(r.items) == remembered
	r.items, r.seqs, r.next = again.items, again.seqs, again.next
}
