package engine

import (
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/gate"
)

// TestBackendsThatProveNothing has an order that the filter lacks, and backends that answer.
func TestBackendsThatProveNothing(t *testing.T) {
	const done, absent, nothing = gate.MeansDone, gate.MeansAbsent, gate.MeansNothing
	times := func(n int, m gate.Meaning) (list []gate.Meaning) {
		for range n {
			list = append(list, m)
		}
		return list
	}
	for _, tc := range []struct {
		name             string
		declared         bool
		others           []gate.Meaning // of lookups of other orders
		order            gate.Meaning
		proved, reported bool
	}{
		{"declared", true, times(1, absent), done, true, false},
		{"declared, and 200 for all", true, times(30, done), done, false, false},
		{"declared, to the login", true, times(1, absent), nothing, false, false},
		{"by status", false, times(shownAbsences, absent), done, false, true},
		{"by status, too few", false, times(shownAbsences-1, absent), done, false, false},
		{"200 for all", false, times(30, done), done, false, false},
		{"to the login", false, times(shownAbsences, absent), nothing, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := config.Parse("a.yaml", []byte("listen: {authz: 127.0.0.1:0}\nfilters: {orders: {verify: 1/1, capacity: 1000}}\n"+
					"rules: [{name: lookup, match: {methods: [GET], path: \"/orders/{id}\"}, id: {path: id}, lookup: {filter: orders}}]"), os.Getenv)
				if err != nil {
					t.Fatal(err)
				}
				m, err := build(t.Context(), c, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				unit := m.filters["orders"]
				time.Sleep(time.Second) // in the bubble: the filter is loaded
				rule := unit.verify.ofRule("lookup", tc.declared)
				for _, means := range tc.others {
					rule.Answered("1", means)
				}
				rule.Answered("42", tc.order)
				unit.Filter().Add("1")
				time.Sleep(time.Minute)
				state, reason := unit.Filter().State()
				if proved := state == filter.StateUnknown; proved != tc.proved {
					t.Errorf("%s: %s", state, reason)
				}
				if list := unit.verify.conditions(); (list != nil) != tc.reported {
					t.Errorf("conditions: %v", list)
				}
				unit.Filter().Add("42") // it was late
			})
		})
	}
}

// TestSamplesAreBounded has lookups go on to a backend whose answers Envoy does not show.
func TestSamplesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &verifiedRule{verifier: &verifier{oneIn: 1, backendRate: rate.NewLimiter(maxVerified, maxVerified)}, declared: true}
		passed := 0
		for range 60 {
			inSecond := 0
			for range 100 {
				if r.Sample() {
					inSecond++
				}
			}
			if inSecond > maxVerified {
				t.Errorf("%d in a second", inSecond)
			}
			passed += inSecond
			time.Sleep(time.Second)
		}
		if passed != maxUnanswered {
			t.Errorf("%d passed without an answer", passed)
		}
	})
}
