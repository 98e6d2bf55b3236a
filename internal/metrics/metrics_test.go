package metrics

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

func get(t *testing.T, h http.Handler, path string) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	m := New("v1", time.Unix(1_700_000_000, 5e8))
	r := m.Recorder([]Rule{{Name: "lookup"}, {Name: "settle", Lock: "l", ObservedLock: "l:observe"}})
	r.Decided(0, gate.ActionLookup, gate.VerdictAbsent, false, time.Millisecond, "")
	r.Decided(0, gate.ActionLookup, gate.VerdictAbsent, true, time.Millisecond, "")
	r.Refused(0, order.PathNear)
	r.Closed(1, gate.OutcomeUnknown, false)
	r.Closed(1, gate.OutcomeKnown, true)
	r.Learned(0, nil)
	r.Learned(0, errors.New("Redis is away"))
	r.Learned(0, gate.ErrFailed)
	r.Learned(0, errors.Join(gate.ErrUnnamed, errors.New("no ID")))
	r.Learned(0, errors.Join(gate.ErrAbandoned, errors.New("no ID")))
	// Another gate, in which the rule has another place and the other is gone.
	again := m.Recorder([]Rule{{Name: "new"}, {Name: "lookup"}})
	again.Decided(1, gate.ActionLookup, gate.VerdictAbsent, false, time.Millisecond, "")
	l := m.Lock("l")
	l.Acquired(t.Context(), "granted", time.Second)
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
	text := get(t, m.Handler(), "/metrics")
	for _, want := range []string{
		`ordergate_build_info{version="v1"} 1`,
		`ordergate_config_reload_total{result="refused"} 0`,
		`ordergate_config_reload_success 1`,
		`ordergate_config_last_reload_seconds 1.7000000005e+09`,
		`ordergate_decisions_total{action="lookup",mode="enforce",rule="lookup",verdict="absent"} 2`,
		`ordergate_decisions_total{action="lookup",mode="observe",rule="lookup",verdict="absent"} 1`,
		`ordergate_decision_seconds_count{rule="lookup"} 3`,
		`ordergate_refused_total{reason="path_near",rule="lookup"} 1`,
		`ordergate_learned_total{result="ok",rule="lookup"} 1`,
		`ordergate_learned_total{result="unlogged",rule="lookup"} 1`,
		`ordergate_learned_total{result="failed",rule="lookup"} 1`,
		`ordergate_learned_total{result="unnamed",rule="lookup"} 1`,
		`ordergate_learned_total{result="abandoned",rule="lookup"} 1`,
		`ordergate_lock_outcome_total{lock="l",outcome="unknown"} 1`,
		`ordergate_lock_outcome_total{lock="l",outcome="known"} 0`,
		`ordergate_lock_outcome_total{lock="l:observe",outcome="known"} 1`,
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

func TestReloadMetrics(t *testing.T) {
	m := New("", time.Unix(1, 0))
	h := m.Handler()
	for i, step := range []struct {
		result Reload
		want   []string
	}{
		{Refused, []string{`total{result="refused"} 1`, "success 0", "last_reload_seconds 1"}},
		{Unchanged, []string{`total{result="unchanged"} 1`, "success 1", "last_reload_seconds 1"}},
		{Refused, []string{`total{result="refused"} 2`, "success 0", "last_reload_seconds 1"}},
		{Applied, []string{`total{result="applied"} 1`, "success 1", "last_reload_seconds 5"}},
	} {
		m.Reloaded(step.result, time.Unix(int64(i+2), 0))
		text := get(t, h, "/metrics")
		for _, want := range step.want {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("step %d, %s: no line ends with %s", i, step.result, want)
			}
		}
	}
}
