package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const changeable = `
listen: {token_env: TOKEN}
redis: {addresses: [a:1], password_env: PASSWORD}
filters:
  orders: {sources: [seed], freshness: {window: 1s}}
sources: {seed: {kind: csv, path: a}}
locks: {settlement: {}}
rules:
  - {name: a, match: {methods: [GET], path: "/a/{id}"}, id: {path: id}, lookup: {filter: orders}}
  - {name: b, match: {methods: [GET], path: "/b/{id}"}, id: {path: id}, settle: {lock: settlement}}
`

func TestChanges(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "token")
	env := map[string]string{"TOKEN": "0123456789abcdef", "PASSWORD": "first"}
	load := func(text string, env map[string]string) *Config {
		t.Helper()
		c, err := Parse("a.yaml", []byte(text), func(name string) string { return env[name] })
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := load(changeable, env)
	if got := Changes(first, load("# a comment\n"+changeable, env)); got != nil {
		t.Errorf("of nothing: %q", got)
	}
	for _, tt := range []struct {
		name string
		text string
		env  map[string]string
		want []string
	}{
		{name: "values", text: edited(t, "a:1", "b:1", "path: a}", "path: b}", "settlement: {}", "settlement: {lease: 20s}", "window: 1s", "window: 2s"),
			want: []string{"redis.addresses", "filters.orders.freshness", "sources.seed.path", "locks.settlement.lease", "locks.settlement.on_unknown_outcome.hold"}},
		{name: "entries", text: edited(t, "locks: {settlement: {}", "locks: {settlement: {}, other: {key: \"other:{id}\"}"),
			want: []string{"locks.other"}},
		{name: "what is behind a pointer", text: edited(t, "sources: [seed]", "sources: [seed], snapshot: {path: /a}"),
			want: []string{"filters.orders.snapshot"}},
		{name: "secrets", text: changeable, env: map[string]string{"TOKEN": "0123456789abcdeF", "PASSWORD": "second"},
			want: []string{"listen.token_env", "redis.password_env"}},
		{name: "the place of a secret", text: edited(t, "token_env: TOKEN", "token_file: "+secret),
			want: []string{"listen.token_file", "listen.token_env"}},
		{name: "rules", text: edited(t, "/a/{id}", "/c/{id}", "name: b", "name: d"),
			want: []string{"rules.a", "rules.b", "rules.d"}},
		{name: "the order of rules", want: []string{"rules"}, text: edited(t,
			"name: a, match: {methods: [GET], path: \"/a/{id}\"}, id: {path: id}, lookup: {filter: orders}", "NEXT",
			"name: b, match: {methods: [GET], path: \"/b/{id}\"}, id: {path: id}, settle: {lock: settlement}",
			"name: a, match: {methods: [GET], path: \"/a/{id}\"}, id: {path: id}, lookup: {filter: orders}",
			"NEXT", "name: b, match: {methods: [GET], path: \"/b/{id}\"}, id: {path: id}, settle: {lock: settlement}")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(secret, []byte("another secret of enough bytes"), 0o600); err != nil {
				t.Fatal(err)
			}
			with := tt.env
			if with == nil {
				with = env
			}
			if diff := cmp.Diff(tt.want, Changes(first, load(tt.text, with))); diff != "" {
				t.Error("(-want +got):\n" + diff)
			}
		})
	}
}

// edited replaces parts of changeable, which have to be there.
func edited(t *testing.T, pairs ...string) string {
	t.Helper()
	text := changeable
	for i := 0; i+1 < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("there is no %q", pairs[i])
		}
		text = bedtest.Replace(text, pairs[i], pairs[i+1])
	}
	return text
}

// TestSecretsHaveNames looks for fields without a key that a change could not be
// told by.
func TestSecretsHaveNames(t *testing.T) {
	seen := 0
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice:
			visit(typ.Elem())
		case reflect.Struct:
			for i := range typ.NumField() {
				f := typ.Field(i)
				if f.Tag.Get("mapstructure") != "-" {
					visit(f.Type)
					continue
				}
				seen++
				if keyOf(typ, f.Tag.Get("secret")+"_file") == nil {
					t.Errorf("%s.%s: there is no %q", typ, f.Name, f.Tag.Get("secret")+"_file")
				}
			}
		}
	}
	visit(reflect.TypeFor[Config]())
	if seen < 5 {
		t.Errorf("found %d secrets", seen)
	}
}

// TestChangeOf has a path for each kind of key.
func TestChangeOf(t *testing.T) {
	for path, want := range map[string]string{
		"listen.http": changeRestart, "listen.tls.ca": changeRestart, "redis": changeRestart, "filters.orders": changeRestart, "filters.orders.snapshot.every": changeRestart,
		"sources.db.table": changeRestart, "log.decisions": changeRestart, "log.decisions.to": changeRestart, "log.metadata": "", "backend": "", "front_controllers": "", "answer": "",
		"answer.failed": "", "rules": "", "rules.settle": "", "locks.a": "", "locks.a.lease": "", "locks.a.wait.tries": "", "locks.a.key": ChangeLock, "locks.a.quorum": ChangeLock,
		"locks.a.quorum.addresses": ChangeLock, "locks.a.secret_env": ChangeLock,
	} {
		if got := ChangeOf(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestIdentity(t *testing.T) {
	lock := Lock{Kind: LockQuorum, Key: "k:{id}", Lease: time.Second, Quorum: &Quorum{Addresses: []string{"b:1", "a:1"}}, Secret: "s"}
	want := Lock{Kind: LockQuorum, Key: "k:{id}", Quorum: &Quorum{Addresses: []string{"a:1", "b:1"}}, Secret: "s"}
	if diff := cmp.Diff(want, Identity(lock, ChangeLock)); diff != "" || lock.Quorum.Addresses[0] != "b:1" {
		t.Errorf("%v (-want +got):\n%s", lock.Quorum.Addresses, diff)
	}
	once := Identity(Once{By: OnceParts{"b", "a"}, Scope: OnceParts{"d", "c"}, Name: "n", Keep: time.Hour}, ChangeAnswers)
	if diff := cmp.Diff(Once{By: OnceParts{"b", "a"}, Scope: OnceParts{"c", "d"}, Name: "n"}, once); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
