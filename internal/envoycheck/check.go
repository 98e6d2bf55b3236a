// Package envoycheck compares a configuration of Envoy with what the rules of ordergate need.
//
// Start with [Read], then [Check]. It goes by meaning: names, order of fields and spellings of values
// do not matter, nor does what concerns other services.
package envoycheck

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	bufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/buffer/v3"
	modulesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_modules/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ordergate/ordergate/internal/attach"
)

// Finding is one difference.
type Finding struct {
	Where       string // such as "listener orders, filter envoy.filters.http.ext_proc"
	What        string // is not as it should be
	Consequence string
	Write       string // the line that mends it
}

// Kinds of filters that concern ordergate.
type kind int

const (
	other kind = iota
	isBuffer
	isAuthz
	isProc
	isAnswers
	isModule
	isDecompressor
	isRateLimit
	isGuard
	isRouter
)

// filter is an HTTP filter of a chain.
type filter struct {
	kind     kind
	name     string
	disabled bool
	authz    *authzv3.ExtAuthz
	proc     *procv3.ExternalProcessor
	buffer   *bufferv3.Buffer
	limit    *ratelimitv3.LocalRateLimit
	module   *modulesv3.DynamicModuleFilter
	guard    *rbacv3.RBAC
}

// chain is a connection manager of a listener.
type chain struct {
	listener *listenerv3.Listener
	hcm      *hcmv3.HttpConnectionManager
	table    *routev3.RouteConfiguration // nil: not known
	filters  []filter
	quic     bool
	socket   *corev3.TransportSocket // nil: plain text
}

// check collects findings.
type check struct {
	*Snapshot
	plan     attach.Plan
	findings []Finding
	calls    bool          // a rule locks or learns
	backend  time.Duration // what the backend takes for a write, as far as it is known
}

// Check returns the differences between a configuration and the plan, and notes that are none.
func Check(plan attach.Plan, backend time.Duration, s *Snapshot) (findings []Finding, notes []string) {
	c := &check{Snapshot: s, plan: plan, backend: backend}
	c.calls = slices.ContainsFunc(plan.Needs, func(n attach.Need) bool { return n.Calls })
	chains := c.chains()
	var attached []*chain
	for _, ch := range chains {
		if ch.has(isAuthz) || ch.has(isProc) || ch.has(isModule) {
			attached = append(attached, ch)
		}
	}
	if len(attached) == 0 {
		c.find("", "no listener has ordergate's filters", "every request reaches the backend as if ordergate were not there", "ordergate envoy prints a whole configuration")
		return c.findings, c.notes
	}
	for _, ch := range attached {
		c.chain(ch)
	}
	c.around(chains, attached)
	c.file(attached)
	if s.whole {
		c.process()
	} else {
		c.note("it has no settings of Envoy itself: the overload manager and the runtime are not checked")
	}
	for url := range s.types {
		if url != "" && strings.Contains(url, "filters.http") {
			c.note("the filter " + url[strings.LastIndexByte(url, '/')+1:] + " is not known here: behind ext_authz it must change neither the path nor headers with IDs")
		}
	}
	slices.Sort(c.notes)
	return c.findings, c.notes
}

func (c *check) find(where, what, consequence, write string) {
	f := Finding{where, what, consequence, write}
	if !slices.Contains(c.findings, f) {
		c.findings = append(c.findings, f)
	}
}

// chains returns all connection managers.
func (c *check) chains() []*chain {
	var all []*chain
	for _, l := range c.listeners {
		groups := l.GetFilterChains()
		if d := l.GetDefaultFilterChain(); d != nil {
			groups = append(slices.Clip(groups), d)
		}
		for _, g := range groups {
			for _, f := range g.GetFilters() {
				hcm := &hcmv3.HttpConnectionManager{}
				if !unpack(f.GetTypedConfig(), hcm) {
					continue
				}
				ch := &chain{listener: l, hcm: hcm, quic: hcm.GetCodecType() == hcmv3.HttpConnectionManager_HTTP3, socket: g.GetTransportSocket()}
				switch {
				case hcm.GetRouteConfig() != nil:
					ch.table = hcm.GetRouteConfig()
				case hcm.GetRds() != nil:
					if ch.table = c.routes[hcm.GetRds().GetRouteConfigName()]; ch.table == nil {
						c.note("the routes " + hcm.GetRds().GetRouteConfigName() + " of listener " + l.GetName() + " are not in it: check the /config_dump of a running Envoy")
					}
				default:
					c.note("the routes of listener " + l.GetName() + " are chosen by scope, and not checked")
				}
				for _, h := range hcm.GetHttpFilters() {
					ch.filters = append(ch.filters, c.filter(h))
				}
				all = append(all, ch)
			}
		}
	}
	return all
}

