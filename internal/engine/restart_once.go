package engine

import (
	"slices"

	"github.com/ordergate/ordergate/config"
)

// storedIdentity is the part of a rule's configuration by which calls find a stored answer: what
// is in its key in Redis. The rule's name belongs to it: a key has it, and an order's answer is
// for the rule that it names.
type storedIdentity struct {
	order, orderAt string      // the name of the answers of orders, and the path of their once; "": none
	key            config.Once // with what is in a key; without By: the rule has no keys
	parts          string      // of the rule's IDs, which are in a key, too
	keyAt          string      // the path of their once
}

// storedIdentityOf returns that of a rule that enforces. A call that is observed gets no answer.
func storedIdentityOf(r *config.Rule) (s storedIdentity) {
	if !r.Mode.Enforces() {
		return s
	}
	if o, at := r.ByOrder(); o != nil && o.Name != "" {
		s.order, s.orderAt = o.Name, at
	}
	if o, at := r.ByKey(); o != nil {
		s.key, s.keyAt, s.parts = config.Identity(*o, config.ChangeAnswers), at, partsOf(r)
	}
	return s
}

// storedChanged returns the keys of a rule whose change would hide the stored answers of an
// earlier rule from the same requests: each of these would reach the backend again. Both tells
// whether the earlier rule still exists, beside this one.
func storedChanged(was, is *lockingRule, both bool) (keys []string) {
	a, b := &was.stored, &is.stored
	orders, byKey := a.order != "" && b.order != "", len(a.key.By) > 0 && len(b.key.By) > 0
	renamed := was.name != is.name
	switch {
	case !orders && !byKey:
	case renamed && !both:
		keys = append(keys, "name")
	case renamed && orders: // the requests come under another rule
		keys = append(keys, b.orderAt)
	case renamed:
		keys = append(keys, b.keyAt)
	}
	// The name of a rule is the default of that of its answers.
	byRule := a.order == was.name && b.order == is.name
	if orders && a.order != b.order && !byRule {
		keys = append(keys, b.orderAt+".name")
	}
	if byKey {
		keys = append(keys, config.ChangesIn(b.keyAt, a.key, b.key)...)
	}
	if byKey && a.parts != b.parts {
		keys = append(keys, "parts")
	}
	return keys
}

func hasRule(c *config.Config, name string) bool {
	return slices.ContainsFunc(c.Rules, func(r config.Rule) bool { return r.Name == name })
}
