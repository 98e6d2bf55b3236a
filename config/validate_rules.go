package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

const (
	maxBody     = 64 << 10 // bytes
	maxPath     = 2048     // bytes, of a template
	maxJSONPath = 512      // bytes, all names together
)

func (v *validator) rule(path string, r *Rule) {
	v.mode(path+".mode", r)
	if at := path + ".front_controllers"; !hasFrontControllers(r.Backend) && (len(r.FrontControllers) > 0 || v.given(at)) {
		v.reject(at, "is for backend %s and %s: remove it, or set one of them", BackendStrict, BackendPHP)
	}
	if !v.given(path+".match") && v.given(path) {
		v.rejectMissing(path, []string{"match"}, "match is missing: give methods and a path")
	}
	if r.Pass {
		v.query(path, r, nil)
		return
	}
	entries := v.entries(path, r)
	v.query(path, r, v.ids(path, r, entries))
	v.parts(path, r, entries)
	if at := path + ".json_without_type"; !r.readsJSON() && (r.JSONWithoutType != "" || v.given(at)) {
		v.reject(at, "is for a rule that reads an ID from JSON: remove it")
	}
	if r.Answer != v.config.Answer {
		v.answer(path+".answer", r.Answer)
	}
	if r.Lookup == nil && r.Create == nil && r.Settle == nil && r.Once == nil {
		v.rejectMissing(path, []string{"lookup", "create", "settle", "once", "pass"}, "does nothing: give it lookup, create, settle, once or pass")
	}
	v.onceRules(path, r)
	if r.Create != nil && (r.Lookup != nil || r.Settle != nil) {
		v.reject(path+".create", "excludes lookup and settle: an order that is yet to be made cannot be looked up")
	}
	if r.Create != nil {
		v.learn(path+".create", r.Create)
		v.createLock(path, r, entries)
		v.dedup(path, r)
	}
	if r.Settle != nil {
		v.settle(path+".settle", r)
		v.limit(path, r)
	}
}

// pass rejects the keys that a rule with pass ignores. A user who sets them expects the gate to
// check the requests.
func (v *validator) pass(path string, r *Rule) {
	keys := []string{"id", "parts", "invalid", "answer", "json_without_type", "lookup", "create", "settle", "once"}
	v.without(path, r, "is not for a rule with pass, which exempts its requests: remove one of the two", keys...)
	for _, key := range keys {
		v.discarded[join(path, key)] = true // so that nothing in it is checked
	}
	if r.Match.OtherMethods == OtherMethodsRefuse && r.Settle == nil {
		v.reject(path+".match.other_methods", "is not for a rule with pass, which refuses nothing: remove one of the two")
	}
}

func (v *validator) ruleNamesDiffer(rules []Rule) {
	owner := make(map[string]int, len(rules))
	for i := range rules {
		name := rules[i].Name
		if first, taken := owner[name]; !taken {
			owner[name] = i
		} else if name != "" {
			v.reject(rulePath(i)+".name", "%s is also the name of %s: give each rule a name of its own", quote(name), rulePath(first))
		}
	}
}

func (v *validator) createLock(path string, r *Rule, entries []*entry) {
	at := path + ".create"
	switch lock, defined := v.config.Locks[r.Create.Lock]; {
	case r.Create.Lock == "":
	case defined && (lock.Kind == LockRead || lock.Kind == LockSemaphore):
		v.reject(at+".lock", "%s is of kind %s, which several calls hold at once: give a lock with one holder", quote(r.Create.Lock), lock.Kind)
	case len(r.IDs) > 0 && len(v.locations(entries[0])) == 0:
		v.reject(at+".lock", "is for creates that name their order, and id has no location: give it one, or use create.once")
	}
}

func (v *validator) settle(path string, r *Rule) {
	s := r.Settle
	v.by(path, r)
	v.require(path, r)
	between(v, path+".max_in_flight_per_client", s.MaxInFlightPerClient, 1, max(s.MaxInFlight, 1))
	v.holdCoversInFlight(path, s)
}

// holdCoversInFlight checks that a hold lasts longer than the backend needs for all calls in
// flight. It needs backend_workers and backend_timeout.
func (v *validator) holdCoversInFlight(path string, s *Settle) {
	l, known := v.config.Locks[s.Lock]
	if v.unusable(path+".backend_workers") || v.unusable(path+".backend_timeout") || s.BackendWorkers < 1 || s.BackendTimeout <= 0 || !known {
		return
	}
	rounds := (s.MaxInFlight + s.BackendWorkers - 1) / s.BackendWorkers
	hold := l.OnUnknownOutcome.Hold
	if busy := time.Duration(rounds) * s.BackendTimeout; busy >= hold {
		v.reject(path+".max_in_flight", "%d calls keep %d workers busy for up to %v, at %v each, and %s holds an order for %v: raise its on_unknown_outcome.hold above %v%s",
			s.MaxInFlight, s.BackendWorkers, busy, s.BackendTimeout, s.Lock, hold, busy, smallerLimit(s, hold))
	}
}

// smallerLimit suggests the greatest max_in_flight for which the hold is long enough; "" if
// there is none.
func smallerLimit(s *Settle, hold time.Duration) string {
	if rounds := int((hold - 1) / s.BackendTimeout); rounds > 0 {
		return fmt.Sprintf(", or set max_in_flight to %d", rounds*s.BackendWorkers)
	}
	return ""
}

