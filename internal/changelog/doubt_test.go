package changelog

import (
	"strings"
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