// unpack reads an Any of the type of m; false: it is of another one.
func unpack(a *anypb.Any, m proto.Message) bool {
	return a.MessageIs(m) && a.UnmarshalTo(m) == nil
}

func (c *check) filter(h *hcmv3.HttpFilter) filter {
	f := filter{name: h.GetName(), disabled: h.GetDisabled()}
	a := h.GetTypedConfig()
	if h.GetConfigDiscovery() != nil {
		c.note("the filter " + f.name + " is discovered (ECDS), and not checked")
	}
	wrapped := &matchingv3.ExtensionWithMatcher{}
	if unpack(a, wrapped) {
		a = wrapped.GetExtensionConfig().GetTypedConfig()
	}
	authz, p, b, l, m := &authzv3.ExtAuthz{}, &procv3.ExternalProcessor{}, &bufferv3.Buffer{}, &ratelimitv3.LocalRateLimit{}, &modulesv3.DynamicModuleFilter{}
	guard := &rbacv3.RBAC{}
	switch url := a.GetTypeUrl(); {
	case unpack(a, authz):
		if c.isOurs(authz.GetGrpcService(), c.plan.Config.Listen.Authz) || authz.GetHttpService() != nil && strings.HasSuffix(authz.GetHttpService().GetPathPrefix(), "/check/envoy") {
			f.kind, f.authz = isAuthz, authz
		}
	case unpack(a, p):
		if c.isOurs(p.GetGrpcService(), c.plan.Config.Listen.Proc) {
			f.kind, f.proc = isProc, p
			if p.GetObservabilityMode() {
				f.kind = isAnswers
			}
		}
	case unpack(a, b):
		f.kind, f.buffer = isBuffer, b
	case unpack(a, l):
		f.kind, f.limit = isRateLimit, l
	case unpack(a, m):
		if m.GetFilterName() == "ordergate" || m.GetDynamicModuleConfig().GetName() == "ordergate" {
			f.kind, f.module = isModule, m
		}
	case unpack(a, guard):
		if f.name == guardName {
			f.kind, f.guard = isGuard, guard
		}
	case strings.Contains(url, ".decompressor."):
		f.kind = isDecompressor
	case strings.HasSuffix(url, "filters.http.ratelimit.v3.RateLimit"):
		f.kind = isRateLimit
	case strings.HasSuffix(url, "filters.http.router.v3.Router"):
		f.kind = isRouter
	}
	return f
}

// isOurs reports whether a service is ordergate: by its address, or by the cluster's name.
func (c *check) isOurs(g *corev3.GrpcService, address string) bool {
	if g == nil {
		return false
	}
	name := g.GetEnvoyGrpc().GetClusterName()
	if name == "" {
		return sameAddress(strings.TrimPrefix(g.GetGoogleGrpc().GetTargetUri(), "dns:///"), address)
	}
	if strings.Contains(name, "ordergate") {
		return true
	}
	for _, a := range c.addresses(name) {
		if sameAddress(a, c.plan.Config.Listen.Authz) || sameAddress(a, c.plan.Config.Listen.Proc) {
			return true
		}
	}
	return false
}

// sameAddress compares addresses in the file's form. Of "host:port" the port is enough: Envoy may see
// ordergate by another name.
func sameAddress(a, b string) bool {
	if strings.HasPrefix(a, "unix:") || strings.HasPrefix(b, "unix:") {
		return a == b
	}
	_, one, err := net.SplitHostPort(a)
	_, two, err2 := net.SplitHostPort(b)
	return err == nil && err2 == nil && one == two
}