var (
	methodName = lazyregexp.New(`^[A-Z][A-Z0-9_-]{0,31}$`)
	segment    = lazyregexp.New(`^(?:[A-Za-z0-9._~-]+|\{[A-Za-z0-9_-]{1,63}\})$`)
	matchHost  = lazyregexp.New(`^[a-z0-9_]([a-z0-9_.-]{0,252}[a-z0-9_])?$`)
)

// maxQueryValues bounds the values of a parameter. A request is held against all of them.
const maxQueryValues = 64

// queryValue matches the value of a parameter as it stands in a query.
var queryValue = lazyregexp.New(`^[!-~]{1,256}$`)

// query checks the parameters that a rule matches by. It rejects a parameter that a backend may
// confuse with an ID.
func (v *validator) query(path string, r *Rule, ids []location) {
	at := path + ".match.query"
	for _, name := range sortedKeys(r.Match.Query) {
		here, values := join(at, name), r.Match.Query[name]
		if !parameterName.MatchString(name) {
			v.reject(here, "%s is not the name of a parameter: names are 1 to 128 letters, digits, _ and -", quote(name))
			continue
		}
		if len(values) == 0 || len(values) > maxQueryValues {
			v.reject(here, "has %d values to match by: 1 to %d are allowed", len(values), maxQueryValues)
		}
		for _, value := range values {
			if !queryValue.MatchString(value) || strings.ContainsAny(value, "&;#") || !strings.ContainsFunc(value, func(c rune) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' }) {
				v.reject(here, "%s is not a value to match by: values are 1 to 256 visible characters of ASCII but & ; and #, as a request has them, with a letter or digit", quote(value))
			}
		}
		for _, l := range ids {
			if (l.role == ofOrder || l.role == ofPart) && l.lastName() == squash(name) {
				v.reject(here, "may be taken for %s of %s: match by another parameter", quote(l.value), l.whose())
			}
		}
	}
}

// validHost reports whether an :authority can have the host.
func validHost(host string) bool {
	if address, ok := strings.CutPrefix(host, "["); ok {
		address, ok = strings.CutSuffix(address, "]")
		ip, err := netip.ParseAddr(address)
		return ok && err == nil && ip.Is6() && ip.Zone() == "" && address == strings.ToLower(address)
	}
	return matchHost.MatchString(host)
}

// templateProblem returns the fault of a path template, or "".
func templateProblem(template string) string {
	rest, ok := strings.CutPrefix(template, "/")
	switch {
	case !ok:
		return "does not start with /"
	case strings.ContainsAny(template, "?#"):
		return "has a query or a fragment: give the path only"
	case strings.Contains(template, "//"):
		return "has // in it: write one /"
	case len(template) > maxPath:
		return fmt.Sprintf("is %d bytes long: at most %d are allowed", len(template), maxPath)
	case rest == "":
		return ""
	}
	var names []string
	for text := range strings.SplitSeq(strings.TrimSuffix(rest, "/"), "/") { // the backend's URLs may end in /
		switch {
		case text == "." || text == "..":
			return fmt.Sprintf("has the segment %s: write the path that it leads to", text)
		case !segment.MatchString(text):
			return fmt.Sprintf("has the segment %s: a segment is letters, digits and . _ ~ -, or a whole {name}", quote(text))
		case slices.Contains(names, text):
			return fmt.Sprintf("has %s twice: give each segment a name of its own", text)
		case text[0] == '{':
			names = append(names, text)
		}
	}
	return ""
}

func (v *validator) learn(path string, c *Create) {
	at, l := path+".learn", c.Learn
	hasJSON := l.ResponseJSON != "" || v.given(at+".response_json")
	hasHeader := l.ResponseHeader != "" || v.given(at+".response_header")
	switch {
	case l.Table && (hasJSON || hasHeader || l.Pattern != ""):
		v.reject(at, "has table and a location in the answer: give exactly one of them")
	case l.Table:
		if _, exists := v.config.Filters[c.Filter]; exists && !v.config.IsFollowed(c.Filter) {
			v.reject(at, "is table, and filter %s is not filled by it: give the filter a source of kind mysql or postgres, and each such source follow: binlog or logical", quote(c.Filter))
		}
	case hasJSON && hasHeader:
		v.reject(at, "has response_json and response_header: give exactly one of them")
	case hasJSON && (slices.Contains(strings.Split(l.ResponseJSON, "."), "") || len(l.ResponseJSON) > maxJSONPath):
		v.reject(at+".response_json", "%s is not a path of member names joined by dots, such as data.orderId", quote(l.ResponseJSON))
	case hasHeader || hasJSON:
		v.capture(at+".pattern", l.Pattern)
	case v.given(at):
		v.rejectMissing(at, []string{"response_json", "response_header"}, "does not name the new ID's location: give exactly one of response_json, response_header, or write learn: table")
	default:
		v.rejectMissing(path, []string{"learn"}, "learn is missing: give it response_json or response_header, or write learn: table")
	}
}

// capture checks a pattern that extracts an ID from a text.
func (v *validator) capture(path, pattern string) {
	if pattern == "" && !v.given(path) {
		return
	}
	expr, err := regexp.Compile(pattern)
	switch {
	case err != nil:
		v.notRegexp(path, err)
	case expr.NumSubexp() != 1:
		v.reject(path, "has %d groups: give exactly one, around the ID, such as /orders/([0-9]+)$; (?:...) is none", expr.NumSubexp())
	}
}
