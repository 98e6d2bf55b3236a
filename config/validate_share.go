package config

import (
	"slices"
	"strings"
)

// visibleText matches the values of a header that a share may ask for.
var visibleText = lazily(`^[!-~](?:[ -~]{0,254}[!-~])?$`)

// mode checks the mode of a rule, and the share of it that is enforced.
func (v *validator) mode(path string, r Rule) {
	v.choice(path, r.Mode.Word, ModeEnforce, ModeObserve)
	s, at := r.Mode.Share, path+"."+ModeEnforce
	if s == (Share{}) {
		return
	}
	switch {
	case r.Mode.Word == ModeObserve:
		v.reject(path, "%s has a share, which is for %s only: remove one of the two", ModeObserve, ModeEnforce)
		return
	case r.Pass:
		v.reject(path, "%s is not for a rule with pass, which enforces nothing: remove it", r.Mode)
		return
	}
	if s.Header == "" && !v.given(at+".header") {
		between(v, at, s.Orders, 1, AllOrders)
		if !slices.ContainsFunc(r.IDs, ID.hasLocation) && !v.unusable(strings.TrimSuffix(path, ".mode")+".id") {
			v.reject(at, "%s is a share of orders, and requests of this rule name none: write %s or %s", s, ModeEnforce, ModeObserve)
		}
		return
	}
	if s.Orders != 0 {
		v.reject(at, "has a percentage and a header: give exactly one of them")
	}
	if problem := forms["header"].problem(s.Header); problem != "" {
		v.reject(at+".header", "%s", problem)
	}
	if strings.HasPrefix(s.Header, "x-ordergate-") || s.Header == "host" {
		v.reject(at+".header", "%s is not passed on to ordergate as the client sent it: choose another header", quote(s.Header))
	}
	if (s.Value != "" || v.given(at+".value")) && !visibleText.MatchString(s.Value) {
		v.reject(at+".value", "%s is not a value of 1 to 256 visible characters", quote(s.Value))
	}
	once, _ := r.ByKey()
	locks := len(locksOf(r)) > 0 || once != nil // a key has a lock, too
	switch {
	case locks && !s.Locks && !v.unusable(at+".locks"):
		v.reject(at, "%s would enforce an order in one request and not in the next, so that its lock excludes nothing without the header: write a share of orders such as 10%%, or add locks: true if you want that", s)
	case !locks && s.Locks && !v.unusable(join(strings.TrimSuffix(path, ".mode"), "settle")):
		v.reject(at+".locks", "is for a rule that takes a lock: remove it")
	}
}

// sharesAgree rejects rules that take the same lock and enforce different shares. A lock
// protects an order only if all of these rules enforce it. A read lock and a write lock
// with the same key count as one.
func (v *validator) sharesAgree(c *Config) {
	first := make(map[string]int) // by the lock's key
	for i, r := range c.Rules {
		for _, name := range locksOf(r) {
			l, known := c.Locks[name]
			if !known {
				continue
			}
			before, taken := first[l.Key]
			if !taken {
				first[l.Key] = i
				continue
			}
			if o := c.Rules[before]; o.Mode != r.Mode && (o.Mode.IsPartial() || r.Mode.IsPartial()) {
				v.reject(rulePath(i)+".mode", "%s differs from %s of %s, which takes the same lock, %s: an order is enforced by all rules of its lock, or by none",
					r.Mode, o.Mode, quote(o.Name), name)
				break
			}
		}
	}
}

// locksOf returns the names of the locks of orders that a rule takes, and of its limit.
func locksOf(r Rule) (names []string) {
	if name := r.OrderLock(); name != "" {
		names = append(names, name)
	}
	if r.Settle != nil && r.Settle.Limit != nil {
		names = append(names, r.Settle.Limit.Lock)
	}
	return names
}
