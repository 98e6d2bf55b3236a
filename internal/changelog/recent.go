package changelog

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// recentItems is how many items are remembered in case the log loses them. That is the IDs of a
// minute at 150 new orders a second, or the lag of a replica that is promoted.
const recentItems = 10_000

// item is the content of an entry: its field ("id", "doubt" or clearedField) and its value.
type item struct{ field, value string }

// clearedField is the field of an entry that clears doubts; in the log it is "doubt".
const clearedField = "cleared"

// recent holds the items read last, in a ring, with the numbers of their entries. It also holds the
// items that were acknowledged here and not read yet, which later reads do not displace. The zero
// value is empty.
type recent struct {
	items []item
	seqs  []uint64
	next  int
	limit int // capacity; 0: recentItems
	// incomplete means that a mark or a snapshot stands for earlier items.
	incomplete bool
	unread     map[ackedItem]struct{} // not read yet; at most capacity
	dropped    ackedItem              // the last item for which unread had no space
}

// ackedItem is an item acknowledged here, with its log, lease epoch and number.
type ackedItem struct {
	item
	logID, leaseEpoch string
	seq               uint64
}

// capacity returns how many items are kept.
func (r *recent) capacity() int { return cmp.Or(r.limit, recentItems) }

// addAcked adds an item that was appended here.
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

// markRead drops the unread items of a log and a lease epoch up to a number.
func (r *recent) markRead(logID, leaseEpoch string, upTo uint64) {
	done := func(i ackedItem) bool { return i.logID == logID && i.leaseEpoch == leaseEpoch && i.seq <= upTo }
	maps.DeleteFunc(r.unread, func(i ackedItem, _ struct{}) bool { return done(i) })
	if done(r.dropped) {
		r.dropped = ackedItem{}
	}
}

// add adds an item that was read.
func (r *recent) add(i item, seq uint64) {
	if len(r.items) < r.capacity() {
		r.items, r.seqs = append(r.items, i), append(r.seqs, seq)
		return
	}
	r.items[r.next], r.seqs[r.next] = i, seq
	r.next = (r.next + 1) % r.capacity()
}

// missing returns the items that a log lacks, the oldest first, each once. has contains the last
// number of each item in that log. clearedUpTo is the number up to which the log clears doubts. more
// reports that other items may be missing. That is so if the oldest remembered entry is missing and
// there were older ones: an earlier entry of the same ID proves nothing about those.
func (r *recent) missing(logID string, has map[item]uint64, clearedUpTo uint64) (items []item, more bool) {
	cleared := uint64(0) // by an entry that is remembered, and still in the log
	for _, i := range r.items {
		if i.field == clearedField && has[i] > 0 {
			cleared = max(cleared, parseDoubt(i.value).clearsUpTo(logID))
		}
	}
	added := make(map[item]bool)
	addIfMissing := func(i item, seq uint64) {
		there := has[i] > 0
		if i.field == "doubt" { // another doubt with the same text may have been cleared
			there = there && (has[i] == seq || has[i] > clearedUpTo && has[i] >= seq)
		}
		if !there && !added[i] && i.field != clearedField {
			items = append(items, i)
			added[i] = true
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
			addIfMissing(i, seq)
		}
	}
	for i := range r.unread {
		addIfMissing(i.item, i.seq)
	}
	return items, more || r.dropped.seq > 0
}

// dropPositions is for a log that has lost entries: any unread item may be among them.
func (r *recent) dropPositions() {
	ahead := make(map[ackedItem]struct{}, len(r.unread))
	for i := range r.unread {
		ahead[ackedItem{item: i.item}] = struct{}{}
	}
	r.unread = ahead
}

// renumber is for another log: the numbers of the former log mean nothing there.
func (r *recent) renumber() {
	for at := range r.seqs {
		r.seqs[at] = 1
	}
}

// mergeLost is for a log that loses entries during its recovery. It adds the items read so far to
// those that were missing, which must not be displaced.
func (r *recent) mergeLost(logID string, has map[item]uint64) {
	items, seqs := make([]item, 0, len(r.items)), make([]uint64, 0, len(r.items))
	known := make(map[item]bool, len(r.items))
	for n := range r.items {
		at := (r.next + n) % len(r.items)
		i, seq := r.items[at], r.seqs[at]
		if has[i] < seq {
			seq = math.MaxUint64 // it is at no position, and no entry clears it
		}
		items, seqs = append(items, i), append(seqs, seq)
		known[i] = i.field == "id" // a later doubt with the same text is another one
	}
	// If the log has the oldest remembered entry, it has all entries before it.
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

// newestOf returns the items of the last entries of a log in order, at most capacity.
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

// replace sets the items to the last ones of a log whose recovery is complete.
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
