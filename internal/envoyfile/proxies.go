package envoyfile

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ordergate/ordergate/config"
)

// isHTTP reports whether the target asks over HTTP, for lookups only.
func (p *page) isHTTP() bool {
	return slices.Contains([]string{Nginx, Caddy, Traefik, APISIX}, p.Target)
}

func (p *page) addHTTP(c *config.Config) (err error) {
	if p.HTTP, err = reach(cmp.Or(c.Listen.HTTP, "127.0.0.1:9193")); err != nil {
		return unfit("listen.http: %v", err)
	}
	if strings.HasPrefix(p.HTTP, "unix:") && p.Target != Nginx {
		return unfit("listen.http is a socket: --for %s needs host:port", p.Target)
	}
	if _, err := split(p.Behind); err != nil {
		return &UnfitError{"--behind", err.Error()}
	}
	return nil
}

// ListenHost and ListenPort are the parts of the address for clients.
func (p *page) ListenHost() string { host, _, _ := net.SplitHostPort(p.Listen); return host } // it was checked
func (p *page) ListenPort() string { _, port, _ := net.SplitHostPort(p.Listen); return port }

// Elsewhere returns the rules that need ext_proc, which the target lacks.
func (p *page) Elsewhere() (rules []string) {
	for _, n := range p.Needs {
		if n.Proc {
			rules = append(rules, n.String())
		}
	}
	return rules
}

// RuleConnections is the part of the connections for writes that each rule of Envoy Gateway's route has.
func (p *page) RuleConnections() int { return max(1, p.WriteConnections/(len(p.ByGet)+1)) }

// checkGateway rejects rules that need what Envoy Gateway's policies cannot set.
func (p *page) checkGateway() error {
	for _, n := range p.Needs {
		decided := n.Rule.Lookup != nil || n.Rule.Create != nil && n.Rule.Create.Dedup != nil
		if decided && (len(n.Headers) > 0 || n.Cookies) {
			return unfit("rule %s has its ID in a header or a cookie: Envoy Gateway cannot set encode_raw_headers, so ordergate would not see a second line of it", n.Rule.Name)
		}
	}
	const longest, most = 1024, 15 // of an HTTPRoute's patterns, and of its rules beside the last
	for _, r := range p.ByGet {
		if len(r.Path) > longest || len(r.Value) > longest {
			return unfit("rules %s have more paths or values than an HTTPRoute takes in one pattern (%d bytes)", strings.Join(r.Rules, ", "), longest)
		}
	}
	if len(p.ByGet) > most {
		return unfit("reads that settle or create have more parameters than an HTTPRoute takes (%d)", most)
	}
	return nil
}

// Title is the name of the target.
func (p *page) Title() string {
	return map[string]string{Caddy: "Caddy", APISIX: "APISIX", Istio: "Istio", Higress: "Higress"}[p.Target]
}

// Namespace is that of the gateway's Pods.
func (p *page) Namespace() string {
	if p.Target == Higress {
		return "higress-system"
	}
	return "istio-system"
}

// Map returns the variable of nginx that the i-th map of reads sets: the last one is $orders.
func (p *page) Map(i int) string {
	if i == len(p.ByGet)-1 {
		return "$orders"
	}
	return fmt.Sprintf("$by_get_%d", i+1)
}

// Before returns the variable that the map before the i-th one sets.
func (p *page) Before(i int) string {
	if i == 0 {
		return "$by_method"
	}
	return p.Map(i - 1)
}

// TraefikRule matches the route's requests in Traefik.
func (r route) TraefikRule() string {
	if r.Parameter != "" {
		return "QueryRegexp(`" + r.Parameter + "`, `^" + r.Value + "$`)"
	}
	return "PathRegexp(`^" + r.Path + "$`)"
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

// gatewayEndpoint writes an endpoint of Envoy Gateway's Backend.
func gatewayEndpoint(a string) string {
	if path, ok := strings.CutPrefix(a, "unix:"); ok {
		return "{ unix: { path: " + plain(path) + " } }"
	}
	host, port, _ := net.SplitHostPort(a) // reach has split it
	kind := "fqdn: { hostname"
	if net.ParseIP(host) != nil {
		kind = "ip: { address"
	}
	return "{ " + kind + ": " + plain(host) + ", port: " + port + " } }"
}

func portOf(a string) string { return a[strings.LastIndexByte(a, ':')+1:] }

// entryEndpoint writes an endpoint of Istio's ServiceEntry.
func entryEndpoint(a string) string {
	if path, ok := strings.CutPrefix(a, "unix:"); ok {
		return "{ address: " + quote("unix://"+path) + " }"
	}
	host, port, _ := net.SplitHostPort(a) // reach has split it
	return "{ address: " + plain(host) + ", ports: { grpc: " + port + " } }"
}

// serviceHost returns the host of a backend as Istio has it: that of a Service, not an address.
func serviceHost(a string) string {
	host, _, _ := net.SplitHostPort(a) // newPage has split it
	if host == "" || net.ParseIP(host) != nil {
		return "orders # your Service"
	}
	return host
}

// tlsName returns the host of an address, or localhost for an IP address, which is no name of TLS.
func tlsName(a string) string {
	host, _, _ := net.SplitHostPort(a) // reach has split it
	if net.ParseIP(host) != nil {
		return "localhost"
	}
	return host
}
