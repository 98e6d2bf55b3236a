package gate

import "testing"

// TestOutcome holds the reading against what a running Envoy 1.40 reported.
func TestOutcome(t *testing.T) {
	attrs := func(details string, attempts int) Response {
		return Response{Details: details, Attempts: attempts, AttemptHeader: -1}
	}
	tests := []struct {
		name string
		r    Response
		want Outcome
	}{
		{"answer", attrs("via_upstream", 1), OutcomeKnown},
		{"answer to a second try", attrs("via_upstream", 2), OutcomeUnknown},
		{"answer, attempts missing", attrs("via_upstream", -1), OutcomeUnknown},
		{"route timeout", attrs("response_timeout", 1), OutcomeUnknown},
		{"per-try timeout", attrs("upstream_per_try_timeout", 1), OutcomeUnknown},
		{"reset before headers", attrs("upstream_reset_before_response_started{connection_termination}", 1), OutcomeUnknown},
		{"refused", attrs("upstream_reset_before_response_started{remote_connection_failure,delayed_connect_error:_Connection_refused}", 1), OutcomeNotForwarded},
		{"refused after a first try", attrs("upstream_reset_before_response_started{remote_connection_failure}", 2), OutcomeUnknown},
		{"circuit breaker", attrs("upstream_reset_before_response_started{overflow}", 1), OutcomeNotForwarded},
		{"no endpoints", attrs("no_healthy_upstream", 1), OutcomeNotForwarded},
		{"no cluster", attrs("cluster_not_found", 0), OutcomeNotForwarded},
		{"redirect", attrs("direct_response", 0), OutcomeNotForwarded},
		{"failed upgrade", attrs("upgrade_failed", 0), OutcomeNotForwarded},
		{"something new of Envoy's", attrs("brand_new_reason", 1), OutcomeUnknown},
		{"nothing at all", Response{Attempts: -1, AttemptHeader: -1}, OutcomeUnknown},
		{"no attributes, served once", Response{Attempts: -1, ServedBy: true, AttemptHeader: 1}, OutcomeKnown},
		{"no attributes, served at the second try", Response{Attempts: -1, ServedBy: true, AttemptHeader: 2}, OutcomeUnknown},
		{"no attributes, attempts not told", Response{Attempts: -1, ServedBy: true, AttemptHeader: -1}, OutcomeUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.r.Outcome(); got != tt.want {
				t.Errorf("Outcome() = %s, want %s", got, tt.want)
			}
		})
	}
}
