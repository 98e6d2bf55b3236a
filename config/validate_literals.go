package config

import (
	"regexp"
	"slices"
	"strings"
)

// plainName matches a text in braces that looks like the name of a part.
var plainName = regexp.MustCompile(`^[a-z_]+$`)

// literalNames returns the names in braces in a lock's key that stand for nothing, since no rule
// with the lock has such a part.
func (c *Config) literalNames(lock string) (names []string) {
	parts := c.LockKey(lock).Names
	for _, m := range placeholder.FindAllStringSubmatch(c.Locks[lock].Key, -1) {
		if name := m[1]; plainName.MatchString(name) && name != partID && !slices.Contains(parts, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// literals rejects a {name} in a lock's key that is no part, if a rule would let one tenant
// have the orders of another: with the same stored answers, or although it has parts. Braces at
// the beginning may be the hash tag of a cluster, unless the file has a part of this name.
func (v *validator) literals(path, lock string) {
	for _, name := range v.config.literalNames(lock) {
		if strings.HasPrefix(v.config.Locks[lock].Key, "{"+name+"}") && !v.config.hasPart(name) {
			continue
		}
		for i := range v.config.Rules {
			r := &v.config.Rules[i]
			if stored, _ := r.ByOrder(); r.OrderLock() == lock && (stored != nil || len(r.Parts) > 0) {
				v.reject(path, "%s has {%s} in it, and no rule with this lock has such a part, so it would be the same text for all orders: "+
					"write the part into parts of rule %s, or leave the braces out", quote(v.config.Locks[lock].Key), name, quote(r.Name))
				break
			}
		}
	}
}

// hasPart reports whether a rule or a filter of the file has a part of this name.
func (c *Config) hasPart(name string) bool {
	for i := range c.Rules {
		if _, has := c.Rules[i].Parts[name]; has {
			return true
		}
	}
	for _, f := range c.Filters {
		if slices.Contains(f.Parts, name) {
			return true
		}
	}
	return false
}
