package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
)

// takesRestart returns what cannot be changed while the engine runs, of all that has
// changed between two configurations.
func takesRestart(old, c *config.Config, changed []string) (paths []string) {
	for _, path := range changed {
		switch section, _, _ := strings.Cut(path, "."); section {
		case "backend", "rules", "locks":
		default:
			paths = append(paths, path)
		}
	}
	paths = append(paths, formsChanged(old, c)...)
	return append(paths, locksChanged(old, c)...)
}

// formsChanged names the rules by which a filter would have to hold its IDs in other
// forms. Its bits are those of the old ones, and what the sources and the change log
// bring is spelt by them: an order of the new form would be absent.
func formsChanged(old, c *config.Config) (paths []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Filters)) {
		if _, had := old.Filters[name]; !had || slices.Equal(forms(rulesOf(old, name)), forms(rulesOf(c, name))) {
			continue
		}
		before, after := formsByRule(old, name), formsByRule(c, name)
		var rules []string
		for _, r := range slices.Concat(old.Rules, c.Rules) {
			if !slices.Equal(before[r.Name], after[r.Name]) && !slices.Contains(rules, r.Name) {
				rules = append(rules, r.Name)
			}
		}
		if len(rules) == 0 {
			paths = append(paths, fmt.Sprintf("rules (the order in which they name the forms of the IDs of filter %s)", name))
			continue
		}
		for _, rule := range rules {
			paths = append(paths, fmt.Sprintf("rules.%s (the form of the IDs of filter %s)", rule, name))
		}
	}
	return paths
}

func formsByRule(c *config.Config, filter string) map[string][]string {
	all := make(map[string][]string)
	for i := range c.Rules {
		all[c.Rules[i].Name] = forms(rulesOf(&config.Config{Rules: c.Rules[i : i+1]}, filter))
	}
	return all
}

// identity is what two locks have to have in common to exclude each other.
type identity struct {
	kind, format, key string
	servers           string
}

func identityOf(l config.Lock) identity {
	i := identity{kind: l.Kind, format: l.Format, key: l.Key}
	if l.Quorum != nil {
		i.servers = strings.Join(slices.Sorted(slices.Values(l.Quorum.Addresses)), " ")
	}
	return i
}

// locksChanged names what would have a settlement take another lock than one that still
// runs: for a while two could settle one order. A restart lets those that run finish. It
// goes by the names of locks and rules.
func locksChanged(old, c *config.Config) (paths []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Locks)) {
		if before, ok := old.Locks[name]; ok && identityOf(before) != identityOf(c.Locks[name]) && settlesWith(old, name) && settlesWith(c, name) {
			for _, path := range config.Changes(onlyLock(name, before), onlyLock(name, c.Locks[name])) {
				switch _, key, _ := strings.Cut(strings.TrimPrefix(path, "locks."), "."); key {
				case "kind", "format", "key", "quorum", "quorum.addresses":
					paths = append(paths, path)
				}
			}
		}
	}
	for _, r := range c.Rules {
		i := slices.IndexFunc(old.Rules, func(before config.Rule) bool { return before.Name == r.Name })
		if i < 0 {
			continue
		}
		before, after := locksOf(old.Rules[i]), locksOf(r)
		for n, place := range []string{"lock", "limit.lock"} {
			if before[n] != "" && after[n] != "" && before[n] != after[n] && identityOf(old.Locks[before[n]]) != identityOf(c.Locks[after[n]]) {
				paths = append(paths, "rules."+r.Name+".settle."+place)
			}
		}
	}
	return paths
}

func onlyLock(name string, l config.Lock) *config.Config {
	return &config.Config{Locks: map[string]config.Lock{name: l}}
}

// locksOf returns the locks that a rule has somebody wait for: that of the order, and
// that of the limit.
func locksOf(r config.Rule) (names [2]string) {
	if r.Settle == nil || r.Mode == config.ModeObserve {
		return names
	}
	names[0] = r.Settle.Lock
	if r.Settle.Limit != nil {
		names[1] = r.Settle.Limit.Lock
	}
	return names
}

func settlesWith(c *config.Config, lock string) bool {
	return slices.ContainsFunc(c.Rules, func(r config.Rule) bool {
		names := locksOf(r)
		return slices.Contains(names[:], lock)
	})
}
