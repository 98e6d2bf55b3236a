package envoycheck

import (
	"net/http"
	"regexp"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/attach"
)

// sample is a request of a rule.
type sample struct {
	need         *attach.Need
	method, path string
	query        map[string]string
	host         string // "": any
}

// reads reports whether its method is GET or HEAD.
func (s *sample) reads() bool { return s.method == http.MethodGet || s.method == http.MethodHead }

// samples returns a request for each method of a rule, and each of the values that it matches by.
func samples(n *attach.Need) []sample {
	queries := []map[string]string{{}}
	for name, values := range n.Rule.Match.Query {
		var more []map[string]string
		for _, q := range queries {
			for _, v := range values {
				one := map[string]string{name: v}
				for k, v := range q {
					one[k] = v
				}
				more = append(more, one)
			}
		}
		if len(more) > 64 {
			more = more[:64]
		}
		queries = more
	}
	var all []sample
	for _, method := range n.Rule.Match.Methods {
		for _, q := range queries {
			all = append(all, sample{n, method, samplePath(n.Rule), q, n.Rule.Match.Host})
		}
	}
	return all
}

// samplePath returns a path of the rule.
func samplePath(r *config.Rule) string {
	segments := strings.Split(r.Match.Path, "/")
	for i, s := range segments {
		if !strings.HasPrefix(s, "{") {
			continue
		}
		segments[i] = "1234567890"
		for _, id := range r.IDs {
			if id.Path == strings.Trim(s, "{}") && id.Format == config.FormatUUID {
				segments[i] = "00000000-0000-4000-8000-000000000000"
			}
		}
	}
	return strings.Join(segments, "/")
}

// fit tells whether a condition holds for a sample.
type fit int

const (
	no fit = iota
	maybe
	yes
)

func of(b bool) fit {
	if b {
		return yes
	}
	return no
}

// reached is a route that a sample may take.
type reached struct {
	route *routev3.Route
	host  *routev3.VirtualHost
	table *routev3.RouteConfiguration
}

// reach returns the routes that a sample may take.
func reach(table *routev3.RouteConfiguration, s *sample) []reached {
	var found []reached
	for _, h := range table.GetVirtualHosts() {
		if s.host != "" && !hasDomain(h, s.host) && len(table.GetVirtualHosts()) > 1 {
			continue
		}
		for _, r := range h.GetRoutes() {
			f := matches(r.GetMatch(), s)
			if f == no {
				continue
			}
			found = append(found, reached{r, h, table})
			if f == yes {
				break
			}
		}
	}
	return found
}

// hasDomain reports whether a virtual host may serve a host.
func hasDomain(h *routev3.VirtualHost, host string) bool {
	for _, d := range h.GetDomains() {
		d, _, _ = strings.Cut(strings.ToLower(d), ":")
		switch {
		case d == "*" || d == host,
			strings.HasPrefix(d, "*") && strings.HasSuffix(host, d[1:]),
			strings.HasSuffix(d, "*") && strings.HasPrefix(host, d[:len(d)-1]):
			return true
		}
	}
	return false
}

func matches(m *routev3.RouteMatch, s *sample) fit {
	f := matchesPath(m, s.path)
	for _, h := range m.GetHeaders() {
		f = min(f, matchesHeader(h, s))
	}
	for _, q := range m.GetQueryParameters() {
		f = min(f, matchesQuery(q, s))
	}
	if m.GetRuntimeFraction() != nil || m.GetTlsContext() != nil || m.GetGrpc() != nil || len(m.GetDynamicMetadata()) > 0 {
		f = min(f, maybe)
	}
	return f
}

func matchesPath(m *routev3.RouteMatch, path string) fit {
	fold := m.GetCaseSensitive() != nil && !m.GetCaseSensitive().GetValue()
	if fold {
		path = strings.ToLower(path)
	}
	text := func(t string) string {
		if fold {
			return strings.ToLower(t)
		}
		return t
	}
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		return of(strings.HasPrefix(path, text(p.Prefix)))
	case *routev3.RouteMatch_Path:
		return of(path == text(p.Path))
	case *routev3.RouteMatch_PathSeparatedPrefix:
		prefix := text(p.PathSeparatedPrefix)
		return of(path == prefix || strings.HasPrefix(path, prefix+"/"))
	case *routev3.RouteMatch_SafeRegex:
		return matchesRegex(p.SafeRegex, path)
	case *routev3.RouteMatch_ConnectMatcher_:
		return no
	}
	return maybe
}

func matchesRegex(m *matcherv3.RegexMatcher, text string) fit {
	re, err := regexp.Compile("^(?s:" + m.GetRegex() + ")$")
	if err != nil {
		return maybe
	}
	return of(re.MatchString(text))
}

func matchesHeader(h *routev3.HeaderMatcher, s *sample) fit {
	var value string
	switch {
	case h.GetName() == ":method":
		value = s.method
	case h.GetName() == ":path":
		return maybe
	case (h.GetName() == ":authority" || strings.EqualFold(h.GetName(), "host")) && s.host != "":
		value = s.host
	default:
		return maybe
	}
	var f fit
	switch m := h.GetHeaderMatchSpecifier().(type) {
	case *routev3.HeaderMatcher_StringMatch:
		f = matchesString(m.StringMatch, value)
	case *routev3.HeaderMatcher_ExactMatch:
		f = of(value == m.ExactMatch) //nolint:staticcheck // old configurations have it
	case *routev3.HeaderMatcher_SafeRegexMatch:
		f = matchesRegex(m.SafeRegexMatch, value) //nolint:staticcheck // as above
	case *routev3.HeaderMatcher_PresentMatch:
		f = of(m.PresentMatch)
	case *routev3.HeaderMatcher_PrefixMatch:
		f = of(strings.HasPrefix(value, m.PrefixMatch)) //nolint:staticcheck // as above
	case nil:
		f = yes
	default:
		return maybe
	}
	if h.GetInvertMatch() {
		f = yes - f
	}
	return f
}

func matchesString(m *matcherv3.StringMatcher, value string) fit {
	fold := func(t string) string {
		if m.GetIgnoreCase() {
			return strings.ToLower(t)
		}
		return t
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return of(fold(value) == fold(p.Exact))
	case *matcherv3.StringMatcher_Prefix:
		return of(strings.HasPrefix(fold(value), fold(p.Prefix)))
	case *matcherv3.StringMatcher_Suffix:
		return of(strings.HasSuffix(fold(value), fold(p.Suffix)))
	case *matcherv3.StringMatcher_Contains:
		return of(strings.Contains(fold(value), fold(p.Contains)))
	case *matcherv3.StringMatcher_SafeRegex:
		return matchesRegex(p.SafeRegex, value)
	}
	return maybe
}

func matchesQuery(q *routev3.QueryParameterMatcher, s *sample) fit {
	value, ok := s.query[q.GetName()]
	if !ok {
		for _, id := range s.need.Rule.IDs {
			if id.Query == q.GetName() {
				return maybe
			}
		}
		return no
	}
	if m := q.GetStringMatch(); m != nil {
		return matchesString(m, value)
	}
	return of(!q.GetPresentMatch() || ok)
}
