// Package envoyfile prints the configuration that puts Envoy, or another proxy, in front of
// ordergate, with the reason of each line as a comment.
//
// Start with [Write]. The texts are templates in parts/, filled in from a plan of package attach.
// Before an Envoy configuration is printed, it is read into Envoy's own types and validated.
package envoyfile

import (
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/attach"
)

// Targets that [Write] knows.
const (
	Static = "static" // a whole bootstrap of Envoy, with ordergate beside it
	Module = "module" // the same, with ordergate inside
	// These two are patches, which tests/istio applies by Istio's own code.
	Istio        = "istio"         // an AuthorizationPolicy and an EnvoyFilter
	Higress      = "higress"       // an EnvoyFilter
	EnvoyGateway = "envoy-gateway" // its policies
	// These serve lookups, and send everything else to an Envoy.
	Nginx   = "nginx"
	Caddy   = "caddy"
	Traefik = "traefik"
	APISIX  = "apisix"
)

// Targets are all of them.
var Targets = []string{Static, Module, Istio, EnvoyGateway, Higress, Nginx, Caddy, Traefik, APISIX}

// Options are what the rules do not tell.
type Options struct {
	Target      string
	Command     string // the command line that made the configuration
	File        string // the path of ordergate.yaml for the module
	Listen      string // "host:port" of the proxy for clients
	Admin       string // "host:port" of Envoy's admin address
	Backend     string // "host:port"
	Connections int    // workers of the backend, at least 2
	Envoy       string // "1.37", or "" for newer ones
	Behind      string // "host:port" of the Envoy to which proxies of lookups send everything else
}

//go:embed parts
var parts embed.FS

// page is what the templates are filled in with.
type page struct {
	Options
	attach.Plan
	Module, Proc, Answers bool
	AuthzOff              bool // where ext_proc is on
	Old, HTTP2, Dedup     bool
	Buffer                int
	BufferReason          string
	ReadConnections       int
	WriteConnections      int
	ByGet, Settlements    []route
	Services              []service
	AbsentStatuses        string
	LookupHeaders         []string
	HTTP                  string // of listen.http
}

// route is a route of the template.
type route struct {
	attach.Route
	Name    string
	Timeout time.Duration
	Limited bool
}

// service is a cluster of ordergate.
type service struct {
	Name, Address, CA string
	First             bool
}

// UnfitError reports that a configuration cannot be printed for a file, or with a flag of the options.
type UnfitError struct {
	Flag   string // "--backend"; "": the file
	Reason string
}

func (e *UnfitError) Error() string {
	if e.Flag != "" {
		return e.Flag + ": " + e.Reason
	}
	return e.Reason
}

func unfit(format string, args ...any) error {
	return &UnfitError{Reason: fmt.Sprintf(format, args...)}
}

// Write prints the configuration of a target. Its error is an [*UnfitError] if the file or the
// options have to change.
func Write(w io.Writer, plan attach.Plan, o Options) error {
	p, err := newPage(plan, o)
	if err != nil {
		return err
	}
	name := o.Target
	switch o.Target {
	case Module:
		name = Static
	case Higress:
		name = Istio
	}
	text, err := render(name, p)
	if err != nil {
		return err
	}
	text = strings.TrimRight(text, "\n") + "\n"
	if name == Static {
		if _, err := Bootstrap([]byte(text)); err != nil {
			return fmt.Errorf("the configuration is not valid for Envoy: %w", err)
		}
	}
	_, err = io.WriteString(w, text)
	return err
}

const (
	defaultBuffer = 256 << 10
	largestBuffer = 1 << 20 // of a settlement's body, and of any that a rule reads
)

