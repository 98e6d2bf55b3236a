package changelog

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestDoubtText: a doubt survives the log unchanged, or becomes one about everything. A reader of
// the last release sees a doubt of the same kind.
func TestDoubtText(t *testing.T) {
	at := time.UnixMilli(1_750_000_000_123)
	for _, tc := range []struct {
		text string
		want Doubt
	}{
		{"lost: [orders since 1750000000123] no ID", Doubt{Kind: Lost, Reason: "no ID", Orders: true, Since: at}},
		{"lost: [orders] no ID: at all", Doubt{Kind: Lost, Reason: "no ID: at all", Orders: true}},
		{"gap: [orders] it went back", Doubt{Kind: Gap, Reason: "it went back", Orders: true}},
		{"term: Redis was restarted or failed over", Doubt{Kind: Failover, Reason: "Redis was restarted or failed over", Orders: true}},
		{"crash: the ordergate at [orders] ended", Doubt{Kind: Crash, Reason: "the ordergate at [orders] ended", Orders: true}},
		{`lost: [order "a/\"] 7"] it exists`, Doubt{Kind: Lost, Reason: "it exists", Witness: `a/"] 7`}},
		{"lost: [order 7] it exists", Doubt{Kind: Lost, Reason: "[order 7] it exists"}},
		{"lost: no ID", Doubt{Kind: Lost, Reason: "no ID"}}, // of the last release
		{"gap: the table of source x is followed from now on", Doubt{Kind: Gap, Reason: "the table of source x is followed from now on"}},
	} {
		if got := parseDoubt(tc.text); got != tc.want {
			t.Errorf("%q is %+v, want %+v", tc.text, got, tc.want)
		}
		if got := tc.want.text(); got != tc.text {
			t.Errorf("%+v is written %q, want %q", tc.want, got, tc.text)
		}
		// The last release reads it so.
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

// A doubt about orders since some time does not cover an older order.
func TestDoubtWithSinceCoversOnlyItself(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, patient("b"))
		waitSure(t, a, b)
		failAppends(t, a, w, "before")
		w.set(nil)
		d := Doubt{Kind: Lost, Reason: "no ID", Orders: true, Since: time.UnixMilli(time.Now().UnixMilli())}
		if _, err := a.AppendDoubt(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if n := a.State().Pending; n != 1 {
			t.Errorf("%d are pending, want the order from before", n)
		}
		waitAway(t, b, a.member.Name())
		a.mustAppend(t, "before")
		waitSure(t, a, b)
		if got := b.doubted(); len(got) != 1 || got[0].text() != d.text() || !b.has("before") {
			t.Errorf("doubts %v", got)
		}
	})
}

// TestSameDoubtTwice appends the same doubt for two creates at once. The first acknowledgement does
// not cover the second order: it may have been created after the first entry, and the sources, were
// read.
func TestSameDoubtTwice(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, patient("b"))
		for name, since := range map[string]time.Time{"of any time": {}, "of one moment": time.UnixMilli(time.Now().UnixMilli())} {
			waitSure(t, a, b)
			d := Doubt{Kind: Lost, Reason: name, Orders: true, Since: since}
			h := hold(t)
			w.set(only(a.append, h.reply))
			first := make(chan error, 1)
			go func() { _, err := a.AppendDoubt(t.Context(), d); first <- err }()
			<-h.entered
			w.set(only(a.append, cut))
			if _, err := a.AppendDoubt(t.Context(), d); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("%s: the second is %v", name, err)
			}
			h.release()
			if err := <-first; err != nil {
				t.Fatal(err)
			}
			if n := a.State().Pending; n != 1 {
				t.Errorf("%s: %d are pending, want the second", name, n)
			}
			waitAway(t, b, a.member.Name())
			w.set(nil)
			if _, err := a.AppendDoubt(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			if n := a.State().Pending; n != 0 {
				t.Errorf("%s: %d are pending when it was tried again", name, n)
			}
		}
	})
}

