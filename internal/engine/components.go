package engine

import (
	"context"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/condition"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/presence"
)

// components implements rules.Components for the policies of a configuration.
type components struct {
	*locking.Version // implements Locker
	engine           *Engine
	config           *config.Config
}

// Filter implements rules.Components.
func (c components) Filter(name string) gate.Filter {
	unit := c.engine.filters[name]
	f := createFilter{Filter: unit.Filter()}
	if c.config.IsFollowed(name) {
		f.caughtUp = unit.CaughtUp
	}
	return f
}

// Lookup implements rules.Components.
func (c components) Lookup(r *config.Rule, answers *gate.Answers) gate.Lookup {
	unit := c.engine.filters[r.Lookup.Filter]
	return gate.Lookup{
		Filter:     gateFilter{Filter: unit.Filter(), measures: unit.measures, verify: unit.verify},
		OnNotFound: unit.measures.onNotFound, Verify: unit.verify.ofRule(r.Name, answers.TellsOrders()),
	}
}

// Confirmer implements rules.Components.
func (c components) Confirmer(r *config.Rule) (gate.Confirmer, error) {
	return c.engine.confirmers.of(c.config, r)
}

// Conditions implements rules.Components.
func (c components) Conditions(r *config.Rule, list []condition.Condition) gate.Conditions {
	m, log := c.engine, c.engine.log.With("rule", r.Name)
	set := condition.New(list, condition.Options{
		Checker: m.checker, Now: time.Now,
		Record: m.metrics.Conditions(r.Name, config.ConditionNames(r.Settle.Require)),
		Logger: m.warnings.Logger(log),
	})
	return &requirement{Set: set, rule: r.Name, observed: !r.Mode.Enforces(), log: log}
}

// createFilter adapts a filter to the gate, for creates. The order of a create that it lacks is no
// probe.
type createFilter struct {
	*filter.Filter
	caughtUp func(context.Context) bool // [loader.Loader.CaughtUp]; nil: the filter is not followed
}

// Followed implements gate.Filter.
func (f createFilter) Followed() bool { return f.caughtUp != nil }

// CaughtUp implements gate.Filter.
func (f createFilter) CaughtUp(ctx context.Context) bool { return f.caughtUp(ctx) }

// gateFilter adapts a filter to the gate, for lookups. It reports Absent answers to the filter's measures.
type gateFilter struct {
	*filter.Filter
	measures *measures
	verify   *verifier
}

// MayContain implements gate.Lookups.
func (f gateFilter) MayContain(id string) presence.Answer {
	return f.answer(id, f.Filter.MayContain(id))
}

// Query implements gate.Lookups.
func (f gateFilter) Query(ctx context.Context, id string) presence.Answer {
	return f.answer(id, f.Filter.Query(ctx, id))
}

func (f gateFilter) answer(id string, a presence.Answer) presence.Answer {
	if a == presence.Absent {
		f.measures.onAbsent(id)
	}
	f.verify.onAnswer(id, a)
	return a
}