// addresses returns those of a cluster's endpoints.
func (c *check) addresses(cluster string) []string {
	assigned := c.clusters[cluster].GetLoadAssignment()
	if len(assigned.GetEndpoints()) == 0 {
		assigned = c.endpoints[cmp.Or(c.clusters[cluster].GetEdsClusterConfig().GetServiceName(), cluster)]
	}
	return addressesOf(assigned)
}

func addressesOf(assigned *endpointv3.ClusterLoadAssignment) (all []string) {
	for _, group := range assigned.GetEndpoints() {
		for _, e := range group.GetLbEndpoints() {
			a := e.GetEndpoint().GetAddress()
			switch {
			case a.GetPipe() != nil:
				all = append(all, "unix:"+a.GetPipe().GetPath())
			case a.GetSocketAddress() != nil:
				all = append(all, net.JoinHostPort(a.GetSocketAddress().GetAddress(), strconv.Itoa(int(a.GetSocketAddress().GetPortValue()))))
			}
		}
	}
	return all
}

// at returns where the first filter of a kind is; -1: there is none.
func (ch *chain) at(k kind) int {
	return slices.IndexFunc(ch.filters, func(f filter) bool { return f.kind == k })
}

func (ch *chain) has(k kind) bool { return ch.at(k) >= 0 }

func (ch *chain) get(k kind) *filter {
	if i := ch.at(k); i >= 0 {
		return &ch.filters[i]
	}
	return nil
}

func (ch *chain) name() string { return "listener " + ch.listener.GetName() }

// chain checks one connection manager that has ordergate.
func (c *check) chain(ch *chain) {
	c.connections(ch)
	c.order(ch)
	if f := ch.get(isAuthz); f != nil {
		c.authz(ch, f)
	}
	if f := ch.get(isProc); f != nil {
		c.proc(ch.name()+", filter "+f.name, f.proc, ch)
	}
	if f := ch.get(isAnswers); f != nil && !f.proc.GetFailureModeAllow() {
		c.find(ch.name()+", filter "+f.name, "failure_mode_allow is not true", "while ordergate is away, the backend's own 404s lose their bodies behind their headers", "failure_mode_allow: true")
	}
	if c.plan.Measures() && !ch.has(isModule) && !ch.has(isAnswers) {
		c.note(ch.name() + ": no filter shows the answers to lookups, so their false positives are not measured, and refusals not verified")
	}
	c.logs(ch)
	if ch.table != nil {
		c.rules(ch)
	}
}

// order checks which filters there are, and in which order.
func (c *check) order(ch *chain) {
	where := ch.name()
	authz, p, router := ch.at(isAuthz), ch.at(isProc), ch.at(isRouter)
	first := authz
	if i := ch.at(isModule); i >= 0 {
		first, p = i, i
	} else {
		if authz < 0 {
			c.find(where, "ext_authz of ordergate is missing", "lookups of absent orders reach the backend, and so do ambiguous requests of routes without ext_proc", "the filter envoy.filters.http.ext_authz, before ext_proc")
		}
		switch {
		case p < 0 && c.plan.NeedsProc():
			c.find(where, "ext_proc of ordergate is missing", "nothing is locked and no new order is learned: the backend gets such requests with the path /.ordergate/not-bracketed", "the filter envoy.filters.http.ext_proc, between ext_authz and the router")
		case p >= 0 && authz > p:
			c.find(where, "ext_authz stands behind ext_proc", "an absent order is locked first, and leaves its fence in Redis; ext_authz seals the path of what ext_proc has let pass", "ext_authz before ext_proc")
		}
	}
	if router >= 0 && max(p, authz) > router {
		c.find(where, "a filter of ordergate stands behind the router", "it sees no request", "the router last")
	}
	if d := ch.at(isDecompressor); d > max(p, authz) && p >= 0 {
		c.find(where, "a decompressor stands between ordergate and the router", "Envoy 1.40 never ends an answer that is decompressed there: its lock is held, and a create is a doubt", "the decompressor before ext_authz")
	}
	if !c.calls {
		return
	}
	b := ch.get(isBuffer)
	switch {
	case b == nil:
		c.find(where, "the filter buffer is missing", "a settlement that is sent a byte at a time outlives its lock", "the filter envoy.filters.http.buffer, before ext_authz")
	case ch.at(isBuffer) > first && first >= 0:
		c.find(where, "the filter buffer stands behind ordergate's", "a body that is too large hangs until request_timeout", "buffer before ext_authz")
	case int(b.buffer.GetMaxRequestBytes().GetValue()) < c.plan.MaxBody:
		c.find(where+", filter "+b.name, fmt.Sprintf("max_request_bytes is less than the longest body that a rule reads (%d)", c.plan.MaxBody), "such requests get 413", fmt.Sprintf("max_request_bytes: %d", c.plan.MaxBody))
	}
}

