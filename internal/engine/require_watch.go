package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/internal/condition"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/internal/runbook"
)

// requirements watches whether Redis lets ordergate check the conditions of the active rules, so
// that readiness and the log name a key that is denied before the first settlement.
type requirements struct {
	changed chan struct{} // receives after use

	mu  sync.Mutex
	all []*requirement
}

func newRequirements() *requirements { return &requirements{changed: make(chan struct{}, 1)} }

// requirement is the conditions of one rule, with their health. It is safe for concurrent use.
type requirement struct {
	*condition.Set
	rule     string
	observed bool
	log      *slog.Logger

	suspect atomic.Bool            // a settlement found a condition that cannot be checked
	checked atomic.Bool            // there was a probe, with any result
	why     atomic.Pointer[string] // the fault that the last probe found; nil: none
	passed  bool                   // a probe has found none; used by probe alone
}

// Check implements gate.Conditions.
func (r *requirement) Check(ctx context.Context, ids, headers []string) error {
	err := r.Set.Check(ctx, ids, headers)
	if _, failed := errors.AsType[*gate.ConditionError](err); failed {
		r.suspect.Store(true)
	}
	return err
}

// use watches the conditions of the policies, in place of the earlier ones. Checked makes them
// ready before their first probe.
func (rs *requirements) use(policies []gate.Policy, checked bool) {
	var all []*requirement
	for i := range policies {
		s := policies[i].Settle
		if s == nil || s.Require == nil {
			continue
		}
		if r, ok := s.Require.Conditions.(*requirement); ok && r.HasKeys() {
			r.checked.Store(checked)
			all = append(all, r)
		}
	}
	rs.mu.Lock()
	rs.all = all
	rs.mu.Unlock()
	select {
	case rs.changed <- struct{}{}:
	default: // run has not received the last one yet
	}
}

func (rs *requirements) active() []*requirement {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.all
}

// requirementInterval is the time between two probes of conditions that cannot be checked, that of
// locks (package locking).
const requirementInterval = 10 * time.Second

// run probes the conditions that are in use, until ctx ends.
func (rs *requirements) run(ctx context.Context) {
	ticker := time.NewTicker(requirementInterval)
	defer ticker.Stop()
	for {
		for _, r := range rs.active() {
			r.probe(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-rs.changed:
		case <-ticker.C:
		}
	}
}

// probe reads the keys of the conditions, unless an earlier probe found no fault, and no
// settlement since then. An unreachable Redis is a condition of its own.
func (r *requirement) probe(ctx context.Context) {
	if !r.suspect.Swap(false) && r.passed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, redisconn.Timeout)
	defer cancel()
	defer r.checked.Store(true)
	r.passed = false
	before := r.why.Load()
	for _, state := range r.Probe(ctx) {
		switch {
		case state.Away:
			return
		case state.Err != nil:
			why := "condition " + state.Name + ", key " + state.Key + ": " + state.Err.Error()
			if before == nil || *before != why {
				r.log.Error("no settlement can pass: a condition cannot be checked", "condition", state.Name, "key", state.Key, "error", state.Err,
					runbook.ConditionsFail.Do("repair what error names"))
			}
			r.why.Store(&why)
			return
		}
	}
	r.passed = true
	if r.why.Swap(nil) != nil {
		r.log.Info("the conditions can be checked again")
	}
}

// conditions has the readiness of each rule with conditions on keys. Nothing depends on a rule
// that only observes.
func (rs *requirements) conditions() (list []health.Condition) {
	for _, r := range rs.active() {
		c := health.Condition{Name: "conditions of rule " + r.rule, Ready: true}
		if why := r.why.Load(); why != nil {
			c.Ready = r.observed
			c.Refuse(locking.Settlements, *why)
		} else if !r.checked.Load() {
			c.Ready, c.Reason = false, "not tested yet"
		}
		list = append(list, c)
	}
	return list
}
