package config

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// maxSocketPath is in bytes. With the final NUL, it fills the 108 bytes of sockaddr_un, unix(7).
const maxSocketPath = 107

// listener is an address of the section listen.
type listener struct{ path, address string }

func servedAt(l *Listen) []listener {
	return []listener{{"listen.authz", l.Authz}, {"listen.proc", l.Proc}, {"listen.http", l.HTTP}, {"listen.admin", l.Admin}}
}

func (v *validator) listen(c *Config) {
	listeners := servedAt(&c.Listen)
	for i, l := range listeners {
		for _, other := range listeners[:i] {
			if overlap(other.address, l.address) {
				v.reject(l.path, "%s is taken by %s: give each listener an address of its own", quote(l.address), other.path)
			}
		}
	}
	v.served(c)
	v.exposed(&c.Listen)
	v.listenTLS(&c.Listen)
}

// exposed rejects addresses at which other machines could forge requests and orders, or change
// filters.
func (v *validator) exposed(l *Listen) {
	if l.Insecure {
		return
	}
	const way = "%s can be reached from other machines: give %s, or listen on loopback or a unix socket, or write listen.insecure: true"
	for _, served := range servedAt(l)[:3] {
		if isExposed(served.address) && l.TLS == nil {
			v.reject(served.path, way, quote(served.address), "listen.tls")
		}
	}
	if isExposed(l.Admin) && l.TokenFile == "" && l.TokenEnv == "" {
		v.reject("listen.admin", way, quote(l.Admin), "listen.token_file or listen.token_env")
	}
}

// isExposed reports whether other machines may reach a valid address. It returns true for host
// names other than localhost, and false for invalid addresses.
func isExposed(address string) bool {
	if address == "" || addressProblem(address, 0) != "" || strings.HasPrefix(address, "unix:") {
		return false
	}
	host, _, _ := net.SplitHostPort(address) // addressProblem has checked it
	ip, err := netip.ParseAddr(sameHost(host))
	return err != nil || !ip.IsLoopback()
}

func (v *validator) listenTLS(l *Listen) {
	t := l.TLS
	if t == nil {
		return
	}
	const path = "listen.tls"
	if v.given(path+".names") && (len(t.Names) == 0 || slices.Contains(t.Names, "")) {
		v.reject(path+".names", "has nothing in it, or an empty name: give a DNS name or a URI of a client's certificate, or remove the key")
	}
	for _, address := range []string{l.Authz, l.Proc, l.HTTP} {
		if address != "" && !strings.HasPrefix(address, "unix:") {
			return
		}
	}
	v.reject(path, "is for authz, proc and http at host:port, and none is there: remove it")
}

// served checks that each listener that a rule needs has an address. Without the listener,
// Envoy would either forward the rule's requests unchecked or refuse all of them.
func (v *validator) served(c *Config) {
	authz, proc := "", "" // the first keys that need them
	for i, r := range c.Rules {
		for _, need := range [...]struct {
			listener *string
			is       bool
			key      string
		}{
			{&authz, r.Lookup != nil, ".lookup"},
			{&proc, r.Create != nil, ".create"},
			{&authz, r.Create != nil && r.Create.Dedup != nil, ".create.dedup"},
			{&proc, r.Settle != nil, ".settle"},
			{&proc, r.Once != nil, ".once"},
		} {
			if need.is && *need.listener == "" {
				*need.listener = rulePath(i) + need.key
			}
		}
	}
	if c.Listen.Authz == "" && c.Listen.HTTP == "" && authz != "" {
		v.reject("listen.authz", "is empty, and so is listen.http, and %s is decided at one of them: give an address", authz)
	}
	if c.Listen.Proc == "" && proc != "" {
		v.reject("listen.proc", "is empty, and %s is done there: give an address", proc)
	}
}

