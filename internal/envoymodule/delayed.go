package envoymodule

import (
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/recurring"
)

// delayedAnswers detects that Envoy waits less long for the answer to a create than
// ordergate may need. The details at a stream's end distinguish Envoy's timeouts from
// clients that leave (downstream_...), as measured with Envoy 1.40. A route's timeout no
// longer runs once Envoy has the whole answer.
type delayedAnswers struct {
	cut      *recurring.Problem
	maxDelay time.Duration // the longest time that an answer may wait
}

// delayedAnswer is an answer that waits.
type delayedAnswer struct {
	since   time.Time
	details string // of the answer
}

// streamEnded handles the end of a stream whose answer was waiting, with Envoy's details.
func (h *delayedAnswers) streamEnded(call *gate.Call, a *delayedAnswer, details string) {
	if !isTimeout(details) || details == a.details { // the answer itself is Envoy's, after that timeout
		return
	}
	after := time.Since(a.since).Round(time.Millisecond)
	h.cut.Note(append(call.LogArgs(), "after", after, "held_up_to", h.maxDelay, "details", details)...)
}

// isTimeout reports whether the details are those of one of Envoy's timeouts:
// response_timeout of the route, stream_idle_timeout, max_duration_timeout,
// upstream_max_stream_duration_reached.
func isTimeout(details string) bool {
	return strings.Contains(details, "timeout") || strings.Contains(details, "max_stream_duration")
}
