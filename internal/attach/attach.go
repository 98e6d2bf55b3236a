// Package attach derives from the rules what a proxy has to do for ordergate: which requests need
// which filter, which bodies and headers ordergate has to see, and which timeouts fit.
//
// Start with [Of]. Package envoyfile prints the plan as a configuration, and package envoycheck
// compares a configuration with it.
package attach

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/config"
)

// Plan is what the rules of a file need.
type Plan struct {
	Config *config.Config
	Needs  []Need // of each rule, in the order of the file
	Times  Times
	// MaxBody is the longest body in bytes that a rule reads an ID from.
	MaxBody int
}

// Need is what the requests of one rule need.
type Need struct {
	Rule *config.Rule
	// Authz means that ext_authz judges the request: it has a rule.
	Authz bool
	// Proc means that ext_proc has to see the request and its answer: it is locked, its answer is
	// read or stored, or its ID is in the body.
	Proc bool
	// Calls is Proc without the rules whose lookups are only in the body.
	Calls bool
	// Body means that an ID is in the body of the request.
	Body    bool
	Settles bool // it may run at most once at a time, so a client's rate is limited
	Reads   bool // it has GET or HEAD among its methods
	Writes  bool // it has any other
	// Headers are those with an ID, for a filter that sees only the answers.
	Headers []string
	Cookies bool // an ID is in a cookie
	// Asks means that the request may have to wait for Redis or a table before it is known whether it
	// is refused. Ext_authz bounds that by a short timeout, and lets it pass then.
	Asks bool
}

// Of returns the plan of a configuration, which must have its defaults filled in. BackendTime is the
// longest time that the backend takes for a write; 0: 25 s, or less if a lock is held for less.
func Of(c *config.Config, backendTime time.Duration) (Plan, error) {
	p := Plan{Config: c}
	for i := range c.Rules {
		n := needOf(c, &c.Rules[i])
		p.Needs = append(p.Needs, n)
		for _, id := range n.ids() {
			if inBody(id) {
				p.MaxBody = max(p.MaxBody, id.MaxBody)
			}
		}
	}
	var err error
	p.Times, err = timesOf(c, backendTime)
	return p, err
}

func needOf(c *config.Config, r *config.Rule) Need {
	n := Need{Rule: r, Authz: !r.Pass, Settles: r.Settle != nil}
	n.Asks = r.Lookup != nil && c.Filters[r.Lookup.Filter].InRedis() != "" || r.Create != nil && r.Create.Dedup != nil
	n.Calls = r.Create != nil || r.Settle != nil || r.Once != nil
	for _, id := range n.ids() {
		n.Body = n.Body || inBody(id)
		n.Cookies = n.Cookies || id.Cookie != ""
		if id.Header != "" && !slices.Contains(n.Headers, id.Header) {
			n.Headers = append(n.Headers, id.Header)
		}
	}
	n.Proc = n.Calls || n.Body
	for _, m := range r.Match.Methods {
		if m == http.MethodGet || m == http.MethodHead {
			n.Reads = true
		} else {
			n.Writes = true
		}
	}
	return n
}

// ids returns every place from which the rule reads.
func (n *Need) ids() []config.ID {
	ids := slices.Clone(n.Rule.IDs)
	for _, part := range n.Rule.Parts {
		ids = append(ids, part)
	}
	if s := n.Rule.Settle; s != nil && s.Limit != nil {
		ids = append(ids, s.Limit.ID)
	}
	return ids
}

func inBody(id config.ID) bool { return id.JSON != "" || id.Form != "" }

// NeedsAuthz reports whether any request needs ext_authz.
func (p *Plan) NeedsAuthz() bool {
	return slices.ContainsFunc(p.Needs, func(n Need) bool { return n.Authz })
}

// NeedsProc reports whether any request needs ext_proc.
func (p *Plan) NeedsProc() bool {
	return slices.ContainsFunc(p.Needs, func(n Need) bool { return n.Proc })
}

// ProcAlone reports whether ext_proc decides alone what reaches it, so that ext_authz is off there: reads
// go through the one filter, and everything else through the other.
func (p *Plan) ProcAlone() bool {
	return p.NeedsProc() && !slices.ContainsFunc(p.Needs, func(n Need) bool { return n.Asks && n.reachesProc() })
}

// reachesProc reports whether requests of the rule reach ext_proc: writes, and those in ByGet.
func (n *Need) reachesProc() bool { return n.Writes || n.Proc }

// Measures reports whether the answers to lookups are of use: to measure a filter, and to verify its
// refusals.
func (p *Plan) Measures() bool {
	return slices.ContainsFunc(p.Needs, func(n Need) bool { return n.Rule.Lookup != nil && !n.Calls })
}

