package metrics

import "github.com/prometheus/client_golang/prometheus"

// Measures holds the functions that return the measurements of a filter. Each scrape calls
// them; they may take milliseconds.
type Measures struct {
	PassedButMissing func() uint64
	MeasuredRate     func() float64 // NaN: too few lookups, or no answer of the backend
	EstimatedRate    func() float64
	Alarmed          func() bool
	ProbedIDs        func() uint64
	ProbesDropped    func() uint64
}

// MeasureGauges registers the measurements of one filter.
func (m *Metrics) MeasureGauges(name string, f Measures) {
	labels := prometheus.Labels{"filter": name}
	m.counter("ordergate_filter_passed_but_missing_total",
		"Lookups that passed the filter for an order that the backend does not have.", labels, f.PassedButMissing)
	m.gauge("ordergate_filter_measured_false_positive_rate",
		"Share of the different absent IDs asked for in the last hour that passed; NaN while there are fewer than 100 or no answer of the backend was seen.",
		labels, f.MeasuredRate)
	m.gauge("ordergate_filter_estimated_false_positive_rate",
		"Share of absent IDs that should pass, by the bits that are set.", labels, f.EstimatedRate)
	m.gauge("ordergate_filter_false_positive_alert",
		"1 while the measured rate is certainly above alert_false_positive_rate.", labels, func() float64 {
			if f.Alarmed() {
				return 1
			}
			return 0
		})
	m.gauge("ordergate_filter_probed_ids",
		"Different IDs asked for today (UTC) that do not exist, by all ordergates, to about 1 %; a lower bound while ordergate_filter_probed_dropped_total grows.",
		labels, func() float64 { return float64(f.ProbedIDs()) })
	m.counter("ordergate_filter_probed_dropped_total",
		"Times that an ID could not be counted in ordergate_filter_probed_ids, since too many waited for Redis.", labels, f.ProbesDropped)
}
