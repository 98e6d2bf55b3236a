package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/condition"
	"github.com/ordergate/ordergate/internal/order"
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
	for _, l := range latches {
		if l.matches(keyOrID) {
			return keyOrID, nil
		}
		if key := l.key.String(); !slices.Contains(known, key) {
			known = append(known, key)
		}
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
		if !slices.Contains(names, l.rule) {
			names = append(names, l.rule)
		}
		if l.rule != rule {
			continue
		}
		if l.takesHeader() {
			return "", fmt.Errorf("rule %s requires %s, which takes a header of the request: give the key, without --rule", rule, l.key)
		}
		if want := append(slices.Clip(l.parts), "order-id"); strings.Count(id, order.Separator) != len(l.parts) {
			return "", fmt.Errorf("%q is no order ID of rule %s: want %s", id, rule, strings.ToUpper(strings.Join(want, "/")))
		}
		if key := l.key.Expand(id, nil); !slices.Contains(keys, key) {
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
	rule  string
	parts []string // of the rule's order IDs
	key   condition.Template
}

// latchesOf returns the latches that the rules require, in the order of the file.
func latchesOf(c *config.Config) (latches []requiredLatch, err error) {
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Settle == nil {
			continue
		}
		parts := c.PartOrder(r)
		conditions, _, err := rules.Conditions(r.Settle, parts)
		if err != nil {
			return nil, err
		}
		for _, k := range conditions {
			if k.Kind == condition.Latch {
				latches = append(latches, requiredLatch{r.Name, parts, k.Key})
			}
		}
	}
	return latches, nil
}

func (l requiredLatch) takesHeader() bool {
	return slices.ContainsFunc(l.key, func(p condition.Part) bool { return p.Header > 0 })
}

// matches reports whether some order with some headers has the key.
func (l requiredLatch) matches(key string) bool {
	var pattern strings.Builder
	for _, p := range l.key {
		if p.ID || p.Header > 0 {
			pattern.WriteString(".+")
		} else {
			pattern.WriteString(regexp.QuoteMeta(p.Text))
		}
	}
	return regexp.MustCompile(`(?s)^` + pattern.String() + `$`).MatchString(key)
}
