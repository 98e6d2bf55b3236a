package engine

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/rules"
)

// TakesRestart returns the changed paths for which the configuration c takes a restart of an engine
// that runs with old; none: a reload applies it.
func TakesRestart(old, c *config.Config) []string {
	keepReread(old, c)
	return takesRestart(old, c, nil, config.Changes(old, c))
}

// takesRestart returns the changed paths that need a restart. past holds earlier rules, whose
// calls may still run.
func takesRestart(old, c *config.Config, past [][]lockingRule, changed []string) (paths []string) {
	for _, path := range changed {
		if config.TakesRestart(path) {
			paths = append(paths, path)
		}
	}
	paths = append(paths, formsChanged(old, c)...)
	return append(paths, locksChanged(old, c, past)...)
}

// formsChanged returns the rules whose change would give the IDs of a filter other canonical
// forms. The filter, its sources and its change log use the old forms. A lookup in the new form
// would be answered Absent.
func formsChanged(old, c *config.Config) (paths []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Filters)) {
		if _, had := old.Filters[name]; !had || slices.Equal(rules.Forms(rules.IDsOf(old, name)), rules.Forms(rules.IDsOf(c, name))) {
			continue
		}
		before, after := formsByRule(old, name), formsByRule(c, name)
		var changed []string
		for _, r := range slices.Concat(old.Rules, c.Rules) {
			if !slices.Equal(before[r.Name], after[r.Name]) && !slices.Contains(changed, r.Name) {
				changed = append(changed, r.Name)
			}
		}
		if len(changed) == 0 {
			paths = append(paths, fmt.Sprintf("rules (the order in which they name the forms of the IDs of filter %s)", name))
			continue
		}
		for _, rule := range changed {
			paths = append(paths, fmt.Sprintf("rules.%s (the form of the IDs of filter %s)", rule, name))
		}
	}
	return paths
}

func formsByRule(c *config.Config, filter string) map[string][]string {
	all := make(map[string][]string)
	for i := range c.Rules {
		all[c.Rules[i].Name] = rules.Forms(rules.IDsOf(&config.Config{Rules: c.Rules[i : i+1]}, filter))
	}
	return all
}

// identity is the part of a lock's configuration that two locks must share to exclude each other.
type identity struct {
	lock  config.Lock
	parts string // in the key, by the rule that settles with the lock
}

func identityOf(l config.Lock) identity {
	l = config.Identity(l, config.ChangeLock)
	l.SecretFile, l.SecretEnv = "", "" // the secret counts, and not its place
	return identity{lock: l}
}

