package attach

import (
	"fmt"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/timeouts"
)

// Times are timeouts of Envoy that fit together: docs/timeouts.md.
type Times struct {
	Authz   time.Duration // of ext_authz
	Message time.Duration // message_timeout of ext_proc: at least the sums below
	Backend time.Duration // what the backend takes for a write
	Writes  time.Duration // of routes that write
	Reads   time.Duration // of the others
	Idle    time.Duration // stream_idle_timeout
	Headers time.Duration // request_headers_timeout
	Request time.Duration // request_timeout
	// Hold is the shortest time for which a lock is held when the outcome of its call is unknown; 0:
	// no rule locks.
	Hold time.Duration
	// MaxHold is the shortest time after which ordergate ends a call; 0: no rule locks.
	MaxHold time.Duration

	Held  []timeouts.AnswerDelay
	Waits []timeouts.RequestWait
}

const (
	authzTimeout   = 500 * time.Millisecond
	readTimeout    = 15 * time.Second
	backendTime    = 25 * time.Second
	headersTimeout = 10 * time.Second
	requestTimeout = 20 * time.Second
	idleTimeout    = time.Minute
	// bodyTime is how long a request may take to arrive, besides its waits.
	bodyTime, leastBodyTime = 15 * time.Second, 5 * time.Second
)

func timesOf(c *config.Config, backend time.Duration) (Times, error) {
	t := Times{
		Authz: authzTimeout, Reads: readTimeout, Headers: headersTimeout, Message: time.Second,
		Held: timeouts.AnswerDelays(c), Waits: timeouts.RequestWaits(c),
	}
	for _, h := range t.Held {
		t.Message = max(t.Message, h.MessageTimeout)
	}
	for _, w := range t.Waits {
		if w.Timeout == timeouts.MessageTimeout {
			t.Message = max(t.Message, w.Least)
		} else {
			t.Authz = max(t.Authz, w.Least)
		}
	}
	t.Message = upTo(t.Message, time.Second)

	var holder, ender string
	for i := range c.Rules {
		r := &c.Rules[i]
		if hold := holdOf(c, r); hold > 0 && (t.Hold == 0 || hold < t.Hold) {
			t.Hold, holder = hold, r.Name
		}
		if r.Settle != nil && (t.MaxHold == 0 || r.MaxHold() < t.MaxHold) {
			t.MaxHold, ender = r.MaxHold(), r.Name
		}
	}
	switch {
	case backend == 0:
		t.Backend = backendTime
		if t.Hold > 0 && t.Hold <= t.Backend {
			t.Backend = t.Hold * 4 / 5
		}
	case t.Hold > 0 && backend >= t.Hold:
		return t, fmt.Errorf("a backend that takes %v needs a longer hold than the %v of rule %s: set on_unknown_outcome.hold of its lock", backend, t.Hold, holder)
	default:
		t.Backend = backend
	}
	t.Writes = upTo(t.Backend+t.Message, time.Second)
	t.Idle = max(idleTimeout, 2*t.Writes)
	t.Request = max(requestTimeout, t.Message+bodyTime)
	if t.MaxHold > 0 && t.Request >= t.MaxHold {
		t.Request = t.Message + leastBodyTime
	}
	if t.MaxHold > 0 && max(t.Request, t.Writes) >= t.MaxHold {
		return t, fmt.Errorf("rule %s ends calls after %v (settle.max_hold), and its requests need %v, and then %v: make it longer", ender, t.MaxHold, t.Request, t.Writes)
	}
	return t, nil
}

// holdOf returns the shortest hold of a rule's locks; 0: it has none.
func holdOf(c *config.Config, r *config.Rule) (hold time.Duration) {
	locks := []config.Lock{}
	if name := r.OrderLock(); name != "" {
		locks = append(locks, c.Locks[name])
	}
	if o, _ := r.ByKey(); o != nil {
		locks = append(locks, r.KeyLock())
	}
	for _, l := range locks {
		if h := l.OnUnknownOutcome.Hold; hold == 0 || h < hold {
			hold = h
		}
	}
	return hold
}

// upTo rounds up to a multiple of a step.
func upTo(d, step time.Duration) time.Duration { return (d + step - 1).Truncate(step) }
