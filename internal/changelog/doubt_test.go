package changelog

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestDoubtText: what the log has of a doubt is read as it was meant, or as one about
// everything; and to the last release's reader it is a doubt of the same kind.
func TestDoubtText(t *testing.T) {
	at := time.UnixMilli(1_750_000_000_123)
	for _, tc := range []struct {
		text string
		want Doubt
	}{
		{"lost: [orders since 1750000000123] no ID", Doubt{Kind: Lost, Reason: "no ID", Orders: true, Since: at}},
		{"lost: [orders] no ID: at all", Doubt{Kind: Lost, Reason: "no ID: at all", Orders: true}},
		{"gap: [orders] it went back", Doubt{Kind: Gap, Reason: "it went back", Orders: true}},
		{"term: Redis was restarted or failed over", Doubt{Kind: Term, Reason: "Redis was restarted or failed over", Orders: true}},
		{"crash: the ordergate at [orders] ended", Doubt{Kind: Crash, Reason: "the ordergate at [orders] ended", Orders: true}},
		{"lost: no ID", Doubt{Kind: Lost, Reason: "no ID"}}, // of the last release
		{"gap: the table of source x: is followed from now on", Doubt{Kind: Gap, Reason: "the table of source x: is followed from now on"}},
	} {
		if got := parseDoubt(tc.text); got != tc.want {
			t.Errorf("%q is %+v, want %+v", tc.text, got, tc.want)
		}
		if got := tc.want.text(); got != tc.text {
			t.Errorf("%+v is written %q, want %q", tc.want, got, tc.text)
		}
		// How the last release reads it.
		if kind, reason, _ := strings.Cut(tc.text, ": "); Kind(kind) != tc.want.Kind || reason == "" {
			t.Errorf("%q is of kind %s to others", tc.text, kind)
		}
	}
	for _, reason := range []string{
		"[orders since] x", "[orders since ] x", "[orders since -5] x", "[orders since 0] x", "[orders since 1.5] x",
		"[orders since 99999999999999999999] x", "[orders since 5]x", "[orders since 5", "[orders]x", " [orders] x", "",
	} {
		if got := parseDoubt("lost: " + reason); got != (Doubt{Kind: Lost, Reason: reason}) {
			t.Errorf("%q is %+v, want one about everything", reason, got)
		}
	}
}

// A doubt about orders of late does not pay for an order that may be older.
func TestDoubtOfLatePaysForItself(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, patient("b"))
		sure(t, a, b)
		owes(t, a, w, "before")
		w.set(nil)
		d := Doubt{Kind: Lost, Reason: "no ID", Orders: true, Since: time.UnixMilli(time.Now().UnixMilli())}
		if err := a.Doubt(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if n := a.State().Owed; n != 1 {
			t.Errorf("%d are owed, want the order from before", n)
		}
		finds(t, b, a.member.Name())
		a.mustAppend(t, "before")
		sure(t, a, b)
		if got := b.doubted(); len(got) != 1 || got[0].text() != d.text() || !b.has("before") {
			t.Errorf("doubts %v", got)
		}
	})
}

// TestClear: who follows the log is told up to where doubts are cleared, once, of this log
// only; to the last release's reader the entry is a doubt.
func TestClear(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		var told []Mark
		var mu sync.Mutex
		opts := patient("b")
		opts.Cleared = func(upTo Mark, _ bool) { mu.Lock(); defer mu.Unlock(); told = append(told, upTo) }
		a, b := runInstance(t, s, patient("a")), runInstance(t, s, opts)
		sure(t, a, b)
		at := a.Mark()
		if err := errors.Join(a.Clear(t.Context(), at), a.Clear(t.Context(), Mark{Epoch: "another", Seq: 7})); err != nil {
			t.Fatal(err)
		}
		a.mustAppend(t, "1")
		sure(t, b)
		mu.Lock()
		defer mu.Unlock()
		if len(told) > 1 || len(told) == 1 && (told[0].Epoch != at.Epoch || told[0].Seq != at.Seq) || len(told) == 0 && at.Seq > 0 {
			t.Errorf("told %v, want %v", told, at)
		}
		if len(b.doubted()) > 0 {
			t.Errorf("doubts %v", b.doubted())
		}
	})
	for text, want := range map[string]uint64{
		"cleared: up to 7 of e": 7, "cleared: up to 7 of f": 0, "cleared: up to -7 of e": 0, "cleared: up to x of e": 0,
		"cleared: up to 7": 0, "cleared: ": 0, "lost: up to 7 of e": 0,
	} {
		if got := parseDoubt(text).clears("e"); got != want {
			t.Errorf("%q clears up to %d, want %d", text, got, want)
		}
	}
}

// TestLastingGap: a gap that a reader finds is an entry of the log then, which every later
// reader finds; and once somebody has said that the sources have what was there, the gap
// is none any more.
func TestLastingGap(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		lasting := func(name string) Options {
			o := patient(name)
			o.Lasting = true
			return o
		}
		gaps := func(i *instance) (n int) {
			for _, d := range i.doubted() {
				if d.Kind == Gap {
					n++
				}
			}
			return n
		}
		a := runInstance(t, s, lasting("a"))
		sure(t, a) // or the answers to its appends would wait for a lease
		a.mustAppend(t, "1", "2", "3", "4")
		sure(t, a)
		if err := a.client.XDel(t.Context(), a.keys[0], "2-0").Err(); err != nil {
			t.Fatal(err)
		}
		b := runInstance(t, s, lasting("b"))
		sure(t, b)
		found := b.doubted()
		if gaps(b) == 0 || found[len(found)-1].Entry.Seq == 0 {
			t.Fatalf("doubts %+v", found)
		}
		tail := found[len(found)-1].Entry.Seq
		c := runInstance(t, s, lasting("c"))
		sure(t, a, c)
		if gaps(a) == 0 || gaps(c) == 0 || c.State().Tail != tail {
			t.Errorf("doubts %+v and %+v; the log went on from %d to %d", a.doubted(), c.doubted(), tail, c.State().Tail)
		}
		if err := c.Clear(t.Context(), c.Mark()); err != nil {
			t.Fatal(err)
		}
		var upTo Mark
		o := lasting("d")
		o.Cleared = func(m Mark, _ bool) { upTo = m }
		d := runInstance(t, s, o)
		sure(t, d)
		for _, doubt := range d.doubted() {
			if doubt.Kind == Gap && (doubt.Entry.Seq == 0 || doubt.Entry.Seq > upTo.Seq) {
				t.Errorf("%+v is not cleared by %v", doubt, upTo)
			}
		}
	})
}
