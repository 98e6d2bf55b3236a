package locking

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// conditions returns an error for each check, and counts the checks.
type conditions struct {
	err    error
	checks []string
}

// Check implements gate.Conditions.
func (c *conditions) Check(_ context.Context, ids, _ []string) error {
	c.checks = append(c.checks, ids...)
	return c.err
}

// TestConditionsOfACall takes locks with conditions that hold, and with some that do not: of a
// call alone, and of one that presents a lease.
func TestConditionsOfACall(t *testing.T) {
	t.Parallel()
	s, c, _ := newLockers(t, &config.Redis{Addresses: []string{bedtest.New(t).Redis().Addr()}}, config.Lock{Wait: config.Wait{Tries: 1, Every: time.Second}})
	c.Rules = []config.Rule{{Name: "a", Settle: &config.Settle{Lock: "settlement", MaxInFlight: 10, MaxInFlightPerClient: 10}}}
	v := s.Prepare(c)
	lock, err := v.Locker(t.Context(), "settlement", c.Rules[0])
	bedtest.Check(t, err)
	s.Activate(v)
	unmet := &gate.UnmetError{Condition: 1}
	acquire := func(k *conditions, presented string, ids ...string) (gate.Lease, error) {
		return lock.Acquire(t.Context(), gate.LockRequest{IDs: ids, PresentedLease: presented, Conditions: k})
	}
	isFree := func(id string) bool {
		lease, err := acquire(&conditions{}, "", id)
		if err == nil {
			bedtest.Check(t, lease.Release(t.Context()))
		}
		return err == nil
	}

	k := &conditions{err: unmet}
	if _, err := acquire(k, "", "1"); !errors.Is(err, unmet) {
		t.Errorf("unmet: %v", err)
	}
	if !isFree("1") {
		t.Error("an order stays locked whose conditions do not hold")
	}

	k = &conditions{}
	outer, err := acquire(k, "", "1", "2")
	bedtest.Check(t, err)
	if diff := cmp.Diff([]string{"1", "2"}, k.checks); diff != "" {
		t.Errorf("checked (-want +got):\n%s", diff)
	}
	k = &conditions{err: unmet}
	inner, err := acquire(k, outer.Owner(), "1")
	if err != nil || len(k.checks) > 0 {
		t.Fatalf("a call within another: %v, checked %q", err, k.checks)
	}
	bedtest.Check(t, inner.Release(t.Context()))

	// A lease lets no call past the conditions of other orders, and a made-up one past none.
	for _, presented := range []string{outer.Owner(), "5a3c9c4e-7a0b-4f6e-9a54-0d8cf2a9b111:7", "anything"} {
		for _, ids := range [][]string{{"3"}, {"1", "3"}} {
			if presented != outer.Owner() {
				ids = []string{"3", "4"}
			}
			k = &conditions{err: unmet}
			if _, err := acquire(k, presented, ids...); !errors.Is(err, unmet) || len(k.checks) == 0 {
				t.Errorf("presented %s for %q: %v, checked %q", presented, ids, err, k.checks)
			}
		}
		if !isFree("3") {
			t.Errorf("presented %s: the order stays locked", presented)
		}
	}
	if isFree("1") {
		t.Error("the outer call has lost its lock")
	}
	bedtest.Check(t, outer.Release(t.Context()))
	if _, calls := s.Usage(); calls != 0 {
		t.Errorf("%d calls use the lock", calls)
	}
	if calls, _, _ := s.InFlight(); calls != 0 {
		t.Errorf("%d calls are in flight", calls)
	}
}
