package condition

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// State is what a condition finds now, for an operator.
type State struct {
	Name  string // of the condition
	Key   string // with the values of its placeholders; "" for a time
	Holds bool
	Err   error // why it cannot be checked; nil: it was
	Away  bool  // Err is that Redis did not answer
}

// States checks each condition on its own, for each of the orders: those of the first condition
// come first. A condition without the order's ID is checked once. It counts and logs nothing, and
// blocks until Redis has answered, or ctx ends.
func (s *Set) States(ctx context.Context, ids, headers []string) (states []State) {
	keys := s.expand(len(s.conditions), ids, headers)
	next := 0
	for i := range s.conditions {
		c := &s.conditions[i]
		if c.Kind == Time {
			states = append(states, State{Name: c.Name, Holds: c.Window.Contains(s.opts.Now())})
			continue
		}
		for ; next < len(keys.owners) && keys.owners[next] == i; next++ {
			states = append(states, s.state(ctx, c.Name, keys.conditions[next]))
		}
	}
	return states
}

// probe stands for an ID, a part and a header in the keys of a probe.
const probe = "ordergate-probe"

// Probe is States for an ID that no order has: what is wrong with a key of it is wrong with those
// of all orders.
func (s *Set) Probe(ctx context.Context) []State {
	parts, headers := 0, 0
	for i := range s.conditions {
		c := &s.conditions[i]
		for _, p := range slices.Concat(c.Key, c.Member, c.To) {
			parts, headers = max(parts, p.Index), max(headers, p.Header)
		}
	}
	id := strings.Repeat(probe+order.Separator, parts) + probe
	return s.States(ctx, []string{id}, slices.Repeat([]string{probe}, headers))
}

// HasKeys reports whether a condition is about a key, and not about the time.
func (s *Set) HasKeys() bool {
	return slices.ContainsFunc(s.conditions, func(c Condition) bool { return c.Kind != Time })
}

// errNoChecker is the error of a set that has no Redis.
var errNoChecker = errors.New("there is no Redis to ask")

func (s *Set) state(ctx context.Context, name string, c redislock.Condition) State {
	state := State{Name: name, Key: c.Key}
	if s.opts.Checker == nil {
		state.Err = errNoChecker
		return state
	}
	err := s.opts.Checker.Check(ctx, []redislock.Condition{c})
	_, unmet := errors.AsType[*redislock.UnmetError](err)
	failed, cannot := errors.AsType[*redislock.ConditionError](err)
	switch {
	case cannot:
		state.Err = errors.New(failed.Cause())
	case !unmet:
		state.Holds, state.Err, state.Away = err == nil, err, err != nil
	}
	return state
}
