package recurring

import (
	"context"
	"log/slog"
	"sync"
)

// Warnings is for loggers whose warnings recur. Of warnings with the same message and
// attributes it logs the first, one a minute with the count, and one when they are over. So an
// outage takes a few lines, however many requests meet it. Each error has its own line: it names
// something that an operator has to check. It is safe for concurrent use.
type Warnings struct {
	mu       sync.Mutex
	problems map[string]*Problem
	closed   bool
}

// Logger returns a logger whose warnings count here, together with those of other loggers with
// the same message and attributes.
func (w *Warnings) Logger(log *slog.Logger) *slog.Logger {
	return slog.New(handler{Handler: log.Handler(), warnings: w})
}

// Close ends all problems. Later warnings are logged one by one.
func (w *Warnings) Close() {
	w.mu.Lock()
	w.closed = true
	problems := w.problems
	w.problems = nil
	w.mu.Unlock()
	for _, p := range problems {
		p.Close()
	}
}

// problem returns the problem of a message with attributes; nil after Close.
func (w *Warnings) problem(h handler, message string) *Problem {
	name := h.attributes + message
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	p := w.problems[name]
	if p == nil {
		if w.problems == nil {
			w.problems = make(map[string]*Problem)
		}
		p = New(slog.New(h.Handler), slog.LevelWarn, message, "over: "+message, slog.Attr{}) // a line has its own
		w.problems[name] = p
	}
	return p
}

// handler implements slog.Handler.
type handler struct {
	slog.Handler
	warnings   *Warnings
	attributes string // of the logger, as text
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	var problem *Problem
	if r.Level == slog.LevelWarn {
		problem = h.warnings.problem(h, r.Message)
	}
	if problem == nil {
		return h.Handler.Handle(ctx, r)
	}
	args := make([]any, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		args = append(args, a)
		return true
	})
	problem.Note(args...)
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.attributes += a.String() + " "
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h handler) WithGroup(name string) slog.Handler {
	h.attributes += name + "."
	h.Handler = h.Handler.WithGroup(name)
	return h
}
