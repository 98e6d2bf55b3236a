package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLongHolds has holds around two thirds of a lease.
func TestLongHolds(t *testing.T) {
	for locks, want := range map[string]string{
		"{a: {}}": "",
		"{a: {lease: 90s, on_unknown_outcome: {hold: 60s}}}":  "",
		"{a: {lease: 90s, on_unknown_outcome: {hold: 61s}}}":  "1: locks.a.on_unknown_outcome.hold: is longer than two thirds of lease 1m30s: if ordergate is killed, the lock may end before the backend has. Set lease: 1m32s, or a shorter hold",
		"{a: {lease: 30s, on_unknown_outcome: {hold: 100s}}}": "Set lease: 2m30s",
	} {
		path := filepath.Join(t.TempDir(), "ordergate.yaml")
		text := "locks: " + locks + "\nrules: [{name: a, match: {methods: [POST], path: \"/o/{id}\"}, id: {path: id}, settle: {lock: a}}]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, aside, err := LoadWith(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, v := range aside.Holds {
			got += v.String()
		}
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", locks, got, want)
		}
	}
}
