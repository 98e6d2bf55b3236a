package envoycheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	bufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/buffer/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ordergate/ordergate/internal/attach"
)

// rules checks the routes that requests of the rules take.
func (c *check) rules(ch *chain) {
	var readers, writers []string // clusters
	for i := range c.plan.Needs {
		n := &c.plan.Needs[i]
		if !n.Authz {
			continue
		}
		all := samples(n)
		for j := range all {
			s := &all[j]
			for _, r := range reach(ch.table, s) {
				if r.route.GetRoute() == nil {
					continue // Envoy answers
				}
				c.route(ch, s, r)
				if s.reads() && !n.Proc {
					readers = append(readers, clustersOf(r.route.GetRoute())...)
				} else if n.Calls {
					writers = append(writers, clustersOf(r.route.GetRoute())...)
				}
			}
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(writers))) {
		if slices.Contains(readers, name) {
			c.find(ch.name(), "lookups and writes share the cluster "+name, "settlements that hang leave lookups no connection", "two clusters with the same address, backend-reads and backend-writes")
		}
	}
	if len(writers) == 0 {
		return
	}
	all := slices.Concat(readers, writers)
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		cluster, ok := c.clusters[name]
		bound := maxConnections(cluster)
		if ok && speaksHTTP2(cluster) && maxRequests(cluster) < 1024 {
			bound = maxRequests(cluster)
		}
		if ok && bound == 0 {
			c.find("cluster "+name, "circuit_breakers do not set max_connections", "more calls run in the backend than it has workers: they wait there, where they run after their lock has ended", "thresholds: [{ max_connections: 20, max_pending_requests: 1000 }]")
		}
	}
}

func clustersOf(r *routev3.RouteAction) (names []string) {
	if r.GetCluster() != "" {
		return []string{r.GetCluster()}
	}
	for _, w := range r.GetWeightedClusters().GetClusters() {
		names = append(names, w.GetName())
	}
	return names
}

// override returns the most specific settings of a filter for a route; nil: none.
func (r reached) override(name string) *anypb.Any {
	for _, all := range []map[string]*anypb.Any{r.route.GetTypedPerFilterConfig(), r.host.GetTypedPerFilterConfig(), r.table.GetTypedPerFilterConfig()} {
		if a, ok := all[name]; ok {
			return a
		}
	}
	return nil
}

// off reports whether a filter is disabled for the route.
func (r reached) off(f *filter) bool {
	a := r.override(f.name)
	if a == nil {
		return f.disabled
	}
	general, authz, p, b, guard := &routev3.FilterConfig{}, &authzv3.ExtAuthzPerRoute{}, &procv3.ExtProcPerRoute{}, &bufferv3.BufferPerRoute{}, &rbacv3.RBACPerRoute{}
	switch {
	case unpack(a, general):
		return general.GetDisabled()
	case unpack(a, authz):
		return authz.GetDisabled()
	case unpack(a, p):
		return p.GetDisabled()
	case unpack(a, b):
		return b.GetDisabled()
	case unpack(a, guard):
		return guard.GetRbac() == nil
	}
	return false
}

func (r reached) name() string {
	if n := r.route.GetName(); n != "" {
		return "route " + n
	}
	m := r.route.GetMatch()
	return "route " + strings.TrimSpace(m.GetPrefix()+m.GetPath()+m.GetPathSeparatedPrefix()+m.GetSafeRegex().GetRegex()) + " of " + r.host.GetName()
}

