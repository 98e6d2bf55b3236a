package gate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// answeringLock is a lock whose store has an answer.
type answeringLock struct {
	gatetest.Lock
	text string // the stored answer, for a call that looks for one; "": none
}

func (l *answeringLock) Acquire(ctx context.Context, request gate.LockRequest, then func(gate.Lease, error)) {
	switch {
	case l.text != "" && request.Stored != "":
		then(nil, &gate.StoredAnswer{Text: l.text})
	case l.text != "":
		(&gatetest.Lock{}).Acquire(ctx, request, then)
	default:
		l.Lock.Acquire(ctx, request, then)
	}
}

// TestPossible compares the verdicts that a call may get with those that it does get, whatever
// the store of its locks has.
func TestPossible(t *testing.T) {
	path := []order.ID{{In: order.InPath, Name: "id", Format: digits}}
	ofOrder := func(change func(*gate.Once)) *gate.Once {
		o := &gate.Once{Name: "n", Stores: func(int) bool { return true }}
		change(o)
		return o
	}
	plain := func(*gate.Once) {}
	compares := func(o *gate.Once) { o.Fingerprint = true }
	forgets := func(o *gate.Once) { o.Name, o.Forget = "", []string{"n"} }
	parts := []string{"x-user"}
	for _, tt := range []struct {
		name         string
		order, key   *gate.Once
		require      *gate.Require
		create, grpc bool
		user         string
	}{
		{name: "a lock alone"},
		{name: "stored answers", order: ofOrder(plain)},
		{name: "a fingerprint", order: ofOrder(compares)},
		{name: "a call that undoes", order: ofOrder(forgets)},
		{name: "conditions", require: &gate.Require{Conditions: &conditions{}, Otherwise: []gate.Reply{{Status: 425}}}},
		{name: "a key", key: ofOrder(plain), user: "u"},
		{name: "a key with a fingerprint", key: ofOrder(compares), user: "u"},
		{name: "no key", key: ofOrder(plain)},
		{name: "gRPC", order: ofOrder(plain), grpc: true},
		{name: "gRPC, a key", key: ofOrder(compares), user: "u", grpc: true},
		{name: "a create", create: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lock := &answeringLock{}
			p := gate.Policy{Rule: order.Rule{Name: "r", Methods: []string{"POST"}, Path: "/r/{id}", IDs: path}}
			if tt.key != nil {
				tt.key.Key = &gate.OnceKey{Lock: lock, Parts: parts}
				p.Once, p.Rule.IDs, p.Rule.Path = tt.key, nil, "/r/1"
			} else {
				p.Settle = &gate.Settle{Lock: lock, Once: tt.order, Require: tt.require}
			}
			if tt.create {
				p.Create = &gate.Create{Filter: &gatetest.Filter{}, Learn: gate.Learn{Header: "x-id"}, Format: digits}
			}
			g := gatetest.Gate(t, []gate.Policy{p}, gatetest.Silent{})
			var header order.HeaderList
			if tt.user != "" {
				header = append(header, [2]string{"x-user", tt.user})
			}
			if tt.grpc {
				header = append(header, [2]string{"content-type", "application/grpc"})
			}
			open := func() *gate.Call {
				return g.Open(order.Request{Method: "POST", Target: "/r/1", Header: header, BodyState: order.BodyComplete})
			}
			c := open()
			want := c.Possible(tt.key == nil)
			if tt.user == "" && tt.key != nil {
				if diff := cmp.Diff([]gate.Verdict{gate.VerdictNone}, want); diff != "" || c.NeedsLock {
					t.Errorf("needs a lock: %v (-want +got):\n%s", c.NeedsLock, diff)
				}
				return
			}
			results := []answeringLock{{}, {text: `{"rule":"r","at":1}`}}
			for _, err := range []error{gate.ErrBusy, errors.New("away")} {
				results = append(results, answeringLock{Lock: gatetest.Lock{Err: err}})
			}
			if !tt.create && tt.key == nil { // only settlements are limited
				results = append(results, answeringLock{Lock: gatetest.Lock{Err: gate.ErrOverloaded}})
			}
			results = append(results, answeringLock{text: `{"rule":"r","at":1,"status":200}`},
				answeringLock{text: `{"rule":"r","at":1,"status":200,"request":"another","subject":"another"}`})
			got := make(map[gate.Verdict]bool)
			for i := range results {
				c := open()
				lock.text, lock.Err = results[i].text, results[i].Err
				gatetest.Settle(t.Context(), c)
				got[c.Decision.Verdict] = true
				gatetest.End(c)
			}
			if tt.require != nil {
				c := open()
				lock.text, lock.Err = "", nil
				tt.require.Conditions.(*conditions).err = &gate.UnmetError{}
				gatetest.Settle(t.Context(), c)
				got[c.Decision.Verdict] = true
				gatetest.End(c)
			}
			var list []gate.Verdict
			for v := range got {
				list = append(list, v)
			}
			slices.Sort(list)
			if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(list)); diff != "" {
				t.Errorf("possible and given (-possible +given):\n%s", diff)
			}
		})
	}
}
