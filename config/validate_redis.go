package config

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// masterName matches the names that Sentinel accepts.
var masterName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

func (v *validator) redis(r *Redis) {
	const path = "redis"
	switch r.Mode {
	case RedisSingle:
		if len(r.Addresses) != 1 {
			v.reject(path+".addresses", "there are %d addresses: mode %s takes exactly one", len(r.Addresses), r.Mode)
		}
	case RedisSentinel:
		v.required(path, "addresses", len(r.Addresses) > 0, "those of the Sentinels, such as [10.0.0.1:26379]")
		v.sentinel(path, r)
	case RedisCluster:
		v.required(path, "addresses", len(r.Addresses) > 0, "that of one node or more, such as [10.0.0.1:6379]")
	case RedisEmbedded:
		v.embedded(path, r)
	}
	if r.Database != 0 && r.Mode == RedisCluster {
		v.reject(path+".database", "is not for mode %s, which has database 0 only: remove it", r.Mode)
	}
	v.redisAddresses(path+".addresses", r)
	v.member(path+".member", r.Member)
	if r.Mode != RedisEmbedded {
		v.login(path, "username", "password", r.Username, string(r.Password)+r.PasswordFile+r.PasswordEnv)
		if len(r.Addresses) == 1 && strings.HasPrefix(r.Addresses[0], "unix:") && r.TLS != nil {
			v.reject(path+".tls", "is not for a socket: remove it, or give host:port in addresses")
		}
		v.tls(path+".tls", r.TLS)
	}
}

func (v *validator) redisAddresses(path string, r *Redis) {
	seen := make(map[string]bool)
	for i, address := range r.Addresses {
		at := path + "[" + strconv.Itoa(i) + "]"
		problem := addressProblem(address, 1)
		switch {
		case problem != "":
			v.reject(at, "%s", problem)
		case strings.HasPrefix(address, "unix:") && r.Mode != RedisSingle:
			v.reject(at, "%s is a socket: mode %s takes host:port", quote(address), r.Mode)
		case seen[address]:
			v.reject(at, "%s is given twice: name an address once", quote(address))
		}
		seen[address] = true
	}
}

func (v *validator) sentinel(path string, r *Redis) {
	if r.Master != "" && !masterName.MatchString(r.Master) {
		v.reject(path+".master", "%s is not a name that Sentinel accepts: letters, digits, dots, - and _", quote(r.Master))
	}
	v.login(path, "sentinel_username", "sentinel_password", r.SentinelUsername,
		string(r.SentinelPassword)+r.SentinelPasswordFile+r.SentinelPasswordEnv)
}

// maxMember is in bytes. It keeps a member's name readable after the change log adds the nonce
// that distinguishes the starts of a process.
const maxMember = 200

func (v *validator) member(path, name string) {
	switch {
	case name == "" && v.given(path):
		v.reject(path, "is empty: give this ordergate a name of its own, or remove it")
	case len(name) > maxMember:
		v.reject(path, "is %d bytes long: at most %d are allowed", len(name), maxMember)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		v.reject(path, "%s has a character in it that cannot be printed: leave it out", quote(name))
	case strings.Contains(name, "#"):
		v.reject(path, "%s has # in it, which ends the name: leave it out", quote(name))
	}
}

// present returns the keys with the value true, in order.
func present(keys map[string]bool) []string {
	return slices.DeleteFunc(sortedKeys(keys), func(key string) bool { return !keys[key] })
}

// embedded rejects the keys that a Redis inside this process does not use. A user who sets them
// expects another server.
func (v *validator) embedded(path string, r *Redis) {
	keys := present(map[string]bool{
		"addresses":     len(r.Addresses) > 0 || v.given(path+".addresses"),
		"database":      r.Database != 0,
		"username":      r.Username != "",
		"password_file": r.PasswordFile != "",
		"password_env":  r.PasswordEnv != "",
		"tls":           r.TLS != nil,
	})
	for _, key := range keys {
		v.reject(join(path, key), "is not for mode %s, which runs inside this process: remove it", r.Mode)
	}
}

// login checks that a user has a password. Without one, the client does not authenticate.
func (v *validator) login(path, user, password, name, secret string) {
	if name != "" && secret == "" {
		keys := []string{password + "_file", password + "_env"}
		v.rejectMissing(path, keys, "%s needs a password: give %s or %s", user, keys[0], keys[1])
	}
}

func (v *validator) tls(path string, t *TLS) {
	if t == nil {
		return
	}
	if (t.Cert == "") != (t.Key == "") {
		v.rejectMissing(path, []string{"cert", "key"}, "has one of cert and key: give both, or neither")
	}
	if t.ServerName != "" {
		if _, err := netip.ParseAddr(t.ServerName); err != nil && !hostName.MatchString(t.ServerName) {
			v.reject(path+".server_name", "%s is neither a host name nor an IP address", quote(t.ServerName))
		}
	}
}
