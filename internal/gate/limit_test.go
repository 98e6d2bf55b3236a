package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/order"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// diary is what several locks did, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// named is a Locker that knows who holds what.
type named struct {
	name  string
	diary *diary
	err   error
	holds string // the owner that may enter once more
	lost  chan struct{}
}

func (n *named) Key(id string) string { return n.name + ":" + id }

func (n *named) Acquire(_ context.Context, request LockRequest) (Lease, error) {
	n.diary.write("%s acquire %s present=%q", n.name, strings.Join(request.IDs, " "), request.PresentedLease)
	if n.err != nil {
		return nil, n.err
	}
	owner := n.name + "-owner"
	if request.PresentedLease != "" && request.PresentedLease == n.holds {
		owner = n.holds
	}
	return &namedLease{n, owner}, nil
}

type namedLease struct {
	*named
	owner string
}

func (l *namedLease) Fences() []int64       { return []int64{int64(len(l.name))} }
func (l *namedLease) Owner() string         { return l.owner }
func (l *namedLease) Lost() <-chan struct{} { return l.lost }
func (l *namedLease) Release(context.Context) error {
	l.diary.write("%s release", l.name)
	return nil
}
func (l *namedLease) Hold(_ context.Context, reason string) error {
	l.diary.write("%s hold: %s", l.name, reason)
	return errors.New(l.name + " was away")
}

// limitBench is a gate with one rule, which has a limit.
type limitBench struct {
	gate          *Gate
	order, permit *named
	diary         *diary
}

func newLimitBench(t *testing.T) *limitBench {
	t.Helper()
	d := &diary{}
	b := &limitBench{
		order:  &named{name: "order", diary: d, lost: make(chan struct{})},
		permit: &named{name: "merchant", diary: d, lost: make(chan struct{})},
		diary:  d,
	}
	var err error
	b.gate, err = New([]Policy{{
		Rule: order.Rule{
			Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle",
			IDs:   []order.ID{{In: order.InPath, Name: "id", Format: digits}},
			Limit: &order.ID{In: order.InHeader, Name: "x-merchant", Format: digits},
		},
		Settle: &Settle{Lock: b.order, Limit: b.permit},
	}}, silent{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *limitBench) open(header ...string) Call {
	return b.gate.Open(order.Request{
		Method: "POST", Target: "/orders/42/settle", Header: append(headers{"x-merchant", "7"}, header...), BodyState: order.BodyComplete,
	})
}

func (d *diary) want(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if diff := cmp.Diff(want, d.lines); diff != "" {
		t.Error("did (-want +got):\n" + diff)
	}
}

func TestLimit(t *testing.T) {
	b := newLimitBench(t)
	c := b.open()
	if c.Key() != "order:42" || c.LimitKey() != "merchant:7" {
		t.Errorf("keys %q and %q", c.Key(), c.LimitKey())
	}
	step := c.Granted(t.Context(), c.Acquire(t.Context()))
	if !step.Forward || FenceText(step.Lease) != "5" || step.Lease.Owner() != "order-owner+merchant-owner" {
		t.Errorf("granted: %+v", step)
	}
	c.Answered(&Response{Details: "via_upstream", Attempts: 1})
	c.Finished()
	c.Ended(t.Context())
	slices.Sort(b.diary.lines[2:]) // at the same time
	b.diary.want(t, `order acquire 42 present=""`, `merchant acquire 7 present=""`, "merchant release", "order release")
}

func TestLimitHolds(t *testing.T) {
	b := newLimitBench(t)
	c := b.open()
	c.Granted(t.Context(), c.Acquire(t.Context()))
	if err := c.lease.Hold(t.Context(), "why"); err == nil || !strings.Contains(err.Error(), "order was away") || !strings.Contains(err.Error(), "merchant was away") {
		t.Errorf("error %v, want both", err)
	}
	slices.Sort(b.diary.lines[2:])
	b.diary.want(t, `order acquire 42 present=""`, `merchant acquire 7 present=""`, "merchant hold: why", "order hold: why")
}

// TestLimitBusy checks that the order's lock does not stay behind.
func TestLimitBusy(t *testing.T) {
	for err, verdict := range map[error]Verdict{ErrBusy: VerdictBusy, errors.New("connection refused"): VerdictUnavailable} {
		b := newLimitBench(t)
		b.permit.err = err
		c := b.open()
		if step := c.Granted(t.Context(), c.Acquire(t.Context())); !step.Refuse || c.Decision.Verdict != verdict {
			t.Errorf("%v: %+v, verdict %s", err, step, c.Decision.Verdict)
		}
		b.diary.want(t, `order acquire 42 present=""`, `merchant acquire 7 present=""`, "order release")
	}
	b := newLimitBench(t)
	b.order.err = ErrBusy
	c := b.open()
	c.Granted(t.Context(), c.Acquire(t.Context()))
	b.diary.want(t, `order acquire 42 present=""`)
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
			b.order.holds = tt.holds
			c := b.open(HeaderLease, tt.lease)
			step := c.Granted(t.Context(), c.Acquire(t.Context()))
			presented, _, _ := strings.Cut(tt.lease, "+")
			b.diary.want(t, fmt.Sprintf("order acquire 42 present=%q", presented), fmt.Sprintf("merchant acquire 7 present=%q", tt.permit))
			if got := step.Lease.Owner(); got != tt.owner {
				t.Errorf("owner %q, want %q", got, tt.owner)
			}
		})
	}
}

