// Package timeouts computes from a configuration how long ordergate takes at most, and which timeouts of
// Envoy are long enough for that.
//
// Start with [AnswerDelays] and [RequestWaits]. The configuration must have its defaults filled in. The
// sums consist of the limits below, of those of the change log's protocol (package changelog), and
// of that of a command to Redis (package redisconn). Every wait uses these limits.
package timeouts

import (
	"slices"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/redisconn"
)

const (
	// Append bounds how long Redis may take to acknowledge a new order, and how long the followers of
	// a table may take to catch up.
	Append = 600 * time.Millisecond
	// Cleanup bounds what ends a call: it releases or holds the locks, and stores the answer.
	Cleanup = 2 * time.Second
	// learnSlack is for the work between the waits of Learn.
	learnSlack = 200 * time.Millisecond
	// transit is the allowance for the two messages between Envoy and ordergate. Envoy's timer starts
	// before it sends the first, and stops after it has read the second.
	transit = 200 * time.Millisecond
)

// Acquire returns how long a lock may be waited for, and the longest time until that has ended: pauses
// between tries vary by a tenth, and a command that began within the wait may hang. An observed call
// does not wait.
func Acquire(c config.Lock, observe bool) (wait, longest time.Duration) {
	if !observe {
		wait = max(c.Wait.UpTo, time.Duration(c.Wait.Tries-1)*c.Wait.Every)
	}
	return wait, wait + wait/10 + redisconn.CommandTimeout
}

// Learn returns how long the answer to a create in a filter may be held back. By then every other
// instance has the order, or is guaranteed to answer Unknown. An answer that is passed on earlier breaks
// the guarantee of docs/freshness.md.
//
// The wait may be for an ID, and then for a doubt. A doubt that follows a question to the followers of
// a table takes less.
func Learn(f config.Filter) time.Duration {
	window := f.Freshness.Window
	return changelog.LongestWait(Append, f.ChangeLog.Lease, window) + changelog.Again(Append, window) + learnSlack
}

// LongestLearn is the longest Learn of all filters; 0: there are none.
func LongestLearn(c *config.Config) (longest time.Duration) {
	for _, f := range c.Filters {
		longest = max(longest, Learn(f))
	}
	return longest
}

// AnswerDelay is how long ordergate may hold the answers to the creates of a rule.
type AnswerDelay struct {
	Rule string
	// Longest is the longest delay: see [Learn]. With a key, the answer is stored
	// within it, too.
	Longest time.Duration
	// MessageTimeout is the least message_timeout of Envoy's ext_proc that cuts off no answer.
	// The timeout of the route must exceed the backend's longest create by at least as much.
	MessageTimeout time.Duration
}

// messageTimeout returns the least message_timeout of Envoy, given the longest delay of an
// answer. It rounds up to tenths of a second.
func messageTimeout(longest time.Duration) time.Duration {
	const step = 100 * time.Millisecond
	return (longest + transit + step - 1).Truncate(step)
}

// AnswerDelays returns the delay of each rule with a create, in the order of the file. A delay may be
// longer if another instance of the deployment has a longer window or lease.
func AnswerDelays(c *config.Config) (held []AnswerDelay) {
	for i := range c.Rules {
		create := c.Rules[i].Create
		if create == nil {
			continue
		}
		longest := Learn(c.Filters[create.Filter])
		if once, _ := c.Rules[i].ByKey(); once != nil {
			longest += Cleanup
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

// RequestWaits returns the waits of each rule, in the order of the file.
func RequestWaits(c *config.Config) (waits []RequestWait) {
	for i := range c.Rules {
		r := &c.Rules[i]
		w := RequestWait{Rule: r.Name, Timeout: MessageTimeout}
		add := func(key string, longest time.Duration) {
			w.Keys, w.Longest = append(w.Keys, key), w.Longest+longest
		}
		lock := func(name, key string) {
			_, longest := Acquire(c.LockOf(r, name), !r.Mode.Enforces())
			add(key, longest)
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
