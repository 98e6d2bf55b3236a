package metrics

import (
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Log holds the values that the metrics show of a change log.
type Log struct {
	Lag           uint64            // entries
	Reads         uint64            // so far
	ReadTook      time.Duration     // of the last read
	PendingWrites int               // IDs that clients may have and the log lacks
	Members       int               // instances, and followers of tables
	Repaired      uint64            // IDs that this process appended again after the log had lost them
	Doubts        map[string]uint64 // so far, by kind; always the same kinds
}

func (m *Metrics) logGauges(labels prometheus.Labels, log func() Log) {
	m.gauge("ordergate_filter_log_lag_entries", "Entries of the change log not yet in the filter, at its last read.", labels,
		func() float64 { return float64(log().Lag) })
	m.gauge("ordergate_filter_log_owed", "Pending writes: new orders that are not in the change log yet.", labels,
		func() float64 { return float64(log().PendingWrites) })
	m.gauge("ordergate_filter_log_members", "Ordergates that may append to the change log, and those that follow its tables.", labels,
		func() float64 { return float64(log().Members) })
	m.gauge("ordergate_filter_log_read_seconds", "Duration of the last read of the change log.", labels,
		func() float64 { return log().ReadTook.Seconds() })
	m.counter("ordergate_filter_log_reads_total", "Reads of the change log.", labels,
		func() uint64 { return log().Reads })
	m.counter("ordergate_filter_log_repaired_total", "IDs that the change log had lost and this process appended again.", labels,
		func() uint64 { return log().Repaired })
	for kind := range log().Doubts {
		with := maps.Clone(labels)
		with["kind"] = kind
		m.counter("ordergate_filter_doubts_total", "Times that orders could be missing in the change log.", with,
			func() uint64 { return log().Doubts[kind] })
	}
}
