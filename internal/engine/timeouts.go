package engine

import (
	"time"

	"github.com/ordergate/ordergate/config"
)

// AnswerDelay is how long ordergate may hold the answers to the creates of a rule.
type AnswerDelay struct {
	Rule string
	// Longest is the longest delay: see [Engine.LearnTimeout].
	Longest time.Duration
	// MessageTimeout is the least message_timeout of Envoy's ext_proc that cuts off no answer.
	// The timeout of the route must exceed the backend's longest create by at least as much.
	MessageTimeout time.Duration
}

// transitTime is the allowance for the two messages between Envoy and ordergate. Envoy's timer
// starts before it sends the first, and stops after it has read the second.
const transitTime = 200 * time.Millisecond

// messageTimeout returns the least message_timeout of Envoy, given the longest delay of an
// answer. It rounds up to tenths of a second.
func messageTimeout(longest time.Duration) time.Duration {
	const step = 100 * time.Millisecond
	return (longest + transitTime + step - 1).Truncate(step)
}

// AnswerDelays returns the delay of each rule with a create, in the order of the file. The
// configuration must have its defaults filled in. A delay may be longer if another instance of
// the deployment has a longer window or lease.
func AnswerDelays(c *config.Config) (held []AnswerDelay) {
	for i := range c.Rules {
		create := c.Rules[i].Create
		if create == nil {
			continue
		}
		alone := &Engine{config: &config.Config{Filters: map[string]config.Filter{create.Filter: c.Filters[create.Filter]}}}
		longest := alone.LearnTimeout()
		held = append(held, AnswerDelay{Rule: c.Rules[i].Name, Longest: longest, MessageTimeout: messageTimeout(longest)})
	}
	return held
}