var hostName = lazyregexp.New(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?$`)

// addressProblem returns the fault of an address, "host:port" or "unix:/path", or "". The port
// must be at least leastPort.
func addressProblem(address string, leastPort int) string {
	if address == "" && leastPort == 0 { // it is not served
		return ""
	}
	if strings.Contains(address, "@") {
		return "has an @ in it: an address is host:port or unix:/path, without a user or password"
	}
	if file, ok := strings.CutPrefix(address, "unix:"); ok {
		switch {
		case !strings.HasPrefix(file, "/") || strings.HasPrefix(file, "//") || strings.HasSuffix(file, "/"):
			return fmt.Sprintf("%s is not unix: and the absolute path of a socket, such as unix:/run/ordergate/authz.sock", quote(address))
		case strings.ContainsRune(file, 0):
			return fmt.Sprintf("%s has a NUL in it: leave it out", quote(address))
		case len(file) > maxSocketPath:
			return fmt.Sprintf("%s is %d bytes long after unix: and at most %d are allowed", quote(address), len(file), maxSocketPath)
		}
		return ""
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Sprintf("%s is not host:port or unix:/path", quote(address))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || int(n) < leastPort || port != strconv.FormatUint(n, 10) {
		return fmt.Sprintf("%s has no valid port: %d to 65535 are allowed", quote(address), leastPort)
	}
	if host == "" {
		return fmt.Sprintf("%s names no host: write 127.0.0.1:%s, or 0.0.0.0:%[2]s for every interface", quote(address), port)
	}
	if !isHost(host) {
		return fmt.Sprintf("%s has no valid host: give an IP address or a host name", quote(address))
	}
	return ""
}

func isHost(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil || hostName.MatchString(text)
}

// overlap reports whether two addresses cannot both have a listener. It does not resolve host
// names.
func overlap(a, b string) bool {
	fileA, isFileA := strings.CutPrefix(a, "unix:")
	fileB, isFileB := strings.CutPrefix(b, "unix:")
	if isFileA || isFileB {
		return isFileA == isFileB && path.Clean(fileA) == path.Clean(fileB)
	}
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	isAny := func(host string) bool { return host == "0.0.0.0" || host == "::" }
	hostA, hostB = sameHost(hostA), sameHost(hostB)
	return portA != "" && portA == portB && portA != "0" && (isAny(hostA) || isAny(hostB) || hostA == hostB)
}

// sameHost returns the canonical form of a host: an IP address without an IPv4-in-IPv6 prefix,
// 127.0.0.1 for localhost, or a name in lower case.
func sameHost(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	if host = strings.ToLower(host); host == "localhost" {
		return "127.0.0.1"
	}
	return host
}

func (v *validator) redis(r *Redis) {
	const path = "redis"
	switch r.Mode {
	case RedisSingle:
		if len(r.Addresses) != 1 {
			v.reject(path+".addresses", "there are %d addresses: mode %s takes exactly one", len(r.Addresses), r.Mode)
		}
	case RedisSentinel:
		v.required(path, "addresses", len(r.Addresses) > 0, "those of the Sentinels, such as [10.0.0.1:26379]")
		v.login(path, "sentinel_username", "sentinel_password", r.SentinelUsername,
			string(r.SentinelPassword)+r.SentinelPasswordFile+r.SentinelPasswordEnv)
	case RedisCluster:
		v.required(path, "addresses", len(r.Addresses) > 0, "that of one node or more, such as [10.0.0.1:6379]")
	}
	for i, address := range r.Addresses {
		if strings.HasPrefix(address, "unix:") && r.Mode != RedisSingle {
			v.reject(path+".addresses["+strconv.Itoa(i)+"]", "%s is a socket: mode %s takes host:port", quote(address), r.Mode)
		}
	}
	if r.Mode != RedisEmbedded {
		v.login(path, "username", "password", r.Username, string(r.Password)+r.PasswordFile+r.PasswordEnv)
		if len(r.Addresses) == 1 && strings.HasPrefix(r.Addresses[0], "unix:") && r.TLS != nil {
			v.reject(path+".tls", "is not for a socket: remove it, or give host:port in addresses")
		}
	}
}

// maxMember is in bytes. It keeps a member's name readable after the change log adds the nonce
// that distinguishes the starts of a process.
const maxMember = 200

func memberProblem(name string) string {
	switch {
	case len(name) > maxMember:
		return fmt.Sprintf("is %d bytes long: at most %d are allowed", len(name), maxMember)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Sprintf("%s has a character in it that cannot be printed: leave it out", quote(name))
	case strings.Contains(name, "#"):
		return fmt.Sprintf("%s has # in it, which ends the name: leave it out", quote(name))
	}
	return ""
}

// login checks that a user has a password. Without one, the client does not authenticate.
func (v *validator) login(path, user, password, name, secret string) {
	if name != "" && secret == "" {
		keys := []string{password + "_file", password + "_env"}
		v.rejectMissing(path, keys, "%s needs a password: give %s or %s", user, keys[0], keys[1])
	}
}
