// Package metrics counts what ordergate does, for Prometheus.
//
// Start with [New]. The other packages report to [Metrics], or register their gauges there.
// [Metrics.Handler] serves all of them. No label holds an order ID.
package metrics

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ordergate/ordergate/internal/gate"
)

// Metrics counts decisions, locks and filters. It is safe for concurrent use.
type Metrics struct {
	registry  *prometheus.Registry
	exemplars bool // there are some
	reloads   reloads
	dedup     dedup

	decisions  *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	outcomes   *prometheus.CounterVec
	learned    *prometheus.CounterVec
	refused    *prometheus.CounterVec
	once       *prometheus.CounterVec
	conditions *prometheus.CounterVec
	verified   *prometheus.CounterVec
	marks      *prometheus.CounterVec

	lockGauges  sync.Map // the names of locks whose gauges are registered
	lockAcquire *prometheus.CounterVec
	lockWait    *prometheus.HistogramVec
	lockHold    *prometheus.HistogramVec
	lockLost    *prometheus.CounterVec
	lockForced  *prometheus.CounterVec
}

// Handler serves the metrics. Only OpenMetrics has exemplars.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: m.exemplars})
}

// Buckets, in seconds. A decision takes microseconds from memory and
// milliseconds when it waits. A settlement takes as long as the payment provider.
var (
	decisionBuckets = []float64{2e-6, 5e-6, 1e-5, 5e-5, 2e-4, 1e-3, 5e-3, 2e-2, 0.1, 0.5, 2, 10}
	holdBuckets     = []float64{1e-3, 5e-3, 2e-2, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300}
)

// New returns the metrics of a process that has read its configuration at the given time.
func New(version string, loaded time.Time) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.gauge("ordergate_build_info", "The version that runs; always 1.",
		prometheus.Labels{"version": version}, func() float64 { return 1 })
	m.reloads.register(m, loaded)
	m.dedup.register(m)

	m.decisions = m.counters("ordergate_decisions_total",
		"Verdicts on requests.", "rule", "action", "verdict", "mode")
	m.seconds = m.histograms("ordergate_decision_seconds",
		"Time from a request's arrival to its verdict, waits for freshness or a lock included.", decisionBuckets, "rule")
	m.outcomes = m.counters("ordergate_lock_outcome_total",
		"Outcomes of calls that asked for a lock.", "lock", "outcome")
	m.learned = m.counters("ordergate_learned_total",
		"New orders read from the backend's answers.", "rule", "result")
	m.refused = m.counters("ordergate_refused_total",
		"Requests whose order could not be determined, by reason.", "rule", "reason")
	m.once = m.counters("ordergate_once_total", "Calls under rules with stored answers, by result.", "rule", "result")
	m.conditions = m.counters("ordergate_condition_total",
		"Checks of what must hold before a settlement.", "rule", "condition", "result")
	m.verified = m.counters("ordergate_verify_total",
		"Refused lookups that were held against the tables, or the backend, by result.", "filter", "check", "result")
	m.marks = m.counters("ordergate_doctor_marks_total",
		"Requests that came with a mark of ordergate doctor, by result.", "result")
	for _, result := range []string{gate.MarkTaken, gate.MarkForged, gate.MarkExpired, gate.MarkRepeated} {
		m.marks.WithLabelValues(result)
	}
	m.lockAcquire = m.counters("ordergate_lock_acquire_total", "Attempts to get a lock, waits included.", "lock", "result")
	m.lockWait = m.histograms("ordergate_lock_wait_seconds", "Time until a lock was granted or refused.", decisionBuckets, "lock")
	m.lockHold = m.histograms("ordergate_lock_hold_seconds", "Time from the grant of a lock to its end.", holdBuckets, "lock")
	m.lockForced = m.counters("ordergate_lock_forced_total", "Locks that operators released by force. Each ordergate counts all of them.", "lock")
	m.lockLost = m.counters("ordergate_lock_lost_total", "Leases that ended before their release: each is a settlement that was not alone.", "lock")
	return m
}

// Mark counts a mark of a request.
func (m *Metrics) Mark(result string) { m.marks.WithLabelValues(result).Inc() }

// lockResults are the values of the label result. All of them have a line from the
// start. Prometheus sees no increase in a counter that begins at 1, and an alert may
// need the first failure.
var lockResults = []string{"granted", "busy", "answered", "canceled", "failed"}

// Lock returns the counters of one lock.
func (m *Metrics) Lock(name string) *Lock {
	acquired := m.lockAcquire.MustCurryWith(prometheus.Labels{"lock": name})
	for _, result := range lockResults {
		acquired.WithLabelValues(result)
	}
	m.lockForced.WithLabelValues(name)
	return &Lock{
		acquired: acquired,
		wait:     m.lockWait.WithLabelValues(name),
		hold:     m.lockHold.WithLabelValues(name),
		lost:     m.lockLost.WithLabelValues(name),
	}
}

