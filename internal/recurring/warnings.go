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
	troubles map[string]*Trouble
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
	troubles := w.troubles
	w.troubles = nil
	w.mu.Unlock()
	for _, t := range troubles {
		t.Close()
	}
}

// of returns the trouble of a message with attributes; nil after Close.
func (w *Warnings) of(h handler, message string) *Trouble {
	name := h.attributes + message
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	t := w.troubles[name]
	if t == nil {
		if w.troubles == nil {
			w.troubles = make(map[string]*Trouble)
		}
		t = New(slog.New(h.Handler), slog.LevelWarn, message, "over: "+message)
		w.troubles[name] = t
	}
	return t
}

// handler implements slog.Handler.
type handler struct {
	slog.Handler
	warnings   *Warnings
	attributes string // that the logger has, as text
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	var trouble *Trouble
	if r.Level == slog.LevelWarn {
		trouble = h.warnings.of(h, r.Message)
	}
	if trouble == nil {
		return h.Handler.Handle(ctx, r)
	}
	args := make([]any, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		args = append(args, a)
		return true
	})
	trouble.Note(args...)
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
