package gatetest

import (
	"strconv"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// Silent is a gate.Recorder that counts nothing.
type Silent struct{}

// Decided implements gate.Recorder.
func (Silent) Decided(int, gate.Action, gate.Verdict, bool, time.Duration, string) {}

// Refused implements gate.Recorder.
func (Silent) Refused(int, order.Reason) {}

// Closed implements gate.Recorder.
func (Silent) Closed(int, gate.Outcome, bool) {}

// Learned implements gate.Recorder.
func (Silent) Learned(int, error) {}

// Once implements gate.Recorder.
func (Silent) Once(int, gate.OnceResult) {}

// Recorder is a gate.Recorder that writes decisions to its journal: "0 lookup maybe",
// "2 closed known", "1 learned true".
type Recorder struct {
	Silent
	Journal
	took     time.Duration
	observed int
}

// Decided implements gate.Recorder.
func (r *Recorder) Decided(rule int, a gate.Action, v gate.Verdict, observed bool, took time.Duration, _ string) {
	r.Add(strconv.Itoa(rule), " ", a.String(), " ", v.String())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took += took
	if observed {
		r.observed++
	}
}

// Closed implements gate.Recorder.
func (r *Recorder) Closed(rule int, o gate.Outcome, _ bool) {
	r.Add(strconv.Itoa(rule), " closed ", o.String())
}

// Once implements gate.Recorder.
func (r *Recorder) Once(rule int, result gate.OnceResult) {
	r.Add(strconv.Itoa(rule), " once ", result.String())
}

// Learned implements gate.Recorder.
func (r *Recorder) Learned(rule int, err error) {
	r.Add(strconv.Itoa(rule), " learned ", strconv.FormatBool(err == nil))
}

// Observed returns how many decisions were only observed.
func (r *Recorder) Observed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.observed
}

// Took returns the time that all decisions took together.
func (r *Recorder) Took() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.took
}
