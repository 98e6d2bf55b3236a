package engine

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/locking"
)

// active is the active configuration, as far as a reload can replace it.
type active struct {
	gate atomic.Pointer[gate.Gate]

	mu       sync.Mutex // held during a replacement, until all users have the new gate
	config   *config.Config
	earlier  [][]lockingRule // the rules of earlier configurations, each once
	adapters []*adapter
	refusal  atomic.Pointer[string] // why the last one that was read is not active; nil: it is
}

// adapter is an adapter that passes requests to the gate.
type adapter struct{ use func(*gate.Gate) }

// condition shows a configuration that was refused. It takes no readiness away: the old
// one is as good as it was.
func (f *active) condition() health.Condition {
	c := health.Condition{Name: "configuration", Ready: true}
	if why := f.refusal.Load(); why != nil {
		c.Reason = "the old one stays: " + *why
	}
	return c
}

// WatchGate calls use with the gate at once, and again with each that takes its place, until
// the returned function has been called. Calls never overlap, and none is under way when
// WatchGate or that function returns. Within use, neither may be called. What was begun with
// a gate is to be ended with it: that one goes on deciding, and its locks are there for
// as long as somebody holds them. WatchGate is safe for concurrent use.
func (m *Engine) WatchGate(use func(*gate.Gate)) (stop func()) {
	f := &m.active
	f.mu.Lock()
	defer f.mu.Unlock()
	u := &adapter{use}
	f.adapters = append(f.adapters, u)
	use(f.gate.Load())
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.adapters = slices.DeleteFunc(f.adapters, func(other *adapter) bool { return other == u })
	}
}

// version is what can change while the engine runs, made of one configuration.
type version struct {
	gate  *gate.Gate
	locks *locking.Version
}

// prepare makes a version, of which nothing is in force yet. After an error nothing of it
// is left.
func (m *Engine) prepare(ctx context.Context, c *config.Config) (v version, err error) {
	v.locks = m.lockers.Prepare(c)
	policies, err := m.policies(ctx, c, v.locks)
	if err == nil {
		v.gate, err = gate.New(policies, m.metrics.Recorder(metricRules(c)), time.Now)
	}
	if err != nil {
		m.lockers.Discard(v.locks)
		return version{}, err
	}
	return v, nil
}

// restartError names what a reload cannot change.
type restartError struct{ paths []string }

func (e restartError) Error() string {
	takes := "takes"
	if len(e.paths) > 1 {
		takes = "take"
	}
	return fmt.Sprintf("%s: %s a restart", strings.Join(e.paths, ", "), takes)
}

// apply puts another configuration in force, all of it or nothing. It returns what of it
// differs from the one before.
func (m *Engine) apply(ctx context.Context, c *config.Config) (changed []string, err error) {
	f := &m.active
	f.mu.Lock()
	defer f.mu.Unlock()
	if reflect.DeepEqual(f.config, c) {
		return nil, nil
	}
	changed = config.Changes(f.config, c)
	if paths := takesRestart(f.config, c, f.earlier, changed); len(paths) > 0 {
		return nil, restartError{paths}
	}
	next, err := m.prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, unit := range m.lockers.Activate(next.locks) {
		unit.MarkChecked()
		m.background(unit.Watch)
	}
	if rules := lockingRules(f.config); !slices.ContainsFunc(f.earlier, func(p []lockingRule) bool { return reflect.DeepEqual(p, rules) }) {
		f.earlier = append(f.earlier, rules)
	}
	f.config = c
	f.gate.Store(next.gate)
	for _, u := range f.adapters {
		u.use(next.gate)
	}
	return changed, nil
}
