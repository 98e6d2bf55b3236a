package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRedact has secrets in right and in wrong places.
func TestRedact(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, yaml, want string }{
		{"right", "# s3cret\nredis: {password_file: /run/redis, username: gate} # s3cret", "redis: {password_file: /run/redis, username: gate}\n"},
		{"unknown keys", "redis: {password: s3cret, tls: {passphrase: [s3cret]}}\nfoo: {bar: s3cret}", "redis: {password: (hidden), tls: {passphrase: [(hidden)]}}\nfoo: {bar: (hidden)}\n"},
		{"wrong places", "listen: {token_env: s3cret, token_file: s3cret}", "listen: {token_env: (hidden), token_file: (hidden)}\n"},
		{"addresses", "redis: {addresses: ['redis://u:s3cret@a:1', 'u:s3cret@b:2', 'c:3']}", "redis: {addresses: ['(hidden)@a:1', '(hidden)@b:2', 'c:3']}\n"},
		{"words for mappings", "filters: {orders: {freshness: none}}\nrules: [{name: a, mode: {enforce: 10%}}]", "filters: {orders: {freshness: none}}\nrules: [{name: a, mode: {enforce: 10%}}]\n"},
		{"an anchor", "redis: &r {password: s3cret, again: *r}", "redis: &r {password: (hidden), again: *r}\n"},
		{"no YAML", "redis: {password: s3cret\n  - s3cret\n s3cret: [", "redis: (hidden)\n(hidden)\n s3cret: (hidden)\n"},
		{"empty", "", ""},
	} {
		if got := string(Redact([]byte(tt.yaml))); got != tt.want {
			t.Errorf("%s:\n%s, want\n%s", tt.name, got, tt.want)
		}
	}
}

// TestFileSecrets finds the secrets of a file that would be refused.
func TestFileSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := FileSecrets([]byte("redis: {password: from-yaml, password_file: "+file+", sentinel_password_env: in-place}\nsources: {a: {dsn_env: DSN}, b: {dsn_env: URL}}"), []string{
		"DSN=u:from-a-variable@tcp(a:1)/b", "URL=postgres://u:from%20a%20url@a/b", "ORDERGATE_REDIS_PASSWORD=from-an-override", "HOME=/root", "ORDERGATE_LISTEN_TOKEN_FILE=/nowhere/x",
	})
	want := []string{"from-yaml", "from-a-file", "in-place", "u:from-a-variable@tcp(a:1)/b", "from-a-variable", "postgres://u:from%20a%20url@a/b", "from%20a%20url", "from-an-override"}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("%q is not found: %q", w, got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("found %q", got)
	}
}

// TestInForce prints a configuration with its defaults.
func TestInForce(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := mustParse(t, string(text), env{"REDIS_PASSWORD": "secret", "FILTER_SECRET": "of at least 16 bytes", "ADMIN_TOKEN": "also 16 or more bytes",
		"ORDERS_DSN": "gate:pw@tcp(db:3306)/shop", "PARTS_DSN": "postgres://gate:pw@db/shop"})
	printed := string(c.InForce())
	for _, want := range []string{"stale_after: 5s", "lease: ", "mode: "} {
		if !strings.Contains(printed, want) {
			t.Errorf("no %q: %s", want, printed)
		}
	}
	if strings.Contains(printed, hidden) || strings.Contains(printed, "at least 16") {
		t.Errorf("a key is not known, or a secret is there: %s", printed)
	}
	for _, want := range []string{"secret", "of at least 16 bytes", "also 16 or more bytes", "gate:pw@tcp(db:3306)/shop", "pw"} {
		if !slices.Contains(c.Secrets(), want) {
			t.Errorf("%q is none of the secrets %q", want, c.Secrets())
		}
	}
}
