// Package recurring logs trouble that comes many times a second in a few lines: one when it
// begins, one a minute with the count, and one when it is over.
//
// Start with [New], and call [Trouble.Note] each time.
package recurring

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// every is the time between two lines of one trouble. It is over when it did not come for as
// long.
const interval = time.Minute

// Trouble is one kind of it. It is safe for concurrent use.
type Problem struct {
	log               *slog.Logger
	level             slog.Level
	message, resolved string

	mu    sync.Mutex
	timer *time.Timer // runs while there is trouble; nil: there is none
	since time.Time
	total int
	count int // since the last line
	last  []any
}

// New returns a trouble that has not come yet. The texts are the messages of its lines while
// it comes, and when it is over.
func New(log *slog.Logger, level slog.Level, comes, over string) *Problem {
	return &Problem{log: log, level: level, message: comes, resolved: over}
}

// Note tells that it came. The arguments are those of [slog.Logger.Log]; a line that counts
// has the last ones.
func (t *Problem) Note(args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total++
	if t.timer != nil {
		t.count++
		t.last = args
		return
	}
	t.since = time.Now()
	t.timer = time.AfterFunc(interval, t.summarize)
	t.log.Log(context.Background(), t.level, t.message, args...)
}

// look logs what came since the last line.
func (t *Problem) summarize() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		return // closed meanwhile
	}
	if t.count == 0 {
		t.end()
		return
	}
	t.log.Log(context.Background(), t.level, t.message, append(t.last, "count", t.count)...)
	t.count, t.last = 0, nil
	t.timer.Reset(interval)
}

// Close ends the trouble, if there is any.
func (t *Problem) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.end()
	}
}

// Drop forgets the trouble, and logs nothing: the process that noted it ends.
func (t *Problem) Drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

func (t *Problem) end() {
	t.log.Info(t.resolved, "total", t.total, "since", t.since)
	t.timer, t.total, t.count, t.last = nil, 0, 0, nil
}
