// Package condition checks what must hold before a settlement is forwarded: latches, keys,
// values and distances in Redis, and times of the day.
//
// Start with [New]: a [Set] is the conditions of one rule, and implements gate.Conditions.
// Package redislock has the script that reads the keys. What happens if a condition does not
// hold is the gate's matter.
package condition

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// Kind is what a condition compares.
type Kind = redislock.ConditionKind

// The kinds.
const (
	Latch   = redislock.LatchOpen
	Exists  = redislock.KeyExists
	Missing = redislock.KeyMissing
	Is      = redislock.ValueIs
	IsNot   = redislock.ValueIsNot
	Near    = redislock.GeoWithin
	Time    = Kind("time")
)

// Condition is one condition of a rule. The templates take the order's ID and headers.
type Condition struct {
	Name       string // in metrics and logs
	Kind       Kind
	Key        Template // of every kind but Time
	Value      string   // of Is and IsNot, as it is in Redis
	Member, To Template // of Near
	Meters     float64  // of Near
	Encode     func(string) string
	Window     Window // of Time
}

// Result is the result of a check, as metrics name it.
type Result int8

// The results.
const (
	Holds Result = iota
	Unmet
	Unavailable // Redis did not answer, or the key holds something else
	results
)

// Results is the number of results, for tables indexed by one.
const Results = int(results)

var resultNames = [Results]string{"holds", "unmet", "unavailable"}

// String returns the name that metrics use.
func (r Result) String() string { return resultNames[r] }

// Recorder counts checks. Its method must be quick and safe for concurrent use.
type Recorder interface {
	// Checked reports the result for the condition with this index. Conditions after the
	// first one that does not hold are not checked.
	Checked(condition int, result Result)
}

// Options are what a [Set] needs besides its conditions.
type Options struct {
	Checker *redislock.Checker // nil if every condition is about the time
	Now     func() time.Time   // the clock of conditions about the time
	Record  Recorder           // nil: none
	Logger  *slog.Logger       // for keys that hold something else, or are denied; nil: none
}

// Set is the conditions of one rule. It is immutable and safe for concurrent use.
type Set struct {
	conditions []Condition
	opts       Options
	logs       []*slog.Logger // by condition
}

// New returns the set of these conditions.
func New(conditions []Condition, opts Options) *Set {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Record == nil {
		opts.Record = noRecorder{}
	}
	s := &Set{conditions: conditions, opts: opts}
	for i := range conditions {
		s.logs = append(s.logs, opts.Logger.With("condition", conditions[i].Name, "key", conditions[i].Key.String()))
	}
	return s
}

type noRecorder struct{}

func (noRecorder) Checked(int, Result) {}

// Check implements gate.Conditions. It reads all keys in one round trip, or in one for each
// slot of a cluster, at the same time.
func (s *Set) Check(ctx context.Context, ids, headers []string) error {
	until := s.firstOutOfTime()
	keys := s.expand(until, ids, headers)
	var err error
	if len(keys.conditions) > 0 {
		err = s.opts.Checker.Check(ctx, keys.conditions)
	}
	if err == nil && until < len(s.conditions) {
		s.record(until, Unmet)
		return &gate.UnmetError{Condition: until}
	}
	return s.result(ctx, keys, until, err)
}

// result counts a check, and translates its error for the gate.
func (s *Set) result(ctx context.Context, keys expanded, until int, err error) error {
	unmet, isUnmet := errors.AsType[*redislock.UnmetError](err)
	failed, isFailed := errors.AsType[*redislock.ConditionError](err)
	switch {
	case err == nil:
		s.record(until, Holds)
	case isUnmet:
		at := keys.owners[unmet.Index]
		s.record(at, Unmet)
		return &gate.UnmetError{Condition: at}
	case isFailed:
		at := keys.owners[failed.Index]
		s.record(at, Unavailable)
		s.logs[at].Warn("a condition cannot be checked, and settlements are refused", "error", failed.Cause(),
			runbook.ConditionsFail.Do("look at Redis, and at the key that error names"))
		return &gate.ConditionError{Name: s.conditions[at].Name, Key: keys.conditions[failed.Index].Key, Cause: failed.Cause()}
	case ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded):
		last := -1
		for _, at := range keys.owners {
			if at != last {
				s.opts.Record.Checked(at, Unavailable)
			}
			last = at
		}
	}
	return err
}

// record counts the conditions before one as such that hold, and that one with its result.
func (s *Set) record(at int, result Result) {
	for i := range at {
		s.opts.Record.Checked(i, Holds)
	}
	if at < len(s.conditions) {
		s.opts.Record.Checked(at, result)
	}
}

// firstOutOfTime returns the index of the first condition about the time that does not hold;
// the number of conditions if there is none. The conditions behind it need no check.
func (s *Set) firstOutOfTime() int {
	for i := range s.conditions {
		if c := &s.conditions[i]; c.Kind == Time && !c.Window.Contains(s.opts.Now()) {
			return i
		}
	}
	return len(s.conditions)
}

// expanded is conditions on keys, each with the index of the condition that it belongs to.
type expanded struct {
	conditions []redislock.Condition
	owners     []int
}

// expand returns the conditions before an index for each of the orders. One without the order's
// ID is the same for all.
func (s *Set) expand(until int, ids, headers []string) (all expanded) {
	for i := range until {
		c := &s.conditions[i]
		if c.Kind == Time {
			continue
		}
		each := ids
		if !c.namesOrder() {
			each = ids[:1]
		}
		for _, id := range each {
			all.conditions = append(all.conditions, c.expand(id, headers))
			all.owners = append(all.owners, i)
		}
	}
	return all
}

func (c *Condition) namesOrder() bool {
	return c.Key.namesOrder() || c.Member.namesOrder() || c.To.namesOrder()
}

func (c *Condition) expand(id string, headers []string) redislock.Condition {
	k := redislock.Condition{Kind: c.Kind, Key: c.Key.Expand(id, headers), Value: c.Value, Meters: c.Meters}
	if c.Kind == Near {
		k.Member, k.To = c.Member.Expand(id, headers), c.To.Expand(id, headers)
		if c.Encode != nil {
			k.Member, k.To = c.Encode(k.Member), c.Encode(k.To)
		}
	}
	return k
}