// authz checks ext_authz.
func (c *check) authz(ch *chain, f *filter) {
	where, a := ch.name()+", filter "+f.name, f.authz
	if !a.GetFailureModeAllow() {
		c.find(where, "failure_mode_allow is not true", "while ordergate is away, every request is refused, lookups too", "failure_mode_allow: true")
	}
	if a.GetGrpcService() == nil {
		c.note(where + ": it asks over HTTP, and docs/http.md has the limits of that")
		return
	}
	if !a.GetEncodeRawHeaders() {
		c.find(where, "encode_raw_headers is not true", "two lines of one header are one to ordergate: of two Cookie lines the second goes unseen", "encode_raw_headers: true")
	}
	if a.GetAllowedHeaders() != nil || a.GetDisallowedHeaders() != nil {
		c.find(where, "it leaves headers out (allowed_headers, disallowed_headers)", "ordergate does not see what the backend reads", "neither of them")
	}
	timeout := a.GetGrpcService().GetTimeout().AsDuration()
	if timeout == 0 {
		timeout = 200 * time.Millisecond
	}
	if least := c.plan.Times.Authz; least > 500*time.Millisecond && timeout < least {
		c.find(where, fmt.Sprintf("grpc_service.timeout is %v, and create.dedup.timeout needs %v", timeout, least), "creates of orders that exist pass", "timeout: "+seconds(least))
	}
	c.service(where, a.GetGrpcService(), c.plan.Config.Listen.Authz, false)
}

// proc checks ext_proc.
func (c *check) proc(where string, p *procv3.ExternalProcessor, ch *chain) {
	if p.GetFailureModeAllow() {
		c.find(where, "failure_mode_allow is true", "when ordergate is away, settlements go through unlocked, and creates unlearned", "failure_mode_allow: false")
	}
	timeout := 200 * time.Millisecond
	if p.GetMessageTimeout() != nil {
		timeout = p.GetMessageTimeout().AsDuration()
	}
	if least := c.leastMessage(); timeout < least {
		c.find(where, fmt.Sprintf("message_timeout is %v, and the rules need %v (ordergate check --timeouts)", timeout, least), "a client gets 504 for an order that exists, or for a lock that is granted later", "message_timeout: "+seconds(c.plan.Times.Message))
	}
	mode := p.GetProcessingMode()
	if mode.GetRequestHeaderMode() == procv3.ProcessingMode_SKIP || mode.GetResponseHeaderMode() == procv3.ProcessingMode_SKIP {
		c.find(where, "request_header_mode or response_header_mode is SKIP", "ordergate sees no request, or no answer: nothing is locked, or every lock is held", "request_header_mode: SEND and response_header_mode: SEND")
	}
	if mode.GetResponseTrailerMode() != procv3.ProcessingMode_SEND {
		c.find(where, "response_trailer_mode is not SEND", "the end of an answer with trailers is not seen, and its lock is held", "response_trailer_mode: SEND")
	}
	if !p.GetAllowModeOverride() {
		instead := mode.GetRequestBodyMode() == procv3.ProcessingMode_BUFFERED && mode.GetResponseBodyMode() == procv3.ProcessingMode_STREAMED
		if !instead || slices.ContainsFunc(c.plan.Needs, func(n attach.Need) bool { return n.Rule.Create != nil }) {
			c.find(where, "allow_mode_override is not true", "the end of an answer to a settlement is not seen, and its lock is held; each create is a doubt; settlements whose body has to be seen fail", "allow_mode_override: true")
		}
	} else if p.GetSendBodyWithoutWaitingForHeaderResponse() {
		c.find(where, "send_body_without_waiting_for_header_response is true", "Envoy ignores mode_override: bodies are not shown, and every lock is held", "send_body_without_waiting_for_header_response: false")
	}
	if len(p.GetAllowedOverrideModes()) > 0 {
		c.find(where, "allowed_override_modes bounds what ordergate may ask for", "Envoy ignores other overrides: bodies are not shown, and locks are held", "no allowed_override_modes")
	}
	if p.GetDisableImmediateResponse() {
		c.find(where, "disable_immediate_response is true", "ordergate cannot answer: a busy order's settlement ends as an error of Envoy", "disable_immediate_response: false")
	}
	if p.GetForwardRules() != nil {
		c.find(where, "forward_rules leaves headers out", "ordergate does not see what the backend reads", "no forward_rules")
	}
	if !c.calls {
		return
	}
	if !slices.Contains(p.GetRequestAttributes(), "source.address") {
		c.find(where, "request_attributes lacks source.address", "ordergate cannot distinguish one client's calls from another's", "request_attributes: [source.address]")
	}
	if !slices.Contains(p.GetResponseAttributes(), "response.code_details") || !slices.Contains(p.GetResponseAttributes(), "upstream.request_attempt_count") && !countsAttempts(ch.table) {
		c.find(where, "response_attributes lacks response.code_details or upstream.request_attempt_count", "no outcome is known: every lock is held, and ordergate is not ready", "response_attributes: [response.code_details, upstream.request_attempt_count]")
	}
	c.service(where, p.GetGrpcService(), c.plan.Config.Listen.Proc, true)
}

