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
		"{a: {keep_fence: 0s}}":                               "locks.a.keep_fence: keeps 104 bytes",
		"{a: {keep_fence: 24h}}":                              "",
		"{a: {lease: 90s, on_unknown_outcome: {hold: 61s}}}":  "1: locks.a.on_unknown_outcome.hold: is longer than two thirds of lease 1m30s: if ordergate is killed, the lock may end before the backend has. Set lease: 1m32s, or a shorter hold",
		"{a: {lease: 30s, on_unknown_outcome: {hold: 100s}}}": "Set lease: 2m30s",
	} {
		wantAdvice(t, "locks: "+locks+"\nrules: [{name: a, match: {methods: [POST], path: \"/o/{id}\"}, id: {path: id}, settle: {lock: a}}]\n", want)
	}
}

// TestLongHoldOfAKey has a hold of a key.
func TestLongHoldOfAKey(t *testing.T) {
	for once, want := range map[string]string{
		"{by: idempotency-key}":                        "",
		"{by: idempotency-key, hold: 20s, lease: 30s}": "",
		"{by: idempotency-key, hold: 90s, lease: 30s}": "1: rules[0].once.hold: is longer than two thirds of lease 30s",
		"{by: idempotency-key, hold: 91s}":             "",
		"{by: idempotency-key, lease: 30s}":            "",
	} {
		c := wantAdvice(t, "rules: [{name: a, match: {methods: [POST], path: /o}, once: "+once+"}]\n", want)
		if o := c.Rules[0].Once; want == "" && (o.Hold == 0 || o.Hold > o.Lease/3*2) {
			t.Errorf("%s: hold %v, lease %v", once, o.Hold, o.Lease)
		}
	}
}

// wantAdvice loads a file, looks for a part of the advice on it ("": there is none), and returns it.
func wantAdvice(t *testing.T, text, want string) *Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ordergate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, aside, err := loadWith(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, v := range aside.Advice {
		got += v.String()
	}
	if (want == "") != (got == "") || !strings.Contains(got, want) {
		t.Errorf("%s: %q, want %q", text, got, want)
	}
	return c
}

// TestFailuresStored has rules that store answers.
func TestFailuresStored(t *testing.T) {
	const settle = `match: {methods: [POST], path: /pay}, id: {json: id}, settle: {lock: a, once: {}}`
	for rule, want := range map[string]string{
		settle: "3: rules[0].settle.once: stores each answer with 2xx",
		settle + ", answer: {done: [{json: {code: 200}}]}":                                                       "",
		settle + ", answer: {absent: [{json: {code: 404}}]}":                                                     "rules[0].settle.once",
		`match: {methods: [POST], path: "/pay/{id}"}, id: {path: id}, settle: {lock: a, once: {}}`:               "",
		`match: {methods: [POST], path: /new}, create: {filter: f, learn: {response_json: id}, once: {}}`:        "rules[0].create.once",
		`match: {methods: [POST], path: /new}, id: {json: id}, settle: {lock: a}, once: {by: [body], scope: []}`: "rules[0].once",
		`match: {methods: [POST], path: /new}, create: {filter: f, learn: {response_header: id}, once: {}}`:      "",
		settle + `, answer: {failed: [{status: 200, content_type: text/html}]}`:                                  "",
		settle + `, backend: php, answer: {done: [{json: {code: 200}}]}`:                                         "rules[0].settle.once: stores no answer in which PHP has printed a notice",
		settle + `, backend: php, answer: {done: [{status: 200, header: {x-paid: "1"}}]}`:                        "",
	} {
		wantAdvice(t, "locks: {a: {}}\nfilters: {f: {}}\nrules: [{name: a, "+rule+"}]\n", want)
	}
}
