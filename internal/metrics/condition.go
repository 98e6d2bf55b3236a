package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ordergate/ordergate/internal/condition"
)

// Conditions counts the checks of a rule's conditions. It implements condition.Recorder, and is
// safe for concurrent use.
type Conditions struct {
	counters [][condition.Results]prometheus.Counter // by condition
}

// Conditions returns the counters of a rule with conditions of these names. All of them have a
// line from the start.
func (m *Metrics) Conditions(rule string, names []string) *Conditions {
	c := &Conditions{counters: make([][condition.Results]prometheus.Counter, len(names))}
	for i, name := range names {
		for r := range condition.Result(condition.Results) {
			c.counters[i][r] = m.conditions.WithLabelValues(rule, name, r.String())
		}
	}
	return c
}

// Checked implements condition.Recorder.
func (c *Conditions) Checked(index int, result condition.Result) { c.counters[index][result].Inc() }
