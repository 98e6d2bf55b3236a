package changelog

import (
	"time"
)

// Window is a time in which no client has received an order that was not applied here. A read has
// found the log intact. A later append waits for the end of the window, or until this reader has
// the entry. A nil Window never holds. A Window is immutable.
type Window struct {
	began, wall time.Time // when the read was sent, by the monotonic clock and by the wall clock
	length      time.Duration
}

func newWindow() *Window {
	now := time.Now()
	return &Window{began: now, wall: now.Round(0)}
}

// Holds reports whether the window has not ended. Load the window first, then look up the ID, then
// call Holds: the read's entries were applied before the window opened.
//
// A machine that sleeps stops the monotonic clock. An operator may set the wall clock. The window
// ends when either clock has passed its end. Holds does not block.
func (w *Window) Holds() bool {
	if w == nil {
		return false
	}
	now := time.Now()
	return now.Sub(w.began) < w.length && now.Round(0).Sub(w.wall) < w.length
}

// Window returns the last window, nil if there is none. It does not block.
func (l *Log) Window() *Window { return l.window.Load() }