// SourceGauges registers two gauges of a table: whether this process follows it, and the time
// since the process had all committed rows.
func (m *Metrics) SourceGauges(filter, source string, lag func() (time.Duration, bool)) {
	labels := prometheus.Labels{"filter": filter, "source": source}
	m.gauge("ordergate_source_followed", "1 where this process follows the table, for all ordergates.", labels, func() float64 {
		if _, ok := lag(); ok {
			return 1
		}
		return 0
	})
	m.gauge("ordergate_source_lag_seconds", "Time since this process had read all committed rows; 0 where it does not follow the table.", labels,
		func() float64 { behind, _ := lag(); return behind.Seconds() })
}

// DroppedDecisions registers the counter of lines of a kind that the decision log has dropped.
func (m *Metrics) DroppedDecisions(kind string, dropped func() uint64) {
	m.counter("ordergate_decision_log_dropped_total", "Lines that the decision log has dropped: its file, or its reader, was too slow or failed.",
		prometheus.Labels{"kind": kind}, dropped)
}

// Traces registers the counter of spans that were dropped, and has histograms show traces as exemplars.
func (m *Metrics) Traces(dropped func() uint64) {
	m.exemplars = true
	m.counter("ordergate_spans_dropped_total", "Spans that were dropped: the collector was too slow, or did not take them.", nil, dropped)
}

// Forced counts a lock that an operator released by force.
func (m *Metrics) Forced(lock string) { m.lockForced.WithLabelValues(lock).Inc() }

// LockGauges registers two gauges of a lock: the leases that are held, and the callers that
// wait. A second call for the same name does nothing.
func (m *Metrics) LockGauges(name string, held, waiting func() int) {
	if _, shown := m.lockGauges.LoadOrStore(name, true); shown {
		return
	}
	labels := prometheus.Labels{"lock": name}
	m.gauge("ordergate_lock_held", "Leases held by this process.", labels, intGauge(held))
	m.gauge("ordergate_lock_waiters", "Callers in this process that wait for a lock.", labels, intGauge(waiting))
}

// InFlightGauges registers three gauges: the settlements in flight, those of them that are held,
// and the settlements that wait until fewer are in flight.
func (m *Metrics) InFlightGauges(counts func() (calls, held, waiting int)) {
	m.gauge("ordergate_settlements_in_flight", "Settlements that the backend may have to work on: forwarded, or held since they ended without an answer.", nil,
		func() float64 { calls, _, _ := counts(); return float64(calls) })
	m.gauge("ordergate_settlements_held", "Settlements in flight that ended without an answer, and are held.", nil,
		func() float64 { _, held, _ := counts(); return float64(held) })
	m.gauge("ordergate_settlements_waiting", "Settlements that wait until fewer are in flight.", nil,
		func() float64 { _, _, waiting := counts(); return float64(waiting) })
}

func intGauge(f func() int) func() float64 { return func() float64 { return float64(f()) } }

// Filter holds the functions that return the values of one filter. Each scrape calls them; they
// may take milliseconds.
type Filter struct {
	IDs       func() uint64
	Capacity  func() uint64
	FillRatio func() float64
	State     func() string
	Log       func() Log // nil without a change log
	// Reconciled returns how many rows of tables were compared with the filter, and how
	// many of them it lacked. Nil: no table is compared.
	Reconciled func() (checked, missing uint64)
}

// filterStates are the values of the label state. The gauge of the current state is 1.
var filterStates = []string{"loading", "ready", "unknown"}

// FilterGauges registers the metrics of one filter.
func (m *Metrics) FilterGauges(name string, f Filter) {
	labels := prometheus.Labels{"filter": name}
	m.gauge("ordergate_filter_ids", "Distinct IDs added, a lower estimate.", labels,
		func() float64 { return float64(f.IDs()) })
	m.gauge("ordergate_filter_capacity", "Capacity of the filter in IDs.", labels,
		func() float64 { return float64(f.Capacity()) })
	m.gauge("ordergate_filter_fill_ratio", "Share of the filter's bits that are set.", labels, f.FillRatio)
	for _, state := range filterStates {
		m.gauge("ordergate_filter_state", "1 for the current state of the filter.",
			prometheus.Labels{"filter": name, "state": state}, func() float64 {
				if f.State() == state {
					return 1
				}
				return 0
			})
	}
	if f.Log != nil {
		m.logGauges(labels, f.Log)
	}
	if f.Reconciled != nil {
		m.counter("ordergate_filter_reconcile_checked_total", "Rows of tables that were compared with the filter.", labels,
			func() uint64 { checked, _ := f.Reconciled(); return checked })
		m.counter("ordergate_filter_reconcile_missing_total", "Orders of tables that were missing in the filter, and were added.", labels,
			func() uint64 { _, missing := f.Reconciled(); return missing })
	}
}