// locksChanged returns the paths whose change would give a settlement another lock than a
// settlement that still runs. Two settlements of one order could then run at once. A restart
// lets running settlements finish. The function compares locks of the same name, and rules that
// may match the same request.
func locksChanged(old, c *config.Config, past [][]lockingRule) (paths []string) {
	renewed := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(c.Locks)) {
		if before, ok := old.Locks[name]; ok && !reflect.DeepEqual(identityOf(before), identityOf(c.Locks[name])) && settlesWith(old, name) && settlesWith(c, name) {
			renewed[name] = true
			for _, path := range config.ChangesIn("locks."+name, before, c.Locks[name]) {
				if config.ChangeOf(path) == config.ChangeLock {
					paths = append(paths, path)
				}
			}
		}
	}
	now := lockingRules(c)
	for _, before := range append(slices.Clip(past), lockingRules(old)) {
		for o := range before {
			for r := range now {
				if !mayChangeRule(before, now, o, r) {
					continue
				}
				was, is := &before[o], &now[r]
				for n, place := range []string{"settle.lock", "settle.limit.lock"} {
					if was.locks[n] != "" && is.locks[n] != "" && !reflect.DeepEqual(was.identities[n], is.identities[n]) && !(renewed[is.locks[n]] && was.locks[n] == is.locks[n]) {
						paths = append(paths, "rules."+is.name+"."+place)
					}
				}
				if was.locks[0] != "" && is.locks[0] != "" && was.cases != is.cases {
					paths = append(paths, "rules."+is.name+".id")
				}
				for _, key := range storedChanged(was, is, hasRule(c, was.name)) {
					paths = append(paths, "rules."+is.name+"."+key)
				}
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// lockingRule holds the parts of a rule that decide which lock a request takes, and which stored
// answer it finds.
type lockingRule struct {
	name       string
	match      config.Match
	locks      [2]string
	identities [2]identity
	cases      string
	stored     storedIdentity
}

// lockingRules returns the rules of a configuration in the order of the file.
func lockingRules(c *config.Config) []lockingRule {
	all := make([]lockingRule, len(c.Rules))
	for i, r := range c.Rules {
		all[i] = lockingRule{name: r.Name, match: r.Match, locks: locksOf(r), cases: casesOf(r), stored: storedIdentityOf(&r)}
		for n, name := range all[i].locks {
			if name != "" {
				all[i].identities[n] = identityOf(c.Locks[name])
			}
		}
		if all[i].locks[0] != "" {
			all[i].identities[0].parts = partsOf(&c.Rules[i])
		}
	}
	return all
}

// partsOf identifies the parts in a lock's key, and their spelling. A {name} in the key that is no
// part is literal.
func partsOf(r *config.Rule) (text string) {
	for _, name := range r.PartNames() {
		text += name + "/"
		text += foldsOf(r.Parts[name])
	}
	if r.IsBy() {
		text += fmt.Sprint("by ", r.Settle.By)
	}
	return text
}

// mayChangeRule reports whether a request may exist that rule o of before applied to, and that
// rule r of now applies to.
func mayChangeRule(before, now []lockingRule, o, r int) bool {
	same := func(a, b *lockingRule) bool { return a.name == b.name && reflect.DeepEqual(a.match, b.match) }
	switch {
	case before[o].name == now[r].name:
		return true
	case !mayMatchBoth(before[o].match, now[r].match):
		return false
	}
	staysFirst := slices.ContainsFunc(now[:r], func(t lockingRule) bool { return same(&t, &before[o]) })
	wasFirst := slices.ContainsFunc(before[:o], func(t lockingRule) bool { return same(&t, &now[r]) })
	return !staysFirst && !wasFirst
}

// mayMatchBoth reports whether a request may exist that both match.
func mayMatchBoth(a, b config.Match) bool {
	if a.Host != "" && b.Host != "" && a.Host != b.Host || !slices.ContainsFunc(a.Methods, func(m string) bool { return slices.Contains(b.Methods, m) }) {
		return false
	}
	for name, values := range a.Query {
		if others, ok := b.Query[name]; ok && !slices.ContainsFunc(others, func(other string) bool { return slices.Contains(values, other) }) {
			return false
		}
	}
	return slices.EqualFunc(strings.Split(a.Path, "/"), strings.Split(b.Path, "/"), func(x, y string) bool {
		return strings.EqualFold(x, y) || strings.HasPrefix(x, "{") || strings.HasPrefix(y, "{")
	})
}

// casesOf identifies how the IDs of a rule change to one spelling. If that differs, the same
// request may use another key.
func casesOf(r config.Rule) string {
	ids := r.IDs
	if r.Settle != nil && r.Settle.Limit != nil {
		ids = append(slices.Clone(ids), r.Settle.Limit.ID)
	}
	return foldsOf(ids...)
}

func foldsOf(ids ...config.ID) (text string) {
	for _, id := range ids {
		if id.FoldsCase() && !strings.Contains(text, id.Case) {
			text += id.Case + "/"
		}
	}
	return text
}

// locksOf returns the names of the locks that requests of a rule acquire: the lock of the order,
// and that of the limit. A name is "" if the rule has no such lock.
func locksOf(r config.Rule) (names [2]string) {
	if !r.Mode.Enforces() {
		return names
	}
	names[0] = r.OrderLock()
	if r.Settle != nil && r.Settle.Limit != nil {
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
