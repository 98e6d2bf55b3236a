package config

import (
	"slices"
	"strings"
)

// rulesAreReached rejects a rule, or a method of it, if an earlier rule matches all of its
// requests. A settlement behind such a rule would run without its lock.
func (v *validator) rulesAreReached(rules []Rule) {
	segments := make([][]string, len(rules)) // of the paths, in lower case
	for j := range rules {
		r := &rules[j]
		if r.Match.Path == "" {
			continue
		}
		segments[j] = strings.Split(strings.ToLower(r.Match.Path), "/")
		var earlier []int // rules that match all of the paths
		for i, wide := range segments[:j] {
			if takesAllPaths(wide, segments[j]) {
				earlier = append(earlier, i)
			}
		}
		var taken []string // methods
		var by []int       // the rules that match them
		for _, method := range r.Match.Methods {
			for _, i := range earlier {
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

func isVariable(segment string) bool { return strings.HasPrefix(segment, "{") }

// takesAllPaths reports whether a path with the earlier segments matches each with the others, but for
// the case of letters. A name stands for at least one byte.
func takesAllPaths(earlier, segments []string) bool {
	return slices.EqualFunc(earlier, segments, func(wide, narrow string) bool {
		return wide == narrow || isVariable(wide) && narrow != ""
	})
}

// takesAll reports whether an earlier match selects every request with the method that m
// selects. Its path has to match each of m's paths in some case of letters.
func takesAll(earlier, m *Match, method string) bool {
	return (slices.Contains(earlier.Methods, method) || method == "HEAD" && slices.Contains(earlier.Methods, "GET")) &&
		(earlier.Host == "" || earlier.Host == m.Host) &&
		takesAllParameters(earlier.Query, m.Query) && takesAllCases(earlier, m)
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

// takesAllCases reports whether an earlier match has the segments of m in each case of letters that
// m has them in.
func takesAllCases(earlier, m *Match) bool {
	if earlier.Case == CaseInsensitive {
		return true
	}
	wide, narrow := strings.Split(earlier.Path, "/"), strings.Split(m.Path, "/")
	for i, segment := range wide {
		hasLetters := strings.ToLower(segment) != strings.ToUpper(segment)
		if !isVariable(segment) && (segment != narrow[i] || m.Case == CaseInsensitive && hasLetters) {
			return false
		}
	}
	return true
}
