package order

import (
	"slices"
	"strings"
)

// refuseOtherHosts refuses a request if a backend may assign it to another host, and so to another
// rule. Then its headers name that host, or its own host is ambiguous. The match is that for its own
// host.
func (t *Table) refuseOtherHosts(req *Request, m *Match) bool {
	own, isRules, isOdd := hostname(req.Host), false, !isPlainHost(req.Host)
	for _, host := range t.hosts {
		if strings.EqualFold(host, own) {
			isRules = true
		} else if (isOdd || req.forwardsTo(host)) && t.refuseHost(host, *req, m) {
			return true
		}
	}
	return isRules && (isOdd || t.forwardsElsewhere(req, own)) && t.refuseHost("", *req, m)
}

// The characters of a port, an IPv6 address and a name in an authority.
const (
	portBytes    = "0123456789"
	addressBytes = portBytes + "abcdefABCDEF.:"
	nameBytes    = portBytes + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."
)

// isPlainHost reports whether every backend reads an authority alike: as a name or an
// address, with or without a port. For nginx, for example, a name ends at the first colon.
func isPlainHost(authority string) bool {
	name := hostname(authority)
	port, _ := strings.CutPrefix(strings.TrimPrefix(authority[len(name):], "."), ":")
	if strings.Trim(port, portBytes) != "" {
		return false
	}
	if address, ok := strings.CutPrefix(name, "["); ok {
		address, ok = strings.CutSuffix(address, "]")
		return ok && strings.Trim(address, addressBytes) == ""
	}
	return strings.Trim(name, nameBytes) == "" && !strings.HasSuffix(name, ".")
}

// refuseHost refuses a request if a backend may assign it to another host with another rule.
// No rule has the host "".
func (t *Table) refuseHost(host string, req Request, matched *Match) bool {
	req.Host = host
	var m Match
	t.match(&req, &m)
	if m.Rule < 0 || m.Rule == matched.Rule || m.Screening && matched.Screening {
		return false // a requested body is checked for both
	}
	*matched = Match{Result: Ambiguous, Rule: m.Rule, Reason: HostOverride, Offset: -1, Screening: true}
	return true
}

// forwardsTo reports whether a header names a host that backends may use, if they trust a
// proxy. An ambiguous value counts as naming it.
func (req *Request) forwardsTo(host string) bool {
	for name, value := range All(req.Header) {
		if !forwardsHost(name) {
			continue
		}
		for text := range strings.FieldsFuncSeq(value, func(c rune) bool { return strings.ContainsRune(" \t,;=\"", c) }) {
			if strings.EqualFold(hostname(text), host) || !isPlainHost(text) {
				return true
			}
		}
	}
	return false
}

// forwardsElsewhere reports whether a header names a host without rules. It ignores the
// server's own name, which proxies send with every request.
func (t *Table) forwardsElsewhere(req *Request, own string) bool {
	for name, value := range All(req.Header) {
		header := withDashes(name)
		if !forwardsHost(name) || header == "x-forwarded-server" {
			continue
		}
		for text := range strings.FieldsFuncSeq(value, func(c rune) bool { return strings.ContainsRune(" \t,;", c) }) {
			if header == "forwarded" {
				key, host, _ := strings.Cut(text, "=")
				if !strings.EqualFold(key, "host") {
					continue
				}
				text = strings.Trim(host, `"`)
			}
			named := hostname(text)
			is := func(host string) bool { return strings.EqualFold(host, named) }
			if !is(own) && !slices.ContainsFunc(t.hosts, is) {
				return true
			}
		}
	}
	return false
}

// forwardsHost reports whether a header holds the host that a proxy was asked for.
func forwardsHost(name string) bool {
	switch withDashes(name) {
	case "forwarded", "x-forwarded-host", "x-forwarded-server", "x-host", "x-original-host":
		return true
	}
	return false
}

// AdmitsHost reports whether the rule is for an authority, with or without a port.
func (r *Rule) AdmitsHost(host string) bool {
	return r.Host == "" || strings.EqualFold(r.Host, hostname(host))
}

// hostname removes the port and the trailing dot from an authority.
func hostname(authority string) string {
	i := strings.LastIndexByte(authority, ':')
	if i >= 0 && strings.IndexByte(authority[i:], ']') < 0 { // not the colons of an IPv6 address
		authority = authority[:i]
	}
	return strings.TrimSuffix(authority, ".")
}
