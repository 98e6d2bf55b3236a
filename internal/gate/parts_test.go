package gate_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
)

var tenantHeader = []order.Part{{Name: "tenant", ID: order.ID{In: order.InHeader, Name: "x-tenant", Format: digits}}}

// newPartsBench has a rule of each kind whose orders belong to tenants.
func newPartsBench(t *testing.T, observe bool) *bench {
	t.Helper()
	b := &bench{
		filter: &gatetest.Filter{Journal: &gatetest.Journal{}, Answers: map[string]presence.Answer{"7/1": presence.Maybe, "8/1": presence.Absent}},
		lock:   &gatetest.Lock{Journal: &gatetest.Journal{}},
		record: &gatetest.Recorder{},
	}
	path := []order.ID{{In: order.InPath, Name: "id", Format: digits}}
	list := []order.ID{{In: order.InJSON, Members: []string{"ids"}, List: true, MaxList: 1000, MaxBody: 1 << 16, Format: digits}}
	policies := []gate.Policy{
		{
			Rule:   order.Rule{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: path, Parts: tenantHeader},
			Lookup: &gate.Lookup{Filter: b.filter, Absent: gate.Reply{Status: 404}},
		},
		{
			Rule:   order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/orders", Parts: tenantHeader},
			Create: &gate.Create{Filter: b.filter, Learn: gate.Learn{Header: "location"}, Format: digits},
		},
		{
			Rule:   order.Rule{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: path, Parts: tenantHeader},
			Settle: &gate.Settle{Lock: b.lock},
		},
		{
			Rule:   order.Rule{Name: "batch", Methods: []string{"POST"}, Path: "/settle", IDs: list, Parts: tenantHeader},
			Settle: &gate.Settle{Lock: b.lock},
		},
	}
	for i := range policies {
		policies[i].Observe = observe
	}
	b.gate = gatetest.Gate(t, policies, b.record)
	return b
}

func ofTenant(method, target, tenant string) order.Request {
	return order.Request{Method: method, Target: target, Header: order.HeaderList{{"x-tenant", tenant}}, BodyState: order.BodyComplete}
}

// TestPartsInLookups asks the filter for the order of the request's tenant alone.
func TestPartsInLookups(t *testing.T) {
	b := newPartsBench(t, false)
	for tenant, want := range map[string]gate.Verdict{"7": gate.VerdictMaybe, "8": gate.VerdictAbsent, "": gate.VerdictInvalid, "x": gate.VerdictInvalid, "7,8": gate.VerdictInvalid} {
		if d := b.gate.Screen(t.Context(), ofTenant("GET", "/orders/1", tenant)); d.Verdict != want {
			t.Errorf("tenant %q: %s, want %s", tenant, d.Verdict, want)
		}
	}
	twice := ofTenant("GET", "/orders/1", "7")
	twice.Header = order.HeaderList{{"x-tenant", "7"}, {"x-tenant", "7"}}
	if d := b.gate.Screen(t.Context(), twice); d.Verdict != gate.VerdictAmbiguous || d.Reason != order.RepeatedPart {
		t.Errorf("twice: %s %s", d.Verdict, d.Reason)
	}
}

// TestPartsInCreates learns a new ID with the part of the request that made it.
func TestPartsInCreates(t *testing.T) {
	for _, tt := range []struct {
		name, tenant string
		observe      bool
		want         string
	}{
		{"a tenant", "7", false, "7/42"},
		{"another", "8", false, "8/42"},
		{"observed", "7", true, "7/42"},
		{"observed, none", "", true, "incomplete"},
		{"observed, malformed", "x", true, "incomplete"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newPartsBench(t, tt.observe)
			c := b.gate.Open(ofTenant("POST", "/orders", tt.tenant))
			if c.Decision.Refused {
				t.Fatalf("refused: %+v", c.Decision)
			}
			c.On(gate.Event{Kind: gate.Opened})
			once := gate.Response{Status: 201, Details: "via_upstream", Attempts: 1, AttemptHeader: -1, Header: order.HeaderList{{"location", "42"}}}
			if readsBody, _ := answered(t, c, once, "", ""); readsBody {
				t.Fatal("its body is read")
			}
			if got := did(b.filter); got != tt.want {
				t.Errorf("did %q, want %q", got, tt.want)
			}
		})
	}
	b := newPartsBench(t, false)
	if c := b.gate.Open(ofTenant("POST", "/orders", "")); !c.Decision.Refused || c.Decision.Reason != order.MalformedPart {
		t.Errorf("without a tenant: %+v", c.Decision)
	}
}

// TestPartsInLocks takes one lock for each order of each tenant.
func TestPartsInLocks(t *testing.T) {
	b := newPartsBench(t, false)
	for tenant, want := range map[string]string{"7": "7/1", "8": "8/1"} {
		c := b.gate.Open(ofTenant("POST", "/orders/1/settle", tenant))
		if !c.NeedsLock || !strings.HasSuffix(c.Key(), want) || c.Decision.ID != want {
			t.Errorf("tenant %s: key %q, ID %q", tenant, c.Key(), c.Decision.ID)
		}
	}
	many := make([]string, 60)
	for i := range many {
		many[i] = strconv.Itoa(100 + i)
	}
	req := ofTenant("POST", "/settle", "7")
	req.Header, req.Body = append(req.Header.(order.HeaderList), [2]string{"content-type", "application/json"}), []byte(`{"ids":[`+strings.Join(many, ",")+`]}`)
	c := b.gate.Open(req)
	if !strings.HasSuffix(c.Key(), "7/{id};60") {
		t.Errorf("key %q of many", c.Key())
	}
}

// TestPartsInKeysOfRequests has two tenants choose one Idempotency-Key: each has its own.
func TestPartsInKeysOfRequests(t *testing.T) {
	keys := &gatetest.Lock{Name: "keys", Journal: &gatetest.Journal{}}
	g := gatetest.Gate(t, []gate.Policy{{
		Rule: order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/orders", Parts: tenantHeader},
		Create: &gate.Create{
			Filter: &gatetest.Filter{Journal: &gatetest.Journal{}}, Learn: gate.Learn{Header: "location"}, Format: digits,
		},
		Once: &gate.Once{Key: &gate.OnceKey{Lock: keys, Parts: []string{gate.HeaderIdempotencyKey}}, Name: "create", Keep: time.Hour},
	}}, &gatetest.Recorder{})
	ids := make(map[string]bool)
	for _, tenant := range []string{"7", "8", "7"} {
		req := ofTenant("POST", "/orders", tenant)
		req.Header = append(req.Header.(order.HeaderList), [2]string{gate.HeaderIdempotencyKey, "one"})
		c := g.Open(req)
		if !c.NeedsLock {
			t.Fatalf("tenant %s: %+v", tenant, c.Decision)
		}
		if grant := gatetest.Acquire(t.Context(), c); grant.Err != nil {
			t.Fatal(grant.Err)
		}
		for _, r := range keys.Requests() {
			ids[r.IDs[0]] = true
		}
	}
	if len(ids) != 2 {
		t.Errorf("keys %v of two tenants", ids)
	}
}