func newPage(plan attach.Plan, o Options) (*page, error) {
	c := plan.Config
	p := &page{
		Options: o, Plan: plan, Module: o.Target == Module, Old: strings.HasPrefix(strings.TrimPrefix(o.Envoy, "v"), "1.37"), HTTP2: isGRPC(c),
		Buffer: defaultBuffer, BufferReason: "Four times the longest body that a rule reads by default.",
		LookupHeaders: plan.LookupHeaders(), AbsentStatuses: absentStatuses(c),
	}
	if !p.Old {
		p.Envoy = "1.38 or newer"
	}
	if !plan.NeedsAuthz() {
		return nil, unfit("no rule of the file needs ordergate: nothing has to be attached")
	}
	if 4*plan.MaxBody > defaultBuffer {
		p.Buffer = min(4*plan.MaxBody, largestBuffer)
		p.BufferReason = fmt.Sprintf("The longest body that a rule reads (max_body) has %d bytes.", plan.MaxBody)
	}
	p.Proc = plan.NeedsProc()
	p.AuthzOff = o.Target == Static && plan.ProcAlone()
	p.Answers = plan.Measures() && c.Listen.Proc != ""
	p.Dedup = slices.ContainsFunc(c.Rules, func(r config.Rule) bool { return r.Create != nil && r.Create.Dedup != nil })
	p.ReadConnections = max(1, o.Connections*3/8)
	p.WriteConnections = max(1, o.Connections-p.ReadConnections)
	for _, a := range []struct{ flag, address string }{{"--listen", o.Listen}, {"--admin", o.Admin}, {"--backend", o.Backend}} {
		if _, err := split(a.address); err != nil {
			return nil, &UnfitError{a.flag, err.Error()}
		}
	}
	if p.isHTTP() {
		if err := p.addHTTP(c); err != nil {
			return nil, err
		}
	} else if err := p.addServices(c); err != nil {
		return nil, err
	}
	p.ByGet = p.routes("writes-by-get", plan.ByGet(!p.Module))
	p.Settlements = p.routes("settlements", plan.Settlements())
	if o.Target == EnvoyGateway {
		if err := p.checkGateway(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// addServices adds the clusters of the listeners that Envoy calls.
func (p *page) addServices(c *config.Config) error {
	if p.Module {
		return nil
	}
	for _, s := range []struct {
		name, key, address string
		used               bool
	}{
		{"ordergate-authz", "listen.authz", c.Listen.Authz, true},
		{"ordergate-proc", "listen.proc", c.Listen.Proc, p.Proc || p.Answers},
	} {
		if !s.used {
			continue
		}
		if s.address == "" {
			return unfit("%s has no address: Envoy needs it for these rules", s.key)
		}
		reached, err := reach(s.address)
		if err != nil {
			return unfit("%s: %v", s.key, err)
		}
		added := service{Name: s.name, Address: reached, First: len(p.Services) == 0}
		if t := c.Listen.TLS; t != nil && !strings.HasPrefix(reached, "unix:") {
			added.CA = t.CA
		}
		p.Services = append(p.Services, added)
	}
	return nil
}

// reach returns the address at which Envoy reaches a listener of ordergate.
func reach(address string) (string, error) {
	if strings.HasPrefix(address, "unix:") {
		return address, nil
	}
	host, port, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return "", err
	case port == "0":
		return "", fmt.Errorf("%s is any free port: Envoy needs its number", address)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

func (p *page) routes(name string, from []attach.Route) []route {
	var routes []route
	for i, r := range from {
		added := route{Route: r, Name: name, Timeout: p.Times.Writes, Limited: r.Settles}
		if i > 0 {
			added.Name = fmt.Sprintf("%s-%d", name, i+1)
		}
		routes = append(routes, added)
	}
	return routes
}

// Limits reports whether a route limits its clients.
func (p *page) Limits() bool {
	return len(p.Settlements) > 0 || slices.ContainsFunc(p.ByGet, func(r route) bool { return r.Limited })
}

// OneLimit returns the name of the only route that limits its clients; "": there are several.
func (p *page) OneLimit() string {
	name := ""
	for _, r := range slices.Concat(p.ByGet, p.Settlements) {
		if r.Limited {
			if name != "" {
				return ""
			}
			name = r.Name
		}
	}
	return name
}

// MessageReasons returns what message_timeout is made of.
func (p *page) MessageReasons() []string {
	var reasons []string
	for _, w := range p.Times.Waits {
		if w.Timeout == "message_timeout" {
			reasons = append(reasons, fmt.Sprintf("%s waits for up to %v: %v (%s)", w.Rule, w.Longest, w.Least, strings.Join(w.Keys, ", ")))
		}
	}
	for _, h := range p.Times.Held {
		reasons = append(reasons, fmt.Sprintf("%s: its answer is held for up to %v: %v", h.Rule, h.Longest, h.MessageTimeout))
	}
	return reasons
}

// WriteReasons returns what the timeout of writes is made of.
func (p *page) WriteReasons() []string {
	if len(p.Times.Held) == 0 || p.Module && p.Times.Message == 0 {
		return []string{fmt.Sprintf("That leaves the backend %v for a write.", p.Times.Writes-p.Times.Message)}
	}
	longest := p.Times.Held[0].Longest
	for _, h := range p.Times.Held {
		longest = max(longest, h.Longest)
	}
	return []string{
		fmt.Sprintf("The answer to a create may be held for %v while Redis hangs (ordergate", longest),
		fmt.Sprintf("check --timeouts): that leaves the backend %v for a create.", p.Times.Backend),
	}
}

// absentStatuses returns the statuses by which a backend says that it has no such order, as an RE2.
func absentStatuses(c *config.Config) string {
	statuses := []string{"404", "410"}
	add := func(a *config.Answer) {
		if a == nil {
			return
		}
		for _, cond := range a.Absent {
			for _, s := range cond.Status {
				if pattern := strings.ReplaceAll(string(s), "x", "."); !slices.Contains(statuses, pattern) {
					statuses = append(statuses, pattern)
				}
			}
		}
	}
	for i := range c.Rules {
		if c.Rules[i].Lookup != nil {
			add(c.Rules[i].Answer)
		}
	}
	return strings.Join(statuses, "|")
}

// isGRPC reports whether the backend speaks gRPC: all rules have paths of gRPC methods.
func isGRPC(c *config.Config) bool {
	return !slices.ContainsFunc(c.Rules, func(r config.Rule) bool { return !r.IsGRPC() })
}

// render executes one template of parts/.
func render(name string, p *page) (string, error) {
	t := template.New("").Funcs(template.FuncMap{"address": address, "type": clusterType, "seconds": seconds, "short": short, "quote": quote, "plain": plain, "ms": milliseconds, "gateway": gatewayEndpoint, "port": portOf, "tlsName": tlsName, "entry": entryEndpoint, "service": serviceHost})
	t = t.Funcs(template.FuncMap{"part": func(indent int, name string, p *page) (string, error) {
		text, err := render(name, p)
		return indented(strings.TrimRight(text, "\n"), indent), err
	}})
	t = t.Funcs(template.FuncMap{"body": func(indent int, name string, p *page) (string, error) {
		text, err := render(name, p)
		text = strings.ReplaceAll(strings.TrimPrefix(text, "- "), "\n  ", "\n")
		return indented(strings.TrimRight(text, "\n"), indent), err
	}})
	if _, err := t.ParseFS(parts, "parts/*.tmpl"); err != nil {
		return "", fmt.Errorf("reading the templates: %w", err)
	}
	var text strings.Builder
	if err := t.ExecuteTemplate(&text, name+".tmpl", p); err != nil {
		return "", fmt.Errorf("filling in a template: %w", err)
	}
	return text.String(), nil
}

func indented(text string, n int) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if l != "" {
			lines[i] = strings.Repeat(" ", n) + l
		}
	}
	return strings.Join(lines, "\n")
}

// split splits "host:port", and refuses a port that is no number of a port.
func split(address string) ([2]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return [2]string{}, fmt.Errorf("%q is not host:port, such as 127.0.0.1:8080", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 || strings.ContainsAny(host, " {}\"'#,") {
		return [2]string{}, fmt.Errorf("%q is not host:port, such as 127.0.0.1:8080", address)
	}
	return [2]string{host, port}, nil
}

// address writes an address as Envoy's YAML does.
func address(a string) (string, error) {
	if path, ok := strings.CutPrefix(a, "unix:"); ok {
		return "{ pipe: { path: " + plain(path) + " } }", nil
	}
	hostPort, err := split(a)
	if err != nil {
		return "", err
	}
	host := hostPort[0]
	if host == "" {
		host = "0.0.0.0"
	}
	if strings.Contains(host, ":") {
		host = quote(host)
	}
	return "{ socket_address: { address: " + host + ", port_value: " + hostPort[1] + " } }", nil
}

// plain quotes a path if YAML needs it.
func plain(path string) string {
	if strings.ContainsAny(path, " \t{}[],#:\"'%&*!|>@`\\\n") {
		return quote(path)
	}
	return path
}

// clusterType is the type of a cluster with one address.
func clusterType(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil && net.ParseIP(host) == nil && !strings.HasPrefix(address, "unix:") {
		return "STRICT_DNS"
	}
	return "STATIC"
}

// seconds writes a duration as Envoy reads it.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s" }

// short writes a duration without units of 0.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// quote writes a text in double quotes, as JSON and YAML read it.
func quote(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a text is always JSON
	return strings.TrimSpace(b.String())
}
