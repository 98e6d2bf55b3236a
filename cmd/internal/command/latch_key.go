package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/condition"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/orderid"
	"github.com/ordergate/ordergate/internal/rules"
)

// latchKey returns the key of the latch that keyOrID names: a key, or with a rule an order ID.
// If rules of the configuration require latches, the key must be that of one of them: another
// one is a typo, and a latch that does not exist is open.
func latchKey(c *config.Config, file, rule, keyOrID string) (string, error) {
	latches, err := latchesOf(c)
	if err != nil {
		return "", err
	}
	if rule != "" {
		return latchKeyOfOrder(latches, file, rule, keyOrID)
	}
	var known []string
	var unfit *requiredLatch
	for i := range latches {
		l := &latches[i]
		fits, err := l.values()
		if err != nil {
			return "", err
		}
		if l.matches(keyOrID, fits) {
			return keyOrID, nil
		}
		if unfit == nil && l.matches(keyOrID, func(condition.Part, string) bool { return true }) {
			unfit = l
		}
		if key := l.key.String(); !slices.Contains(known, key) {
			known = append(known, key)
		}
	}
	if unfit != nil {
		return "", fmt.Errorf("%q is no key that a request of rule %s can have, which requires %s: want %s",
			keyOrID, unfit.rule.Name, unfit.key, visible(rules.Wanted(unfit.rule)))
	}
	if len(known) > 0 {
		return "", fmt.Errorf("%q is the key of no latch in %s, which has %s (for an order ID, add --rule)",
			keyOrID, file, strings.Join(known, ", "))
	}
	return keyOrID, nil
}

// latchKeyOfOrder returns the key of the one latch that a rule requires of an order.
func latchKeyOfOrder(latches []requiredLatch, file, rule, id string) (string, error) {
	var keys, names []string
	for _, l := range latches {
		if !slices.Contains(names, l.rule.Name) {
			names = append(names, l.rule.Name)
		}
		if l.rule.Name != rule {
			continue
		}
		if l.takesHeader() {
			return "", fmt.Errorf("rule %s requires %s, which takes a header of the request: give the key, without --rule", rule, l.key)
		}
		canonical, _, err := canonicalID(id, "rule "+rule, l.rule)
		if err != nil {
			return "", err
		}
		if key := l.key.Expand(canonical, nil); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	switch {
	case len(names) == 0:
		return "", fmt.Errorf("--rule %q: no rule in %s requires a latch", rule, file)
	case len(keys) == 0:
		return "", fmt.Errorf("--rule %q is no rule with a latch in %s, which has %s", rule, file, strings.Join(names, ", "))
	case len(keys) > 1:
		return "", fmt.Errorf("rule %s requires %s: give one of them, without --rule", rule, visible(strings.Join(keys, " and ")))
	}
	return keys[0], nil
}

// requiredLatch is a latch that a rule requires.
type requiredLatch struct {
	rule *config.Rule
	key  condition.Template
}

// latchesOf returns the latches that the rules require, in the order of the file.
func latchesOf(c *config.Config) (latches []requiredLatch, err error) {
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Settle == nil {
			continue
		}
		conditions, _, err := rules.Conditions(r)
		if err != nil {
			return nil, err
		}
		for _, k := range conditions {
			if k.Kind == condition.Latch {
				latches = append(latches, requiredLatch{r, k.Key})
			}
		}
	}
	return latches, nil
}

func (l *requiredLatch) takesHeader() bool {
	return slices.ContainsFunc(l.key, func(p condition.Part) bool { return p.Header > 0 })
}

// values returns a function that reports whether a request of the rule can have a text in place
// of a variable of the key.
func (l *requiredLatch) values() (func(p condition.Part, text string) bool, error) {
	var fits []func(string) bool // by the index of a part; the last is for the order's own ID
	for _, name := range l.rule.PartNames() {
		of, err := rules.IsCanonical(l.rule.Parts[name])
		if err != nil {
			return nil, err
		}
		fits = append(fits, of)
	}
	own, err := rules.IsCanonical(l.rule.IDs...)
	if err != nil {
		return nil, err
	}
	fits = append(fits, own)
	return func(p condition.Part, text string) bool {
		if p.Header > 0 {
			return gate.ValidHeaderValue(text)
		}
		return fits[p.Index](text)
	}, nil
}

// matches reports whether the key is the template with values that fit. It tries all of them: a
// value may contain the text behind it.
func (l *requiredLatch) matches(key string, fits func(p condition.Part, text string) bool) bool {
	values := make(map[condition.Part]string) // so far
	var match func(parts condition.Template, rest string) bool
	match = func(parts condition.Template, rest string) bool {
		if len(parts) == 0 {
			return rest == ""
		}
		p := parts[0]
		if !p.ID && p.Header == 0 {
			after, ok := strings.CutPrefix(rest, p.Text)
			return ok && match(parts[1:], after)
		}
		if value, known := values[p]; known {
			after, ok := strings.CutPrefix(rest, value)
			return ok && match(parts[1:], after)
		}
		defer delete(values, p)
		for end := 1; end <= min(len(rest), orderid.MaxBytes); end++ {
			values[p] = rest[:end]
			if fits(p, rest[:end]) && match(parts[1:], rest[end:]) {
				return true
			}
		}
		return false
	}
	return match(l.key, key)
}
