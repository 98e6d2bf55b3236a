package config

import (
	"fmt"
	"slices"
	"strings"
)

// rulesAreReached rejects a rule, or a method of it, if an earlier rule matches all of its
// requests. A settlement behind such a rule would run without its lock.
func (v *validator) rulesAreReached(rules []Rule) {
	var before earlierPaths
	for j := range rules {
		r := &rules[j]
		if r.Match.Path == "" {
			continue
		}
		earlier := before.add(strings.Split(strings.ToLower(r.Match.Path), "/"), j)
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
		first := strings.Join(names, " and ")
		if len(taken) == len(r.Match.Methods) {
			v.reject(rulePath(j)+".match", "never matches: %s before it takes all such requests: put this rule first", first)
			continue
		}
		v.reject(rulePath(j)+".match.methods", "%s never reaches this rule: %s before it takes all such requests: put this rule first, or leave the method out",
			strings.Join(taken, ", "), first)
	}
}

func isVariable(segment string) bool { return strings.HasPrefix(segment, "{") }

// earlierPaths finds the rules whose paths match all of another's, but for the case of letters, among
// any number of rules: many paths have their variables in the same places.
type earlierPaths struct {
	variables map[string][]bool // which segments are variables; by that, as a text
	rules     map[string][]int  // by their paths, without the names of variables
}

// add adds the path of rule i, and returns the earlier ones that match all of its paths, in their order.
func (e *earlierPaths) add(segments []string, i int) (earlier []int) {
	if e.rules == nil {
		e.variables, e.rules = make(map[string][]bool), make(map[string][]int)
	}
	for _, variable := range e.variables {
		if path, fits := nameless(segments, variable); fits {
			earlier = append(earlier, e.rules[path]...)
		}
	}
	slices.Sort(earlier)
	own := make([]bool, len(segments))
	for s, segment := range segments {
		own[s] = isVariable(segment)
	}
	e.variables[fmt.Sprint(own)] = own
	path, _ := nameless(segments, own)
	e.rules[path] = append(e.rules[path], i)
	return earlier
}

// nameless returns a path with {} in the place of each segment that is a variable, if there may be
// variables: each stands for at least one byte.
func nameless(segments []string, variable []bool) (path string, fits bool) {
	if len(segments) != len(variable) {
		return "", false
	}
	replaced := slices.Clone(segments)
	for s := range segments {
		if variable[s] {
			if segments[s] == "" {
				return "", false
			}
			replaced[s] = "{}"
		}
	}
	return strings.Join(replaced, "/"), true
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
