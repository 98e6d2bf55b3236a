package changelog

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// remembered is how many items are kept for a log that loses them: IDs of a minute at
// 150 new orders a second, or of what a replica that takes over lags behind.
const recentItems = 10_000

// item is what an entry says: its field, "id", "doubt" or clearedField, and the value of that.
type item struct{ field, value string }

// clearedField is that of a word which clears doubts; in the log it is "doubt".
const clearedField = "cleared"

// recent holds the items that were read last, in a ring, with the numbers of their entries,
// and those that were acknowledged here and are yet to be read: these stay, however much is
// read before them. The zero value is empty.
type recent struct {
	items []item
	seqs  []uint64
	next  int
	limit int // how many are kept; 0: as many as are remembered
	// partly says that there were others before, which came by a mark or a snapshot.
	incomplete bool
	unread     map[ackedItem]struct{} // yet to be read; at most as many as are kept
	dropped    ackedItem              // the last for which there was no room there
}

// ownItem is what an entry says that was acknowledged here, its log, the era of that and its
// number.
type ackedItem struct {
	item
	logID, leaseEpoch string
	seq               uint64
}

// most is how many items are kept.
func (r *recent) capacity() int { return cmp.Or(r.limit, recentItems) }

// acknowledged adds an item that was appended here.
func (r *recent) addAcked(i ackedItem) {
	if len(r.unread) >= r.capacity() {
		r.dropped = i
		return
	}
	if r.unread == nil {
		r.unread = make(map[ackedItem]struct{})
	}
	r.unread[i] = struct{}{}
}

// read forgets what was ahead in a log, acknowledged in an era, that was read up to an entry.
func (r *recent) markRead(logID, leaseEpoch string, upTo uint64) {
	done := func(i ackedItem) bool { return i.logID == logID && i.leaseEpoch == leaseEpoch && i.seq <= upTo }
	maps.DeleteFunc(r.unread, func(i ackedItem, _ struct{}) bool { return done(i) })
	if done(r.dropped) {
		r.dropped = ackedItem{}
	}
}

// add adds one that was read.
func (r *recent) add(i item, seq uint64) {
	if len(r.items) < r.capacity() {
		r.items, r.seqs = append(r.items, i), append(r.seqs, seq)
		return
	}
	r.items[r.next], r.seqs[r.next] = i, seq
	r.next = (r.next + 1) % r.capacity()
}

// lacking returns the items that a log does not have, the oldest first, each once. Has are the
// numbers of the last entries that it has of each, word is up to where it says that doubts are
// cleared. There may be more if the entry of the oldest that is remembered is lacking, and
// there were older ones: that the log has an earlier entry of the same ID says nothing of
// those.
func (r *recent) missing(logID string, has map[item]uint64, word uint64) (items []item, more bool) {
	cleared := uint64(0) // by a word that is remembered, and that the log has still
	for _, i := range r.items {
		if i.field == clearedField && has[i] > 0 {
			cleared = max(cleared, parseDoubt(i.value).clearsUpTo(logID))
		}
	}
	given := make(map[item]bool)
	lacks := func(i item, seq uint64) {
		there := has[i] > 0
		if i.field == "doubt" { // another one of the same words may have been cleared
			there = there && (has[i] == seq || has[i] > word && has[i] >= seq)
		}
		if !there && !given[i] && i.field != clearedField {
			items = append(items, i)
			given[i] = true
		}
	}
	more = r.incomplete || len(r.items) >= r.capacity()
	for n := range r.items {
		at := (r.next + n) % len(r.items)
		i, seq := r.items[at], r.seqs[at]
		if n == 0 {
			more = more && has[i] < seq
		}
		if i.field != "doubt" || seq > cleared {
			lacks(i, seq)
		}
	}
	for i := range r.unread {
		lacks(i.item, i.seq)
	}
	return items, more || r.dropped.seq > 0
}

// lost is for a log that has lost something: it may be any of what was ahead.
func (r *recent) dropPositions() {
	ahead := make(map[ackedItem]struct{}, len(r.unread))
	for i := range r.unread {
		ahead[ackedItem{item: i.item}] = struct{}{}
	}
	r.unread = ahead
}

// renumbered is for another log: where the items stood in the one before says nothing.
func (r *recent) renumber() {
	for at := range r.seqs {
		r.seqs[at] = 1
	}
}

// lostAgain is for a log that loses something while it is mended: what was read of it so far
// is remembered with what it lacked, which must not be forgotten for it.
func (r *recent) mergeLost(logID string, has map[item]uint64) {
	items, seqs := make([]item, 0, len(r.items)), make([]uint64, 0, len(r.items))
	known := make(map[item]bool, len(r.items))
	for n := range r.items {
		at := (r.next + n) % len(r.items)
		i, seq := r.items[at], r.seqs[at]
		if has[i] < seq {
			seq = math.MaxUint64 // it stands nowhere, and no word is about it
		}
		items, seqs = append(items, i), append(seqs, seq)
		known[i] = i.field == "id" // a later doubt of the same words is another one
	}
	// What comes before the oldest that is remembered is there with that.
	from := uint64(0)
	if len(items) > 0 && has[items[0]] == seqs[0] {
		from = seqs[0]
	}
	late := r.newestOf(has)
	for i, seq := range has {
		if !known[i] && seq > from && (seq < has[late[0]] || len(items) > 2*r.capacity()) {
			r.dropped = ackedItem{item: i, logID: logID, seq: seq}
		}
	}
	for _, i := range late {
		if !known[i] && len(items) <= 3*r.capacity() {
			items, seqs = append(items, i), append(seqs, has[i])
		}
	}
	r.items, r.seqs, r.next = items, seqs, 0
}

// lateIn returns what the last entries of a log say, as many as are kept, in their order.
func (r *recent) newestOf(has map[item]uint64) (items []item) {
	last := uint64(0)
	for _, seq := range has {
		last = max(last, seq)
	}
	for i, seq := range has {
		if seq+uint64(r.capacity()) > last {
			items = append(items, i)
		}
	}
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(has[a], has[b]) })
	return items
}

// mended takes the last that a log has which was mended, and so lacks nothing, for what was
// read before.
func (r *recent) replace(logID string, has map[item]uint64, late []item) {
	maps.DeleteFunc(r.unread, func(i ackedItem, _ struct{}) bool {
		seq := has[i.item]
		return seq > 0 && (i.logID != logID || seq >= i.seq)
	})
	r.incomplete = r.incomplete || len(late) < len(has)
	r.items, r.seqs, r.next = nil, nil, 0
	for _, i := range late {
		r.add(i, has[i])
	}
}
