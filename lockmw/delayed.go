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

// delayedAnswers detects that Envoy waits less long for the answer to a create than
// ordergate may need (message_timeout). Such a stream ends like that of a client that
// leaves, as measured with Envoy 1.40: with EOF, before ordergate has replied. If another
// answer has waited longer, and Envoy with it, then the client has left.
type delayedAnswers struct {
	cut      *recurring.Problem
	maxDelay time.Duration // the longest time that an answer may wait

	mu        sync.Mutex
	longest   time.Duration // the longest recent wait after which Envoy still took the answer
	longestAt time.Time
}

const (
	// minDelay is shorter than any sensible timeout. Most answers wait less, and their
	// streams are not watched.
	minDelay = 50 * time.Millisecond
	// longestValid is the time for which an observed wait describes Envoy's configuration.
	longestValid = 5 * time.Minute
)

// watch receives from the stream of a create whose answer waits from now on, until the
// caller calls passedOn. The caller sends no reply before that. The goroutine ends with the
// stream, at the latest when its handler returns.
func (h *delayedAnswers) watch(stream extproc.ExternalProcessor_ProcessServer, call *gate.Call) (passedOn func()) {
	since := time.Now()
	var over, ended atomic.Bool
	timer := time.AfterFunc(minDelay, func() {
		var err error
		for err == nil { // ignore messages before our reply, as after it
			_, err = stream.Recv()
		}
		// A lost connection, or one that this side closed, ends with another error.
		if after := time.Since(since); errors.Is(err, io.EOF) && !over.Load() {
			ended.Store(true)
			if h.isCut(time.Now(), after) {
				h.cut.Note(append(call.LogArgs(), "after", after.Round(time.Millisecond), "held_up_to", h.maxDelay)...)
			}
		}
	})
	return func() {
		over.Store(true)
		if !timer.Stop() && !ended.Load() {
			h.keep(time.Now(), time.Since(since))
		}
	}
}

// isCut reports whether Envoy may have ended a stream after so long. A wait is measured here,
// and not by Envoy: a fifth is for the difference.
func (h *delayedAnswers) isCut(now time.Time, after time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return after >= h.longest*4/5 || now.Sub(h.longestAt) > longestValid
}

// keep records that an answer waited for so long, and was passed on.
func (h *delayedAnswers) keep(now time.Time, held time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held >= h.longest || now.Sub(h.longestAt) > longestValid {
		h.longest, h.longestAt = held, now
	}
}
