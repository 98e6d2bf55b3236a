package filter

import (
	"fmt"
	"time"

	"github.com/ordergate/ordergate/internal/runbook"
)

// The states of a filter.
const (
	StateLoading = "loading" // a hit is Maybe, anything else Unknown
	StateReady   = "ready"
	StateUnknown = "unknown" // a hit is Maybe, anything else Unknown
)

// status is the state of the bits. It is replaced, not changed.
type status struct {
	state     string
	reason    string
	permanent bool // no load changes this
}

// Taint makes every miss Unknown until the process ends: no source can repair the filter. The
// first reason stays. It affects this process only.
func (f *Filter) Taint(reason string) {
	if f.setStatus(&status{state: StateUnknown, reason: reason, permanent: true}) {
		f.log.Error("filter answers unknown for every miss until a restart", "reason", reason,
			runbook.FilterNotReady.Do("repair what reason names, and restart ordergate"))
	}
}

// NoteProgress makes State show the progress of a load.
func (f *Filter) NoteProgress(text string) {
	now := f.status.Load()
	if now.state == StateLoading {
		f.status.CompareAndSwap(now, &status{state: StateLoading, reason: text})
	}
}

// NoteAlert makes State show an alert about the rate of false positives; "": there is none.
func (f *Filter) NoteAlert(text string) { f.alert.Store(&text) }

// setStatus replaces the status, unless the present one is permanent.
func (f *Filter) setStatus(next *status) bool {
	for {
		now := f.status.Load()
		if now.permanent {
			return false
		}
		if f.status.CompareAndSwap(now, next) {
			if next.state == StateReady {
				f.loaded.Store(true)
			}
			return true
		}
	}
}

// State returns the filter's state and, in one line, the reason. A ready filter has a reason
// only if an operator should act. State does not block, and does not depend on lookups.
func (f *Filter) State() (state, reason string) {
	s := f.status.Load()
	switch {
	case f.opts.Remote != nil && !s.permanent: // memory is only a cache
		if state, reason := f.opts.Remote.State(); state != StateReady || reason != "" {
			return state, reason
		}
	case s.state != StateReady:
		return s.state, s.reason
	}
	d := f.doubts.Load()
	if d != nil && (d.scope.isAll() || d.recovery == ByOperator) {
		return StateUnknown, f.operatorReason(d)
	}
	if f.opts.WindowErr != nil {
		if err := f.opts.WindowErr(); err != nil {
			return StateUnknown, err.Error()
		}
	}
	if f.stale() {
		at := f.opts.LastRead()
		if at.IsZero() {
			return StateUnknown, "the change log was not read to its end yet"
		}
		return StateUnknown, fmt.Sprintf("stale: the change log was read to its end %v ago", time.Since(at).Round(time.Second))
	}
	if d != nil {
		return StateReady, fmt.Sprintf("certain but for %v: %s", d.scope, d.reason)
	}
	if f.overCapacity.Load() {
		return StateReady, fmt.Sprintf("over capacity: %d IDs, made for %d", f.Count(), f.Capacity())
	}
	if err := f.snapshotErr.Load(); err != nil {
		return StateReady, (*err).Error()
	}
	if alert := f.alert.Load(); alert != nil && *alert != "" {
		return StateReady, *alert
	}
	return StateReady, ""
}

// operatorReason returns the reason of doubts, their effect, and what an operator should do.
func (f *Filter) operatorReason(d *openDoubts) string {
	if d.recovery < ByOperator {
		return d.reason
	}
	return fmt.Sprintf("%s: requests for orders that do not exist go on to the backend (%v) until the sources have every order and ordergate load --filter %s has run",
		d.reason, d.scope, f.name)
}
