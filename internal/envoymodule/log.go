package envoymodule

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
)

// Output is Envoy's log. It is safe for concurrent use.
type Output interface {
	Enabled(l slog.Level) bool
	Log(l slog.Level, line string)
}

// NewLogger returns a logger that writes to Envoy's log. Envoy adds the time and the level.
func NewLogger(to Output) *slog.Logger {
	w := &lines{to: to}
	text := slog.NewTextHandler(&w.line, &slog.HandlerOptions{
		Level: slog.LevelDebug, // see Enabled
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
				return slog.Attr{}
			}
			return a
		},
	})
	return slog.New(handler{text, w})
}

// lines writes lines to Envoy, one at a time.
type lines struct {
	to   Output
	mu   sync.Mutex
	line bytes.Buffer // guarded by mu
}

// handler implements slog.Handler.
type handler struct {
	slog.Handler
	lines *lines
}

func (h handler) Enabled(_ context.Context, l slog.Level) bool { return h.lines.to.Enabled(l) }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	h.lines.line.Reset()
	if err := h.Handler.Handle(ctx, r); err != nil {
		return err
	}
	h.lines.to.Log(r.Level, strings.TrimSuffix(h.lines.line.String(), "\n"))
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.lines}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.lines}
}
