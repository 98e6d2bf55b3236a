package config

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// base is a good file in one line each, for cases to change.
var base = map[string]string{
	"listen":  `{}`,
	"redis":   `{}`,
	"filters": `{orders: {}}`,
	"sources": `{seed: {kind: csv, path: ids.csv}}`,
	"locks":   `{settlement: {}}`,
	"rules":   `[{name: a, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id}, lookup: {filter: orders}}]`,
}

// with returns the base file with one section replaced.
func with(section, value string) string {
	var b strings.Builder
	for _, key := range sortedKeys(base) {
		text := base[key]
		if key == section {
			text = value
		}
		b.WriteString(key + ": " + text + "\n")
	}
	return b.String()
}

func ruleWith(text string) string { return with("rules", "["+text+"]") }

const (
	match  = `name: a, match: {methods: [POST], path: "/o/{id}"}`
	lookup = match + `, lookup: {filter: orders}`
	create = match + `, create: {filter: orders, learn: {response_json: id}}`
)

// TestValidation has a case for each rule. A case without wanted violations is
// to be accepted.
func TestValidation(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		want       []string // without "f.yaml:N: "
	}{
		{"the base", with("", ""), nil},

		{"host without a port", with("listen", `{authz: localhost}`), []string{`listen.authz: "localhost" is not host:port or unix:/path`}},
		{"port out of range", with("listen", `{admin: "127.0.0.1:65536"}`), []string{`listen.admin: "127.0.0.1:65536" has no valid port: 0 to 65535 are allowed`}},
		{"port with a name", with("listen", `{admin: "127.0.0.1:http"}`), []string{`listen.admin: "127.0.0.1:http" has no valid port: 0 to 65535 are allowed`}},
		{"port with a sign", with("listen", `{admin: "127.0.0.1:+80"}`), []string{`listen.admin: "127.0.0.1:+80" has no valid port: 0 to 65535 are allowed`}},
		{"no host", with("listen", `{admin: ":80"}`), []string{`listen.admin: ":80" names no host: write 127.0.0.1:80, or 0.0.0.0:80 for every interface`}},
		{"bad host", with("listen", `{admin: "a b:80"}`), []string{`listen.admin: "a b:80" has no valid host: give an IP address or a host name`}},
		{"relative socket", with("listen", `{admin: "unix:run/a.sock"}`), []string{`listen.admin: "unix:run/a.sock" is not unix: and the absolute path of a socket, such as unix:/run/ordergate/authz.sock`}},
		{"socket as a URL", with("listen", `{admin: "unix:///run/a.sock"}`), []string{`listen.admin: "unix:///run/a.sock" is not unix: and the absolute path of a socket, such as unix:/run/ordergate/authz.sock`}},
		{"long socket", with("listen", `{admin: "unix:/`+strings.Repeat("a", 107)+`"}`), []string{`listen.admin: "unix:/` + strings.Repeat("a", 54) + `"... is 108 bytes long after unix: and at most 107 are allowed`}},
		{"longest socket", with("listen", `{admin: "unix:/`+strings.Repeat("a", 106)+`"}`), nil},
		{"socket with a NUL", with("listen", `{admin: "unix:/a\0b"}`), []string{`listen.admin: "unix:/a\x00b" has a NUL in it: leave it out`}},
		{"two names", with("listen", `{authz: "gate-a:9191", proc: "gate-b:9191", insecure: true}`), nil},
		{"one name in two cases", with("listen", `{authz: "Gate-A:9191", proc: "gate-a:9191", insecure: true}`), []string{`listen.proc: "gate-a:9191" is taken by listen.authz: give each listener an address of its own`}},
		{"one address twice", with("listen", `{authz: "127.0.0.1:9192"}`), []string{`listen.proc: "127.0.0.1:9192" is taken by listen.authz: give each listener an address of its own`}},
		{"one address under two names", with("listen", `{authz: "localhost:9192"}`), []string{`listen.proc: "127.0.0.1:9192" is taken by listen.authz: give each listener an address of its own`}},
		{"every interface", with("listen", `{admin: "[::]:9192", insecure: true}`), []string{`listen.admin: "[::]:9192" is taken by listen.proc: give each listener an address of its own`}},
		{"checks from other machines", with("listen", `{authz: "0.0.0.0:9191"}`), []string{`listen.authz: "0.0.0.0:9191" can be reached from other machines: give listen.tls, or listen on loopback or a unix socket, or write listen.insecure: true`}},
		{"calls and sub-requests by a name", with("listen", `{proc: "gate:9192", http: "localhost:9193"}`), []string{`listen.proc: "gate:9192" can be reached from other machines: give listen.tls, or listen on loopback or a unix socket, or write listen.insecure: true`}},
		{"operators from other machines", with("listen", `{admin: "192.0.2.1:9194"}`), []string{`listen.admin: "192.0.2.1:9194" can be reached from other machines: give listen.token_file or listen.token_env, or listen on loopback or a unix socket, or write listen.insecure: true`}},
		{"loopback by other names", with("listen", `{authz: "127.9.9.9:1", proc: "[::1]:2", http: "LOCALHOST:3", admin: "[::ffff:127.0.0.1]:4"}`), nil},
		{"TLS for no names", with("listen", `{authz: "0.0.0.0:9191", tls: {cert: "", key: "", ca: "", names: []}}`), []string{
			`listen.tls.cert: is empty: give the file of the certificate`, `listen.tls.key: is empty: give the file of its private key`,
			`listen.tls.ca: is empty: give the file of the authorities that sign the clients' certificates`,
			`listen.tls.names: has nothing in it, or an empty name: give a DNS name or a URI of a client's certificate, or remove the key`,
		}},
		{"TLS without an authority", with("listen", `{tls: {cert: /c, key: /k}}`), []string{`listen.tls: ca is missing: give the file of the authorities that sign the clients' certificates`, `listen.tls.cert: reading the certificate: no such file or directory`}},
		{"TLS of sockets", with("listen", `{authz: "unix:/a", proc: "unix:/p", tls: {cert: "", key: "", ca: ""}}`), []string{
			`listen.tls.cert: is empty: give the file of the certificate`, `listen.tls.key: is empty: give the file of its private key`,
			`listen.tls.ca: is empty: give the file of the authorities that sign the clients' certificates`,
			`listen.tls: is for authz, proc and http at host:port, and none is there: remove it`,
		}},
		{"a host of operators with a port", with("listen", `{admin_hosts: [gate, "gate:80"]}`), []string{`listen.admin_hosts[1]: "gate:80" is not a host name: give one without a port`}},
		{"a mode that runs", with("listen", `{socket_mode: "1777"}`), []string{`listen.socket_mode: "1777" is not a mode: give three octal digits, such as "0660"`}},
		{"a mode without a zero", with("listen", `{socket_mode: "600"}`), nil},
		{"growth below the capacity", with("filters", `{orders: {capacity: 1000, expand: {max: 999}}}`), []string{`filters.orders.expand.max: 999 is out of range: 1_000, the capacity, to 100_000_000_000 are allowed`}},
		{"no growth at all", with("filters", `{orders: {capacity: 1000, expand: {max: 1000}}}`), nil},
		{"one socket twice", with("listen", `{authz: unix:/a/s, proc: unix:/a/./s}`), []string{`listen.proc: "unix:/a/./s" is taken by listen.authz: give each listener an address of its own`}},
		{"port 0 twice", with("listen", `{authz: "127.0.0.1:0", proc: "127.0.0.1:0", admin: "127.0.0.1:0"}`), nil},
		{"no admin", with("listen", `{admin: ""}`), nil},
		{"lookup without authz", with("listen", `{authz: ""}`), []string{`listen.authz: is empty, and so is listen.http, and rules[0].lookup is decided at one of them: give an address`}},
		{"lookup with http only", with("listen", `{authz: "", http: "127.0.0.1:0"}`), nil},
		{"http without a port", with("listen", `{http: localhost}`), []string{`listen.http: "localhost" is not host:port or unix:/path`}},
		{"http at an address that is taken", with("listen", `{http: "127.0.0.1:9194"}`), []string{`listen.admin: "127.0.0.1:9194" is taken by listen.http: give each listener an address of its own`}},
		{"create without proc", "listen: {proc: ''}\nfilters: {orders: {}}\nrules: [{" + create + "}]", []string{`listen.proc: is empty, and rules[0].create is done there: give an address`}},

		{"two addresses", with("redis", `{addresses: ["a:1", "b:2"]}`), []string{`redis.addresses: there are 2 addresses: mode single takes exactly one`}},
		{"no addresses", with("redis", `{addresses: []}`), []string{`redis.addresses: there are 0 addresses: mode single takes exactly one`}},
		{"redis port 0", with("redis", `{addresses: ["a:0"]}`), []string{`redis.addresses[0]: "a:0" has no valid port: 1 to 65535 are allowed`}},
		{"redis as a URL", with("redis", `{addresses: ["redis://u:hunter2@a:1"]}`), []string{`redis.addresses[0]: has an @ in it: an address is host:port or unix:/path, without a user or password`}},
		{"redis at a socket", with("redis", `{addresses: ["unix:/run/redis.sock"]}`), nil},
		{"embedded", with("redis", `{mode: embedded}`), nil},
		{"embedded with addresses", with("redis", `{mode: embedded, addresses: ["a:1"]}`), []string{`redis.addresses: is for modes single, sentinel and cluster only: set one of them, or remove this`}},
		{"embedded with a user", with("redis", `{mode: embedded, username: u}`), []string{`redis.username: is for modes single, sentinel and cluster only: set one of them, or remove this`}},
		{"unknown mode", with("redis", `{mode: double}`), []string{`redis.mode: "double" is not one of single, sentinel, cluster, embedded`}},
		{"user without a password", with("redis", `{username: u}`), []string{`redis: username needs a password: give password_file or password_env`}},
		{"variable's name is none", with("redis", `{password_env: "hunter2!"}`), []string{`redis.password_env: is not the name of an environment variable: names are letters, digits and _`}},

		{"upper case name", with("filters", `{orders: {}, Orders: {}}`), []string{`filters.Orders: "Orders" is no name: names are 1 to 63 of a-z, 0-9, _ and -, with a letter or digit first`}},
		{"name with a dot", with("sources", `{seed.1: {kind: csv, path: a}}`), []string{`sources."seed.1": "seed.1" is no name: names are 1 to 63 of a-z, 0-9, _ and -, with a letter or digit first`}},
		{"long name", with("locks", `{`+strings.Repeat("a", 64)+`: {}}`), []string{`locks.` + strings.Repeat("a", 64) + `: "` + strings.Repeat("a", 60) + `"... is no name: names are 1 to 63 of a-z, 0-9, _ and -, with a letter or digit first`}},
		{"longest name, digits first", with("locks", `{1`+strings.Repeat("a", 62)+`: {}}`), nil},
		{"name that is a number", with("locks", `{1: {}}`), nil},

		{"unknown filter kind", with("filters", `{orders: {kind: remote}}`), []string{`filters.orders.kind: "remote" is not one of local, exact, redis-bloom, redis-bitmap, redisson, layered`}},
		{"no capacity", with("filters", `{orders: {capacity: 0}}`), []string{`filters.orders.capacity: 0 is out of range: 1 to 100_000_000_000 are allowed`}},
		{"capacity past the most", with("filters", `{orders: {capacity: 100_000_000_001}}`), []string{`filters.orders.capacity: 100_000_000_001 is out of range: 1 to 100_000_000_000 are allowed`}},
		{"largest capacity, highest rate", with("filters", `{orders: {capacity: 100_000_000_000, false_positive_rate: 0.5}}`), nil},
		{"smallest capacity, lowest rate", with("filters", `{orders: {capacity: 1, false_positive_rate: 1e-9}}`), nil},
		{"rate of zero", with("filters", `{orders: {false_positive_rate: 0}}`), []string{`filters.orders.false_positive_rate: 0 is out of range: 1e-09 to 0.5 are allowed`}},
		{"rate that is no number", with("filters", `{orders: {false_positive_rate: .nan}}`), []string{`filters.orders.false_positive_rate: NaN is out of range: 1e-09 to 0.5 are allowed`}},
		{"unknown freshness", with("filters", `{orders: {freshness: stale}}`), []string{`filters.orders.freshness: "stale" is not one of {window: 500ms}, none`}},
		{"dangling source", with("filters", `{orders: {sources: [sed]}}`), []string{`filters.orders.sources[0]: "sed" is not defined under sources, did you mean seed?`}},
		{"dangling source, none near", with("filters", `{orders: {sources: [archive]}}`), []string{`filters.orders.sources[0]: "archive" is not defined under sources, which has seed`}},
		{"source twice", with("filters", `{orders: {sources: [seed, seed]}}`), []string{`filters.orders.sources[1]: "seed" is given twice: name a source once`}},
		{"unused and wrong", with("filters", `{orders: {}, other: {kind: local, sources: [x]}}`), []string{`filters.other.sources[0]: "x" is not defined under sources, which has seed`}},

		{"source without a kind", with("sources", `{seed: {path: a}}`), []string{`sources.seed: kind is missing: give the kind of source: csv, mysql, postgres or kafka`}},
		{"source without a path", with("sources", `{seed: {kind: csv, path: ""}}`), []string{`sources.seed.path: is empty: give the path of a file with one ID a line`}},
		{"source of an unknown kind", with("sources", `{seed: {kind: oracle, table: orders}}`), []string{`sources.seed.kind: "oracle" is not one of csv, mysql, postgres, kafka`}},

		{"key without an ID", with("locks", `{s: {key: a}}`), []string{`locks.s.key: "a" has {id} in it 0 times: it has to be there once, as in order:lock:{id}`}},
		{"key with two IDs", with("locks", `{s: {key: "{id}{id}"}}`), []string{`locks.s.key: "{id}{id}" has {id} in it 2 times: it has to be there once, as in order:lock:{id}`}},
		{"key with a line break", with("locks", `{s: {key: "a\n{id}"}}`), []string{`locks.s.key: "a\n{id}" has a space or a character in it that cannot be printed: leave it out`}},
		{"long key", with("locks", `{s: {key: "{id}`+strings.Repeat("a", 253)+`"}}`), []string{`locks.s.key: is 257 bytes long: at most 256 are allowed`}},
		{"one key for two locks", with("locks", `{s: {key: "k{id}"}, t: {key: "k{id}"}}`), []string{`locks.t.key: "k{id}" is also the key of locks.s: give each lock a key of its own`}},
		{"default key for two locks", with("locks", `{s: {}, t: {}}`), []string{`locks.t.key: "order:lock:{id}" is also the key of locks.s: give each lock a key of its own`}},
		{"refused key beside the default", with("locks", `{s: {key: 1}, t: {}}`), []string{`locks.s.key: is a number: it has to be text, in quotes`}},
		{"short lease", with("locks", `{s: {lease: 999ms}}`), []string{
			`locks.s.lease: 999ms is out of range: 1s to 1h are allowed`,
		}},
		{"long lease", with("locks", `{s: {lease: 1h1s}}`), []string{`locks.s.lease: 1h0m1s is out of range: 1s to 1h are allowed`}},
		{"both forms of wait", with("locks", `{s: {wait: {up_to: 1s, every: 1s, tries: 0}}}`), []string{
			`locks.s.wait.tries: excludes up_to: give one of the two`,
			`locks.s.wait.every: excludes up_to: give one of the two`,
		}},
		{"no tries", with("locks", `{s: {wait: {tries: 0}}}`), []string{`locks.s.wait.tries: 0 is out of range: 1 to 1000 are allowed`}},
		{"long pause", with("locks", `{s: {wait: {every: 61s}}}`), []string{`locks.s.wait.every: 1m1s is out of range: 1ms to 1m are allowed`}},
		{"no wait", with("locks", `{s: {wait: {up_to: 0s}}}`), []string{`locks.s.wait.up_to: 0s is out of range: 1ms to 10m are allowed`}},
		{"long wait", with("locks", `{s: {wait: {up_to: 11m}}}`), []string{`locks.s.wait.up_to: 11m is out of range: 1ms to 10m are allowed`}},
		{"fence", with("locks", `{s: {keep_fence: 23h}}`), []string{`locks.s.keep_fence: 23h is out of range: 24h to 87600h are allowed`}},
		{"fence for ever", with("locks", `{s: {keep_fence: 0s}}`), nil},
		{"waiters", with("locks", `{s: {max_waiters_per_key: -1}}`), []string{`locks.s.max_waiters_per_key: -1 is out of range: 0 to 100000 are allowed`}},
		{"no hold", with("locks", `{s: {on_unknown_outcome: {hold: 0s}}}`), []string{`locks.s.on_unknown_outcome.hold: 0s is out of range: 1s to 24h are allowed`}},
		{"long hold", with("locks", `{s: {on_unknown_outcome: {hold: 25h}}}`), []string{`locks.s.on_unknown_outcome.hold: 25h is out of range: 1s to 24h are allowed`}},

		{"rule without a name", ruleWith(`{match: {methods: [GET], path: "/{id}"}, id: {path: id}, lookup: {filter: orders}}`), []string{`rules[0]: name is missing: give a name of its own, such as order-lookup`}},
		{"rule with a bad name", ruleWith(`{name: a.b, match: {methods: [GET], path: "/{id}"}, id: {path: id}, lookup: {filter: orders}}`), []string{`rules[0].name: "a.b" is no name: names are 1 to 63 of a-z, 0-9, _ and -, with a letter or digit first`}},
		{"rules of one name", ruleWith(`{` + lookup + `, id: {path: id}}, {name: a, match: {methods: [GET], path: "/o/{id}"}, id: {path: id}, lookup: {filter: orders}}`), []string{`rules[1].name: "a" is also the name of rules[0]: give each rule a name of its own`}},
		{"rule without actions", ruleWith(`{` + match + `, id: {path: id}}`), []string{`rules[0]: does nothing: give it lookup, create, settle, once or pass`}},
		{"create with lookup", ruleWith(`{` + create + `, id: {path: id}, lookup: {filter: orders}}`), []string{`rules[0].create: excludes lookup and settle: an order that is yet to be made cannot be looked up`}},
		{"create with settle", ruleWith(`{` + create + `, id: {path: id}, settle: {lock: settlement}}`), []string{`rules[0].create: excludes lookup and settle: an order that is yet to be made cannot be looked up`}},
		{"unknown rule mode", ruleWith(`{` + lookup + `, id: {path: id}, mode: dry}`), []string{`rules[0].mode: "dry" is not one of enforce, observe`}},
		{"dangling filter", ruleWith(`{` + match + `, id: {path: id}, lookup: {filter: order}}`), []string{`rules[0].lookup.filter: "order" is not defined under filters, did you mean orders?`}},
		{"dangling lock", ruleWith(`{` + match + `, id: {path: id}, settle: {lock: x}}`), []string{`rules[0].settle.lock: "x" is not defined under locks, which has settlement`}},
		{"nothing to refer to", "rules: [{" + match + ", id: {path: id}, settle: {lock: x}}]", []string{`rules[0].settle.lock: "x" is not defined: there is nothing under locks`}},
		{"JSON without a type", ruleWith("{" + lookup + ", id: {json: id}, json_without_type: accept}"), nil},
		{"JSON without a type, in another way", ruleWith("{" + lookup + ", id: {json: id}, json_without_type: true}"), []string{`rules[0].json_without_type: is true or false: it has to be text, in quotes`}},
		{"JSON without a type, in other words", ruleWith("{" + lookup + ", id: {json: id}, json_without_type: allow}"), []string{`rules[0].json_without_type: "allow" is not one of accept, refuse`}},
		{"no JSON without a type", ruleWith("{" + lookup + ", id: {path: id}, json_without_type: accept}"), []string{`rules[0].json_without_type: is for a rule that reads an ID from JSON: remove it`}},
		{"JSON without a type in a rule that passes", ruleWith("{" + match + ", pass: true, json_without_type: accept}"), []string{`rules[0].json_without_type: is not for a rule with pass, which exempts its requests: remove one of the two`}},
		{"backend", with("rules", base["rules"]+"\nbackend: php"), nil},
		{"unknown backend", with("rules", base["rules"]+"\nbackend: apache"), []string{`backend: "apache" is not one of strict, tomcat, spring, php`}},
		{"no backend", with("rules", base["rules"]+"\nbackend: ''"), []string{`backend: "" is not one of strict, tomcat, spring, php`}},
		{"unknown backend of a rule", ruleWith(`{` + lookup + `, id: {path: id}, backend: Tomcat}`), []string{`rules[0].backend: "Tomcat" is not one of strict, tomcat, spring, php`}},

		{"pass", ruleWith(`{` + match + `, pass: true}`), nil},
		{"pass with a match of its own", ruleWith(`{name: a, match: {methods: [GET], path: /a, case: insensitive, other_methods: pass}, pass: true}`), nil},
		{"pass that is none", ruleWith(`{` + lookup + `, id: {path: id}, pass: false}`), nil},
		{"pass of a wrong type", ruleWith(`{` + match + `, pass: yes}`), []string{`rules[0].pass: "yes" is not true or false`}},
		{"pass that refuses", ruleWith(`{name: a, match: {methods: [GET], path: /a, other_methods: refuse}, pass: true}`), []string{`rules[0].match.other_methods: is not for a rule with pass, which refuses nothing: remove one of the two`}},
		{"pass that guards", ruleWith(`{` + match + `, pass: true, id: [], invalid: {}, lookup: {}, create: {}, settle: {lock: x}}`), []string{
			`rules[0].id: is not for a rule with pass, which exempts its requests: remove one of the two`,
			`rules[0].invalid: is not for a rule with pass, which exempts its requests: remove one of the two`,
			`rules[0].lookup: is not for a rule with pass, which exempts its requests: remove one of the two`,
			`rules[0].create: is not for a rule with pass, which exempts its requests: remove one of the two`,
			`rules[0].settle: is not for a rule with pass, which exempts its requests: remove one of the two`,
		}},
		{"empty actions", ruleWith(`{` + match + `, id: {path: id}, lookup: {}, settle: {}}`), []string{
			`rules[0].lookup: filter is missing: give the name of a filter`, `rules[0].settle: lock is missing: give the name of a lock`,
		}},
		{"long max hold", ruleWith(`{` + match + `, id: {path: id}, settle: {lock: settlement, max_hold: 25h}}`), []string{`rules[0].settle.max_hold: 25h is out of range: 1s to 24h are allowed`}},
		{"in flight", ruleWith(`{` + match + `, id: {path: id}, settle: {lock: settlement, max_in_flight: 0, max_in_flight_per_client: 2}}`), []string{`rules[0].settle.max_in_flight: 0 is out of range: 1 to 100000 are allowed`, `rules[0].settle.max_in_flight_per_client: 2 is out of range: 1 to 1 are allowed`}},
		{"one client beyond all", ruleWith(`{` + match + `, id: {path: id}, settle: {lock: settlement, max_in_flight: 10, max_in_flight_per_client: 11}}`), []string{`rules[0].settle.max_in_flight_per_client: 11 is out of range: 1 to 10 are allowed`}},
		{"workers without a timeout", ruleWith(`{` + match + `, id: {path: id}, settle: {lock: settlement, backend_workers: 32}}`), []string{`rules[0].settle.backend_workers: goes with backend_timeout, the longest time that the backend works on one call`}},
		{"a timeout without workers", ruleWith(`{` + match + `, id: {path: id}, settle: {lock: settlement, backend_timeout: 10s}}`), []string{`rules[0].settle.backend_timeout: goes with backend_workers, the number of calls that the backend works on at once`}},
		{"hold that outlasts the backlog", ruleWith(`{` + match + `, id: {path: id}, settle: {lock: settlement, max_in_flight: 64, backend_workers: 32, backend_timeout: 14s}}`), nil},
		{"hold as short as the backlog", ruleWith(`{` + match + `, id: {path: id}, settle: {lock: settlement, max_in_flight: 64, backend_workers: 32, backend_timeout: 15s}}`), []string{`rules[0].settle.max_in_flight: 64 calls keep 32 workers busy for up to 30s, at 15s each, and settlement holds an order for 30s: raise its on_unknown_outcome.hold above 30s, or set max_in_flight to 32`}},
		{"hold shorter than a call", ruleWith(`{` + match + `, id: {path: id}, settle: {lock: settlement, backend_workers: 32, backend_timeout: 30s}}`), []string{`rules[0].settle.max_in_flight: 100 calls keep 32 workers busy for up to 2m0s, at 30s each, and settlement holds an order for 30s: raise its on_unknown_outcome.hold above 2m0s`}},
		{"status", ruleWith(`{` + lookup + `, id: {path: id}, invalid: {status: 600}}`), []string{`rules[0].invalid.status: 600 is out of range: 200 to 599 are allowed`}},
		{"status of zero", ruleWith(`{` + lookup + `, id: {path: id}, invalid: {status: 0}}`), []string{`rules[0].invalid.status: 0 is out of range: 200 to 599 are allowed`}},
		{"retry after", ruleWith(`{` + lookup + `, id: {path: id}, invalid: {retry_after: -1s}}`), []string{`rules[0].invalid.retry_after: -1s is out of range: 0s to 24h are allowed`}},
		{"largest body", ruleWith(`{` + lookup + `, id: {path: id}, invalid: {body: "` + strings.Repeat("a", 65536) + `"}}`), nil},
		{"larger body", ruleWith(`{` + lookup + `, id: {path: id}, invalid: {body: "` + strings.Repeat("a", 65537) + `"}}`), []string{`rules[0].invalid.body: is 65537 bytes long: at most 65536 are allowed`}},

		{"rule without a match", ruleWith(`{name: a, id: {query: id}, lookup: {filter: orders}}`), []string{`rules[0]: match is missing: give methods and a path`}},
		{"empty match", ruleWith(`{name: a, match: {}, id: {query: id}, lookup: {filter: orders}}`), []string{
			`rules[0].match: methods is missing: give at least one method, such as [GET, HEAD]`,
			`rules[0].match: path is missing: give a template such as "/orders/{id}"`,
		}},

		{"learn missing", ruleWith(`{` + match + `, create: {filter: orders}}`), []string{`rules[0].create: learn is missing: give it response_json or response_header, or write learn: table`}},
		{"learn nothing", ruleWith(`{` + match + `, create: {filter: orders, learn: {}}}`), []string{`rules[0].create.learn: does not name the new ID's location: give exactly one of response_json, response_header, or write learn: table`}},
		{"learn twice", ruleWith(`{` + match + `, create: {filter: orders, learn: {response_json: a, response_header: b}}}`), []string{`rules[0].create.learn: has response_json and response_header: give exactly one of them`}},
		{"learn from nowhere", ruleWith(`{` + match + `, create: {filter: orders, learn: {response_json: ""}}}`), []string{`rules[0].create.learn.response_json: "" is not a path of member names joined by dots, such as data.orderId`}},
		{"learn from a bad header", ruleWith(`{` + match + `, create: {filter: orders, learn: {response_header: "Loca tion"}}}`), []string{`rules[0].create.learn.response_header: "Loca tion" is not the name of a header`}},
		{"learn from a part of a header", ruleWith(`{` + match + `, create: {filter: orders, learn: {response_header: Location, pattern: '/orders/([0-9]+)$'}}}`), nil},
		{"learn from a part of a member", ruleWith(`{` + match + `, create: {filter: orders, learn: {response_json: _links.self, pattern: '/orders/([0-9]+)$'}}}`), nil},
		{"learn from a table that is not followed", ruleWith(`{` + match + `, create: {filter: orders, learn: table}}`), []string{`rules[0].create.learn: is table, and filter "orders" is not filled by it: give the filter a source of kind mysql or postgres, and each such source follow: binlog or logical`}},
		{"learn from a table and an answer", ruleWith(`{` + match + `, create: {filter: orders, learn: {table: true, response_json: a}}}`), []string{`rules[0].create.learn: has table and a location in the answer: give exactly one of them`}},
		{"learn from a text", ruleWith(`{` + match + `, create: {filter: orders, learn: location}}`), []string{`rules[0].create.learn: is text: write table, or a mapping with response_json or response_header`}},
		{"learn from a pattern only", ruleWith(`{` + match + `, create: {filter: orders, learn: {pattern: '/orders/([0-9]+)$'}}}`), []string{`rules[0].create.learn: does not name the new ID's location: give exactly one of response_json, response_header, or write learn: table`}},
		{"learn without a group", ruleWith(`{` + match + `, create: {filter: orders, learn: {response_header: location, pattern: '/orders/[0-9]+$'}}}`), []string{`rules[0].create.learn.pattern: has 0 groups: give exactly one, around the ID, such as /orders/([0-9]+)$; (?:...) is none`}},
		{"learn from two groups", ruleWith(`{` + match + `, create: {filter: orders, learn: {response_header: location, pattern: '/(orders|o)/([0-9]+)$'}}}`), []string{`rules[0].create.learn.pattern: has 2 groups: give exactly one, around the ID, such as /orders/([0-9]+)$; (?:...) is none`}},
		{"learn from an empty pattern", ruleWith(`{` + match + `, create: {filter: orders, learn: {response_header: location, pattern: ''}}}`), []string{`rules[0].create.learn.pattern: has 0 groups: give exactly one, around the ID, such as /orders/([0-9]+)$; (?:...) is none`}},
		{"learn from no pattern", ruleWith(`{` + match + `, create: {filter: orders, learn: {response_header: location, pattern: '/orders/('}}}`), []string{`rules[0].create.learn.pattern: is not an RE2 expression: missing closing ): ` + "`/orders/(`"}},
	} {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.file, tt.want) })
	}
}

