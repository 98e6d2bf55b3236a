package gate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// limitBench is a gate with one rule, which has a limit.
type limitBench struct {
	gate          *gate.Gate
	order, permit *gatetest.Lock
	journal       *gatetest.Journal
}

func newLimitBench(t *testing.T) *limitBench {
	t.Helper()
	j := &gatetest.Journal{}
	b := &limitBench{
		order:   &gatetest.Lock{Journal: j, Name: "order", Fence: 5},
		permit:  &gatetest.Lock{Journal: j, Name: "merchant", Fence: 8},
		journal: j,
	}
	b.gate = gatetest.Gate(t, []gate.Policy{{
		Rule: order.Rule{
			Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle",
			IDs:   []order.ID{{In: order.InPath, Name: "id", Format: digits}},
			Limit: &order.ID{In: order.InHeader, Name: "x-merchant", Format: digits},
		},
		Settle: &gate.Settle{Lock: b.order, Limit: b.permit},
	}}, gatetest.Silent{})
	return b
}

func (b *limitBench) open(header ...[2]string) *gate.Call {
	return b.gate.Open(order.Request{
		Method: "POST", Target: "/orders/42/settle", Header: append(order.HeaderList{{"x-merchant", "7"}}, header...), BodyState: order.BodyComplete,
	})
}

func (b *limitBench) wantDid(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, b.journal.Lines()); diff != "" {
		t.Error("did (-want +got):\n" + diff)
	}
}

// wantDidAtOnce is wantDid for events of which all but the first few happen at the same time.
func (b *limitBench) wantDidAtOnce(t *testing.T, first int, want ...string) {
	t.Helper()
	did := b.journal.Lines()
	slices.Sort(did[first:])
	if diff := cmp.Diff(want, did); diff != "" {
		t.Error("did (-want +got):\n" + diff)
	}
}

func TestLimit(t *testing.T) {
	b := newLimitBench(t)
	c := b.open()
	if c.Key() != "order:42" || c.LimitKey() != "merchant:7" {
		t.Errorf("keys %q and %q", c.Key(), c.LimitKey())
	}
	c.SetClient("192.0.2.1:999")
	step := gatetest.Settle(t.Context(), c)
	if step.Do != gate.PassRequest || gate.FenceText(c.Lease()) != "5" || c.Lease().Owner() != "order-owner+merchant-owner" {
		t.Errorf("granted: %+v", step)
	}
	for _, lock := range []*gatetest.Lock{b.order, b.permit} {
		if got := lock.Requests()[0].Client; got != "192.0.2.1" {
			t.Errorf("%s: for client %q", lock.Name, got)
		}
	}
	gatetest.Answer(c, &gate.Response{Details: "via_upstream", Attempts: 1})
	gatetest.Finish(c)
	gatetest.End(c)
	b.wantDidAtOnce(t, 2, "order acquire 42", "merchant acquire 7", "merchant release", "order release")
}

// TestLimitNotReleased has Redis fail to release one of the two.
func TestLimitNotReleased(t *testing.T) {
	for i := range 2 {
		b, away := newLimitBench(t), errors.New("connection refused")
		[]*gatetest.Lock{b.order, b.permit}[i].Unreleased = away
		c := b.open()
		gatetest.Settle(t.Context(), c)
		c.Lease().Release(func(err error) {
			if !errors.Is(err, away) {
				t.Errorf("lock %d: %v", i, err)
			}
		})
	}
}

func TestLimitHolds(t *testing.T) {
	b := newLimitBench(t)
	c := b.open()
	gatetest.Settle(t.Context(), c)
	c.Lease().Hold("why")
	b.wantDidAtOnce(t, 2, "order acquire 42", "merchant acquire 7", "merchant hold: why", "order hold: why")
}

// TestLimitBusy checks that the order's lock does not stay behind.
func TestLimitBusy(t *testing.T) {
	for err, verdict := range map[error]gate.Verdict{gate.ErrBusy: gate.VerdictBusy, errors.New("connection refused"): gate.VerdictUnavailable} {
		b := newLimitBench(t)
		b.permit.Err = err
		c := b.open()
		if step := gatetest.Settle(t.Context(), c); step.Do != gate.Refuse || c.Decision.Verdict != verdict {
			t.Errorf("%v: %+v, verdict %s", err, step, c.Decision.Verdict)
		}
		b.wantDid(t, "order acquire 42", "merchant acquire 7", "order release")
	}
	b := newLimitBench(t)
	b.order.Err = gate.ErrBusy
	c := b.open()
	gatetest.Settle(t.Context(), c)
	b.wantDid(t, "order acquire 42")
}