// TestClear: each reader of the log receives once the position up to which doubts are cleared, for
// this log only. A reader of the last release sees a doubt.
func TestClear(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		var clearedUpTo []Mark
		var mu sync.Mutex
		opts := patient("b")
		opts.OnCleared = func(upTo Mark, _ bool) { mu.Lock(); defer mu.Unlock(); clearedUpTo = append(clearedUpTo, upTo) }
		a, b := runInstance(t, s, patient("a")), runInstance(t, s, opts)
		waitSure(t, a, b)
		at := a.Mark()
		other := Doubt{Kind: cleared, Reason: "up to 7 of another"}
		if err := errors.Join(a.ClearDoubts(t.Context(), at), a.RecordDoubt(t.Context(), other)); err != nil {
			t.Fatal(err)
		}
		a.mustAppend(t, "1")
		waitSure(t, b)
		mu.Lock()
		defer mu.Unlock()
		if len(clearedUpTo) > 1 || len(clearedUpTo) == 1 && (clearedUpTo[0].LogID != at.LogID || clearedUpTo[0].Seq != at.Seq) || len(clearedUpTo) == 0 && at.Seq > 0 {
			t.Errorf("cleared up to %v, want %v", clearedUpTo, at)
		}
		if len(b.doubted()) > 0 {
			t.Errorf("doubts %v", b.doubted())
		}
	})
	for text, want := range map[string]uint64{
		"cleared: up to 7 of e": 7, "cleared: up to 7 of f": 0, "cleared: up to -7 of e": 0, "cleared: up to x of e": 0,
		"cleared: up to 7": 0, "cleared: ": 0, "lost: up to 7 of e": 0,
	} {
		if got := parseDoubt(text).clearsUpTo("e"); got != want {
			t.Errorf("%q clears up to %d, want %d", text, got, want)
		}
	}
}

// TestClearAfterAFailover: a cleared position does not cover another entry with its number.
func TestClearAfterAFailover(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	opts := idle
	opts.Lease = 100 * time.Millisecond // or replies would wait for a longer one
	a, b := runInstance(t, s, opts), newInstance(t, s, opts)
	a.mustAppend(t, "1", "2", "3", "4", "5")
	a.mustWait(t)
	at := a.Mark() // the sources are read from here on
	if err := errors.Join(setBack(t.Context(), a.client, 3), failover(t.Context(), a.client)); err != nil {
		t.Fatal(err)
	}
	if err := b.RecordDoubt(t.Context(), Doubt{Kind: Lost, Reason: "no ID", Orders: true}); err != nil {
		t.Fatal(err)
	}
	if err := a.ClearDoubts(t.Context(), at); err == nil || !strings.Contains(err.Error(), "lost entry 5") {
		t.Errorf("clearing up to an entry that was lost: %v", err)
	}
	at.LogID = "another"
	if err := a.ClearDoubts(t.Context(), at); err == nil {
		t.Error("doubts of another log are cleared")
	}
	a.mustWait(t)
	a.mustWait(t)
	if err := a.ClearDoubts(t.Context(), a.Mark()); err != nil {
		t.Error(err)
	}
}

// TestClearedStaysCleared reads a log again after a failover lost entries. Doubts that were cleared
// stay cleared.
func TestClearedStaysCleared(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	var last Mark
	opts := idle
	opts.Lease = 100 * time.Millisecond
	opts.OnCleared = func(upTo Mark, _ bool) { last = upTo }
	a := runInstance(t, s, opts)
	a.mustAppend(t, "1", "2")
	if _, err := a.AppendDoubt(t.Context(), Doubt{Kind: Lost, Reason: "no ID", Orders: true}); err != nil {
		t.Fatal(err)
	}
	a.mustWait(t)
	upTo := a.Mark()
	if err := a.ClearDoubts(t.Context(), upTo); err != nil {
		t.Fatal(err)
	}
	a.mustAppend(t, "lost")
	a.mustWait(t)
	before, tail := len(a.doubted()), a.Mark().Seq
	last = Mark{}
	loseLast(t, a.client, tail)
	a.mustWait(t)
	a.mustWait(t)
	for _, d := range a.doubted()[before:] {
		if d.Kind == Lost && (d.Entry.Seq > upTo.Seq || last.Seq != upTo.Seq) {
			t.Errorf("%+v is not cleared, but what is up to %v", d, last)
		}
	}
	if c := runInstance(t, s, opts); !c.waitFor(t, "lost") {
		t.Error("an order is missing")
	}
}

