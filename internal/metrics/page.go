package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// RuleCounts are the decisions on the requests of a rule since the start.
type RuleCounts struct {
	Enforced, Observed map[string]float64 // by verdict
	Created            map[string]float64 // new orders, by the result of learning them
	Waits              []uint64           // how many took no longer than each of [DecisionBuckets]; the last is for all
}

// DecisionBuckets returns the bounds of [RuleCounts.Waits] but for the last, in seconds.
func DecisionBuckets() []float64 { return slices.Clone(decisionBuckets) }

// Rules returns the decisions by rule. It takes some 10 µs a rule.
func (m *Metrics) Rules() map[string]*RuleCounts {
	rules := make(map[string]*RuleCounts)
	of := func(name string) *RuleCounts {
		if rules[name] == nil {
			rules[name] = &RuleCounts{Enforced: make(map[string]float64), Observed: make(map[string]float64), Created: make(map[string]float64)}
		}
		return rules[name]
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.decisions, m.seconds, m.learned)
	families, _ := registry.Gather() // what can be gathered is there even with an error
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := make(map[string]string)
			for _, l := range metric.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			rule := of(labels["rule"])
			if h := metric.GetHistogram(); h != nil {
				for _, b := range h.GetBucket() {
					rule.Waits = append(rule.Waits, b.GetCumulativeCount())
				}
				rule.Waits = append(rule.Waits, h.GetSampleCount())
				continue
			}
			by, name := rule.Enforced, labels["verdict"]
			switch {
			case labels["result"] != "":
				by, name = rule.Created, labels["result"]
			case labels["mode"] == modes[1]:
				by = rule.Observed
			}
			if n := metric.GetCounter().GetValue(); n > 0 {
				by[name] += n
			}
		}
	}
	return rules
}
