package admin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestMetrics(t *testing.T) {
	m := NewMetrics("v1", []Rule{{Name: "lookup", Mode: "enforce"}, {Name: "settle", Mode: "observe", Lock: "l"}})
	m.Decided(0, gate.ActionLookup, gate.VerdictAbsent, time.Millisecond)
	m.Decided(0, gate.ActionLookup, gate.VerdictAbsent, time.Millisecond)
	m.Refused(0, order.PathNear)
	m.Closed(1, gate.OutcomeUnknown)
	m.Learned(0, nil)
	m.Learned(0, errors.New("no ID"))
	l := m.Lock("l")
	l.Acquired("granted", time.Second)
	l.Released(time.Second)
	l.Lost()
	m.LockGauges("l", func() int { return 3 }, func() int { return 4 })
	m.FilterGauges("orders", Filter{
		IDs: func() uint64 { return 5 }, Capacity: func() uint64 { return 20 }, FillRatio: func() float64 { return 0.25 },
		State: func() string { return "ready" }, Log: func() Log { return Log{Lag: 6, Doubts: map[string]uint64{"term": 1}} },
	})
	m.MeasureGauges("orders", Measures{
		PassedButMissing: func() uint64 { return 7 }, MeasuredRate: func() float64 { return 0.002 },
		EstimatedRate: func() float64 { return 0.001 }, Alarmed: func() bool { return true },
		ProbedIDs: func() uint64 { return 8 }, ProbesDropped: func() uint64 { return 9 },
	})
	_, text := get(t, NewHandler(m, func() []Condition { return nil }), "/metrics")
	for _, want := range []string{
		`ordergate_build_info{version="v1"} 1`,
		`ordergate_decisions_total{action="lookup",mode="enforce",rule="lookup",verdict="absent"} 2`,
		`ordergate_decision_seconds_count{rule="lookup"} 2`,
		`ordergate_refused_total{reason="path_near",rule="lookup"} 1`,
		`ordergate_learned_total{result="ok",rule="lookup"} 1`,
		`ordergate_learned_total{result="failed",rule="lookup"} 1`,
		`ordergate_lock_outcome_total{lock="l",outcome="unknown"} 1`,
		`ordergate_lock_outcome_total{lock="l",outcome="known"} 0`,
		`ordergate_lock_acquire_total{lock="l",result="granted"} 1`,
		`ordergate_lock_acquire_total{lock="l",result="failed"} 0`,
		`ordergate_lock_wait_seconds_count{lock="l"} 1`,
		`ordergate_lock_hold_seconds_count{lock="l"} 1`,
		`ordergate_lock_lost_total{lock="l"} 1`,
		`ordergate_lock_held{lock="l"} 3`,
		`ordergate_lock_waiters{lock="l"} 4`,
		`ordergate_filter_ids{filter="orders"} 5`,
		`ordergate_filter_capacity{filter="orders"} 20`,
		`ordergate_filter_fill_ratio{filter="orders"} 0.25`,
		`ordergate_filter_log_lag_entries{filter="orders"} 6`,
		`ordergate_filter_passed_but_missing_total{filter="orders"} 7`,
		`ordergate_filter_measured_false_positive_rate{filter="orders"} 0.002`,
		`ordergate_filter_estimated_false_positive_rate{filter="orders"} 0.001`,
		`ordergate_filter_false_positive_alert{filter="orders"} 1`,
		`ordergate_filter_probed_ids{filter="orders"} 8`,
		`ordergate_filter_probed_dropped_total{filter="orders"} 9`,
		`ordergate_filter_state{filter="orders",state="ready"} 1`,
		`ordergate_filter_state{filter="orders",state="unknown"} 0`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	if strings.Contains(text, `verdict="busy"`) {
		t.Error("a verdict that never occurred has a line")
	}
}

func TestReadiness(t *testing.T) {
	list := []Condition{{Name: "a", Ready: true}, {Name: "b", Ready: false, Reason: "loading"}}
	h := NewHandler(NewMetrics("", nil), func() []Condition { return list })
	if code, body := get(t, h, "/readyz"); code != 503 || !strings.Contains(body, `"reason":"loading"`) {
		t.Errorf("one condition fails: %d %s", code, body)
	}
	list[1].Ready = true
	if code, _ := get(t, h, "/readyz"); code != 200 {
		t.Errorf("all hold: %d", code)
	}
	if code, _ := get(t, h, "/healthz"); code != 200 {
		t.Errorf("healthz: %d", code)
	}
	if code, _ := get(t, h, "/"); code != 404 {
		t.Errorf("anything else: %d", code)
	}
}