// TestPersistedGap: a gap that a reader finds becomes an entry, which later readers receive. The
// gap ends once an instance reports that the sources have its orders.
func TestPersistedGap(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		lasting := func(name string) Options {
			o := patient(name)
			o.PersistGaps = true
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
		waitSure(t, a) // or its appends would wait for a lease
		a.mustAppend(t, "1", "2", "3", "4")
		waitSure(t, a)
		if err := a.client.XDel(t.Context(), a.keys[keyLog], "2-0").Err(); err != nil {
			t.Fatal(err)
		}
		b := runInstance(t, s, lasting("b"))
		waitSure(t, b)
		found := b.doubted()
		if gaps(b) == 0 || found[len(found)-1].Entry.Seq == 0 {
			t.Fatalf("doubts %+v", found)
		}
		tail := found[len(found)-1].Entry.Seq
		c := runInstance(t, s, lasting("c"))
		waitSure(t, a, c)
		if gaps(a) == 0 || gaps(c) == 0 || c.State().Tail != tail {
			t.Errorf("doubts %+v and %+v; the log went on from %d to %d", a.doubted(), c.doubted(), tail, c.State().Tail)
		}
		if err := c.ClearDoubts(t.Context(), c.Mark()); err != nil {
			t.Fatal(err)
		}
		var upTo Mark
		o := lasting("d")
		o.OnCleared = func(m Mark, _ bool) { upTo = m }
		d := runInstance(t, s, o)
		waitSure(t, d)
		for _, doubt := range d.doubted() {
			if doubt.Kind == Gap && (doubt.Entry.Seq == 0 || doubt.Entry.Seq > upTo.Seq) {
				t.Errorf("%+v is not cleared by %v", doubt, upTo)
			}
		}
		// A later gap of older entries is another one.
		if err := a.client.XDel(t.Context(), a.keys[keyLog], "3-0").Err(); err != nil {
			t.Fatal(err)
		}
		e := runInstance(t, s, lasting("e"))
		waitSure(t, e)
		found = e.doubted()
		if last := found[len(found)-1]; last.Kind != Gap || last.Entry.Seq <= upTo.Seq {
			t.Errorf("%+v is the last doubt of a log with another gap, cleared up to %d", last, upTo.Seq)
		}
	})
}

// TestGapOfAnotherLog: a gap entry that was appended again to another log has numbers of the former
// log. Entries missing behind it are another gap.
func TestGapOfAnotherLog(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	opts := idle
	opts.PersistGaps, opts.Lease = true, 100*time.Millisecond
	a := runInstance(t, s, opts)
	a.mustAppend(t, "1")
	gap := Doubt{Kind: Gap, Reason: missingPrefix + "500" + prefixEnd + "entry 500 is missing", Orders: true}
	if err := a.RecordDoubt(t.Context(), gap); err != nil {
		t.Fatal(err)
	}
	a.mustWait(t)
	if err := a.ClearDoubts(t.Context(), a.Mark()); err != nil {
		t.Fatal(err)
	}
	a.mustAppend(t, "4", "5", "6")
	if err := a.client.XDel(t.Context(), logKey, "5-0").Err(); err != nil {
		t.Fatal(err)
	}
	b := runInstance(t, s, opts)
	b.mustWait(t)
	found := b.doubted()
	if last := found[len(found)-1]; last.Kind != Gap || last.Entry.Seq <= 5 {
		t.Errorf("%+v is the last doubt of a log that lacks entry 5", last)
	}
}

