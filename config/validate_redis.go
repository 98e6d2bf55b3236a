package config

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
		v.tls(path+".tls", r.TLS)
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

func (v *validator) tls(path string, t *TLS) {
	if t == nil {
		return
	}
	if (t.Cert == "") != (t.Key == "") {
		v.rejectMissing(path, []string{"cert", "key"}, "has one of cert and key: give both, or neither")
	}
}
