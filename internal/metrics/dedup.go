package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// confirmResults are the values of the label result: the order exists; it is new; the table did
// not answer in time.
var confirmResults = []string{ConfirmExists, ConfirmNew, ConfirmUnavailable}

// The results of a confirmation.
const (
	ConfirmExists      = "exists"
	ConfirmNew         = "new"
	ConfirmUnavailable = "unavailable"
)

// dedup counts the creates of all rules that were confirmed.
type dedup struct {
	confirmed *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
}

func (d *dedup) register(m *Metrics) {
	d.confirmed = m.counters("ordergate_dedup_confirm_total", "Creates whose order was looked up in its table, by result.", "rule", "result")
	d.seconds = m.histograms("ordergate_dedup_confirm_seconds", "Time to look up the order of a create in its table, waits included.", decisionBuckets, "rule")
}

// Confirms counts the creates of one rule that were confirmed. It is safe for concurrent use.
type Confirms struct {
	results map[string]prometheus.Counter
	seconds prometheus.Observer
}

// Confirms returns the counters of a rule. All results have a line from the start.
func (m *Metrics) Confirms(rule string) *Confirms {
	c := &Confirms{results: make(map[string]prometheus.Counter), seconds: m.dedup.seconds.WithLabelValues(rule)}
	for _, result := range confirmResults {
		c.results[result] = m.dedup.confirmed.WithLabelValues(rule, result)
	}
	return c
}

// Confirmed counts a create, with its result and the time that it took.
func (c *Confirms) Confirmed(result string, took time.Duration) {
	c.results[result].Inc()
	c.seconds.Observe(took.Seconds())
}