// TestClearedDuringRecovery: a clearance that is first read during recovery counts too. Its doubts
// are not appended again after the next loss.
func TestClearedDuringRecovery(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	opts := idle
	opts.Lease = 100 * time.Millisecond
	a, b := runInstance(t, s, opts), runInstance(t, s, opts)
	a.mustAppend(t, "1")
	if _, err := a.AppendDoubt(t.Context(), Doubt{Kind: Lost, Reason: "no ID", Orders: true}); err != nil {
		t.Fatal(err)
	}
	a.mustWait(t)
	b.mustAppend(t, "lost")
	b.mustWait(t)
	a.mustWait(t)
	b.stop()
	loseLast(t, a.client, 3)
	c := newInstance(t, s, opts)
	c.mustAppend(t, "2")
	c.start(t)
	c.mustWait(t)
	if err := c.ClearDoubts(t.Context(), c.Mark()); err != nil {
		t.Fatal(err)
	}
	c.stop()
	a.mustWait(t) // it finds the loss and the clearance
	a.mustWait(t)
	a.mustAppend(t, "3")
	a.mustWait(t)
	loseLast(t, a.client, a.Mark().Seq)
	tail := a.Mark().Seq
	a.mustWait(t)
	a.mustWait(t)
	for _, d := range a.doubted() {
		if d.Kind == Lost && d.Entry.Seq >= tail {
			t.Errorf("%+v was cleared", d)
		}
	}
}

// TestLostClearance: a failover loses a doubt and its clearance. An instance that had read neither
// has not read the sources either, and must not open a window.
func TestLostClearance(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	opts := idle
	opts.Lease = 100 * time.Millisecond
	a, b := runInstance(t, s, opts), runInstance(t, s, opts)
	a.mustAppend(t, "1")
	a.mustWait(t)
	b.mustWait(t)
	if _, err := a.AppendDoubt(t.Context(), Doubt{Kind: Lost, Reason: "no ID", Orders: true}); err != nil {
		t.Fatal(err)
	}
	a.mustWait(t)
	if err := a.ClearDoubts(t.Context(), a.Mark()); err != nil {
		t.Fatal(err)
	}
	a.mustWait(t)
	setTo(t, a.client, 1, "0")
	a.mustWait(t)
	b.mustWait(t)
	if !b.hasKind(Lost) {
		t.Errorf("it has the doubts %v", b.doubted())
	}
}

// TestGapsDuringRecovery: every gap that was reported is in the log in the end. Otherwise no other
// instance could clear it.
func TestGapsDuringRecovery(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	opts := idle
	opts.PersistGaps, opts.Lease, opts.PageSize = true, 100*time.Millisecond, 2
	a, other := newInstance(t, s, opts), newInstance(t, s, opts)
	apply, again := a.apply, sync.OnceFunc(func() { other.client.FlushAll(t.Context()) })
	a.Log.apply = func(id string) {
		apply(id)
		if strings.HasPrefix(id, "new") {
			again()
		}
	}
	a.start(t)
	a.mustAppend(t, "1")
	a.mustWait(t)
	if err := a.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	other.mustAppend(t, numbers("new", 10)...)
	a.mustWait(t)
	a.mustWait(t)
	var reasons []string
	for _, d := range a.doubted() {
		if d.Kind == Gap && d.Entry.Seq > 0 {
			reasons = append(reasons, d.Reason)
		}
	}
	for _, d := range a.doubted() {
		if d.Kind == Gap && !slices.Contains(reasons, d.Reason) {
			t.Errorf("the log does not have %+v", d)
		}
	}
	if len(reasons) < 2 {
		t.Errorf("the log has %q", reasons)
	}
}
