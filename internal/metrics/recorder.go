package metrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// Rule is what the metrics need to know of a rule.
type Rule struct {
	Name string
	Mode string
	Lock string // "" when the rule takes none
}

// Recorder counts what one gate decides. It implements gate.Recorder, and is safe for
// concurrent use.
type Recorder struct{ rules []ruleMetrics }

// ruleMetrics holds a rule's counters by index, so that counting a decision
// looks nothing up.
type ruleMetrics struct {
	decisions [gate.Actions][gate.Verdicts]prometheus.Counter
	seconds   prometheus.Observer
	outcomes  [gate.Outcomes]prometheus.Counter // nil when the rule takes no lock
	learned   [len(learnedResults)]prometheus.Counter
	refused   [order.Reasons]prometheus.Counter
}

// Recorder returns what counts for a gate of these rules, in the order of its
// policies. The counters of a rule go on counting where another gate has one of the same
// name. Those of a rule that no gate has any more stay as they are: calls that began
// under it may still end, and what they were counted as has yet to be scraped.
func (m *Metrics) Recorder(rules []Rule) *Recorder {
	r := &Recorder{rules: make([]ruleMetrics, len(rules))}
	for i := range rules {
		r.rules[i] = m.ruleMetrics(&rules[i])
	}
	return r
}

func (m *Metrics) ruleMetrics(r *Rule) (rm ruleMetrics) {
	for a := range gate.Action(gate.Actions) {
		for v := range gate.Verdict(gate.Verdicts) {
			rm.decisions[a][v] = lazily(m.decisions, r.Name, a.String(), v.String(), r.Mode)
		}
	}
	rm.seconds = m.seconds.WithLabelValues(r.Name)
	if r.Lock != "" {
		for o := range gate.Outcome(gate.Outcomes) {
			rm.outcomes[o] = m.outcomes.WithLabelValues(r.Lock, o.String())
		}
	}
	for i, result := range learnedResults {
		rm.learned[i] = lazily(m.learned, r.Name, result)
	}
	for reason := range order.Reason(order.Reasons) {
		rm.refused[reason] = lazily(m.refused, r.Name, reason.Name())
	}
	return rm
}

// Decided implements gate.Recorder.
func (m *Recorder) Decided(rule int, a gate.Action, v gate.Verdict, took time.Duration) {
	r := &m.rules[rule]
	r.decisions[a][v].Inc()
	r.seconds.Observe(took.Seconds())
}

// Refused implements gate.Recorder.
func (m *Recorder) Refused(rule int, why order.Reason) { m.rules[rule].refused[why].Inc() }

// Closed implements gate.Recorder.
func (m *Recorder) Closed(rule int, o gate.Outcome) { m.rules[rule].outcomes[o].Inc() }

// learnedResults are the values of the label result: the order is known to all; the answer
// did not name it; there was no answer of the backend; Redis did not take it in time.
var learnedResults = [...]string{"ok", "unnamed", "abandoned", "unlogged"}

// Learned implements gate.Recorder.
func (m *Recorder) Learned(rule int, err error) {
	result := 3
	switch {
	case err == nil:
		result = 0
	case errors.Is(err, gate.ErrUnnamed):
		result = 1
	case errors.Is(err, gate.ErrAbandoned):
		result = 2
	}
	m.rules[rule].learned[result].Inc()
}