// route checks one route that a request of a rule may take.
func (c *check) route(ch *chain, s *sample, r reached) {
	where, n := ch.name()+", "+r.name(), s.need
	request := s.method + " of rule " + n.Rule.Name
	c.oneFilter(where, request, ch, n, r)
	if f := ch.get(isModule); f != nil && r.off(f) {
		c.find(where, "the module is disabled for "+request, "the rule does not hold", "no "+f.name+" in typed_per_filter_config")
	}
	if f := ch.get(isProc); f != nil {
		switch {
		case r.off(f) && n.Calls:
			c.find(where, "ext_proc is disabled for "+request, "the backend gets it with the path /.ordergate/not-bracketed, and does nothing", c.before(s, r))
		case r.off(f) && n.Body && !c.bodies(ch, r, n):
			c.find(where, "no filter shows the body of "+request, "its order is not looked up", "ext_proc, or for ext_authz check_settings: { with_request_body: { max_request_bytes: 65536, allow_partial_message: true, pack_as_bytes: true } }")
		case !r.off(f):
			c.overridden(where, ch, f, r)
		}
	}
	if a := r.route.GetRoute(); a.GetTimeout() != nil && a.GetTimeout().AsDuration() == 0 && len(a.GetUpgradeConfigs()) == 0 {
		c.find(where, "it has no timeout for "+request, "a client that reads an answer a byte at a time keeps a connection to the backend", "timeout: "+seconds(c.plan.Times.Writes))
	}
	if !n.Calls {
		return
	}
	if f := ch.get(isBuffer); f != nil && n.Settles && r.off(f) {
		c.find(where, "the filter buffer is disabled for "+request, "a settlement that is sent a byte at a time outlives its lock", "no "+f.name+" in typed_per_filter_config")
	}
	c.action(ch, where, request, n, r)
}

// before returns the route to write before one that leaves ext_proc out.
func (c *check) before(s *sample, r reached) string {
	if !s.reads() {
		return "no ext_proc in typed_per_filter_config"
	}
	for _, one := range c.plan.ByGet(true) {
		if slices.Contains(one.Rules, s.need.Rule.Name) {
			match := fmt.Sprintf("{ safe_regex: { regex: %q } }", one.Path)
			if one.Parameter != "" {
				match = fmt.Sprintf("{ prefix: /, query_parameters: [{ name: %s, string_match: { safe_regex: { regex: %q } } }] }", one.Parameter, one.Value)
			}
			clusters := append(clustersOf(r.route.GetRoute()), "backend-writes")
			return fmt.Sprintf("before it: { match: %s, route: { cluster: %s, timeout: %s } }", match, clusters[0], seconds(c.plan.Times.Writes))
		}
	}
	return "no ext_proc in typed_per_filter_config"
}

// bodies reports whether ext_authz has the body of requests on a route.
func (c *check) bodies(ch *chain, r reached, n *attach.Need) bool {
	f := ch.get(isAuthz)
	if f == nil {
		return false
	}
	b := f.authz.GetWithRequestBody()
	if per := (&authzv3.ExtAuthzPerRoute{}); unpack(r.override(f.name), per) && per.GetCheckSettings().GetWithRequestBody() != nil {
		b = per.GetCheckSettings().GetWithRequestBody()
	}
	longest := 0
	for _, id := range n.Rule.IDs {
		longest = max(longest, id.MaxBody)
	}
	return int(b.GetMaxRequestBytes()) >= min(longest, 65536) && b.GetMaxRequestBytes() > 0
}

// overridden checks ext_proc as a route changes it.
func (c *check) overridden(where string, ch *chain, f *filter, r reached) {
	per := &procv3.ExtProcPerRoute{}
	a := r.override(f.name)
	if a == nil || !unpack(a, per) || proto.Size(per.GetOverrides()) == 0 {
		return
	}
	o, p := per.GetOverrides(), proto.CloneOf(f.proc)
	if o.GetProcessingMode() != nil {
		p.ProcessingMode = o.GetProcessingMode()
	}
	if o.GetGrpcService() != nil {
		p.GrpcService = o.GetGrpcService()
	}
	if o.GetRequestAttributes() != nil {
		p.RequestAttributes = o.GetRequestAttributes()
	}
	if o.GetResponseAttributes() != nil {
		p.ResponseAttributes = o.GetResponseAttributes()
	}
	if o.GetFailureModeAllow() != nil {
		p.FailureModeAllow = o.GetFailureModeAllow().GetValue()
	}
	c.proc(where+", overrides of ext_proc", p, ch)
}

