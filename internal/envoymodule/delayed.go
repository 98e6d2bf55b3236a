package envoymodule

import (
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/recurring"
)

// delayedAnswers finds out whether Envoy waits for the answer to a create for less time than
// ordergate may need. The details of a stream's end tell Envoy's timeouts from clients who
// leave (downstream_...), as measured with Envoy 1.40. A route's timeout no longer runs once
// Envoy has the whole answer.
type delayedAnswers struct {
	cut      *recurring.Trouble
	maxDelay time.Duration // that an answer may be held for
}

// streamEnded takes the end of a stream whose answer was held, with Envoy's details of it.
func (h *delayedAnswers) streamEnded(c *create, details string) {
	if !isTimeout(details) || details == c.answerDetails { // the answer is Envoy's own, of that timeout
		return
	}
	after := time.Since(c.delayedSince).Round(time.Millisecond)
	h.cut.Note(append(c.call.LogArgs(), "after", after, "held_up_to", h.maxDelay, "details", details)...)
}

// isTimeout reports whether details are those of one of Envoy's timeouts: response_timeout of
// the route, stream_idle_timeout, max_duration_timeout, upstream_max_stream_duration_reached.
func isTimeout(details string) bool {
	return strings.Contains(details, "timeout") || strings.Contains(details, "max_stream_duration")
}
