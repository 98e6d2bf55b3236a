package gate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
)

// dedupBench is a gate with one rule, whose creates name their order in a header or in the body.
type dedupBench struct {
	gate    *gate.Gate
	policy  *gate.Policy
	filter  *gatetest.Filter
	confirm *gatetest.Confirmer
	record  *gatetest.Recorder
}

// The filter knows 1 (existing) and 2 (a false positive), and cannot tell of 3 (existing) and 4.
func newDedupBench(t testing.TB, change func(*gate.Policy)) *dedupBench {
	t.Helper()
	journal := &gatetest.Journal{}
	b := &dedupBench{
		filter: &gatetest.Filter{Journal: journal, Others: presence.Absent, Answers: map[string]presence.Answer{
			"1": presence.Maybe, "2": presence.Maybe, "3": presence.Unknown, "4": presence.Unknown,
		}},
		confirm: &gatetest.Confirmer{Journal: journal, Orders: map[string]bool{"1": true, "3": true}},
		record:  &gatetest.Recorder{},
	}
	b.policy = &gate.Policy{
		Rule: order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/orders", Optional: true, IDs: []order.ID{
			{In: order.InHeader, Name: "x-order-id", Format: digits},
			{In: order.InJSON, Members: []string{"id"}, Format: digits, MaxBody: 1000},
		}},
		Create: &gate.Create{
			Filter: b.filter, Learn: gate.Learn{Header: "x-order-id"}, Format: digits,
			Dedup: &gate.Dedup{
				Filter: b.filter, Confirm: b.confirm,
				Duplicate: gate.Reply{Status: 409, Body: "exists"}, Unavailable: gate.Reply{Status: 503},
			},
		},
	}
	if change != nil {
		change(b.policy)
	}
	b.gate = gatetest.Gate(t, []gate.Policy{*b.policy}, b.record)
	return b
}

// create is a create of an order; "": it names none.
func create(id string) order.Request {
	req := order.Request{Method: "POST", Target: "/orders", BodyState: order.BodyComplete}
	if id != "" {
		req.Header = order.HeaderList{{"x-order-id", id}}
	}
	return req
}

// TestDedup judges creates in every way: Screen and TryScreen have to agree.
func TestDedup(t *testing.T) {
	away := func(p *gate.Policy) { p.Create.Dedup.Confirm.(*gatetest.Confirmer).Err = errors.New("away") }
	refuse := func(p *gate.Policy) { p.Create.Dedup.Refuse = true }
	for _, tt := range []struct {
		name    string
		change  []func(*gate.Policy)
		id      string
		verdict gate.Verdict
		refused bool
		asked   []string // of the filter and the confirmer, by Screen
	}{
		{"new", nil, "5", gate.VerdictNone, false, nil},
		{"existing", nil, "1", gate.VerdictDuplicate, true, []string{"query 1", "confirm 1"}},
		{"a false positive", nil, "2", gate.VerdictNone, false, []string{"query 2", "confirm 2"}},
		{"existing, and the filter cannot tell", nil, "3", gate.VerdictDuplicate, true, []string{"query 3", "confirm 3"}},
		{"new, and the filter cannot tell", nil, "4", gate.VerdictNone, false, []string{"query 4", "confirm 4"}},
		{"without an ID", nil, "", gate.VerdictNone, false, nil},
		{"malformed", nil, "x", gate.VerdictInvalid, true, nil},
		{"away", []func(*gate.Policy){away}, "1", gate.VerdictUnknown, false, []string{"query 1", "confirm 1"}},
		{"away, and new", []func(*gate.Policy){away}, "5", gate.VerdictNone, false, nil},
		{"away, and refused", []func(*gate.Policy){away, refuse}, "1", gate.VerdictUnavailable, true, []string{"query 1", "confirm 1"}},
		{"nothing to confirm with", []func(*gate.Policy){func(p *gate.Policy) { p.Create.Dedup.Confirm = nil }}, "1", gate.VerdictUnknown, false, []string{"query 1"}},
	} {
		for _, observe := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, observe), func(t *testing.T) {
				change := func(p *gate.Policy) {
					for _, one := range tt.change {
						one(p)
					}
					p.Observe = observe
				}
				b := newDedupBench(t, change)
				got := b.gate.Screen(t.Context(), create(tt.id))
				if got.Verdict != tt.verdict || got.Refused != (tt.refused && !observe) || got.Action != gate.ActionCreate {
					t.Errorf("screened: %+v", got)
				}
				if diff := cmp.Diff(tt.asked, b.filter.Journal.Lines()); diff != "" {
					t.Error("asked (-want +got):\n" + diff)
				}
				counted := []string{"0 create " + tt.verdict.String()}
				if diff := cmp.Diff(counted, b.record.Lines()); diff != "" {
					t.Error("counted (-want +got):\n" + diff)
				}

				b = newDedupBench(t, change)
				text := []byte(tt.id)
				result := b.gate.TryScreen(create(unsafe.String(unsafe.SliceData(text), len(text))))
				d := result.Decision
				if (result.Pending != nil) != (tt.asked != nil) || len(b.filter.Journal.Lines()) > 0 {
					t.Errorf("%+v, asked for %q without waiting", result, b.filter.Journal.Lines())
				}
				if result.Pending != nil {
					clear(text) // it is the caller's
					d = result.Pending.Resolve(t.Context())
				}
				if d.Verdict != got.Verdict || d.Refused != got.Refused {
					t.Errorf("tried: %+v, screened %+v", d, got)
				}
				if diff := cmp.Diff(counted, b.record.Lines()); diff != "" {
					t.Error("counted (-want +got):\n" + diff)
				}
			})
		}
	}
}

