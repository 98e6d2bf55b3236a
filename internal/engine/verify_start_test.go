package engine

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestStartThatLooksWrong refuses every lookup, until it accepts one.
func TestStartThatLooksWrong(t *testing.T) {
	verified(t, "1/1000000", func(m *Engine, log *bedtest.Log) {
		v := m.filters["orders"].verify
		rule := v.ofRule("lookup", true)
		refuse := func(n int) (samples int) {
			for i := range n {
				v.onAnswer(fmt.Sprint(100+i), presence.Absent)
				if rule.Sample() {
					samples++
					rule.Answered(fmt.Sprint(100+i), gate.MeansNothing)
				}
			}
			return samples
		}
		if n := refuse(fewRefusals); n != 0 || v.conditions() != nil {
			t.Errorf("%d of the first refusals were sampled, conditions %v", n, v.conditions())
		}
		total := 0
		for range 60 {
			n := refuse(100)
			if n > maxVerified {
				t.Errorf("%d samples in a second", n)
			}
			total += n
			time.Sleep(time.Second)
		}
		if total != maxStartSamples {
			t.Errorf("%d samples, want %d", total, maxStartSamples)
		}
		const text = "the orders are made up, or id_column, or the first column of the file"
		if list := v.conditions(); len(list) != 1 || !list[0].Ready || !strings.Contains(list[0].Reason, text) {
			t.Errorf("conditions: %v", list)
		}
		if n := strings.Count(log.Take(), text); n != 1 {
			t.Errorf("%d lines in the log", n)
		}
		v.onAnswer("1", presence.Maybe)
		if n := refuse(1000); n != 0 || v.conditions() != nil {
			t.Errorf("after a lookup that passed: %d samples, conditions %v", n, v.conditions())
		}
	})
}

// TestFloodAtTheStart has a backend that lacks the orders that are refused. Then nothing is wrong.
func TestFloodAtTheStart(t *testing.T) {
	verified(t, "1/1000000", func(m *Engine, log *bedtest.Log) {
		v := m.filters["orders"].verify
		rule := v.ofRule("lookup", true)
		for i := range 200 {
			v.onAnswer(fmt.Sprint(100+i), presence.Absent)
		}
		for i := range shownAbsences {
			rule.Answered(fmt.Sprint(100+i), gate.MeansAbsent)
		}
		time.Sleep(10 * time.Second)
		if list, text := v.conditions(), log.Take(); list != nil || strings.Contains(text, "since the start") {
			t.Errorf("conditions %v, log %s", list, text)
		}
	})
}

// TestNoOrderIsAbsent has a backend with all orders that are refused: either the filter has other
// IDs, or the rule takes every answer for an order. That proves nothing, and is reported.
func TestNoOrderIsAbsent(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		verified(t, "1/1", func(m *Engine, log *bedtest.Log) {
			unit := m.filters["orders"]
			rule := unit.verify.ofRule("lookup", true)
			if accepted {
				unit.verify.onAnswer("1", presence.Maybe)
			}
			for i := range shownAbsences {
				rule.Answered(fmt.Sprint(100+i), gate.MeansDone)
			}
			time.Sleep(10 * time.Second)
			if state, reason := unit.Filter().State(); state != filter.StateReady {
				t.Errorf("%s: %s", state, reason)
			}
			if list := unit.verify.conditions(); (list != nil) == accepted {
				t.Errorf("accepted an order: %t, conditions: %v", accepted, list)
			}
			if n := strings.Count(log.Take(), "compare id_column"); (n == 1) == accepted {
				t.Errorf("accepted an order: %t, %d lines", accepted, n)
			}
		})
	}
}

// verified runs a test with an engine whose filter orders has loaded no order.
func verified(t *testing.T, share string, test func(*Engine, *bedtest.Log)) {
	synctest.Test(t, func(t *testing.T) {
		c, err := config.Parse("a.yaml", []byte("listen: {authz: 127.0.0.1:0}\nfilters: {orders: {verify: "+share+", capacity: 1000}}\n"+
			"rules: [{name: lookup, match: {methods: [GET], path: \"/orders/{id}\"}, id: {path: id}, lookup: {filter: orders}}]"), os.Getenv)
		if err != nil {
			t.Fatal(err)
		}
		var log bedtest.Log
		m, err := build(t.Context(), c, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		time.Sleep(time.Second) // in the bubble: the filter is loaded
		test(m, &log)
	})
}
