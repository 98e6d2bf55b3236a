package engine

import (
	"context"
	"errors"

	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/changelog"
)

// conditions tells what readiness depends on. Redis is told of but not waited
// for: without it lookups still go on, and settlements are refused by name.
func (m *Engine) conditions(draining bool) []admin.Condition {
	list := []admin.Condition{{Name: "serving", Ready: !draining}}
	if draining {
		list[0].Reason = "stopping"
	}
	for name, unit := range m.filters {
		state, reason := unit.filter.State()
		c := admin.Condition{Name: "filter " + name, Ready: state != "loading", Reason: reason}
		if unit.log != nil {
			if err := unit.log.State().Err; errors.Is(err, changelog.ErrBlind) {
				c.Ready, c.Reason = false, err.Error()
			}
		}
		list = append(list, c)
	}
	for _, unit := range m.lockers.list() {
		list = append(list, unit.condition())
	}
	if m.redis != nil {
		c := admin.Condition{Name: "redis", Ready: true}
		ctx, cancel := context.WithTimeout(context.Background(), RedisTimeout)
		defer cancel()
		if err := m.redis.Ping(ctx).Err(); err != nil {
			c.Reason = "not reachable, settlements are refused: " + err.Error()
		}
		list = append(list, c)
	}
	return append(list, m.inForce.condition())
}
