package recurring

import (
	"context"
	"log/slog"
	"sync"
)

// Warnings logs lines as a logger does, but for warnings that recur. Of those that differ in
// nothing but their arguments, the first is logged, one a minute with the count, and when there
// was none for a minute, that it is over. So an outage takes a few lines, however many
// requests meet it. Errors have a line each: each names something that an operator has to look
// at. It is safe for concurrent use.
type Warnings struct {
	mu       sync.Mutex
	problems map[string]*Problem
	closed   bool
}

// Logger returns a logger whose warnings count among these, besides those of other loggers
// with the same message and attributes.
func (w *Warnings) Logger(log *slog.Logger) *slog.Logger {
	return slog.New(handler{Handler: log.Handler(), warnings: w})
}

// Close ends what recurs. A warning that comes later is logged as it is.
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

// of returns the trouble of a message with attributes; nil after Close.
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
		p = New(slog.New(h.Handler), slog.LevelWarn, message, "over: "+message)
		w.problems[name] = p
	}
	return p
}

// handler implements slog.Handler.
type handler struct {
	slog.Handler
	warnings   *Warnings
	attributes string // that the logger has, as text
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
