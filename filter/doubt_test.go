package filter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestDoubtComesBeforeTheLook: a barrier brings a doubt, and the reading that clears it
// adds the order, between the two looks of a lookup. Whoever sees the doubt answers
// Unknown, and whoever sees that it is cleared sees the order.
func TestDoubtComesBeforeTheLook(t *testing.T) {
	var f *Filter
	clears := false
	f = mustLoad(t, mustNew(t, Options{Barrier: barrierFunc(func(ctx context.Context) error {
		f.Doubt(Doubt{Reason: "Redis was restarted"})
		if clears {
			return f.CatchUp(ctx, func(_ context.Context, add func(string) error) error { return add("lost") })
		}
		return nil
	})}))
	if got := f.MayContain(t.Context(), "lost"); got != Unknown {
		t.Errorf("%v with a doubt, want unknown", got)
	}
	if state, reason := f.State(); state != StateUnknown || reason != "Redis was restarted" {
		t.Errorf("state %s: %s", state, reason)
	}
	f = mustLoad(t, mustNew(t, Options{Barrier: f.opts.Barrier}))
	clears = true
	if got := f.MayContain(t.Context(), "lost"); got != Maybe {
		t.Errorf("%v after the doubt was cleared, want maybe", got)
	}
}

func TestWhatClearsADoubt(t *testing.T) {
	errNo := errors.New("no database")
	settle := func(f *Filter) error { return f.Settle(t.Context(), func(context.Context) error { return nil }) }
	catchUp := func(f *Filter) error {
		return f.CatchUp(t.Context(), func(context.Context, func(string) error) error { return nil })
	}
	load := func(f *Filter) error { return f.Load(t.Context()) }
	for _, tc := range []struct {
		name   string
		doubts []Cure
		by     func(*Filter) error
		clear  bool
		fails  bool
	}{
		{"time", []Cure{Settling}, settle, true, false},
		{"time is not enough", []Cure{Reading}, settle, false, false},
		{"nor for the greater of two", []Cure{Operator, Settling}, settle, false, false},
		{"catching up", []Cure{Settling, Operator}, catchUp, true, false},
		{"loading", []Cure{Operator}, load, true, false},
		{"a reading that fails", []Cure{Settling}, func(f *Filter) error {
			return f.CatchUp(t.Context(), func(context.Context, func(string) error) error { return errNo })
		}, false, true},
		{"a reading that began too early", []Cure{Settling}, func(f *Filter) error {
			return f.CatchUp(t.Context(), func(context.Context, func(string) error) error {
				f.Doubt(Doubt{Reason: "another"})
				return nil
			})
		}, false, false},
		{"a load that began too early", []Cure{Settling}, func(f *Filter) error {
			return f.Load(t.Context(), sourceFunc(func(context.Context, func(string) error) error {
				f.Doubt(Doubt{Reason: "another"})
				return nil
			}))
		}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := mustLoad(t, mustNew(t, Options{}))
			for _, cure := range tc.doubts {
				f.Doubt(Doubt{Reason: "a reason", Cure: cure})
			}
			if got := f.MayContain(t.Context(), "1"); got != Unknown {
				t.Errorf("%v with a doubt, want unknown", got)
			}
			if f.Loaded() {
				t.Error("a snapshot could be written")
			}
			if err := tc.by(f); tc.fails != (err != nil) {
				t.Error(err)
			}
			want := Unknown
			if tc.clear {
				want = Absent
			}
			if got := f.MayContain(t.Context(), "1"); got != want {
				t.Errorf("%v, want %v", got, want)
			}
			select {
			case <-f.Doubted():
			default:
				t.Error("nobody is told")
			}
		})
	}
}

// TestYoung: an order that its database may not have told of yet is never absent.
func TestYoung(t *testing.T) {
	f := mustLoad(t, mustNew(t, Options{Young: func(id string) bool { return id == "new" }}))
	if a, b := f.MayContain(t.Context(), "new"), f.MayContain(t.Context(), "old"); a != Unknown || b != Absent {
		t.Errorf("%v and %v", a, b)
	}
}

// TestLateOrder is created after its doubt was told of, by a call that nobody waited for:
// a reading that began before it may have been does not clear the doubt.
func TestLateOrder(t *testing.T) {
	catchUp := func(f *Filter, ids ...string) {
		t.Helper()
		if err := f.CatchUp(t.Context(), func(_ context.Context, add func(string) error) error {
			for _, id := range ids {
				if err := add(id); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	want := func(f *Filter, want Answer, lasts time.Duration) {
		t.Helper()
		if got := f.MayContain(t.Context(), "late"); got != want || f.DoubtsLast() != lasts {
			t.Errorf("%v, and for %v nothing clears the doubt; want %v, %v", got, f.DoubtsLast(), want, lasts)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		a := &flaky{}
		f := mustLoad(t, mustNew(t, Options{Appender: a, Late: 20 * time.Second}))
		if err := f.Abandoned(t.Context(), "no answer"); err != nil || len(a.missed) != 1 || a.missed[0] != "abandoned: no answer" {
			t.Errorf("%v, told of %q", err, a.missed)
		}
		catchUp(f)
		if err := f.Load(t.Context()); err != nil {
			t.Error(err)
		}
		want(f, Unknown, 20*time.Second)
		time.Sleep(15 * time.Second)
		f.Doubt(Doubt{Reason: "another, of an order that is there"})
		want(f, Unknown, 5*time.Second)
		f.Doubt(Doubt{Reason: "and another, told of elsewhere", Late: 10 * time.Second})
		time.Sleep(9 * time.Second)
		catchUp(f)
		want(f, Unknown, time.Second)
		time.Sleep(time.Second)
		want(f, Unknown, 0) // but no reading has begun since
		catchUp(f, "late")
		want(f, Maybe, 0)
		if got := f.MayContain(t.Context(), "other"); got != Absent {
			t.Errorf("%v, want absent", got)
		}
	})
}
