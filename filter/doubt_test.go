package filter

import (
	"context"
	"errors"
	"testing"
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
