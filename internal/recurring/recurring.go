// Package recurring logs a problem that occurs many times a second in a few lines: one at its
// start, one a minute with the count while it goes on, and one at its end.
//
// Start with [New], and call [Problem.Note] at each occurrence.
package recurring

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// interval is the time between two lines of one problem.
	interval = time.Minute
	// quiet is how long a problem has not occurred when it counts as over, at the next line: an error
	// in the log is no older.
	quiet = 10 * time.Second
)

// Problem is one kind of problem. It is safe for concurrent use.
type Problem struct {
	log               *slog.Logger
	level             slog.Level
	message, resolved string
	todo              slog.Attr

	mu    sync.Mutex
	timer *time.Timer // runs during the problem; nil: there is none
	since time.Time
	total int
	count int // since the last line
	last  []any
	until time.Time // the last occurrence
}

// New returns a problem that has not occurred. The texts are the messages of its lines: during
// the problem, and at its end. The lines during the problem end with todo, see package runbook.
func New(log *slog.Logger, level slog.Level, comes, over string, todo slog.Attr) *Problem {
	return &Problem{log: log, level: level, message: comes, resolved: over, todo: todo}
}

// Note records an occurrence. The arguments are those of [slog.Logger.Log]. A line with a count
// has the last ones.
func (t *Problem) Note(args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total++
	t.until = time.Now()
	if t.timer != nil {
		t.count++
		t.last = args
		return
	}
	t.since = t.until
	t.timer = time.AfterFunc(interval, t.summarize)
	t.log.Log(context.Background(), t.level, t.message, append(args, t.todo)...)
}

// summarize logs the occurrences since the last line.
func (t *Problem) summarize() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		return // closed by now
	}
	if t.count == 0 || time.Since(t.until) >= quiet {
		t.end()
		return
	}
	t.log.Log(context.Background(), t.level, t.message, append(t.last, "count", t.count, t.todo)...)
	t.count, t.last = 0, nil
	t.timer.Reset(interval)
}

// Close ends the problem, if there is one.
func (t *Problem) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.end()
	}
}

// Drop ends the problem without a line: the process that noted it ends.
func (t *Problem) Drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

func (t *Problem) end() {
	t.log.Info(t.resolved, "total", t.total, "since", t.since, "until", t.until)
	t.timer, t.total, t.count, t.last = nil, 0, 0, nil
}
