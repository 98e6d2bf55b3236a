package changelog

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestLostDoubts has a log lose its doubts: whoever starts after that finds one about
// whatever they were about, but for those that somebody has cleared.
func TestLostDoubts(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		lasting := func(name string) Options {
			o := patient(name)
			o.Lasting = true
			return o
		}
		at := time.UnixMilli(1_700_000_000_000)
		lost := func(n int) Doubt {
			return Doubt{Kind: Lost, Reason: fmt.Sprint("create ", n), Orders: true, Since: at.Add(time.Duration(n) * time.Second)}
		}
		a := runInstance(t, s, lasting("a"))
		sure(t, a)
		if err := errors.Join(a.RecordDoubt(t.Context(), lost(1)), a.RecordDoubt(t.Context(), Doubt{Kind: Running, Reason: "no scope"})); err != nil {
			t.Fatal(err)
		}
		sure(t, a)
		if err := a.Clear(t.Context(), a.Mark()); err != nil {
			t.Fatal(err)
		}
		sure(t, a)
		for n := range mostLasting + 2 {
			if err := a.RecordDoubt(t.Context(), lost(3+n)); err != nil {
				t.Fatal(err)
			}
		}
		sure(t, a)
		if err := a.client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		sure(t, a)
		b := runInstance(t, s, lasting("b"))
		sure(t, b)
		var found []Doubt
		for _, d := range b.doubted() {
			if d.Kind == Lost || d.Kind == Running {
				found = append(found, d)
			}
		}
		if len(found) != 1 || !found[0].Orders || !found[0].Since.Equal(lost(3).Since) || found[0].Entry.Seq == 0 {
			t.Errorf("it finds %+v", found)
		}
		// Once more: what was given back is lost.
		if err := a.client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		sure(t, a, b)
		c := runInstance(t, s, lasting("c"))
		sure(t, c)
		if n := len(c.doubted()); n < 2 || n > 12 {
			t.Errorf("%d doubts: %+v", n, c.doubted())
		}
	})
}
