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
	"github.com/ordergate/ordergate/internal/runbook"
)

// ReloadFrom reloads the configuration whenever the file changes, and whenever it receives from
// asked, which may be nil. The result of load replaces the active configuration, all of it or
// nothing. A bad configuration, or one with a change that needs a restart, is refused: the old
// one stays active, and the log and the condition "configuration" report the refusal.
//
// ReloadFrom returns at once, and its work continues until Close. Call it once, after Start, with the
// configuration of New. It calls load from several goroutines, one at a time. If the caller changed the
// configuration between reading it and New, load must make the same changes. It calls begins, unless nil,
// before each reload, and done after it.
func (m *Engine) ReloadFrom(file string, first *config.Effective, load func() (*config.Effective, error), asked <-chan os.Signal, begins func() (done func())) {
	r := &reloader{engine: m, load: load, begins: begins, log: m.log}
	m.active.keep(first)
	m.active.read = r.read
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
		// The file may have changed since the start read it.
		first := atStart
		if err := filewatch.Watch(ctx, file, r.log, func() { r.reload(ctx, first); first = fileChanged }); err != nil {
			r.log.Warn("the configuration file is not watched", "error", err,
				runbook.Reload.Do("send SIGHUP after each change of the file"))
		}
	})
}

// trigger is the reason for a reload.
type trigger int8

const (
	atStart     trigger = iota // there may be no change
	fileChanged                // the file has changed
	requested                  // an operator expects a result in the log
)

type reloader struct {
	engine *Engine
	load   func() (*config.Effective, error)
	begins func() (done func()) // is called around each reload; nil: nothing is
	log    *slog.Logger
	mu     sync.Mutex // held during a reload
}

// read reads the configuration.
func (r *reloader) read() (*config.Effective, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.load()
}

// reload reads the configuration and activates it.
func (r *reloader) reload(ctx context.Context, why trigger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begins != nil {
		defer r.begins()()
	}
	m := r.engine
	var changed []string
	e, err := r.load()
	if err == nil {
		changed, err = m.apply(ctx, e.Config)
	}
	before := m.active.refusal.Load()
	if err != nil {
		text := summary(err)
		if why != requested && before != nil && *before == text {
			return // the same refusal was logged and counted already
		}
		m.active.refusal.Store(&text)
		r.logRefusal(err)
		m.metrics.Reloaded(metrics.Refused, time.Now())
		return
	}
	m.active.refusal.Store(nil)
	m.active.keep(e)
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
		return // no operator waits for a result
	}
	m.metrics.Reloaded(metrics.Unchanged, time.Now())
}

// logRefusal logs why a configuration is refused. A bad file gets one line for each violation,
// as ordergate check prints it.
func (r *reloader) logRefusal(err error) {
	var restart RestartError
	if errors.As(err, &restart) {
		r.log.Error("reload: "+restart.Error()+"; the old configuration stays", runbook.ConfigRefused.Do("restart ordergate, or take that part back"))
		return
	}
	for line := range strings.Lines(err.Error()) {
		r.log.Error("reload: the configuration is bad, the old one stays", "violation", strings.TrimSpace(line),
			runbook.ConfigRefused.Do("correct the file: ordergate check lists all violations"))
	}
}

// maxReasonBytes bounds the reason that readiness reports for a refused configuration.
const maxReasonBytes = 2000

// summary returns an error in one line of about maxReasonBytes at most, for readiness.
func summary(err error) string {
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	if len(text) > maxReasonBytes {
		text = strings.ToValidUTF8(text[:maxReasonBytes], "") + "..."
	}
	return text
}
