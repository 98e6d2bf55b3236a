package config

import (
	"slices"
	"strings"
)

// rulesAreReached rejects a rule, or a method of it, if an earlier rule matches all of its
// requests. A settlement behind such a rule would run without its lock.
func (v *validator) rulesAreReached(rules []Rule) {
	var paths pathNode
	for j := range rules {
		r := &rules[j]
		if r.Match.Path == "" {
			continue
		}
		var earlier []int // rules that match all of the paths
		segments := strings.Split(strings.ToLower(r.Match.Path), "/")
		paths.find(segments, r.Match.Query, func(rules []int) { earlier = append(earlier, rules...) })
		paths.insert(segments, r.Match.Query, j)
		slices.Sort(earlier)
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

// pathNode is a part of the paths of rules: the rules whose path ends here, and what may follow.
type pathNode struct {
	rules map[string][]int     // by each value of a parameter, name=value; "": with any query
	next  map[string]*pathNode // by a segment in lower case; {}: any
}

func isVariable(segment string) bool { return strings.HasPrefix(segment, "{") }

func (n *pathNode) insert(segments []string, query map[string]QueryValues, rule int) {
	for _, s := range segments {
		if isVariable(s) {
			s = "{}"
		}
		if n.next[s] == nil {
			if n.next == nil {
				n.next = make(map[string]*pathNode)
			}
			n.next[s] = new(pathNode)
		}
		n = n.next[s]
	}
	keys := []string{""}
	if len(query) > 0 {
		name := sortedKeys(query)[0]
		keys = nil
		for _, value := range query[name] {
			keys = append(keys, name+"="+value)
		}
	}
	if n.rules == nil {
		n.rules = make(map[string][]int)
	}
	for _, key := range keys {
		n.rules[key] = append(n.rules[key], rule)
	}
}

// find visits the rules that match each path with these segments, but for the case of letters, and
// that may match each such query.
func (n *pathNode) find(segments []string, query map[string]QueryValues, visit func(rules []int)) {
	if n == nil {
		return
	}
	if len(segments) == 0 {
		visit(n.rules[""])
		for name, values := range query {
			if len(values) > 0 {
				visit(n.rules[name+"="+values[0]])
			}
		}
		return
	}
	if s := segments[0]; s != "" { // a name stands for at least one byte
		n.next["{}"].find(segments[1:], query, visit)
	}
	if s := segments[0]; !isVariable(s) {
		n.next[s].find(segments[1:], query, visit)
	}
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