// TestLimitWithinAnother presents leases. The permit is shared by a call within
// that of the same order, and by no other.
func TestLimitWithinAnother(t *testing.T) {
	tests := []struct {
		name, lease, holds, permit, owner string
	}{
		{"within", "outer+its-permit", "outer", "its-permit", "outer+merchant-owner"},
		{"within one that has no permit", "outer", "outer", "", "outer+merchant-owner"},
		{"of another order", "outer+its-permit", "", "", "order-owner+merchant-owner"},
		{"only a permit", "+its-permit", "", "", "order-owner+merchant-owner"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newLimitBench(t)
			b.order.Enters = tt.holds
			c := b.open([2]string{gate.HeaderLease, tt.lease})
			gatetest.Settle(t.Context(), c)
			presented, _, _ := strings.Cut(tt.lease, "+")
			want := []string{"order acquire 42"}
			if presented != "" {
				want = append(want, "order presents "+presented)
			}
			if want = append(want, "merchant acquire 7"); tt.permit != "" {
				want = append(want, "merchant presents "+tt.permit)
			}
			b.wantDid(t, want...)
			if got := c.Lease().Owner(); got != tt.owner {
				t.Errorf("owner %q, want %q", got, tt.owner)
			}
		})
	}
}

// TestLimitLost loses either of the two. (No goroutine watches them at the end:
// TestMain.)
func TestLimitLost(t *testing.T) {
	for _, which := range []string{"order", "permit", "none"} {
		b := newLimitBench(t)
		c := b.open()
		gatetest.Settle(t.Context(), c)
		lost := make(chan struct{})
		c.Start(t.Context(), gate.Watch, func(gate.Event) { close(lost) })
		switch which {
		case "order":
			b.order.Lose()
			<-lost
		case "permit":
			b.permit.Lose()
			<-lost
		}
		gatetest.End(c)
	}
}

// TestLimitLostMeanwhile loses the order's lock while the permit is waited for: the
// request must not go on with a fence that is stale before it is used.
func TestLimitLostMeanwhile(t *testing.T) {
	for i := range 2 {
		b := newLimitBench(t)
		[]*gatetest.Lock{b.order, b.permit}[i].Lose()
		c := b.open()
		if step := gatetest.Settle(t.Context(), c); step.Do != gate.Refuse || c.Decision.Verdict != gate.VerdictUnavailable {
			t.Errorf("lock %d: %+v, verdict %s", i, step, c.Decision.Verdict)
		}
		b.wantDidAtOnce(t, 2, "order acquire 42", "merchant acquire 7", "merchant release", "order release")
	}
}

func TestLimitTakesALockAndAnID(t *testing.T) {
	id := order.ID{In: order.InPath, Name: "id", Format: digits}
	merchant := order.ID{In: order.InHeader, Name: "x-merchant", Format: digits}
	rule := order.Rule{Name: "r", Methods: []string{"POST"}, Path: "/{id}", IDs: []order.ID{id}}
	limited := rule
	limited.Limit = &merchant
	for name, p := range map[string]gate.Policy{
		"no ID":   {Rule: rule, Settle: &gate.Settle{Lock: &gatetest.Lock{}, Limit: &gatetest.Lock{}}},
		"no lock": {Rule: limited, Settle: &gate.Settle{Lock: &gatetest.Lock{}}},
	} {
		if _, err := gate.New([]gate.Policy{p}, gatetest.Silent{}, time.Now); err == nil || !strings.Contains(err.Error(), "a limit takes a lock and an ID") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestLookupBeforeALimitInTheBody checks that an absent order is refused though
// the body has not been seen: it holds only the merchant.
func TestLookupBeforeALimitInTheBody(t *testing.T) {
	b := newBench(t, false)
	l := &gatetest.Lock{}
	g := gatetest.Gate(t, []gate.Policy{{
		Rule: order.Rule{
			Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle",
			IDs:   []order.ID{{In: order.InPath, Name: "id", Format: digits}},
			Limit: &order.ID{In: order.InJSON, Members: []string{"merchantId"}, MaxBody: 100, Format: digits},
		},
		Lookup: &gate.Lookup{Filter: b.filter, Absent: gate.Reply{Status: 404}},
		Settle: &gate.Settle{Lock: l, Limit: l},
	}}, gatetest.Silent{})
	for id, want := range map[string]gate.Verdict{"1": gate.VerdictMaybe, "2": gate.VerdictAbsent, "02": gate.VerdictInvalid} {
		req := order.Request{Method: "POST", Target: "/orders/" + id + "/settle"}
		if d := g.Screen(t.Context(), req); d.Verdict != want {
			t.Errorf("order %s: verdict %s, want %s", id, d.Verdict, want)
		}
	}
	if c := g.Open(order.Request{Method: "POST", Target: "/orders/1/settle"}); !c.NeedsBody {
		t.Error("the body is not needed")
	}
}
