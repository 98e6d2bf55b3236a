package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Snapshot holds the functions that return the values of one filter's snapshots. Each scrape
// calls them.
type Snapshot struct {
	Age    func() time.Duration // since the last snapshot; before the first, since the start
	Bytes  func() uint64        // of the file; 0 before the first
	Errors func() uint64        // attempts that failed
}

// SnapshotGauges registers the metrics of one filter's snapshots.
func (m *Metrics) SnapshotGauges(name string, s Snapshot) {
	labels := prometheus.Labels{"filter": name}
	m.gauge("ordergate_filter_snapshot_age_seconds", "Time since the filter's snapshot was up to date; before the first, since the start.",
		labels, func() float64 { return s.Age().Seconds() })
	m.gauge("ordergate_filter_snapshot_bytes", "Size of the filter's snapshot.",
		labels, func() float64 { return float64(s.Bytes()) })
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "ordergate_filter_snapshot_errors_total", Help: "Snapshots of the filter that could not be written.", ConstLabels: labels,
	}, func() float64 { return float64(s.Errors()) }))
}
