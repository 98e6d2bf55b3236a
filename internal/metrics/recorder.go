package metrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// Rule holds what the metrics need of a rule.
type Rule struct {
	Name string
	// Lock is the lock of enforced requests, ObservedLock that of observed ones. "": the rule
	// acquires none for such requests.
	Lock, ObservedLock string
	// Settles, Creates and Stores name counters that begin at zero, since alerts look at them:
	// Prometheus sees no increase in one that begins at 1.
	Settles, Creates, Stores bool
}

// modes are the values of the label mode: of enforced requests, and of observed ones.
var modes = [...]string{"enforce", "observe"}

// modeOf returns the index of a request's mode.
func modeOf(observed bool) int {
	if observed {
		return 1
	}
	return 0
}

// Recorder counts the decisions of one gate. It implements gate.Recorder, and is safe for
// concurrent use.
type Recorder struct{ rules []ruleMetrics }

// ruleMetrics holds a rule's counters by index. Counting a decision then needs no
// map.
type ruleMetrics struct {
	decisions [len(modes)][gate.Actions][gate.Verdicts]prometheus.Counter
	seconds   prometheus.Observer
	outcomes  [len(modes)][gate.Outcomes]prometheus.Counter // nil: the rule acquires no lock
	learned   [len(learnedResults)]prometheus.Counter
	refused   [order.Reasons]prometheus.Counter
	once      [gate.OnceResults]prometheus.Counter
}

// Recorder returns the recorder of a gate with these rules, in the order of its policies. Rules
// of the same name share their counters across gates. The counters of a removed rule stay: calls
// of that rule may still end, and Prometheus has yet to scrape their counts.
func (m *Metrics) Recorder(rules []Rule) *Recorder {
	r := &Recorder{rules: make([]ruleMetrics, len(rules))}
	for i := range rules {
		r.rules[i] = m.ruleMetrics(&rules[i])
	}
	return r
}

func (m *Metrics) ruleMetrics(r *Rule) (rm ruleMetrics) {
	for i, mode := range modes {
		for a := range gate.Action(gate.Actions) {
			for v := range gate.Verdict(gate.Verdicts) {
				rm.decisions[i][a][v] = lazily(m.decisions, r.Name, a.String(), v.String(), mode)
			}
		}
	}
	rm.seconds = m.seconds.WithLabelValues(r.Name)
	for i, lock := range [len(modes)]string{r.Lock, r.ObservedLock} {
		for o := range gate.Outcome(gate.Outcomes) {
			if lock != "" {
				rm.outcomes[i][o] = m.outcomes.WithLabelValues(lock, o.String())
			}
		}
	}
	for i, result := range learnedResults {
		rm.learned[i] = lazily(m.learned, r.Name, result)
	}
	for result := range gate.OnceResult(gate.OnceResults) {
		rm.once[result] = lazily(m.once, r.Name, result.String())
	}
	if r.Settles {
		for _, v := range []gate.Verdict{gate.VerdictUnlocked, gate.VerdictOverloaded} {
			m.decisions.WithLabelValues(r.Name, gate.ActionSettle.String(), v.String(), modes[0])
		}
	}
	for _, result := range learnedResults {
		if r.Creates {
			m.learned.WithLabelValues(r.Name, result)
		}
	}
	for result := range gate.OnceResult(gate.OnceResults) {
		if r.Stores {
			m.once.WithLabelValues(r.Name, result.String())
		}
	}
	for reason := range order.Reason(order.Reasons) {
		rm.refused[reason] = lazily(m.refused, r.Name, reason.Name())
	}
	return rm
}

// Decided implements gate.Recorder.
func (m *Recorder) Decided(rule int, a gate.Action, v gate.Verdict, observed bool, took time.Duration, trace string) {
	r := &m.rules[rule]
	r.decisions[modeOf(observed)][a][v].Inc()
	observe(r.seconds, took, trace)
}

// Refused implements gate.Recorder.
func (m *Recorder) Refused(rule int, why order.Reason) { m.rules[rule].refused[why].Inc() }

// Closed implements gate.Recorder.
func (m *Recorder) Closed(rule int, o gate.Outcome, observed bool) {
	if c := m.rules[rule].outcomes[modeOf(observed)][o]; c != nil {
		c.Inc()
	}
}

// Once implements gate.Recorder.
func (m *Recorder) Once(rule int, result gate.OnceResult) { m.rules[rule].once[result].Inc() }

// learnedResults are the values of the label result, in this order: every instance has the order;
// the answer did not name it; the backend did not answer; Redis did not store it in time; by the
// rule's answer there is none; every instance has what its table has.
var learnedResults = [...]string{"ok", "unnamed", "abandoned", "unlogged", "failed", "table"}

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
	case errors.Is(err, gate.ErrFailed):
		result = 4
	case errors.Is(err, gate.ErrByTable):
		result = 5
	}
	m.rules[rule].learned[result].Inc()
}
