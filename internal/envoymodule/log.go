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
	h := handler{to: to, mu: new(sync.Mutex), line: new(bytes.Buffer)}
	h.Handler = slog.NewTextHandler(h.line, &slog.HandlerOptions{
		Level: slog.LevelDebug, // see Enabled
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
				return slog.Attr{}
			}
			return a
		},
	})
	return slog.New(h)
}

// handler implements slog.Handler. It writes lines to Envoy, one at a time.
type handler struct {
	slog.Handler
	to   Output
	mu   *sync.Mutex
	line *bytes.Buffer // guarded by mu
}

func (h handler) Enabled(_ context.Context, l slog.Level) bool { return h.to.Enabled(l) }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line.Reset()
	if err := h.Handler.Handle(ctx, r); err != nil {
		return err
	}
	h.to.Log(r.Level, strings.TrimSuffix(h.line.String(), "\n"))
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h handler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}
