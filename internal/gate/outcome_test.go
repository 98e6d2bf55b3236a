package gate

import (
	"strings"
	"testing"
)

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
		{"answer of a gateway", Response{Status: 504, Details: "via_upstream", Attempts: 1, AttemptHeader: -1}, OutcomeUnknown},
		{"another one", Response{Status: 502, Details: "via_upstream", Attempts: 1, AttemptHeader: -1}, OutcomeUnknown},
		{"the backend's own refusal", Response{Status: 500, Details: "via_upstream", Attempts: 1, AttemptHeader: -1}, OutcomeKnown},
		{"a proxy's refusal, or the backend's", Response{Status: 503, Details: "via_upstream", Attempts: 1, AttemptHeader: -1}, OutcomeUnknown},
		{"one that the rule knows", Response{Status: 503, Details: "via_upstream", Attempts: 1, AttemptHeader: -1, said: true}, OutcomeKnown},
		{"a gateway's, which no rule knows", Response{Status: 504, Details: "via_upstream", Attempts: 1, AttemptHeader: -1, said: true}, OutcomeUnknown},
		{"its form is not acceptable", Response{Status: 406, Details: "via_upstream", Attempts: 1, AttemptHeader: -1}, OutcomeUnknown},
		{"no attributes, answer of a gateway", Response{Status: 504, Attempts: -1, HasServiceTime: true, AttemptHeader: 1}, OutcomeUnknown},
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
		{"no attributes, served once", Response{Attempts: -1, HasServiceTime: true, AttemptHeader: 1}, OutcomeKnown},
		{"no attributes, served at the second try", Response{Attempts: -1, HasServiceTime: true, AttemptHeader: 2}, OutcomeUnknown},
		{"no attributes, attempts not counted", Response{Attempts: -1, HasServiceTime: true, AttemptHeader: -1}, OutcomeUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.r.Outcome(); got != tt.want {
				t.Errorf("Outcome() = %s, want %s", got, tt.want)
			}
		})
	}
}

// TestReasonOfHold checks the text beside a lock that is held.
func TestReasonOfHold(t *testing.T) {
	long := strings.Repeat("x", 1000)
	tests := []struct {
		r    Response
		want string
	}{
		{Response{Details: "response_timeout", Attempts: 1, AttemptHeader: -1}, "response_timeout"},
		{Response{Status: 504, Details: "via_upstream", Attempts: 1, AttemptHeader: -1}, "a gateway before the backend may have no answer of it: 504"},
		{Response{Details: "via_upstream", Attempts: 2, AttemptHeader: -1}, "via_upstream after 2 attempts"},
		{Response{Details: "response_timeout", Attempts: 3, AttemptHeader: -1}, "response_timeout after 3 attempts"},
		{Response{Details: "via_upstream", Attempts: -1, AttemptHeader: -1}, "via_upstream, after an unknown number of attempts"},
		{Response{Attempts: -1, HasServiceTime: true, AttemptHeader: 2}, "answered after 2 attempts"},
		{Response{Attempts: -1, HasServiceTime: true, AttemptHeader: -1}, "Envoy does not report the origin of the answer"},
		{Response{Attempts: -1, AttemptHeader: 1}, "Envoy does not report the origin of the answer"},
		{Response{Details: long, Attempts: 2, AttemptHeader: -1}, long[:maxUnknownReason] + "... after 2 attempts"},
	}
	for _, tt := range tests {
		if tt.r.Outcome() != OutcomeUnknown {
			t.Errorf("%+v: the outcome is %s", tt.r, tt.r.Outcome())
		}
		if got := tt.r.unknownReason(); got != tt.want {
			t.Errorf("%+v: reason %q, want %q", tt.r, got, tt.want)
		}
	}
}
