package lockmw

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/recurring"
)

// delayedAnswers finds out whether Envoy holds the answer to a create for less time than
// ordergate may need (message_timeout). Its stream ends then just as that of a client who
// leaves, as measured with Envoy 1.40: EOF, while ordergate has yet to reply. A client who
// leaves sooner than another answer was held for shows nothing, since Envoy waited longer.
type delayedAnswers struct {
	cut      *recurring.Problem
	maxDelay time.Duration // that an answer may be held for

	mu        sync.Mutex
	longest   time.Duration // for which an answer was held lately, and Envoy waited
	longestAt time.Time
}

const (
	// minDelay is shorter than any sensible timeout. Most answers are held for less, and
	// their streams are not watched.
	minDelay = 50 * time.Millisecond
	// longestValid is for how long an answer that was held tells of Envoy's configuration.
	longestValid = 5 * time.Minute
)

// watch receives from the stream of a create, whose answer is held from now on until the
// returned function is called. No reply may be sent before that. The goroutine ends with the
// stream, at the latest when its handler returns.
func (h *delayedAnswers) watch(stream extproc.ExternalProcessor_ProcessServer, call *gate.Call) (passedOn func()) {
	since := time.Now()
	var over, ended atomic.Bool
	timer := time.AfterFunc(minDelay, func() {
		var err error
		for err == nil { // what comes before our reply is passed over, as it is after it
			_, err = stream.Recv()
		}
		// A connection that is lost, or closed at our end, ends with another error.
		if after := time.Since(since); errors.Is(err, io.EOF) && !over.Load() {
			ended.Store(true)
			h.note(call, time.Now(), after)
		}
	})
	return func() {
		over.Store(true)
		if !timer.Stop() && !ended.Load() {
			h.keep(time.Now(), time.Since(since))
		}
	}
}

// note takes the end of a stream whose answer was held for so long.
func (h *delayedAnswers) note(call *gate.Call, now time.Time, after time.Duration) {
	if h.isCut(now, after) {
		h.cut.Note(append(call.LogArgs(), "after", after.Round(time.Millisecond), "held_up_to", h.maxDelay)...)
	}
}

// isCut reports whether Envoy may have ended a stream after so long.
func (h *delayedAnswers) isCut(now time.Time, after time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return after >= h.longest || now.Sub(h.longestAt) > longestValid
}

// keep takes the end of an answer that was held for so long, and passed on.
func (h *delayedAnswers) keep(now time.Time, held time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held >= h.longest || now.Sub(h.longestAt) > longestValid {
		h.longest, h.longestAt = held, now
	}
}
