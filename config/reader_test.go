package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStrictness has what is refused before any value is looked at.
func TestStrictness(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		want       []string // without "f.yaml:"
	}{
		{"nothing", "", []string{"1: the file is empty"}},
		{"a document without a value", "---\n", []string{"1: the file is empty"}},
		{"null", "\nnull\n", []string{"1: the file is empty"}},
		{"a list", "\n- listen\n", []string{"2: the file is a list: it has to be a mapping"}},
		{"a word", "listen", []string{"1: the file is text: it has to be a mapping"}},
		{"a bad second document", "listen: {}\n---\na: [\n", []string{"3: the file is not YAML: did not find expected node content"}},

		{"syntax in the first line", "a: [\n", []string{"1: the file is not YAML: did not find expected node content"}},
		{"syntax in the scanner", "listen: {}\nrules: []\n\tfilters: {}\n", []string{"3: the file is not YAML: found character that cannot start any token, such as a tab, or @ without quotes"}},
		{"syntax in the parser", "listen: {}\nrules: []\n- a\n", []string{"3: the file is not YAML: did not find expected key"}},
		{"unknown anchor", "listen: *a\n", []string{"1: the file is not YAML: unknown anchor 'a' referenced"}},
		{"not UTF-8", "listen: \xff\n", []string{"1: the file is not YAML: invalid leading UTF-8 octet"}},

		{"unknown section", "filter: {}\n", []string{"1: filter: unknown key, did you mean filters?"}},
		{"Envoy's file", "static_resources: {}\n", []string{"1: static_resources: this is a configuration of Envoy, and none of ordergate"}},
		{"other case", "Listen: {}\n", []string{"1: Listen: unknown key, did you mean listen?"}},
		{"nothing near", "logging: {}\n", []string{"1: logging: unknown key: known here are answer, backend, filters, front_controllers, listen, locks, log, redis, rules, sources"}},
		{"a key with a line break", "\"a\\nb\": {}\n", []string{`1: "a\nb": unknown key: known here are answer, backend, filters, front_controllers, listen, locks, log, redis, rules, sources`}},
		{"a password", "redis: {password: hunter2}\n", []string{"1: redis.password: a password does not belong in this file: use password_file or password_env"}},
		{"a password of Sentinels", "redis: {sentinel_password: hunter2}\n", []string{"1: redis.sentinel_password: a password does not belong in this file: use sentinel_password_file or sentinel_password_env"}},
		{"a token", "listen: {token: hunter2}\n", []string{"1: listen.token: a token does not belong in this file: use token_file or token_env"}},
		{"a secret", "locks: {a: {secret: x}}\nfilters: {b: {\"\": x}}\n", []string{
			"1: locks.a.secret: a secret does not belong in this file: use secret_file or secret_env",
			`2: filters.b."": unknown key: known here are ` + strings.Join(sortedKeys(declarationsOf(reflect.TypeFor[Filter]()).byKey), ", "),
		}},
		{"a data source name", "sources: {a: {kind: csv, path: a, dsn: 'u:hunter2@tcp(a)/b'}}\n", []string{"1: sources.a.dsn: a data source name has a password and does not belong in this file: use dsn_file or dsn_env"}},
		{"a key of TLS that is not read", "redis: {tls: {insecure: true}}\n", []string{"1: redis.tls.insecure: unknown key: known here are ca, cert, key, server_name"}},
		{"TLS without a value", "redis: {tls: }\n", []string{"1: redis.tls: has no value: give it one or remove the key"}},
		{"a duration for a mapping", "locks: {a: {wait: 2s, on_unknown_outcome: 1m30s, replicas: 50ms}}\nfilters: {f: {reconcile: 24h, snapshot: soon}}\nlisten: 2s\n", []string{
			"1: locks.a.wait: is text: it has to be a mapping, such as {up_to: 2s}",
			"1: locks.a.on_unknown_outcome: is text: it has to be a mapping, such as {hold: 1m30s}",
			"1: locks.a.replicas: is text: it has to be a mapping, such as {timeout: 50ms}",
			"2: filters.f.reconcile: is text: it has to be a mapping, such as {every: 24h}",
			"2: filters.f.snapshot: is text: it has to be a mapping",
			"3: listen: is text: it has to be a mapping",
		}},
		{"a status for a reply", "rules: [{name: a, match: {methods: [POST], path: \"/o/{id}\"}, id: {path: id}, settle: {lock: l, busy: 423, unavailable: 5}}]\nlocks: {l: {}}\nredis: {}\n", []string{
			"1: rules[0].settle.busy: is a number: it has to be a mapping, such as {status: 423}",
			"1: rules[0].settle.unavailable: is a number: it has to be a mapping, such as {retry_after: 5s}",
		}},
		{"a number for a mapping", "locks: {a: {wait: 3}}\n", []string{"1: locks.a.wait: is a number: it has to be a mapping, such as {up_to: 3s}"}},
		{"TLS as a switch", "redis: {tls: true}\n", []string{"1: redis.tls: is true or false: it has to be a mapping"}},
		{"a key that is a list", "[listen]: {}\n", []string{"1: a key is a list: keys are plain words"}},
		{"a merge", "listen: &l {}\nredis: {<<: *l}\n", []string{`2: redis."<<": merge keys are not read: write the keys out, or use an alias for a whole value`}},
		{"a field that is not read", "redis: {Password: hunter2, '-': x}\n", []string{
			"1: redis.Password: unknown key: known here are addresses, database, master, member, mode, password_env, password_file, sentinel_password_env, sentinel_password_file, sentinel_username, tls, username",
			"1: redis.-: unknown key: known here are addresses, database, master, member, mode, password_env, password_file, sentinel_password_env, sentinel_password_file, sentinel_username, tls, username",
		}},

		{"section without a value", "rules:\nlocks: ~\n", []string{"1: rules: has no value: give it one or remove the key", "2: locks: has no value: give it one or remove the key"}},
		{"entry without a value", "filters: {orders: }\n", []string{"1: filters.orders: has no value: give it one or remove the key"}},
		{"a list for a mapping", "listen: []\nfilters: []\n", []string{"1: listen: is a list: it has to be a mapping", "2: filters: is a list: it has to be a mapping"}},
		{"a mapping for a list", "rules: {}\n", []string{"1: rules: is a mapping: it has to be a list"}},
		{"text for an ID", "rules: [{id: nr}]\n", []string{
			"1: rules[0].id: is text: it has to be a mapping or a list of mappings",
			"1: rules[0]: name is missing: give a name of its own, such as order-lookup",
			"1: rules[0]: match is missing: give methods and a path",
			"1: rules[0]: does nothing: give it lookup, create, settle, once or pass",
		}},
		{"a mapping for text", "listen: {admin: {}}\n", []string{"1: listen.admin: is a mapping: it has to be text"}},
		{"text for an entry", "filters: {orders: local}\n", []string{"1: filters.orders: is text: it has to be a mapping"}},
		{"number for text", "redis: {username: 42}\n", []string{"1: redis.username: is a number: it has to be text, in quotes"}},
		{"boolean for text", "redis: {username: true}\n", []string{"1: redis.username: is true or false: it has to be text, in quotes"}},
		{"date for text", "redis: {username: 2026-11-21}\n", []string{"1: redis.username: is a date: it has to be text, in quotes"}},
		{"a tag", "redis: {username: !secret a}\n", []string{`1: redis.username: is of the type "!secret": it has to be text, in quotes`}},
		{"number in a list of text", "redis: {addresses: [6379]}\n", []string{"1: redis.addresses[0]: is a number: it has to be text, in quotes"}},
		{"text for a number", `filters: {a: {capacity: "1"}}`, []string{`1: filters.a.capacity: "1" is not a whole number such as 1_000_000`}},
		{"float for a whole number", `filters: {a: {capacity: 1e6}}`, []string{`1: filters.a.capacity: "1e6" is not a whole number such as 1_000_000`}},
		{"negative for a size", `filters: {a: {capacity: -1}}`, []string{`1: filters.a.capacity: "-1" is not a whole number such as 1_000_000`}},
		{"octal of old", `filters: {a: {capacity: 0100}}`, []string{`1: filters.a.capacity: "0100" is not a whole number such as 1_000_000`}},
		{"tagged as a number", `filters: {a: {capacity: !!int x}}`, []string{`1: filters.a.capacity: "x" is not a whole number such as 1_000_000`}},
		{"text for a rate", `filters: {a: {false_positive_rate: low}}`, []string{`1: filters.a.false_positive_rate: "low" is not a number such as 0.001`}},
		{"number for a duration", "locks: {a: {lease: 30}}\n", []string{`1: locks.a.lease: "30" has no unit: write it as a duration such as 30s or 100ms`}},
		{"no duration", "locks: {a: {lease: 30x}}\n", []string{`1: locks.a.lease: "30x" is not a duration such as 30s, 100ms or 1m30s`}},
		{"days", "locks: {a: {lease: 1d}}\n", []string{`1: locks.a.lease: "1d" is not a duration such as 30s, 100ms or 1m30s`}},
		{"yes for true", "rules: [{name: a, match: {methods: [PUT], path: /}, id: {optional: yes}, create: {filter: f, learn: {response_json: a}}}]\nfilters: {f: {}}", []string{`1: rules[0].id.optional: "yes" is not true or false`}},
		{"an element that is refused keeps its place", "rules:\n- a\n- {mode: x}\n", []string{
			"2: rules[0]: is text: it has to be a mapping",
			"3: rules[1]: name is missing: give a name of its own, such as order-lookup",
			`3: rules[1].mode: "x" is not one of enforce, observe`,
			"3: rules[1]: match is missing: give methods and a path",
			"3: rules[1].id: does not name the ID's location: give exactly one of path, query, header, json, form, cookie",
			"3: rules[1]: does nothing: give it lookup, create, settle, once or pass",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := violations(t, tt.file, nil)
			for i := range got {
				got[i] = strings.TrimPrefix(got[i], "f.yaml:")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("unexpected violations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNumbersOfYAML(t *testing.T) {
	for text, want := range map[string]uint64{
		"200_000_000": 200_000_000, "0x10": 16, "0o17": 15, "0b11": 3, "+5": 5, "100000000000": 100_000_000_000,
	} {
		c := mustParse(t, with("filters", "{orders: {capacity: "+text+"}}"), nil)
		if got := c.Filters["orders"].Capacity; got != want {
			t.Errorf("%s is read as %d, want %d", text, got, want)
		}
	}
}

func TestAliasesStandForTheirValues(t *testing.T) {
	c := mustParse(t, `
filters: {orders: {}}
rules:
  - &a {name: a, match: {methods: &m [GET], path: "/{id}"}, id: &id {path: id}, lookup: &l {filter: orders}}
  - {name: b, match: {methods: *m, path: "/b/{id}"}, id: *id, lookup: *l}
`, nil)
	want := c.Rules[0]
	want.Name, want.Match.Path = "b", "/b/{id}"
	if diff := cmp.Diff(want, c.Rules[1], cmp.AllowUnexported(Rule{})); diff != "" {
		t.Errorf("the rule of aliases differs (-want +got):\n%s", diff)
	}
}

// TestAliasesAreBounded has a file of some kilobytes that stands for a million
// values, and one that stands for itself.
func TestAliasesAreBounded(t *testing.T) {
	methods := "methods: &m [" + strings.Repeat("GET,", 1000) + "]"
	bomb := "rules:\n- &r {name: a, match: {" + methods + ", path: /}}\n" + strings.Repeat("- *r\n", 1000)
	got := violations(t, bomb, nil)
	last := got[len(got)-1]
	if want := fmt.Sprintf("the file has more than %d values with its aliases written out: make it shorter", maxValues); !strings.HasSuffix(last, want) {
		t.Errorf("got %s, want %s", last, want)
	}

	got = violations(t, "rules: &r [*r]\n", nil)
	if want := []string{"f.yaml:1: rules[0]: is a list: it has to be a mapping"}; !cmp.Equal(got, want) {
		t.Errorf("a list in itself: got %q, want %q", got, want)
	}
}

func TestViolationsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 2 * maxViolations {
		fmt.Fprintf(&b, "key%d: 1\n", i)
	}
	got := violations(t, b.String(), nil)
	if len(got) != maxViolations+1 || !strings.HasSuffix(got[maxViolations], "too many violations: the rest of the file is not checked") {
		t.Errorf("got %d violations, the last of them %s", len(got), got[len(got)-1])
	}
}

func TestNearestKey(t *testing.T) {
	known := []string{"addresses", "mode", "password_env", "password_file", "username", "id"}
	for word, want := range map[string]string{
		"adresses": "addresses", "user_name": "username", "passwordEnv": "password_env", "Mode": "mode",
		"code": "mode", "xy": "", "ids": "", "": "", strings.Repeat("a", 1000): "",
	} {
		if got := nearest(word, known); got != want {
			t.Errorf("nearest to %.20q is %q, want %q", word, got, want)
		}
	}
}