// action checks what the route does with a write.
func (c *check) action(ch *chain, where, request string, n *attach.Need, r reached) {
	a := r.route.GetRoute()
	retry := a.GetRetryPolicy()
	if retry == nil {
		retry = r.host.GetRetryPolicy()
	}
	if retry.GetRetryOn() != "" || a.GetHedgePolicy().GetHedgeOnPerTryTimeout() || r.host.GetRetryPolicyTypedConfig() != nil && a.GetRetryPolicy() == nil {
		c.find(where, "it retries "+request, "the second try runs beside the first: ordergate holds the lock, or has a doubt", "no retry_policy")
	}
	if n.Rule.Create != nil && (a.GetInternalRedirectPolicy() != nil || a.GetInternalRedirectAction() == routev3.RouteAction_HANDLE_INTERNAL_REDIRECT) { //nolint:staticcheck // old configurations have it
		c.find(where, "it follows redirects of "+request, "ordergate sees no answer of the create, and has a doubt", "no internal_redirect_policy")
	}
	timeout := envoysRouteTimeout
	if a.GetTimeout() != nil {
		timeout = a.GetTimeout().AsDuration()
	}
	least := c.backend
	if n.Rule.Settle != nil {
		least = max(least, n.Rule.Settle.BackendTimeout)
	}
	for _, h := range c.plan.Times.Held {
		if h.Rule == n.Rule.Name {
			least += h.MessageTimeout
		}
	}
	if timeout > 0 && timeout <= least {
		c.find(where, fmt.Sprintf("its timeout of %v is shorter than %s may take with its answer held (%v)", timeout, request, least), "a client gets 504 for an order that exists", "timeout: "+seconds(c.plan.Times.Writes))
	}
	if t := c.plan.Times.MaxHold; t > 0 && timeout >= t {
		c.find(where, fmt.Sprintf("its timeout of %v is longer than settle.max_hold (%v)", timeout, t), "ordergate ends the call first, and holds its lock", "timeout: "+seconds(c.plan.Times.Writes))
	}
	idle := ch.hcm.GetStreamIdleTimeout()
	if a.GetIdleTimeout() != nil {
		idle = a.GetIdleTimeout()
	}
	if d := idle.AsDuration(); idle != nil && d > 0 && d <= timeout {
		c.find(where, fmt.Sprintf("its timeout of %v is not shorter than stream_idle_timeout (%v)", timeout, d), "a call that waits for the backend ends, and its lock is held", "stream_idle_timeout: "+seconds(c.plan.Times.Idle))
	}
	if n.Settles && !c.limited(ch, r) {
		c.find(where, "no limit for each client on "+request, "one client locks 1,426 orders a second, for a minute each", "the local_ratelimit of ordergate envoy")
	}
}

// limited reports whether a route limits the rate of each client.
func (c *check) limited(ch *chain, r reached) bool {
	for i := range ch.filters {
		f := &ch.filters[i]
		if f.kind != isRateLimit || r.off(f) {
			continue
		}
		limit := f.limit
		if per := (&ratelimitv3.LocalRateLimit{}); unpack(r.override(f.name), per) {
			limit = per
		}
		actions := len(r.route.GetRoute().GetRateLimits()) + len(r.host.GetRateLimits()) + len(limit.GetRateLimits()) // local or of a service
		if actions > 0 && (limit == nil || len(limit.GetDescriptors()) > 0) {
			return true
		}
	}
	return false
}

// around finds listeners that lead to the same backend past ordergate.
func (c *check) around(all, attached []*chain) {
	if !c.calls {
		return
	}
	guarded := map[string]bool{}
	for _, ch := range attached {
		for _, name := range allClusters(ch.table) {
			guarded[name] = true
			for _, a := range c.addresses(name) {
				guarded[a] = true
			}
		}
	}
	for _, ch := range all {
		if slices.Contains(attached, ch) {
			continue
		}
		for _, name := range allClusters(ch.table) {
			past := guarded[name] || slices.ContainsFunc(c.addresses(name), func(a string) bool { return guarded[a] })
			if past {
				c.find(ch.name(), "it leads to the cluster "+name+" without ordergate", "whoever reaches it settles past every lock, and creates orders that lookups refuse", "ordergate's filters there, too")
			}
		}
	}
}

func allClusters(table *routev3.RouteConfiguration) []string {
	names := map[string]bool{}
	for _, h := range table.GetVirtualHosts() {
		for _, r := range h.GetRoutes() {
			for _, name := range clustersOf(r.GetRoute()) {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
