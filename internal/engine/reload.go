package engine

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/filewatch"
	"github.com/ordergate/ordergate/internal/metrics"
)

// ReloadFrom has the configuration read again whenever the file changes, and whenever
// something is received from asked, which may be nil. What load returns takes the place of
// the one in force, all of it or nothing: a bad one, or one that differs in what only a
// restart can change, is logged and shown by the condition "configuration", and the old
// one stays. ReloadFrom returns at once, and goes on until Close. It follows Start, and is
// called once. Load is called from several goroutines, never from two at once. What was
// changed of the configuration between its reading and New has to be changed by load, too.
func (m *Engine) ReloadFrom(file string, load func() (*config.Config, error), asked <-chan os.Signal) {
	r := &reloader{engine: m, load: load, log: m.log}
	m.background(func(ctx context.Context) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-asked:
				r.reload(ctx, requested)
			}
		}
	})
	m.background(func(ctx context.Context) {
		// It may have changed since it was read for the start.
		first := atStart
		if err := filewatch.Watch(ctx, file, r.log, func() { r.reload(ctx, first); first = fileChanged }); err != nil {
			r.log.Warn("the configuration file is not watched: send SIGHUP when it has changed", "error", err)
		}
	})
}

// trigger is why the configuration is read again.
type trigger int8

const (
	atStart     trigger = iota // nobody knows of a change
	fileChanged                // the file has changed
	requested                  // an operator wants to hear what comes of it
)

type reloader struct {
	engine *Engine
	load   func() (*config.Config, error)
	log    *slog.Logger
	mu     sync.Mutex // held while it reloads
}

// reload reads the configuration and puts it in force.
func (r *reloader) reload(ctx context.Context, why trigger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.engine
	var changed []string
	c, err := r.load()
	if err == nil {
		changed, err = m.apply(ctx, c)
	}
	before := m.active.refusal.Load()
	if err != nil {
		text := summary(err)
		if why != requested && before != nil && *before == text {
			return // the same again: one message and one count for it
		}
		m.active.refusal.Store(&text)
		r.logRefusal(err)
		m.metrics.Reloaded(metrics.Refused, time.Now())
		return
	}
	m.active.refusal.Store(nil)
	switch {
	case len(changed) > 0:
		r.log.Info("reload: the new configuration is in force", "changed", strings.Join(changed, ", "))
		m.metrics.Reloaded(metrics.Applied, time.Now())
		return
	case before != nil:
		r.log.Info("reload: the configuration is the one in force again")
	case why == requested:
		r.log.Info("reload: nothing has changed")
	case why == atStart:
		return // nobody has asked
	}
	m.metrics.Reloaded(metrics.Unchanged, time.Now())
}

// logRefusal logs why a configuration is refused: what a bad file violates a line each, as
// ordergate check prints it.
func (r *reloader) logRefusal(err error) {
	var restart restartError
	if errors.As(err, &restart) {
		r.log.Error("reload: " + restart.Error() + "; the old configuration stays")
		return
	}
	for line := range strings.Lines(err.Error()) {
		r.log.Error("reload: the configuration is bad, the old one stays", "violation", strings.TrimSpace(line))
	}
}

// maxReasonBytes bounds what readiness tells of a refused configuration.
const maxReasonBytes = 2000

// summary is what readiness tells.
func summary(err error) string {
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	if len(text) > maxReasonBytes {
		text = strings.ToValidUTF8(text[:maxReasonBytes], "") + "..."
	}
	return text
}
