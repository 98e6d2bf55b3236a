package config

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// shownAgain writes a configuration with all of its values, and loads what was written: it has to
// be the same. It returns what was written.
func shownAgain(t *testing.T, text string, e env) string {
	t.Helper()
	first, err := effective("f.yaml", []byte(text), Options{Getenv: e.get})
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	if _, err := first.WriteTo(&shown); err != nil {
		t.Fatal(err)
	}
	again, err := Parse("shown.yaml", []byte(shown.String()), e.get)
	if err != nil {
		t.Fatalf("%v\n%s\nfrom\n%s", err, shown.String(), text)
	}
	if diff := cmp.Diff(first.Config, again, cmpopts.IgnoreUnexported(Rule{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-file +shown):\n%s\n%s\nfrom\n%s", diff, shown.String(), text)
	}
	return shown.String()
}

// TestShownFiles shows every configuration of the repository, without secrets.
func TestShownFiles(t *testing.T) {
	secrets := env{"REDIS_PASSWORD": "hidden for sure", "FILTER_SECRET": "of at least 16 bytes", "ADMIN_TOKEN": "also 16 or more bytes",
		"ORDERS_DSN": "gate:pw@tcp(db:3306)/shop", "PARTS_DSN": "postgres://gate:pw@db/shop"}
	for _, file := range configurations(t) {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			shown := shownAgain(t, string(text), secrets)
			for _, secret := range secrets {
				if strings.Contains(shown, secret) {
					t.Errorf("shows %q:\n%s", secret, shown)
				}
			}
		})
	}
}

// configurations returns the files of the repository for ordergate.
func configurations(t *testing.T) []string {
	t.Helper()
	files := []string{"testdata/good.yaml", "testdata/design.yaml", "../packaging/ordergate.yaml"}
	for _, pattern := range []string{"../examples/*/ordergate.yaml", "../examples/*/*/ordergate.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 6 {
		t.Errorf("only %q", files)
	}
	return files
}

func TestShownOrigins(t *testing.T) {
	shown := shownAgain(t, "listen: {authz: \"\"}\nredis:\n  addresses: [a:1]\nlocks: {s: {lease: 10s}}\n", env{"ORDERGATE_LOCKS_S_LEASE": "20s"})
	for _, line := range []string{"authz: \"\" # line 1", "addresses: ['a:1'] # line 3", "lease: 20s # ORDERGATE_LOCKS_S_LEASE", "mode: single # default", "hold: 20s # default"} {
		if !strings.Contains(shown, line+"\n") {
			t.Errorf("lacks %q:\n%s", line, shown)
		}
	}
}

// TestShownText has texts that YAML could read as something else.
func TestShownText(t *testing.T) {
	for _, text := range []string{"yes", "off", "~", "null", "1_000", "0x10", "1e3", "017", "12:30", "2026-11-28", "a # b", " a ", "- a", "{a}", "[a", "*a", "&a", "!a", "%a", "@a", "'", `"`, `\`,
		"a\nb", "a\n\n  b\n", "\ta", "a: b", "é\u2028", "\u0085", "|", ">", "?", "---", "<<", "=", ".inf", "true", strings.Repeat("long ", 400)} {
		file := "redis: {username: " + strconv.Quote(text) + ", password_env: PW}\nfilters: {orders: {}}\nrules:\n" +
			`  - {name: a, match: {methods: [GET], path: /o}, id: {query: id}, lookup: {filter: orders, absent: {body: ` + strconv.Quote(text) + `}}}` + "\n"
		c := mustParse(t, file, env{"PW": "p"})
		if c.Redis.Username != text || c.Rules[0].Lookup.Absent.Body != text {
			t.Errorf("%q is read as %q", text, c.Redis.Username)
		}
	}
}

// TestShownSecrets has a secret in the place of a variable's name.
func TestShownSecrets(t *testing.T) {
	text := "sources: {db: {kind: mysql, dsn_env: hunter2, table: t, id_column: id}}\n"
	e, err := effective("f.yaml", []byte(text), Options{Getenv: env{}.get, WithoutDSN: true})
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	if _, err := e.WriteTo(&shown); err != nil || strings.Contains(shown.String(), "hunter2") || !strings.Contains(shown.String(), "dsn_env: (hidden)") {
		t.Errorf("error %v, shown %s", err, shown.String())
	}
	for _, s := range e.Settings() {
		if s.Value == "hunter2" || s.text == "hunter2" {
			t.Errorf("setting %+v", s)
		}
	}
}
