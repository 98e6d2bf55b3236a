package engine

import (
	"time"

	"github.com/ordergate/ordergate/config"
)

// AnswerDelay is for how long the answers to the creates of a rule may be kept back.
type AnswerDelay struct {
	Rule string
	// Longest is how long: see [Engine.LearnTimeout].
	Longest time.Duration
	// MessageTimeout is the least message_timeout of Envoy's ext_proc with which no answer
	// is cut off, and the least that the timeout of the route needs beyond the longest time
	// that the backend takes for a create.
	MessageTimeout time.Duration
}

// transitTime is for the two messages between Envoy and ordergate: Envoy counts from before it
// sends the first until it has read the second.
const transitTime = 200 * time.Millisecond

// MessageTimeout returns the least message_timeout of Envoy for answers that are held for so
// long at most, rounded up to tenths of a second.
func MessageTimeout(longest time.Duration) time.Duration {
	const step = 100 * time.Millisecond
	return (longest + transitTime + step - 1).Truncate(step)
}

// AnswerDelays returns the rules with a create, in the order of the file. The configuration has
// its defaults filled in. An answer may be held for longer if another ordergate of the
// deployment has a longer window or lease.
func AnswerDelays(c *config.Config) (held []AnswerDelay) {
	for i := range c.Rules {
		create := c.Rules[i].Create
		if create == nil {
			continue
		}
		alone := &Engine{config: &config.Config{Filters: map[string]config.Filter{create.Filter: c.Filters[create.Filter]}}}
		longest := alone.LearnTimeout()
		held = append(held, AnswerDelay{Rule: c.Rules[i].Name, Longest: longest, MessageTimeout: MessageTimeout(longest)})
	}
	return held
}
