package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestUses reads a file of which each section is bad.
func TestUses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	file := `listen: {admin: nowhere, token_env: NO_TOKEN, tls: {ca: no, cert: no, key: no}}
redis: {addresses: ["a:1", "b:2"], password_env: NO_PASSWORD}
filters: {orders: {capacity: 0, secret_env: NO_SECRET, sources: [db]}}
sources: {db: {kind: mysql, dsn_env: NO_DSN, table: t, id_column: id}}
locks: {settlement: {lease: 1}}
rules: [{name: a}]
backend: cobol
`
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(values env, uses ...string) (used, elsewhere int) {
		c, aside, err := loadWith(path, Options{Getenv: values.get, Uses: uses})
		var invalid *InvalidError
		if errors.As(err, &invalid) {
			return len(invalid.Violations), 0
		}
		if err != nil || c == nil {
			t.Fatalf("%v: %v", uses, err)
		}
		return 0, len(aside.Unused)
	}
	if used, _ := load(nil, "locks"); used != 1 {
		t.Errorf("of the locks %d violations, want that of the lease", used)
	}
	if used, _ := load(nil, "redis"); used != 2 {
		t.Errorf("of Redis %d violations, want those of the addresses and of the password", used)
	}
	if used, _ := load(nil, "listen.admin"); used != 1 {
		t.Errorf("of listen.admin %d violations, want 1", used)
	}
	if used, elsewhere := load(nil, "front_controllers"); used != 0 || elsewhere < 6 {
		t.Errorf("of nothing %d violations, and %d elsewhere", used, elsewhere)
	}
	if used, _ := load(env{"ORDERGATE_LOCKS_SETTLEMENT_WAIT_UP_TO": "long"}, "locks"); used != 2 {
		t.Errorf("with a bad variable %d violations, want 2", used)
	}
	if used, _ := load(env{"ORDERGATE_LOCKS_SETTLEMENT_WAIT_UP_TO": "long", "ORDERGATE_LISTEN_TLS_CA": "x"}, "listen.token_env"); used != 1 {
		t.Errorf("of the token %d violations, want 1", used)
	}
}

// TestUsesWhatIsWhole reads files in which no section can be told from the others.
func TestUsesWhatIsWhole(t *testing.T) {
	for _, file := range []string{"- a", "lokcs: {a: {}}", "rules: [", ""} {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := loadWith(path, Options{Uses: []string{"redis"}}); err == nil {
			t.Errorf("%q is accepted", file)
		}
	}
}