// countsAttempts reports whether all answers say after how many attempts they came.
func countsAttempts(table *routev3.RouteConfiguration) bool {
	return table != nil && !slices.ContainsFunc(table.GetVirtualHosts(), func(h *routev3.VirtualHost) bool { return !h.GetIncludeAttemptCountInResponse() })
}

// leastMessage is the least message_timeout that gives up no request and no answer.
func (c *check) leastMessage() (least time.Duration) {
	for _, h := range c.plan.Times.Held {
		least = max(least, h.MessageTimeout)
	}
	for _, w := range c.plan.Times.Waits {
		if w.Timeout == "message_timeout" {
			least = max(least, w.Least)
		}
	}
	return least
}

// service checks the cluster of a filter.
func (c *check) service(where string, g *corev3.GrpcService, address string, long bool) {
	name := g.GetEnvoyGrpc().GetClusterName()
	cluster, ok := c.clusters[name]
	if name == "" || !ok {
		if name != "" && len(c.clusters) > 0 {
			c.find(where, "there is no cluster "+name, "ordergate is never asked", "a cluster "+name+" with the address "+address)
		}
		return
	}
	if known := c.addresses(name); len(known) > 0 && !slices.ContainsFunc(known, func(a string) bool {
		return sameAddress(a, c.plan.Config.Listen.Authz) || sameAddress(a, c.plan.Config.Listen.Proc)
	}) {
		c.find("cluster "+name, fmt.Sprintf("it has the address %s, and ordergate listens at %s", known[0], address), "ordergate is never asked", address)
	}
	if !speaksHTTP2(cluster) {
		c.find("cluster "+name, "it does not speak HTTP/2", "gRPC needs it: ordergate is never asked", "explicit_http_config: { http2_protocol_options: {} }")
	}
	if long && maxRequests(cluster) <= 1024 {
		c.find("cluster "+name, "circuit_breakers leave max_requests at 1024 or less", "a bracketed call is in flight for as long as it runs: further settlements get 503", "thresholds: [{ max_requests: 100000, max_pending_requests: 100000 }]")
	}
}

func maxRequests(c *clusterv3.Cluster) int {
	for _, t := range c.GetCircuitBreakers().GetThresholds() {
		if t.GetPriority() == corev3.RoutingPriority_DEFAULT && t.GetMaxRequests() != nil {
			return int(t.GetMaxRequests().GetValue())
		}
	}
	return 1024
}

func maxConnections(c *clusterv3.Cluster) int {
	for _, t := range c.GetCircuitBreakers().GetThresholds() {
		if t.GetPriority() == corev3.RoutingPriority_DEFAULT && t.GetMaxConnections() != nil {
			return int(t.GetMaxConnections().GetValue())
		}
	}
	return 0
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s" }
