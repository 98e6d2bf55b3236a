package envoymodule

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/envoyproxy/envoy/source/extensions/dynamic_modules/sdk/go/shared"
)

// NewLogger returns a logger whose lines are Envoy's, with its time and its level, and
// wherever it logs to. The handle may be gone when it logs: Envoy needs none for that.
func NewLogger(envoy shared.HttpFilterConfigHandle) *slog.Logger {
	w := &lines{envoy: envoy}
	text := slog.NewTextHandler(&w.line, &slog.HandlerOptions{
		Level: slog.LevelDebug, // Envoy drops what its own level does not let through
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
				return slog.Attr{}
			}
			return a
		},
	})
	return slog.New(handler{text, w})
}

// lines hands lines to Envoy, one at a time.
type lines struct {
	envoy shared.HttpFilterConfigHandle
	mu    sync.Mutex
	line  bytes.Buffer // guarded by mu
}

// handler implements slog.Handler.
type handler struct {
	slog.Handler
	lines *lines
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	h.lines.line.Reset()
	if err := h.Handler.Handle(ctx, r); err != nil {
		return err
	}
	h.lines.envoy.Log(levelOf(r.Level), "%s", strings.TrimSuffix(h.lines.line.String(), "\n"))
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.lines}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.lines}
}

func levelOf(l slog.Level) shared.LogLevel {
	switch {
	case l >= slog.LevelError:
		return shared.LogLevelError
	case l >= slog.LevelWarn:
		return shared.LogLevelWarn
	case l >= slog.LevelInfo:
		return shared.LogLevelInfo
	}
	return shared.LogLevelDebug
}
