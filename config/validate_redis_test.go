package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTopologies has a case for each rule about the modes of Redis.
func TestTopologies(t *testing.T) {
	for _, tt := range []struct {
		name, redis string
		want        []string // nil: accepted
	}{
		{"sentinel", `{mode: sentinel, addresses: ["a:1", "b:1", "c:1"]}`, nil},
		{"sentinel with all there is", `{mode: sentinel, addresses: ["a:1"], master: orders-2.eu_A, username: u, password_env: PW, sentinel_username: s, sentinel_password_env: PW, tls: {server_name: redis.internal}}`, nil},
		{"sentinel without addresses", `{mode: sentinel}`, []string{`redis: addresses is missing: give those of the Sentinels, such as [10.0.0.1:26379]`}},
		{"sentinel with no addresses", `{mode: sentinel, addresses: []}`, []string{`redis.addresses: is empty: give those of the Sentinels, such as [10.0.0.1:26379]`}},
		{"sentinel without a name", `{mode: sentinel, addresses: ["a:1"], master: ""}`, []string{`redis.master: is empty: give the Sentinels' name of the master`}},
		{"sentinel with a name that is none", `{mode: sentinel, addresses: ["a:1"], master: "my master"}`, []string{`redis.master: "my master" is not a name that Sentinel accepts: letters, digits, dots, - and _`}},
		{"sentinel at a socket", `{mode: sentinel, addresses: ["a:1", unix:/run/s.sock]}`, []string{`redis.addresses[1]: "unix:/run/s.sock" is a socket: mode sentinel takes host:port`}},
		{"a sentinel twice", `{mode: sentinel, addresses: ["a:1", "b:1", "a:1"]}`, []string{`redis.addresses[2]: "a:1" is given twice: name an address once`}},
		{"a sentinel that is no address", `{mode: sentinel, addresses: ["a:1", b]}`, []string{`redis.addresses[1]: "b" is not host:port or unix:/path`}},
		{"sentinel's user without a password", `{mode: sentinel, addresses: ["a:1"], sentinel_username: s}`, []string{`redis: sentinel_username needs a password: give sentinel_password_file or sentinel_password_env`}},
		{"two passwords of sentinels", `{mode: sentinel, addresses: ["a:1"], sentinel_password_file: a, sentinel_password_env: PW}`, []string{`redis.sentinel_password_env: excludes sentinel_password_file: give one of the two`}},
		{"sentinel with a user without a password", `{mode: sentinel, addresses: ["a:1"], username: u}`, []string{`redis: username needs a password: give password_file or password_env`}},

		{"cluster", `{mode: cluster, addresses: ["a:1"]}`, nil},
		{"cluster with all there is", `{mode: cluster, addresses: ["a:1", "b:1"], username: u, password_env: PW, tls: {}}`, nil},
		{"cluster without addresses", `{mode: cluster}`, []string{`redis: addresses is missing: give that of one node or more, such as [10.0.0.1:6379]`}},
		{"a database", `{addresses: ["a:1"], database: 3}`, nil},
		{"a database of a cluster", `{mode: cluster, addresses: ["a:1"], database: 3}`, []string{`redis.database: is for modes single and sentinel only: set one of them, or remove this`}},
		{"a database inside this process", `{mode: embedded, database: 3}`, []string{`redis.database: is for modes single and sentinel only: set one of them, or remove this`}},
		{"a database below 0", `{database: -1}`, []string{`redis.database: -1 is out of range: 0 to 65535 are allowed`}},
		{"cluster at a socket", `{mode: cluster, addresses: [unix:/run/s.sock]}`, []string{`redis.addresses[0]: "unix:/run/s.sock" is a socket: mode cluster takes host:port`}},
		{"cluster with a user without a password", `{mode: cluster, addresses: ["a:1"], username: u}`, []string{`redis: username needs a password: give password_file or password_env`}},
		{"cluster with what is sentinel's", `{mode: cluster, addresses: ["a:1"], master: m, sentinel_username: u, sentinel_password_env: PW}`, []string{
			`redis.master: is for mode sentinel only: set it, or remove this`,
			`redis.sentinel_username: is for mode sentinel only: set it, or remove this`,
			`redis.sentinel_password_env: is for mode sentinel only: set it, or remove this`,
		}},

		{"single with a master", `{master: mymaster}`, []string{`redis.master: is for mode sentinel only: set it, or remove this`}},
		{"single with the sentinels' password", `{sentinel_password_env: PW}`, []string{`redis.sentinel_password_env: is for mode sentinel only: set it, or remove this`}},
		{"embedded with what others have", `{mode: embedded, master: m, tls: {}, sentinel_password_env: PW}`, []string{
			`redis.master: is for mode sentinel only: set it, or remove this`,
			`redis.sentinel_password_env: is for mode sentinel only: set it, or remove this`,
			`redis.tls: is for modes single, sentinel and cluster only: set one of them, or remove this`,
		}},
		{"a mode that is announced nowhere", `{mode: sentinels, master: m}`, []string{`redis.mode: "sentinels" is not one of single, sentinel, cluster, embedded`}},

		{"member", `{member: "shop 3, süd"}`, nil},
		{"member of an embedded one", `{mode: embedded, member: a}`, nil},
		{"no member", `{member: ""}`, []string{`redis.member: is empty: give this ordergate a name of its own, or remove it`}},
		{"member with an end", `{member: "a#1"}`, []string{`redis.member: "a#1" has # in it, which ends the name: leave it out`}},
		{"member with a line break", `{member: "a\n"}`, []string{`redis.member: "a\n" has a character in it that cannot be printed: leave it out`}},
		{"the longest member", `{member: ` + strings.Repeat("a", 200) + `}`, nil},
		{"a longer member", `{member: ` + strings.Repeat("a", 201) + `}`, []string{`redis.member: is 201 bytes long: at most 200 are allowed`}},

		{"TLS", `{tls: {}}`, nil},
		{"TLS by address", `{tls: {server_name: "10.0.0.1"}}`, nil},
		{"TLS by no name", `{tls: {server_name: "https://a"}}`, []string{`redis.tls.server_name: "https://a" is neither a host name nor an IP address`}},
		{"a certificate without a key", `{tls: {cert: a.pem}}`, []string{`redis.tls.cert: goes with key, its private key`}},
		{"a key without a certificate", `{tls: {key: a.pem}}`, []string{`redis.tls.key: goes with cert, the certificate`}},
		{"a key that is no text", `{tls: {cert: a.pem, key: 1}}`, []string{`redis.tls.key: is a number: it has to be text, in quotes`}},
		{"TLS on a socket", `{addresses: [unix:/run/s.sock], tls: {}}`, []string{`redis.tls: is not for a socket: remove it, or give host:port in addresses`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file, e := with("redis", tt.redis), env{"PW": "secret"}
			if tt.want == nil {
				if err := mustParse(t, file, e).Validate(); err != nil {
					t.Errorf("accepted, then refused: %v", err)
				}
				return
			}
			want := make([]string, len(tt.want))
			for i, line := range tt.want {
				want[i] = "f.yaml:4: " + line
			}
			if diff := cmp.Diff(want, violations(t, file, e)); diff != "" {
				t.Errorf("unexpected violations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSentinelIsReadAsItStands(t *testing.T) {
	c := mustParse(t, with("redis", `{mode: sentinel, addresses: ["a:1"], password_env: A, sentinel_username: s, sentinel_password_env: B}`),
		env{"A": "a", "B": "b", "ORDERGATE_REDIS_TLS_SERVER_NAME": "redis.internal"})
	want := &Redis{
		Mode: "sentinel", Addresses: []string{"a:1"}, Master: "mymaster", PasswordEnv: "A", Password: "a",
		SentinelUsername: "s", SentinelPasswordEnv: "B", SentinelPassword: "b", TLS: &TLS{ServerName: "redis.internal"},
	}
	if diff := cmp.Diff(want, c.Redis); diff != "" {
		t.Errorf("unexpected Redis (-want +got):\n%s", diff)
	}
	// A mapping without keys is not the same as none.
	if c := mustParse(t, with("redis", `{tls: {}}`), nil); c.Redis.TLS == nil {
		t.Error("an empty tls is none")
	}
	if c := mustParse(t, with("redis", `{}`), nil); c.Redis.TLS != nil || c.Redis.Master != "" {
		t.Errorf("there is %v, %q without being asked for", c.Redis.TLS, c.Redis.Master)
	}
}
