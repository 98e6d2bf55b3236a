package order

import (
	"slices"
	"strings"
)

// matchOtherHosts judges a request that a backend may take for one to another host, by which it
// would come under another rule: its headers name that host, or its own can be read in more
// than one way. Matched is what it is to its own.
func (t *Table) matchOtherHosts(req Request, matched Match) Match {
	own, isRules, isOdd := hostname(req.Host), false, !isPlainHost(req.Host)
	for _, host := range t.hosts {
		if strings.EqualFold(host, own) {
			isRules = true
		} else if isOdd || req.forwardsTo(host) {
			if m := t.matchHost(host, req, matched); m.Reason == HostOverride {
				return m
			}
		}
	}
	if isRules && (isOdd || t.forwardsElsewhere(&req, own)) {
		return t.matchHost("", req, matched)
	}
	return matched
}

// What a port, an IPv6 address and a name in an authority are made of.
const (
	portBytes    = "0123456789"
	addressBytes = portBytes + "abcdefABCDEF.:"
	nameBytes    = portBytes + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."
)

// isPlainHost reports whether every backend reads an authority alike: a name or an address,
// and perhaps a port. To nginx, say, the name ends at the first colon.
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

// matchHost returns why a request that a backend may take for one to another host is refused, or
// what it is if that makes no difference. No rule is for the host "".
func (t *Table) matchHost(host string, req Request, matched Match) Match {
	req.Host = host
	m := t.match(req)
	if m.Rule < 0 || m.Rule == matched.Rule || m.Screening && matched.Screening {
		return matched // a body that is asked for is looked into for either
	}
	return Match{Result: Ambiguous, Rule: m.Rule, Reason: HostOverride, Offset: -1, Screening: true}
}

// forwardsTo reports whether a header names a host that backends which trust a proxy may
// take for the request's. What can be read in more than one way may name it, too.
func (req *Request) forwardsTo(host string) bool {
	for name, value := range all(req.Header) {
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

// forwardsElsewhere reports whether a header names a host that no rule is for. The server's
// own name is left out: proxies send it with every request.
func (t *Table) forwardsElsewhere(req *Request, own string) bool {
	for name, value := range all(req.Header) {
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

// forwardsHost knows the headers that have the host which a proxy was asked for.
func forwardsHost(name string) bool {
	switch withDashes(name) {
	case "forwarded", "x-forwarded-host", "x-forwarded-server", "x-host", "x-original-host":
		return true
	}
	return false
}
