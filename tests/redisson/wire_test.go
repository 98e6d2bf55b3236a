package redisson

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed"
)

// TestWire has both sides bring a lock into the same state, and compares what
// that is in Redis.
func TestWire(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{})
	for _, sort := range []sort{fenced, fair, read, write, semaphore} {
		for _, braces := range []string{"", "{braces}"} {
			t.Run(sort.name+braces, func(t *testing.T) {
				var states [2][]step
				for i, p := range s.pairs(t) {
					states[i] = s.states(t, p.holder, sort, t.Name()+"/"+p.name)
				}
				if diff := cmp.Diff(states[0], states[1]); diff != "" {
					t.Errorf("Redisson leaves and we leave (-Redisson +we):\n%s", diff)
				}
				if len(states[0][0].Keys) == 0 {
					t.Error("nothing was compared")
				}
			})
		}
	}
}

// step is what Redis held at one time.
type step struct {
	When string
	Keys []string
}

// states brings a lock into every state that one side can bring it into alone.
func (s *stack) states(t *testing.T, p party, sort sort, name string) []step {
	name = strings.ReplaceAll(name, " ", "-")
	if sort.kind == semaphore.kind {
		value(s.thread().Semaphore(name).TrySetPermits(t.Context(), 3))(t)
	}
	var steps []step
	owners := make(map[string]string)
	note := func(when string) { steps = append(steps, step{when, s.shared(t, sort, name, owners)}) }

	first := take(t, p, sort, name, lease)
	owners[first.owner] = "FIRST"
	note("held")
	var second *grant
	switch sort.kind {
	case read.kind, semaphore.kind:
		second = take(t, p, sort, name, 2*lease)
		owners[second.owner] = "SECOND"
		note("held by two")
	}
	release(t, first)
	note("released")
	if second != nil {
		release(t, second)
		note("released by both")
	}
	return steps
}

// shared returns what Redis holds of a lock that Redisson has a part in. What we
// have beside it is left out: our own keys, and the fence of a lock that has none
// with Redisson. So is what differs by design: the field by which we know our grants,
// the number and the end of a fence, and until when a waiter counts as alive.
func (s *stack) shared(t *testing.T, sort sort, name string, owners map[string]string) []string {
	t.Helper()
	var lines []string
	for _, line := range s.state(t, name, owners) {
		line = grantField.ReplaceAllString(line, "")
		key, rest, _ := strings.Cut(line, " = ")
		switch {
		case strings.Contains(key, "ordergate_"):
			continue
		case strings.HasPrefix(key, "redisson_lock_token:"):
			if sort.name != fenced.name {
				continue
			}
			line = key
		case strings.HasPrefix(key, "redisson_lock_timeout:"):
			line = key + " = " + score.ReplaceAllString(rest, "")
		}
		lines = append(lines, line)
	}
	return lines
}

// grantField is that of a hash as state has it.
var grantField = regexp.MustCompile(`ordergate_fence:f[0-9]+ ?| ordergate_fence:f[0-9]+`)

// score is that of a member of a sorted set, as state has it.
var score = regexp.MustCompile(`:[0-9hms]+\b`)
