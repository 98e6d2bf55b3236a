package config

import (
	"slices"
	"strings"
)

// partID is the name of the order's own ID in the key of a lock.
const partID = "id"

// KeyTemplate is the key of a lock around its variables: a text before each of them, and one
// behind the last.
type KeyTemplate struct {
	Texts []string
	Names []string // "id", and the parts of the IDs
}

// LockKey returns the template of a lock. A {name} in its key is a variable if it is {id}, or if
// a rule whose orders have the lock has a part of this name. Any other text is literal.
func (c *Config) LockKey(name string) KeyTemplate {
	var parts []string
	for i := range c.Rules {
		if r := &c.Rules[i]; len(r.Parts) > 0 && r.OrderLock() == name {
			parts = append(parts, sortedKeys(r.Parts)...)
		}
	}
	return NewKeyTemplate(c.Locks[name].Key, parts)
}

// NewKeyTemplate splits a key at {id} and at the parts of IDs.
func NewKeyTemplate(key string, parts []string) (t KeyTemplate) {
	from := 0
	for i := 0; i < len(key); i++ {
		name, _, closed := strings.Cut(key[i:], "}")
		if key[i] != '{' || !closed || name[1:] != partID && !slices.Contains(parts, name[1:]) {
			continue
		}
		t.Texts, t.Names = append(t.Texts, key[from:i]), append(t.Names, name[1:])
		from = i + len(name) + 1
		i = from - 1
	}
	t.Texts = append(t.Texts, key[from:])
	return t
}

// Parts returns the names of the parts in the key, in their order.
func (t KeyTemplate) Parts() []string {
	return slices.DeleteFunc(slices.Clone(t.Names), func(name string) bool { return name == partID })
}

// Key returns the key with the values of its variables.
func (t KeyTemplate) Key(value func(name string) string) string {
	var b strings.Builder
	for i, name := range t.Names {
		b.WriteString(t.Texts[i])
		b.WriteString(value(name))
	}
	b.WriteString(t.Texts[len(t.Names)])
	return b.String()
}

// filterOf returns the name of the rule's filter; "" if it has none.
func (r *Rule) filterOf() string {
	switch {
	case r.Lookup != nil:
		return r.Lookup.Filter
	case r.Create != nil:
		return r.Create.Filter
	}
	return ""
}

// PartNames returns the names of the parts in the order of the full ID, after [Config.EnsureDefaults].
func (r *Rule) PartNames() []string { return r.names }

// partOrder returns the names of a rule's parts in the order of its filter, or else of its lock's key.
// A part that neither has comes last, and is a violation.
func (c *Config) partOrder(r *Rule, uses map[string]lockUse) []string {
	if len(r.Parts) == 0 {
		return nil
	}
	order := slices.Clone(c.Filters[r.filterOf()].Parts)
	order = append(order, uses[r.OrderLock()].Parts()...)
	order = append(order, sortedKeys(r.Parts)...)
	seen := make(map[string]bool)
	return slices.DeleteFunc(order, func(name string) bool {
		_, is := r.Parts[name]
		skip := seen[name] || !is
		seen[name] = true
		return skip
	})
}
