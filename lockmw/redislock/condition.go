package redislock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

// ConditionKind is what a [Condition] is about.
type ConditionKind string

// The kinds.
const (
	LatchOpen  ConditionKind = "latch"   // the key is a countdown latch of Redisson that is open: at 0 or below, or not there
	KeyExists  ConditionKind = "exists"  // of any type
	KeyMissing ConditionKind = "missing" // there is no such key
	ValueIs    ConditionKind = "is"      // the key has the string Value
	ValueIsNot ConditionKind = "is_not"  // it has another one, or does not exist
	GeoWithin  ConditionKind = "within"  // Member and To of a GEO set are at most Meters apart
)

// Condition is something that has to hold of a key that no lock has. See [Checker].
type Condition struct {
	Kind       ConditionKind
	Key        string
	Value      string  // of ValueIs and ValueIsNot
	Member, To string  // of GeoWithin: one that does not exist is nowhere
	Meters     float64 // of GeoWithin
}

// UnmetError says that a condition does not hold.
type UnmetError struct{ Index int } // among the conditions that were asked about, from 0

func (e *UnmetError) Error() string { return fmt.Sprintf("condition %d does not hold", e.Index+1) }

// ConditionError says that a condition cannot be checked: its key holds something else, or
// Redis does not let this user read it.
type ConditionError struct {
	Index int // among the conditions that were asked about, from 0
	cause string
}

func (e *ConditionError) Error() string {
	return fmt.Sprintf("condition %d cannot be checked: %s", e.Index+1, e.cause)
}

// Cause returns what Redis answered, without a key.
func (e *ConditionError) Cause() string { return e.cause }

// addConditionKeys appends the keys of conditions to a call that has its own keys.
func addConditionKeys(c *redisbatch.ScriptCall, conditions []Condition) {
	for i := range conditions {
		c.Key(conditions[i].Key)
	}
}

// addConditionArgs appends the rest of the conditions behind the call's own arguments.
func addConditionArgs(c *redisbatch.ScriptCall, conditions []Condition) {
	for i := range conditions {
		k := &conditions[i]
		c.Text(string(k.Kind))
		switch k.Kind {
		case ValueIs, ValueIsNot:
			c.Text(k.Value)
		case GeoWithin:
			c.Text(k.Member).Text(k.To).Text(strconv.FormatFloat(k.Meters, 'f', -1, 64))
		}
	}
}

const conditionPrefix = "CONDITION"

// isDenied reports whether the access control of Redis denies a script one of its keys. Redis
// does not say which.
func isDenied(err error) bool { return redis.HasErrorPrefix(err, "NOPERM") }

// asCondition makes an error of lua/check.lua that is about one condition a
// [ConditionError]. The conditions of the call begin at an index.
func asCondition(err error, from int) error {
	if isDenied(err) {
		return &ConditionError{Index: from, cause: err.Error()}
	}
	refused, ok := errors.AsType[redis.Error](err)
	if !ok || !redis.HasErrorPrefix(err, conditionPrefix) {
		return err
	}
	place, cause, _ := strings.Cut(strings.TrimPrefix(refused.Error(), conditionPrefix+" "), " ")
	n, bad := strconv.Atoi(place)
	if bad != nil || n < 1 {
		return err
	}
	return &ConditionError{Index: from + n - 1, cause: cause}
}
