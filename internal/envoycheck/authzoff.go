package envoycheck

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	rbacfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"

	"github.com/ordergate/ordergate/internal/attach"
	"github.com/ordergate/ordergate/internal/gate"
)

// What makes up for ext_authz where it is off: see [gate.AuthzOff].
var (
	authzKey, authzOff = gate.AuthzOff[0], gate.AuthzOff[1]
	tellOff            = "initial_metadata: [{ key: " + authzKey + ", value: \"" + authzOff + "\" }]"
)

// guardName is that of the filter, and of the metadata that it looks for.
const guardName = gate.GuardNamespace

// oneFilter checks a route on which ext_authz is off, or ext_proc takes it to be.
func (c *check) oneFilter(where, request string, ch *chain, n *attach.Need, r reached) {
	authz, p, guard := ch.get(isAuthz), ch.get(isProc), ch.get(isGuard)
	off, alone := authz != nil && r.off(authz), p != nil && !r.off(p)
	if guard != nil && !r.off(guard) && !alone {
		c.find(where, "the filter "+guardName+" is on for "+request+", and ext_proc is off", "each gets 403", "on this route, "+guardName+": an RBACPerRoute without rules")
	}
	switch {
	case !off && alone && p.saysOff(r) && n.Calls:
		c.find(where, "ext_proc takes ext_authz to be off for "+request, "each gets 503", "no "+authzKey+" in initial_metadata of ext_proc, or ext_authz off")
	case !off:
	case !alone:
		c.find(where, "ext_authz is disabled for "+request, "absent orders reach the backend, and ambiguous requests do", "no "+authz.name+" in typed_per_filter_config")
	case n.Asks:
		c.find(where, "ext_authz is disabled for "+request+", which may ask Redis or a table first", "while that hangs, it gets 504 after message_timeout", "ext_authz on this route, and no "+authzKey+" in initial_metadata of ext_proc")
	case !p.saysOff(r):
		c.find(where, "ext_authz is disabled for "+request+", and ext_proc does not take it to be", "absent orders are locked, or reach the backend; a client can use a sealed path that it has seen", tellOff+" in grpc_service of ext_proc")
	case ch.at(isGuard) < ch.at(isProc) || r.off(guard) || !guard.wants(r):
		c.find(where, "nothing behind ext_proc refuses "+request+" that it has not seen", "without ext_proc, it goes through unlocked, and no seal stops that", "the filter "+guardName+" of ordergate envoy, behind ext_proc")
	case !slices.Contains(p.receives(r), guardName):
		c.find(where, "ext_proc does not take the metadata "+guardName, "each "+request+" gets 403", "metadata_options: { receiving_namespaces: { untyped: [ordergate, "+guardName+"] } }")
	}
}

// overrides returns those of ext_proc for a route.
func (f *filter) overrides(r reached) *procv3.ExtProcOverrides {
	per := &procv3.ExtProcPerRoute{}
	unpack(r.override(f.name), per)
	return per.GetOverrides()
}

// saysOff reports whether ext_proc tells ordergate that ext_authz is off.
func (f *filter) saysOff(r reached) (off bool) {
	o, service := f.overrides(r), f.proc.GetGrpcService()
	if o.GetGrpcService() != nil {
		service = o.GetGrpcService()
	}
	for _, all := range [][]*corev3.HeaderValue{service.GetInitialMetadata(), o.GetGrpcInitialMetadata()} {
		for _, h := range all {
			off = h.GetKey() == authzKey && h.GetValue() == authzOff || off && h.GetKey() != authzKey
		}
	}
	return off
}

// receives returns the namespaces of metadata that ext_proc takes.
func (f *filter) receives(r reached) []string {
	if o := f.overrides(r).GetMetadataOptions(); o != nil {
		return o.GetReceivingNamespaces().GetUntyped()
	}
	return f.proc.GetMetadataOptions().GetReceivingNamespaces().GetUntyped()
}

// wants reports whether the guard lets pass only what has the metadata.
func (f *filter) wants(r reached) bool {
	guard := f.guard
	if per := (&rbacfilterv3.RBACPerRoute{}); unpack(r.override(f.name), per) {
		guard = per.GetRbac()
	}
	rules := guard.GetRules()
	if rules.GetAction() != rbacv3.RBAC_ALLOW || rules == nil || guard.GetMatcher() != nil {
		return false
	}
	for _, p := range rules.GetPolicies() {
		if len(p.GetPermissions()) == 0 || slices.ContainsFunc(p.GetPermissions(), func(p *rbacv3.Permission) bool { return !isSeen(p) }) {
			return false
		}
	}
	return true
}

// isSeen reports whether a permission is for what has the metadata.
func isSeen(p *rbacv3.Permission) bool {
	m := p.GetSourcedMetadata().GetMetadataMatcher()
	if m == nil {
		m = p.GetMetadata() //nolint:staticcheck // of older Envoys
	}
	return m.GetFilter() == guardName && len(m.GetPath()) == 1 && m.GetPath()[0].GetKey() == gate.GuardField && !m.GetInvert() && m.GetValue().GetBoolMatch() &&
		p.GetSourcedMetadata().GetMetadataSource() == rbacv3.MetadataSource_DYNAMIC
}