// expect compares what is wrong with a file, without "f.yaml:N: ", with what is
// wanted; nil wants it accepted.
func expect(t *testing.T, file string, want []string) {
	t.Helper()
	if want == nil {
		c := mustParse(t, file, nil)
		if err := c.Validate(); err != nil {
			t.Errorf("accepted, then refused: %v", err)
		}
		return
	}
	got := violations(t, file, nil)
	for i, line := range got {
		_, got[i], _ = strings.Cut(line, ": ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unexpected violations (-want +got):\n%s", diff)
	}
}

func TestMatches(t *testing.T) {
	const accepted = ""
	for _, tt := range []struct{ name, match, want string }{
		{"root", `methods: [GET], path: "/"`, accepted},
		{"all that is literal", `methods: [GET], path: "/A-z0.9_~/.../..a"`, accepted},
		{"extension method", `methods: [M-SEARCH, GET], path: /a`, accepted},
		{"host", `methods: [GET], path: /a, host: a-1.example`, accepted},
		{"IPv6 host", `methods: [GET], path: /a, host: "[::1]"`, accepted},
		{"case", `methods: [GET], path: /a, case: insensitive`, accepted},
		{"unknown case", `methods: [GET], path: /a, case: ""`, `case: "" is not one of sensitive, insensitive`},
		{"other methods", `methods: [GET], path: /a, other_methods: refuse`, accepted},
		{"unknown fate of other methods", `methods: [GET], path: /a, other_methods: deny`, `other_methods: "deny" is not one of refuse, pass`},
		{"no methods", `methods: [], path: /a`, `methods: is empty: give at least one method, such as [GET, HEAD]`},
		{"lower case", `methods: [get], path: /a`, `methods[0]: "get" is not a method in upper case, such as POST`},
		{"any", `methods: [ANY], path: /a`, `methods[0]: "ANY" is not a method: list the methods`},
		{"method twice", `methods: [GET, PUT, GET], path: /a`, `methods[2]: "GET" is given twice: name a method once`},
		{"no slash", `methods: [GET], path: a`, `path: "a" does not start with /`},
		{"empty", `methods: [GET], path: ""`, `path: is empty: give a template such as "/orders/{id}"`},
		{"query", `methods: [GET], path: "/a?b"`, `path: "/a?b" has a query or a fragment: give the path only`},
		{"fragment", `methods: [GET], path: "/a#b"`, `path: "/a#b" has a query or a fragment: give the path only`},
		{"two slashes", `methods: [GET], path: //a`, `path: "//a" has // in it: write one /`},
		{"slash at the end", `methods: [GET], path: /a/`, accepted},
		{"slashes at the end", `methods: [GET], path: /a//`, `path: "/a//" has // in it: write one /`},
		{"dot", `methods: [GET], path: /a/./b`, `path: "/a/./b" has the segment .: write the path that it leads to`},
		{"dots", `methods: [GET], path: /..`, `path: "/.." has the segment ..: write the path that it leads to`},
		{"escape", `methods: [GET], path: /%61`, `path: "/%61" has the segment "%61": a segment is letters, digits and . _ ~ -, or a whole {name}`},
		{"path parameter", `methods: [GET], path: /a;b`, `path: "/a;b" has the segment "a;b": a segment is letters, digits and . _ ~ -, or a whole {name}`},
		{"part of a segment", `methods: [GET], path: "/a{b}"`, `path: "/a{b}" has the segment "a{b}": a segment is letters, digits and . _ ~ -, or a whole {name}`},
		{"no name", `methods: [GET], path: "/{}"`, `path: "/{}" has the segment "{}": a segment is letters, digits and . _ ~ -, or a whole {name}`},
		{"name twice", `methods: [GET], path: "/{a}/{a}"`, `path: "/{a}/{a}" has {a} twice: give each segment a name of its own`},
		{"long", `methods: [GET], path: "/` + strings.Repeat("a", 2048) + `"`, `path: "/` + strings.Repeat("a", 59) + `"... is 2049 bytes long: at most 2048 are allowed`},
		{"upper case host", `methods: [GET], path: /a, host: A.example`, `host: "A.example" is not a host name in lower case without a port`},
		{"host with a port", `methods: [GET], path: /a, host: "a.example:80"`, `host: "a.example:80" is not a host name in lower case without a port`},
		{"empty host", `methods: [GET], path: /a, host: ""`, `host: "" is not a host name in lower case without a port`},
		{"upper case IPv6 host", `methods: [GET], path: /a, host: "[::A]"`, `host: "[::A]" is not a host name in lower case without a port`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := ruleWith(`{name: a, match: {` + tt.match + `}, id: {query: id}, lookup: {filter: orders}}`)
			if tt.want == accepted {
				mustParse(t, file, nil)
				return
			}
			want := []string{"f.yaml:5: rules[0].match." + tt.want}
			if diff := cmp.Diff(want, violations(t, file, nil)); diff != "" {
				t.Errorf("unexpected violations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConfigMadeInGo(t *testing.T) {
	c := &Config{
		Filters: map[string]Filter{"orders": {FalsePositiveRate: math.Inf(1)}, "#1": {}},
		Locks:   map[string]Lock{"settlement": {Lease: time.Minute}},
		Rules:   []Rule{{Name: "a", Settle: &Settle{Lock: "settlements"}}},
	}
	c.EnsureDefaults()
	if got := c.Locks["settlement"].OnUnknownOutcome.Hold; got != time.Minute {
		t.Errorf("the hold time is %v, want the lease", got)
	}
	err := c.Validate()
	var wrong *InvalidError
	if !errors.As(err, &wrong) {
		t.Fatalf("got error %v, want an InvalidError", err)
	}
	want := []Violation{
		{Path: "filters.#1", Message: `"#1" is no name: names are 1 to 63 of a-z, 0-9, _ and -, with a letter or digit first`},
		{Path: "filters.orders.false_positive_rate", Message: "+Inf is out of range: 1e-09 to 0.5 are allowed"},
		{Path: "rules[0].match", Message: "methods is missing: give at least one method, such as [GET, HEAD]"},
		{Path: "rules[0].match", Message: `path is missing: give a template such as "/orders/{id}"`},
		{Path: "rules[0].settle.lock", Message: `"settlements" is not defined under locks, did you mean settlement?`},
		{Path: "rules[0].id", Message: "does not name the ID's location: give exactly one of path, query, header, json, form, cookie"},
	}
	if diff := cmp.Diff(want, wrong.Violations); diff != "" {
		t.Errorf("unexpected violations (-want +got):\n%s", diff)
	}
	c.Redis = nil
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "redis: is missing: locks, create, require, freshness window, follow, kafka, reconcile and share_load need it") {
		t.Errorf("a lock without Redis: %v", err)
	}
}