// TestDedupOfABody has the ID in the body, which not every proxy passes on: then the call decides.
func TestDedupOfABody(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		b := newDedupBench(t, func(p *gate.Policy) { p.Create.Dedup.Refuse = refuse })
		req := create("")
		req.Header, req.BodyState = order.HeaderList{{"content-type", "application/json"}, {"content-length", "9"}}, order.BodyUnseen
		if d := b.gate.Screen(t.Context(), req); d.Verdict != gate.VerdictNone || d.Refused {
			t.Errorf("unseen: %+v", d)
		}
		if result := b.gate.TryScreen(req); !result.NeedsBody {
			t.Errorf("%+v, want the body", result)
		}
		req.Body, req.BodyState = []byte(`{"id":"1"}`), order.BodyComplete
		if d := b.gate.Screen(t.Context(), req); d.Verdict != gate.VerdictDuplicate {
			t.Errorf("seen: %+v", d)
		}
	}
}

// TestDedupOfABodyIsCountedOnce has ext_authz pass a create on without its body, which ext_proc then
// reads: a create that goes on is counted by the first alone.
func TestDedupOfABodyIsCountedOnce(t *testing.T) {
	for id, want := range map[string][]string{
		"1": {"0 create none", "0 create duplicate"},
		"2": {"0 create none"},
	} {
		b := newDedupBench(t, nil)
		req := create("")
		req.Header, req.BodyState = order.HeaderList{{"content-type", "application/json"}, {"content-length", "10"}}, order.BodyUnseen
		b.gate.Screen(t.Context(), req)
		c := b.gate.Open(req)
		req.Body, req.BodyState = []byte(`{"id":"`+id+`"}`), order.BodyComplete
		if step := withBody(t, c, req); (step.Do == gate.Refuse) != (len(want) == 2) {
			t.Errorf("order %s: %+v", id, step)
		} else if end := gatetest.End(c); step.Do == gate.Refuse && end.Work != gate.NoWork {
			t.Errorf("order %s: a create that was refused is a doubt: %+v", id, end)
		}
		if diff := cmp.Diff(want, b.record.Lines()); diff != "" {
			t.Errorf("order %s (-want +got):\n%s", id, diff)
		}
	}
}

// TestDedupReplies has an answer for each verdict that refuses.
func TestDedupReplies(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		b := newDedupBench(t, func(p *gate.Policy) { p.Create.Dedup.Refuse = refuse })
		var given []string
		for v := range gate.Verdict(gate.Verdicts) {
			d := gate.Decision{Verdict: v}
			if reply, verdict, ok := b.policy.Reply(d.Refusal()); ok {
				given = append(given, fmt.Sprint(verdict, " ", reply.Status))
			}
		}
		want := []string{"duplicate 409"}
		if refuse {
			want = []string{"unavailable 503", "duplicate 409"}
		}
		if !slices.Equal(given, want) {
			t.Errorf("answers %q, want %q", given, want)
		}
	}
}

