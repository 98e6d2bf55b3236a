package loader

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestDoubtOfAnUnknownKind: what a later release writes needs the most, not the least.
func TestDoubtOfAnUnknownKind(t *testing.T) {
	a := newTrimming(t, bedtest.New(t)).start("capacity: 1000")
	if err := a.log.RecordDoubt(t.Context(), changelog.Doubt{Kind: "later", Reason: "of a kind that nobody knows"}); err != nil {
		t.Fatal(err)
	}
	// At the start there is another one for a while, which time clears.
	bedtest.Eventually(t, "there is a doubt that an operator has to clear", func() bool {
		cure, _, ok := a.filter.Doubts()
		return ok && cure == filter.ByOperator
	})
}

// TestDoubtOfAnotherOrdergate: a word that is good for another ordergate's order is not for
// one that was created here at the same time, and is not told yet.
func TestDoubtOfAnotherOrdergate(t *testing.T) {
	d := newTrimming(t, bedtest.New(t))
	a, b := d.start("capacity: 1000"), d.start("capacity: 1000")
	const reason = "the answer has no ID"
	if err := b.filter.MarkIncomplete(t.Context(), reason, time.Time{}); err != nil {
		t.Fatal(err)
	}
	bedtest.Eventually(t, "the sources are read", func() bool { return b.log.Wait(t.Context()) == nil })
	upTo := b.log.Mark()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.filter.MarkIncomplete(ended, reason, time.Time{}); err == nil {
		t.Fatal("it is told")
	}
	if err := b.log.ClearDoubts(t.Context(), upTo); err != nil {
		t.Fatal(err)
	}
	bedtest.Eventually(t, "a knows that", func() bool { return a.log.Mark().Seq > upTo.Seq })
	if cure, _, ok := a.filter.Doubts(); !ok || cure != filter.ByOperator {
		t.Errorf("a has a doubt: %v, cleared by %v", ok, cure)
	}
}

// TestLoadWhileTheLogIsReadAgain: who says that the sources have every order is not told that
// it is done when nobody else can be told of it.
func TestLoadWhileTheLogIsReadAgain(t *testing.T) {
	d := newTrimming(t, bedtest.New(t))
	a, _ := d.startHost("capacity: 1000")
	load := func() error {
		_, waited, err := a.Reload(t.Context(), "")
		if waited != 0 {
			t.Errorf("waited for %v", waited)
		}
		return err
	}
	permit := func(xadd string) {
		t.Helper()
		if err := d.redis.Do(t.Context(), "ACL", "SETUSER", "default", xadd).Err(); err != nil {
			t.Fatal(err)
		}
	}
	permit("-xadd")
	if err := d.redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	bedtest.Eventually(t, "the log is read again", func() bool { return a.log.Mark() == changelog.Mark{} })
	if err := load(); !errors.Is(err, ErrNotRead) {
		t.Errorf("loading: %v", err)
	}
	permit("+xadd")
	bedtest.Eventually(t, "the log is mended", func() bool { return a.log.Wait(t.Context()) == nil })
	if err := load(); err != nil {
		t.Error(err)
	}
	d.want(a, "one that was told", nil, presence.Absent)
	a.filter.Doubt(filter.Doubt{Reason: "an abandoned create", Recovery: filter.ByOperator, Late: time.Second})
	began := time.Now()
	if _, waited, err := a.Reload(t.Context(), ""); err != nil || waited < time.Second/2 || waited > time.Since(began) {
		t.Errorf("waited for %v: %v", waited, err)
	}
	d.want(d.start("capacity: 1000"), "one that starts after that", nil, presence.Absent)
}

// TestMade: an ID tells the latest time at which its order can have been made, by all
// forms that it has; by one that tells no time it may be of any.
func TestMade(t *testing.T) {
	date := order.Format{Kind: order.Timestamped, Min: 1, Max: 20, Layout: "20060102"}
	flake := order.Format{Kind: order.Snowflake, Min: 1, Max: 19, Epoch: time.Unix(0, 0), Shift: 22}
	digits := order.Format{Kind: order.Digits, Min: 1, Max: 9}
	if createdBeforeOf([]order.Format{digits}) != nil {
		t.Error("digits tell a time")
	}
	for _, tc := range []struct {
		formats []order.Format
		id      string
		want    time.Time // zero: none
	}{
		{[]order.Format{date}, "2026050142", time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)},
		{[]order.Format{flake}, "4194304", time.UnixMilli(2)},
		{[]order.Format{flake, date}, "2026050142", time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)},
		{[]order.Format{flake, digits}, "4194304", time.Time{}},
		{[]order.Format{flake, digits}, "41943040000", time.UnixMilli(10_001)}, // too long for the other
		{[]order.Format{flake}, "x", time.Time{}},
	} {
		got, ok := createdBeforeOf(tc.formats)(tc.id)
		if !got.Equal(tc.want) || ok != !tc.want.IsZero() {
			t.Errorf("%s: %v, %v, want %v", tc.id, got, ok, tc.want)
		}
	}
}
