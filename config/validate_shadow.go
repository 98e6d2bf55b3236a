package config

import (
	"slices"
	"strings"
)

// rulesAreReached rejects a rule, or a method of it, if an earlier rule matches all of its
// requests. A settlement behind such a rule would run without its lock.
func (v *validator) rulesAreReached(rules []Rule) {
	for j := range rules {
		r := &rules[j]
		var taken []string // methods
		var by []int       // the rules that match them
		for _, method := range r.Match.Methods {
			for i := range rules[:j] {
				if !takesAll(&rules[i].Match, &r.Match, method) {
					continue
				}
				taken = append(taken, method)
				if !slices.Contains(by, i) {
					by = append(by, i)
				}
				break
			}
		}
		if len(taken) == 0 || v.unusable(rulePath(j)+".match") {
			continue
		}
		names := make([]string, len(by))
		for n, i := range by {
			names[n] = rulePath(i)
			if rules[i].Name != "" {
				names[n] += " (" + rules[i].Name + ")"
			}
		}
		before := strings.Join(names, " and ")
		if len(taken) == len(r.Match.Methods) {
			v.reject(rulePath(j)+".match", "never matches: %s before it takes all such requests: put this rule first", before)
			continue
		}
		v.reject(rulePath(j)+".match.methods", "%s never reaches this rule: %s before it takes all such requests: put this rule first, or leave the method out",
			strings.Join(taken, ", "), before)
	}
}

// takesAll reports whether an earlier match selects every request with the method that m
// selects.
func takesAll(earlier, m *Match, method string) bool {
	return (slices.Contains(earlier.Methods, method) || method == "HEAD" && slices.Contains(earlier.Methods, "GET")) &&
		(earlier.Host == "" || earlier.Host == m.Host) &&
		takesAllParameters(earlier.Query, m.Query) && takesAllPaths(earlier, m)
}

func takesAllParameters(earlier, query map[string]QueryValues) bool {
	for name, values := range earlier {
		other := func(value string) bool { return !slices.Contains(values, value) }
		if of := query[name]; len(of) == 0 || slices.ContainsFunc(of, other) {
			return false
		}
	}
	return true
}

func takesAllPaths(earlier, m *Match) bool {
	wide, narrow := earlier.Path, m.Path
	if wide == "" || narrow == "" || strings.Count(wide, "/") != strings.Count(narrow, "/") {
		return false
	}
	for more := true; more; {
		var segment, other string
		segment, wide, more = strings.Cut(wide, "/")
		other, narrow, _ = strings.Cut(narrow, "/")
		switch {
		case strings.HasPrefix(segment, "{"):
			if other == "" {
				return false // a name stands for at least one byte
			}
		case strings.HasPrefix(other, "{"):
			return false
		case earlier.Case == CaseInsensitive:
			if !strings.EqualFold(segment, other) {
				return false
			}
		case segment != other || m.Case == CaseInsensitive && strings.ToLower(segment) != strings.ToUpper(segment):
			return false
		}
	}
	return true
}