// TestDedupEnds has the client leave while its create is confirmed.
func TestDedupEnds(t *testing.T) {
	b := newDedupBench(t, nil)
	b.confirm.Hangs = true
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	if d := b.gate.Screen(ctx, create("1")); d.Verdict != gate.VerdictUnknown {
		t.Errorf("%+v", d)
	}
}

func TestDedupOfANewOrderDoesNotAllocate(t *testing.T) {
	b := newDedupBench(t, nil)
	g := gatetest.Gate(t, b.gate.Policies(), gatetest.Silent{})
	ctx, req := t.Context(), create("5")
	if n := testing.AllocsPerRun(100, func() {
		g.Screen(ctx, req)
		g.TryScreen(req)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestRefusedDuplicateTeachesNothing opens no call for a create that was refused, and one for a
// create that goes on.
func TestRefusedDuplicateTeachesNothing(t *testing.T) {
	b := newDedupBench(t, nil)
	b.filter.Journal = &gatetest.Journal{}
	if d := b.gate.Screen(t.Context(), create("1")); !d.Refused {
		t.Fatalf("%+v", d)
	}
	result := b.gate.TryScreen(create("5"))
	call := result.Open(create("5"))
	if !call.NeedsAnswer {
		t.Fatalf("%+v", call)
	}
	call.On(gate.Event{Kind: gate.Opened})
	answer := gate.Response{Status: 201, Attempts: 1, Details: "via_upstream", Header: order.HeaderList{{"x-order-id", "5"}}}
	if readsBody, err := answered(t, call, answer, "", ""); readsBody || err != nil {
		t.Fatalf("its body is read: %v; %v", readsBody, err)
	}
	if diff := cmp.Diff([]string{"5"}, b.filter.Journal.After("learn ")); diff != "" {
		t.Error("learned (-want +got):\n" + diff)
	}
}

// BenchmarkScreenCreate judges a create without dedup, one of a new order and a duplicate.
func BenchmarkScreenCreate(b *testing.B) {
	for _, tt := range []struct {
		name, id string
		change   func(*gate.Policy)
	}{
		{"without", "5", func(p *gate.Policy) { p.Create.Dedup = nil }},
		{"new", "5", nil},
	} {
		b.Run(tt.name, func(b *testing.B) {
			g := gatetest.Gate(b, newDedupBench(b, tt.change).gate.Policies(), gatetest.Silent{})
			ctx, req := b.Context(), create(tt.id)
			b.ReportAllocs()
			for b.Loop() {
				g.Screen(ctx, req)
			}
		})
	}
}

// TestDedupWithALock judges a create whose rule has a lock, and whose body has not been seen: the
// lock comes after the body, in every attachment.
func TestDedupWithALock(t *testing.T) {
	b := newDedupBench(t, func(p *gate.Policy) { p.Settle = &gate.Settle{Lock: &gatetest.Lock{}} })
	for _, id := range []string{"1", "3", "5"} {
		req := create(id)
		req.BodyState = order.BodyUnseen
		if result := b.gate.TryScreen(req); !result.NeedsBody {
			t.Errorf("order %s: %+v", id, result)
		}
		if c := b.gate.Open(req); !c.NeedsBody || c.NeedsLock {
			t.Errorf("order %s: needs its body: %v, its lock: %v", id, c.NeedsBody, c.NeedsLock)
		}
	}
}

// TestObservedCreateWithoutItsLock has a create go on that is only observed: its order is learned.
func TestObservedCreateWithoutItsLock(t *testing.T) {
	b := newDedupBench(t, func(p *gate.Policy) {
		p.Settle, p.Observe = &gate.Settle{Lock: &gatetest.Lock{Err: gate.ErrBusy}}, true
	})
	c := b.gate.Open(create("5"))
	if step := gatetest.Settle(t.Context(), c); step.Do != gate.PassRequest || c.Decision.Verdict != gate.VerdictBusy {
		t.Fatalf("%s: %+v", c.Decision.Verdict, step)
	}
	answer := gate.Response{Status: 201, Attempts: 1, Details: "via_upstream", Header: order.HeaderList{{"x-order-id", "5"}}}
	if _, err := answered(t, c, answer, "", ""); err != nil || !slices.Equal(b.filter.Journal.After("learn "), []string{"5"}) {
		t.Errorf("learned %q, %v", b.filter.Journal.Lines(), err)
	}
}
