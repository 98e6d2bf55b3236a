package redislock

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

// maxChecked is the number of conditions that one script checks. A thousand orders with
// several conditions each must not keep Redis from its other clients.
const maxChecked = 256

var checkScript = composed([]string{"require"}, "check")

// Checker checks conditions outside of a lock. It sends those of many callers in few round
// trips, and reads at primaries only. It is safe for concurrent use. Close it after use.
type Checker struct {
	batcher *redisbatch.ScriptBatcher
	cluster bool
}

// NewChecker returns a Checker for a client, which it does not close.
func NewChecker(client redis.UniversalClient) *Checker {
	_, cluster := client.(*redis.ClusterClient)
	return &Checker{batcher: redisbatch.NewScriptBatcher(client, nil, 0, 0), cluster: cluster}
}

// Close waits for the checks that run.
func (c *Checker) Close() { c.batcher.Close() }

// Check returns nil if all conditions hold, an [UnmetError] of the first one that does not, a
// [ConditionError] if a condition before that cannot be checked, and any other error if Redis
// does not answer. It blocks until then, or until ctx ends. Conditions whose keys are in one
// slot of a cluster are read at the same time; others are not.
func (c *Checker) Check(ctx context.Context, conditions []Condition) error {
	groups := c.groups(conditions)
	if len(groups) == 1 {
		return groups[0].check(ctx, c)
	}
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i := range groups {
		wg.Go(func() { errs[i] = groups[i].check(ctx, c) })
	}
	wg.Wait()
	first, at := error(nil), len(conditions)
	for i, err := range errs {
		if n := groups[i].indexOf(err); err != nil && n < at {
			first, at = err, n
		}
	}
	return first
}

// checkGroup is conditions that one script can check.
type checkGroup struct {
	conditions []Condition
	indexes    []int // of each, among all
}

// groups splits conditions by the slots of their keys, and keeps their order within a group.
func (c *Checker) groups(conditions []Condition) []checkGroup {
	bySlot := make(map[uint16]*checkGroup)
	for i := range conditions {
		slot := uint16(0)
		if c.cluster {
			slot = slotOf(conditions[i].Key)
		}
		g := bySlot[slot]
		if g == nil {
			g = &checkGroup{}
			bySlot[slot] = g
		}
		g.conditions = append(g.conditions, conditions[i])
		g.indexes = append(g.indexes, i)
	}
	var groups []checkGroup
	for _, slot := range slices.SortedFunc(maps.Keys(bySlot), cmp.Compare) {
		g := bySlot[slot]
		for from := 0; from < len(g.conditions); from += maxChecked {
			to := min(from+maxChecked, len(g.conditions))
			groups = append(groups, checkGroup{g.conditions[from:to], g.indexes[from:to]})
		}
	}
	return groups
}

// check returns an error whose index is that among all conditions.
func (g *checkGroup) check(ctx context.Context, c *Checker) error {
	n, err := c.run(ctx, g.conditions)
	if isMoving(err) && len(g.conditions) > 1 {
		// The slot moves to another node, and each of the two has some of the keys.
		for i := range g.conditions {
			if n, err = c.run(ctx, g.conditions[i:i+1]); err != nil || n > 0 {
				return g.failure(i+int(n), i, err)
			}
		}
		return nil
	}
	if isDenied(err) && len(g.conditions) > 1 {
		middle := len(g.conditions) / 2
		for _, half := range []checkGroup{{g.conditions[:middle], g.indexes[:middle]}, {g.conditions[middle:], g.indexes[middle:]}} {
			if err := half.check(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}
	return g.failure(int(n), 0, err)
}

// failure returns the error of a script that began at a condition: the place of the first one
// that does not hold, from 1, or an error.
func (g *checkGroup) failure(place, from int, err error) error {
	if err != nil {
		err = asCondition(err, from)
		if k, ok := errors.AsType[*ConditionError](err); ok && k.Index < len(g.indexes) {
			return &ConditionError{Index: g.indexes[k.Index], cause: k.cause}
		}
		return err
	}
	if place == 0 {
		return nil
	}
	return &UnmetError{Index: g.indexes[min(place, len(g.indexes))-1]}
}

// indexOf returns the index of the condition that an error is about. An error of the whole
// group is about its first.
func (g *checkGroup) indexOf(err error) int {
	if unmet, ok := errors.AsType[*UnmetError](err); ok {
		return unmet.Index
	}
	if failed, ok := errors.AsType[*ConditionError](err); ok {
		return failed.Index
	}
	return g.indexes[0]
}

func (c *Checker) run(ctx context.Context, conditions []Condition) (int64, error) {
	call := redisbatch.NewCall(checkScript(), conditions[0].Key)
	addConditionKeys(call, conditions[1:])
	addConditionArgs(call, conditions)
	return c.batcher.Do(ctx, call)
}
