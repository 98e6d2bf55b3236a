package metrics

import "github.com/prometheus/client_golang/prometheus"

// VerifyCheck is what a refused lookup is held against, a value of the label check.
type VerifyCheck string

// The checks.
const (
	VerifyTable   VerifyCheck = "table"
	VerifyBackend VerifyCheck = "backend"
)

// The results of a check. Only VerifyExists makes the filter unknown.
const (
	VerifyAbsent      = "absent"      // the order does not exist
	VerifyExists      = "exists"      // it does, and the filter lacks it
	VerifySuspected   = "suspected"   // the backend answers as if it did, which proves nothing
	VerifyLate        = "late"        // the filter has it by now: it was just being created
	VerifyUnclear     = "unclear"     // the backend's answer does not tell
	VerifyUnavailable = "unavailable" // the table did not answer
)

var verifyResults = map[VerifyCheck][]string{
	VerifyTable:   {VerifyAbsent, VerifyExists, VerifyLate, VerifyUnavailable},
	VerifyBackend: {VerifyAbsent, VerifyExists, VerifySuspected, VerifyLate, VerifyUnclear},
}

// Verified counts the refused lookups of one filter that were verified. It is safe for concurrent
// use.
type Verified struct{ of *prometheus.CounterVec }

// Verified returns the counters of a filter. All results have a line from the start.
func (m *Metrics) Verified(filter string) *Verified {
	v := &Verified{m.verified.MustCurryWith(prometheus.Labels{"filter": filter})}
	for check, results := range verifyResults {
		for _, result := range results {
			v.of.WithLabelValues(string(check), result)
		}
	}
	return v
}

// Add counts a result.
func (v *Verified) Add(check VerifyCheck, result string) {
	v.of.WithLabelValues(string(check), result).Inc()
}
