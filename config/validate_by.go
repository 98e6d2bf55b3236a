package config

import (
	"time"
)

// Place is where a request has a token that is no order's, such as a session. Exactly one is set.
type Place struct {
	Cookie string `mapstructure:"cookie" form:"cookie"`    // a cookie
	Header string `mapstructure:"header" form:"header"`    // a header, its name in any case
	Query  string `mapstructure:"query" form:"parameter"`  // a parameter
	Form   string `mapstructure:"form" form:"field"`       // a field of an urlencoded body
	JSON   string `mapstructure:"json" form:"member_path"` // dotted path of member names in the body
}

// ID returns the place as that of an ID.
func (p Place) ID() ID {
	return ID{Cookie: p.Cookie, Header: p.Header, Query: p.Query, Form: p.Form, JSON: p.JSON, MaxBody: defaultIDBody}
}

// IsBy reports whether the rule settles by something that is no order.
func (r *Rule) IsBy() bool { return r.Settle != nil && len(r.Settle.By) > 0 }

// IsBy reports whether a lock of this name is by something that is no order.
func (c *Config) IsBy(lock string) bool {
	for i := range c.Rules {
		if c.Rules[i].IsBy() && c.Rules[i].Settle.Lock == lock {
			return true
		}
	}
	return false
}

// TokenSecret returns what keys the hash in the lock's key of a rule with settle.by; "": nothing.
func (c *Config) TokenSecret(r *Rule) Secret {
	if !r.IsBy() {
		return ""
	}
	return c.Locks[r.Settle.Lock].Secret
}

// OfTokens reports whether the lock is one of settle.by: only their fences may end so soon.
func (l *Lock) OfTokens() bool { return 0 < l.KeepFence && l.KeepFence < leastFence }

// fenceOfTokens returns how long the last fence of a lock stays that is by tokens: clients make
// them up, and no database compares their fences.
func (l *Lock) fenceOfTokens() time.Duration { return max(l.Lease, l.OnUnknownOutcome.Hold) }

// by checks a settlement by something that is no order.
func (v *validator) by(path string, r *Rule) {
	s := r.Settle
	if len(s.By) == 0 {
		return
	}
	rule := path[:len(path)-len(".settle")]
	const message = "is for an order, and settle.by names none: remove one of the two"
	v.without(rule, r, message, "id", "parts", "lookup")
	v.without(path, s, message, "limit", "require")
	if _, defined := v.config.Locks[s.Lock]; !defined {
		return
	}
	if parts := v.uses[s.Lock].Parts(); len(parts) > 0 {
		v.reject(path+".lock", "%s has {%s} in its key, which is for orders: give settle.by a lock of its own", quote(s.Lock), parts[0])
	}
	for i := range v.config.Rules {
		o := &v.config.Rules[i]
		if !o.IsBy() && o.OrderLock() == s.Lock || o.Settle != nil && o.Settle.Limit != nil && o.Settle.Limit.Lock == s.Lock {
			v.reject(path+".lock", "%s is also the lock of orders, in rule %s: give settle.by a lock of its own", quote(s.Lock), quote(o.Name))
			return
		}
	}
}

// onceOfTokens checks the stored answers of a settlement that names no order.
func (v *validator) onceOfTokens(path string) {
	for _, key := range keysOfOrders {
		if at := join(path, key); v.given(at) {
			v.reject(at, "is for orders: with settle.by, the answer is for repeats, and once.for is how long")
		}
	}
}