// LookupHeaders returns the headers with IDs of lookups, sorted.
func (p *Plan) LookupHeaders() []string {
	var names []string
	for _, n := range p.Needs {
		if n.Rule.Lookup != nil && !n.Calls {
			names = append(names, n.Headers...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Route selects requests in Envoy: by the path alone, or by a parameter of the query.
type Route struct {
	Rules     []string
	Path      string // RE2 that matches the whole path; "": any path
	Parameter string // "": none
	Value     string // RE2 that matches the whole value as it is written
	Settles   bool
}

// ByGet returns the routes of requests by GET or HEAD that write, and with bodies also of those whose
// ID is in the body. They match more than the rules do: ordergate refuses other spellings, but not while
// it is away.
func (p *Plan) ByGet(bodies bool) []Route {
	return p.routes(func(n Need) bool { return n.Reads && (n.Calls || bodies && n.Body) }, wide)
}

// Settlements returns the routes of settlements by other methods, for the limit of each client.
func (p *Plan) Settlements() []Route {
	return p.routes(func(n Need) bool { return n.Writes && n.Settles }, exact)
}

// breadth is how much more than a rule its route matches.
type breadth int

const (
	exact breadth = iota
	wide          // in any case, with repeated slashes, and any text behind a word
)

// routes returns one route for all rules without a parameter, and one for each parameter.
func (p *Plan) routes(of func(Need) bool, b breadth) []Route {
	var routes []Route
	paths, values := map[string][]string{}, map[string][]string{}
	at := map[string]int{}
	for _, n := range p.Needs {
		if !of(n) {
			continue
		}
		name := parameter(n.Rule)
		i, ok := at[name]
		if !ok {
			i = len(routes)
			at[name], routes = i, append(routes, Route{Parameter: name})
		}
		routes[i].Rules = append(routes[i].Rules, n.Rule.Name)
		routes[i].Settles = routes[i].Settles || n.Settles
		if name == "" {
			paths[name] = append(paths[name], pathPattern(n.Rule, b))
			continue
		}
		for _, v := range n.Rule.Match.Query[name] {
			values[name] = append(values[name], valuePattern(v, b))
		}
	}
	for i := range routes {
		r := &routes[i]
		if r.Parameter == "" {
			r.Path = join(paths[""], b, "/+", ".*")
		} else {
			r.Value = join(values[r.Parameter], b, ".*", ".*")
		}
	}
	return routes
}

// join makes one pattern of several.
func join(patterns []string, b breadth, before, behind string) string {
	patterns = slices.Compact(slices.Sorted(slices.Values(patterns)))
	all := strings.Join(patterns, "|")
	if b == exact {
		return all
	}
	return "(?i)" + before + "(" + all + ")" + behind
}

// parameter returns the parameter by which a rule matches, the first of several; "": none.
func parameter(r *config.Rule) string {
	name := ""
	for n := range r.Match.Query {
		if name == "" || n < name {
			name = n
		}
	}
	return name
}

func pathPattern(r *config.Rule, b breadth) string {
	var segments []string
	for s := range strings.SplitSeq(strings.Trim(r.Match.Path, "/"), "/") {
		switch {
		case strings.HasPrefix(s, "{"):
			segments = append(segments, "[^/]+")
		case b == wide:
			segments = append(segments, regexp.QuoteMeta(s)+"[^/]*")
		default:
			segments = append(segments, regexp.QuoteMeta(s))
		}
	}
	if b == wide {
		return strings.TrimSuffix(strings.Join(segments, "/+"), "[^/]*")
	}
	pattern := "/" + strings.Join(segments, "/")
	if r.Match.Case == config.CaseInsensitive {
		pattern = "(?i:" + pattern + ")"
	}
	return pattern
}

var notWord = regexp.MustCompile(`[^A-Za-z0-9]+`)

func valuePattern(value string, b breadth) string {
	if b == exact {
		return regexp.QuoteMeta(value)
	}
	return strings.Trim(notWord.ReplaceAllString(value, ".*"), ".*")
}

// sentence joins names as a sentence does.
func sentence(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

// RuleNames returns the names of the route's rules, as a sentence has them.
func (r Route) RuleNames() string { return sentence(r.Rules) }

// String returns the request that the rule is about, for a message.
func (n Need) String() string {
	return fmt.Sprintf("%s (%s %s)", n.Rule.Name, strings.Join(n.Rule.Match.Methods, ", "), n.Rule.Match.Path)
}
