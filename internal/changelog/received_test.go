package changelog

import (
	"fmt"
	"testing"
	"time"
)

// TestReceivedBatchesCountTogether reports entries received in two batches. The last entry of one
// batch is not in the log, so another server sent it. Then no received entry counts, although the
// last one is in the log.
func TestReceivedBatchesCountTogether(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a := newInstance(t, s, idle)
		for n := range 4 {
			a.mustAppend(t, fmt.Sprint(n))
		}
		all, err := a.requestPage(t.Context(), nil, time.Time{}, entry{}, 10, "", "", "")
		if err != nil || len(all.entries) != 4 {
			t.Fatalf("%+v, %v", all, err)
		}
		e := all.entries
		end := func(e entry) string { return fmt.Sprintf("%d-0 %s ", e.seq, e.nonce) }
		lost := entry{seq: 2, nonce: "lost"}
		for _, tc := range []struct {
			name    string
			last    entry
			heard   string
			from    uint64
			entries int
			least   uint64
		}{
			{"nothing", e[0], "", 1, 4, 1},
			{"one batch", e[0], end(e[2]), 3, 2, 3},
			{"two", e[0], end(e[1]) + end(e[3]), 4, 1, 4},
			{"from the beginning", entry{}, end(e[1]), 2, 3, 2},
			{"the last is lost", e[0], end(e[1]) + end(entry{seq: 3, nonce: "lost"}), 1, 4, 1},
			{"the first is lost", e[0], end(lost) + end(e[3]), 1, 4, 1},
			{"what it read is lost", lost, end(e[3]), 2, 3, 0},
			{"it ends later", e[0], end(e[3]) + "9-0 later ", 1, 4, 1},
		} {
			p, err := a.requestPage(t.Context(), nil, time.Time{}, tc.last, 10, "reader/500", all.leaseEpoch, tc.heard)
			if err != nil || p.from != tc.from || len(p.entries) != tc.entries || p.applied != tc.least {
				t.Errorf("%s: from %d, %d entries, all have %d, %v; want %d, %d, %d", tc.name, p.from, len(p.entries), p.applied, err, tc.from, tc.entries, tc.least)
			}
		}
	})
}

// TestPrependReceivedEntries prepends received entries to the page after them.
func TestPrependReceivedEntries(t *testing.T) {
	t.Parallel()
	at := func(seq uint64) entry { return entry{seq: seq, id: fmt.Sprint(seq), nonce: "n"} }
	h := receivedEntries{entries: []entry{at(2), at(3)}}
	for _, tc := range []struct {
		name string
		h    receivedEntries
		last entry
		want int
	}{
		{"behind an entry", h, at(1), 4},
		{"from the beginning", receivedEntries{entries: []entry{at(1), at(2), at(3)}}, entry{}, 4},
	} {
		page := page{logID: "e", tail: 4, entries: tc.h.prepend(tc.last, []entry{at(3), at(4)})}
		if len(page.entries) != tc.want {
			t.Errorf("%s: %+v", tc.name, page.entries)
		}
		fresh, bad := page.newEntries("e", tc.last, false)
		if bad != nil || len(fresh) != int(4-tc.last.seq) {
			t.Errorf("%s: %+v, %+v", tc.name, fresh, bad)
		}
	}
	if len(h.after(at(1)).entries) != 2 || len(h.after(at(2)).entries) != 0 || len(h.after(at(9)).entries) != 0 {
		t.Error("received entries are left when more was read")
	}
	if got := (receivedEntries{}).prepend(at(1), []entry{at(3)}); len(got) != 1 {
		t.Errorf("a page is %+v", got)
	}
}
