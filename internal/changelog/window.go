package changelog

import (
	"time"
)

// Window is a time in which an ID that was not applied here is one that no client was told of:
// a read of the log found all well, and whoever appends something later waits for the window's end,
// or until this reader has it. A nil Window never holds. It is immutable.
type Window struct {
	began, wall time.Time // when the read was sent, by the monotonic and by the other clock
	length      time.Duration
}

func newWindow() *Window {
	now := time.Now()
	return &Window{began: now, wall: now.Round(0)}
}

// Holds reports whether the window is not over yet. Load the window first, then look whether an
// ID was applied, then ask this: what the read brought was applied before the window was opened.
//
// A machine that sleeps stops the monotonic clock, but not the other one, which somebody may
// set: the window is over when either says so. It does not block.
func (w *Window) Holds() bool {
	if w == nil {
		return false
	}
	now := time.Now()
	return now.Sub(w.began) < w.length && now.Round(0).Sub(w.wall) < w.length
}

// Window returns the one that was opened last, nil if none is open. It does not block.
func (l *Log) Window() *Window { return l.window.Load() }
