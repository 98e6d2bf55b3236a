package page

import (
	"slices"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/metrics"
)

const (
	sampleEvery = 10 * time.Second
	samples     = int(time.Hour / sampleEvery)
)

// history has the decisions of the last hour by rule.
type history struct {
	last, before sample
	rules        map[string][]point // the newest is last, at most samples of them
}

// sample is what was counted up to a moment.
type sample struct {
	at    time.Time
	rules map[string]*metrics.RuleCounts
}

// point is what happened between two samples.
type point struct {
	passed, refused float64 // decisions a second
	p99             float64 // in seconds
}

// add adds a sample. One that comes late counts for the time that it missed.
func (h *history) add(now sample) {
	if h.rules == nil {
		h.rules = make(map[string][]point)
	}
	for name := range now.rules {
		points := h.rules[name]
		if !h.last.at.IsZero() {
			points = append(points, pointOf(rateOf(h.last, now, name)))
		}
		h.rules[name] = points[max(0, len(points)-samples):]
	}
	h.before, h.last = h.last, now
}

// now returns the rate of a rule over the last 10 s to 20 s.
func (h *history) now(now sample, rule string) rate {
	from := h.before
	if from.at.IsZero() {
		from = h.last
	}
	return rateOf(from, now, rule)
}

// rate is what was decided between two samples.
type rate struct {
	verdicts []verdictRate // that occurred, always in the same order, so that none jumps
	p50, p99 float64       // in seconds, 0 without a decision
}

// verdictRate is a row of a rule's table: a verdict, or what became of new orders.
type verdictRate struct {
	Name, Note string
	Refused    bool
	Rate       float64 // a second
	Total      float64 // since the start
}

func rateOf(from, to sample, rule string) (r rate) {
	counts, before := to.rules[rule], from.rules[rule]
	if counts == nil {
		return r
	}
	if before == nil {
		before = &metrics.RuleCounts{Waits: make([]uint64, len(counts.Waits))}
	}
	seconds := max(to.at.Sub(from.at).Seconds(), 0.1)
	add := func(now, then map[string]float64, kinds []verdictKind, suffix string) {
		for _, k := range kinds {
			if n := now[k.name]; n > 0 {
				r.verdicts = append(r.verdicts, verdictRate{k.name + suffix, k.note, k.refused && suffix == "", (n - then[k.name]) / seconds, n})
			}
		}
	}
	add(counts.Enforced, before.Enforced, verdictKinds, "")
	add(counts.Observed, before.Observed, verdictKinds, ", observed")
	add(counts.Created, before.Created, createdKinds, "")
	waits := make([]float64, len(counts.Waits))
	for i := range waits {
		if waits[i] = float64(counts.Waits[i]); i < len(before.Waits) {
			waits[i] -= float64(before.Waits[i])
		}
	}
	r.p50, r.p99 = quantile(waits, 0.5), quantile(waits, 0.99)
	return r
}

func pointOf(r rate) point {
	p := point{p99: r.p99}
	for _, v := range r.verdicts {
		if v.Refused {
			p.refused += v.Rate
		} else {
			p.passed += v.Rate
		}
	}
	return p
}

// verdictKind is what a row of a table is about. Refused means that ordergate answers in the place of the
// backend, but for repeats of its answers.
type verdictKind struct {
	name, note string
	refused    bool
}

// verdictKinds are in the order in which the page lists them.
var verdictKinds = func() (all []verdictKind) {
	notes := [gate.Verdicts]string{
		gate.VerdictAbsent: "no such order", gate.VerdictMaybe: "passed on", gate.VerdictUnknown: "passed on",
		gate.VerdictBusy: "another call runs", gate.VerdictInvalid: "faulty request", gate.VerdictAmbiguous: "faulty request",
		gate.VerdictUnavailable: "no answer", gate.VerdictOverloaded: "too many calls", gate.VerdictAcquired: "got the lock",
		gate.VerdictUnlocked: "had no lock", gate.VerdictLost: "lease ended early", gate.VerdictReplayed: "first answer",
		gate.VerdictDuplicate: "order exists", gate.VerdictMismatch: "another request", gate.VerdictInUse: "first call runs",
		gate.VerdictNotReady: "a condition",
	}
	for v := range gate.Verdict(gate.Verdicts) {
		refused := false
		switch v {
		case gate.VerdictNone, gate.VerdictMaybe, gate.VerdictUnknown, gate.VerdictAcquired, gate.VerdictReplayed:
		default:
			refused = true
		}
		all = append(all, verdictKind{v.String(), notes[v], refused})
	}
	return all
}()

// createdKinds are the results of learning new orders.
var createdKinds = []verdictKind{
	{"ok", "created", false}, {"table", "by the table", false}, {"failed", "not created", false},
	{"unnamed", "ID not found", false}, {"abandoned", "no answer", false}, {"unlogged", "Redis was late", false},
}

var buckets = metrics.DecisionBuckets()

// quantile returns a quantile in seconds, as Prometheus's histogram_quantile does: between the bounds
// of a bucket it is interpolated. Beyond the last bound it is that bound.
func quantile(cumulative []float64, q float64) float64 {
	if len(cumulative) == 0 || cumulative[len(cumulative)-1] == 0 {
		return 0
	}
	rank := q * cumulative[len(cumulative)-1]
	i := slices.IndexFunc(cumulative, func(n float64) bool { return n >= rank })
	if i >= len(buckets) {
		return buckets[len(buckets)-1]
	}
	lower, below := 0.0, 0.0
	if i > 0 {
		lower, below = buckets[i-1], cumulative[i-1]
	}
	if cumulative[i] == below {
		return buckets[i]
	}
	return lower + (buckets[i]-lower)*(rank-below)/(cumulative[i]-below)
}
