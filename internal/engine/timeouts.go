package engine

import (
	"slices"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/redisconn"
)

// AnswerDelay is how long ordergate may hold the answers to the creates of a rule.
type AnswerDelay struct {
	Rule string
	// Longest is the longest delay: see [Engine.LearnTimeout]. With a key, the answer is stored
	// within it, too.
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
		if once, _ := c.Rules[i].ByKey(); once != nil {
			longest += gate.CleanupTimeout
		}
		held = append(held, AnswerDelay{Rule: c.Rules[i].Name, Longest: longest, MessageTimeout: messageTimeout(longest)})
	}
	return held
}

// RequestWait is how long ordergate may wait before it forwards a request of a rule, within one
// timeout of Envoy.
type RequestWait struct {
	Rule    string
	Keys    []string      // of the waits, one after the other: "once.wait"
	Longest time.Duration // with a Redis that hangs
	Timeout string        // of Envoy: MessageTimeout or AuthzTimeout
	Least   time.Duration // the shortest value of it that gives up no request
}

// Timeouts of Envoy.
const (
	MessageTimeout = "message_timeout"
	AuthzTimeout   = "timeout of ext_authz"
)

// RequestWaits returns the waits of each rule, in the order of the file. The configuration must
// have its defaults filled in.
func RequestWaits(c *config.Config) (waits []RequestWait) {
	for i := range c.Rules {
		r := &c.Rules[i]
		w := RequestWait{Rule: r.Name, Timeout: MessageTimeout}
		add := func(key string, longest time.Duration) {
			w.Keys, w.Longest = append(w.Keys, key), w.Longest+longest
		}
		lock := func(name, key string) {
			l, use := locking.LockOf(c, name, *r)
			add(key, locking.NewGateLocker(l, 0, use.Observe).Timeout())
		}
		if o, at := r.ByKey(); o != nil {
			lock(config.OnceLock, at+".wait")
		}
		if name := r.OrderLock(); name != "" {
			lock(name, "locks."+name+".wait")
		}
		if r.Settle != nil && r.Settle.Limit != nil {
			lock(r.Settle.Limit.Lock, "locks."+r.Settle.Limit.Lock+".wait")
		}
		// Under its locks, a call asks Redis once more.
		if r.Settle != nil && slices.ContainsFunc(r.Settle.Require, func(c config.Condition) bool { return c.Time == nil }) {
			add("settle.require", redisconn.CommandTimeout)
		}
		if o, at := r.ByOrder(); o != nil && len(o.Forget) > 0 {
			add(at+".forget", redisconn.CommandTimeout)
		}
		confirms := r.Create != nil && r.Create.Dedup != nil
		if confirms && r.Create.Lock != "" { // it looks the order up again under the lock
			add("create.dedup.timeout", r.Create.Dedup.Timeout)
		}
		if len(w.Keys) > 0 {
			w.Least = messageTimeout(w.Longest)
			waits = append(waits, w)
		}
		if confirms {
			longest := r.Create.Dedup.Timeout
			waits = append(waits, RequestWait{r.Name, []string{"create.dedup.timeout"}, longest, AuthzTimeout, messageTimeout(longest)})
		}
	}
	return waits
}
