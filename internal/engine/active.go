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
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/source/dsn"
)

// active holds the parts of the active configuration that a reload can replace.
type active struct {
	gate atomic.Pointer[gate.Gate]

	mu       sync.Mutex // held during a replacement, until all users have the new gate
	config   *config.Config
	earlier  [][]lockingRule // the rules of earlier configurations, without duplicates
	adapters []*adapter
	shown    *config.Effective                 // config with the origins of its values; nil before ReloadFrom
	read     func() (*config.Effective, error) // reads the file
	refusal  atomic.Pointer[string]            // why the configuration that was read last is not active; nil: it is active
}

// activeConfig returns the active configuration, which nothing changes.
func (m *Engine) activeConfig() *config.Config {
	m.active.mu.Lock()
	defer m.active.mu.Unlock()
	return m.active.config
}

// keep stores the origins of the active configuration's values.
func (f *active) keep(e *config.Effective) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.Config = f.config // equal to that of e; its secrets are in memory once
	f.shown = e
}

// effective returns the active configuration with the origins of its values.
func (m *Engine) effective() *config.Effective {
	m.active.mu.Lock()
	defer m.active.mu.Unlock()
	return m.active.shown
}

// fileChanges returns what the file changes in the active configuration, and the paths for which
// that takes a restart. Its errors are those of reading the file.
func (m *Engine) fileChanges() (changes []config.Difference, restart []string, err error) {
	e, err := m.active.read()
	if err != nil {
		return nil, nil, err
	}
	f := &m.active
	f.mu.Lock()
	shown, earlier := f.shown, f.earlier
	f.mu.Unlock()
	keepReread(shown.Config, e.Config)
	return shown.Differences(e), takesRestart(shown.Config, e.Config, earlier, config.Changes(shown.Config, e.Config)), nil
}

// adapter is an adapter that passes requests to the gate.
type adapter struct{ use func(*gate.Gate) }

// condition reports a refused configuration. The process stays ready, as the old configuration
// still works.
func (f *active) condition() health.Condition {
	c := health.Condition{Name: "configuration", Ready: true}
	if why := f.refusal.Load(); why != nil {
		c.Reason = "the old one stays: " + *why
	}
	return c
}

// WatchGate calls use with the active gate at once, and with each gate that replaces it, until
// the caller calls stop. Calls of use never overlap, and none runs when WatchGate or stop
// returns. use must not call either of them. A call that began with a gate must end with that
// gate. A replaced gate still decides, and its locks stay open while a caller holds them.
// WatchGate is safe for concurrent use.
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

// version holds the parts of one configuration that can change while the engine runs.
type version struct {
	gate  *gate.Gate
	locks *locking.Version
}

// prepare builds a version without activating it. If it returns an error, it has discarded
// the version.
func (m *Engine) prepare(ctx context.Context, c *config.Config) (v version, err error) {
	v.locks = m.lockers.Prepare(c)
	policies, err := rules.Policies(ctx, c, components{v.locks, m, c})
	if err == nil {
		v.gate, err = gate.New(policies, m.metrics.Recorder(metricRules(c)), time.Now)
	}
	if err != nil {
		m.lockers.Discard(v.locks)
		return version{}, err
	}
	v.gate.ReportTo(&m.refusals)
	if !c.Log.Metadata {
		v.gate.Undescribed()
	}
	if m.tracer != nil {
		v.gate.TraceTo(m.tracer)
	}
	if m.decisions != nil {
		names := make([]string, len(c.Rules))
		for i := range c.Rules {
			names[i] = c.Rules[i].Name
		}
		v.gate.LogDecisionsTo(m.decisions.Select(names))
	}
	return v, nil
}

// RestartError lists the changed paths that a reload cannot apply.
type RestartError []string

func (e RestartError) Error() string {
	takes := "takes"
	if len(e) > 1 {
		takes = "take"
	}
	return fmt.Sprintf("%s: %s a restart", strings.Join(e, ", "), takes)
}

// keepReread replaces the passwords in c by those of old, if only they differ: each connection reads
// them again from their file, so they are no change.
func keepReread(old, c *config.Config) {
	if old.Redis != nil && c.Redis != nil && c.Redis.PasswordFile != "" && c.Redis.PasswordFile == old.Redis.PasswordFile {
		c.Redis.Password = old.Redis.Password
	}
	for name, s := range c.Sources {
		if before := old.Sources[name]; s.PasswordFile != "" && s.PasswordFile == before.PasswordFile {
			s.Password = before.Password
			c.Sources[name] = s
		}
		if before := old.Sources[name]; s.DSNFile != "" && s.DSNFile == before.DSNFile && dsn.OnlyPasswordsDiffer(string(s.DSN), string(before.DSN)) {
			s.DSN = before.DSN
			c.Sources[name] = s
		}
	}
}

// apply activates another configuration, all of it or nothing. It returns the paths that differ
// from the configuration before.
func (m *Engine) apply(ctx context.Context, c *config.Config) (changed []string, err error) {
	f := &m.active
	f.mu.Lock()
	defer f.mu.Unlock()
	keepReread(f.config, c)
	if reflect.DeepEqual(f.config, c) {
		return nil, nil
	}
	changed = config.Changes(f.config, c)
	if paths := takesRestart(f.config, c, f.earlier, changed); len(paths) > 0 {
		return nil, RestartError(paths)
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
	m.confirmers.use(next.gate.Policies())
	m.requirements.use(next.gate.Policies(), true) // a probe follows
	f.gate.Store(next.gate)
	for _, u := range f.adapters {
		u.use(next.gate)
	}
	return changed, nil
}
