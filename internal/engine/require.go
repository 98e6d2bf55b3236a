package engine

import (
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/condition"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/rules"
)

// completeRequire adds the conditions of a rule to its policy, and to that of the requests that
// its share leaves out.
func (m *Engine) completeRequire(c *config.Config, r *config.Rule, p *gate.Policy) (err error) {
	if p.Settle == nil || p.Settle.Require == nil {
		return nil
	}
	if p.Settle.Require.Conditions, err = m.conditionsOf(c, r); err != nil {
		return err
	}
	if p.Share != nil {
		p.Share.Others.Settle.Require.Conditions = p.Settle.Require.Conditions
	}
	return nil
}

// conditionsOf returns the conditions of a rule that settles.
func (m *Engine) conditionsOf(c *config.Config, r *config.Rule) (gate.Conditions, error) {
	list, _, err := rules.Conditions(r.Settle, c.PartOrder(r))
	if err != nil {
		return nil, err
	}
	log := m.log.With("rule", r.Name)
	set := condition.New(list, condition.Options{
		Checker: m.checker, Now: time.Now,
		Record: m.metrics.Conditions(r.Name, config.ConditionNames(r.Settle.Require)),
		Logger: m.warnings.Logger(log),
	})
	return &requirement{Set: set, rule: r.Name, observed: !r.Mode.Enforces(), log: log}, nil
}