// TestLimitLost loses either of the two. (What watches them is gone at the end:
// TestMain.)
func TestLimitLost(t *testing.T) {
	for _, which := range []string{"order", "permit", "none"} {
		b := newLimitBench(t)
		c := b.open()
		c.Granted(t.Context(), c.Acquire(t.Context()))
		lost := make(chan struct{})
		c.NotifyLost(func() { close(lost) })
		switch which {
		case "order":
			close(b.order.lost)
			<-lost
		case "permit":
			close(b.permit.lost)
			<-lost
		}
		c.Ended(t.Context())
	}
}

// TestLimitLostMeanwhile loses the order's lock while the permit is waited for: the
// request must not go on with a fence that is stale before it is used.
func TestLimitLostMeanwhile(t *testing.T) {
	b := newLimitBench(t)
	close(b.order.lost)
	c := b.open()
	if step := c.Granted(t.Context(), c.Acquire(t.Context())); !step.Refuse || c.Decision.Verdict != VerdictUnavailable {
		t.Errorf("%+v, verdict %s", step, c.Decision.Verdict)
	}
	slices.Sort(b.diary.lines[2:])
	b.diary.want(t, `order acquire 42 present=""`, `merchant acquire 7 present=""`, "merchant release", "order release")
}

func TestLimitTakesALockAndAnID(t *testing.T) {
	id := order.ID{In: order.InPath, Name: "id", Format: digits}
	merchant := order.ID{In: order.InHeader, Name: "x-merchant", Format: digits}
	rule := order.Rule{Name: "r", Methods: []string{"POST"}, Path: "/{id}", IDs: []order.ID{id}}
	limited := rule
	limited.Limit = &merchant
	for name, p := range map[string]Policy{
		"no ID":   {Rule: rule, Settle: &Settle{Lock: &lock{}, Limit: &lock{}}},
		"no lock": {Rule: limited, Settle: &Settle{Lock: &lock{}}},
	} {
		if _, err := New([]Policy{p}, silent{}, time.Now); err == nil || !strings.Contains(err.Error(), "a limit takes a lock and an ID") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestLookupBeforeALimitInTheBody checks that an absent order is refused though
// the body has not been seen: it holds only the merchant.
func TestLookupBeforeALimitInTheBody(t *testing.T) {
	b := newBench(t, false)
	l := &lock{}
	g, err := New([]Policy{{
		Rule: order.Rule{
			Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle",
			IDs:   []order.ID{{In: order.InPath, Name: "id", Format: digits}},
			Limit: &order.ID{In: order.InJSON, Members: []string{"merchantId"}, MaxBody: 100, Format: digits},
		},
		Lookup: &Lookup{Filter: b.filter, Absent: Reply{Status: 404}},
		Settle: &Settle{Lock: l, Limit: l},
	}}, silent{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]Verdict{"1": VerdictMaybe, "2": VerdictAbsent, "02": VerdictInvalid} {
		req := order.Request{Method: "POST", Target: "/orders/" + id + "/settle"}
		if d := g.Screen(t.Context(), req); d.Verdict != want {
			t.Errorf("order %s: verdict %s, want %s", id, d.Verdict, want)
		}
	}
	if c := g.Open(order.Request{Method: "POST", Target: "/orders/1/settle"}); !c.NeedsBody {
		t.Error("the body is not asked for")
	}
}
