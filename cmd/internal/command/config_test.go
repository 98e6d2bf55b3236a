package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestSchema(t *testing.T) {
	code, out, errs := command(t.Context(), "schema")
	var s struct {
		Schema     string `json:"$schema"`
		Properties map[string]any
	}
	if err := json.Unmarshal([]byte(out), &s); code != 0 || errs != "" || err != nil {
		t.Fatalf("exit code %d, error %v: %s", code, err, errs)
	}
	if s.Schema != "https://json-schema.org/draft/2020-12/schema" || s.Properties["locks"] == nil {
		t.Errorf("got %+v", s)
	}
}

func TestConfigShow(t *testing.T) {
	file := writeConfig(t, "redis: {}\nlocks: {settlement: {lease: 20s}}\n")
	code, out, errs := command(t.Context(), "config", "show", "--config", file)
	if code != exitDone || errs != "" || !strings.Contains(out, "lease: 20s # line 2\n") || !strings.Contains(out, "mode: single # default\n") {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	code, out, errs = command(t.Context(), "config", "show", "--json", "--config", file)
	var settings []struct {
		Path  string
		Value any
		Line  int
	}
	if err := json.Unmarshal([]byte(out), &settings); code != exitDone || err != nil {
		t.Fatalf("exit code %d, error %v: %s", code, err, errs)
	}
	found := 0
	for _, s := range settings {
		switch {
		case s.Path == "locks.settlement.lease" && s.Value == "20s" && s.Line == 2,
			s.Path == "locks.settlement.max_waiters_per_key" && s.Value == 100.0 && s.Line == 0:
			found++
		}
	}
	if found != 2 {
		t.Errorf("got %s", out)
	}
}

func TestConfigDiff(t *testing.T) {
	const old = `redis: {}
filters: {orders: {}}
locks: {settlement: {lease: 20s}}
rules:
  - {name: look, match: {methods: [GET], path: "/o/{id}"}, id: {path: id}, lookup: {filter: orders}}
  - {name: settle, match: {methods: [POST], path: "/o/{id}"}, id: {path: id}, settle: {lock: settlement}}
`
	edit := func(from, to string) string { return bedtest.Replace(old, from, to) }
	for _, tt := range []struct {
		name, file string
		out, errs  string
	}{
		{"nothing", old, "", ""},
		{"the form alone", edit("redis: {}", "redis: {mode: single}"), "", ""},
		{"a lease", edit("20s", "1m"), "~ locks.settlement.lease: 20s -> 1m\n~ locks.settlement.on_unknown_outcome.hold: 20s -> 1m\n", ""},
		{"a key", edit("lease: 20s", `lease: 20s, key: "o:{id}"`), "~ locks.settlement.key: order:lock:{id} -> o:{id}\n", "locks.settlement.key: takes a restart\n"},
		{"an address", edit("redis: {}", `redis: {addresses: ["a:1"]}`), "~ redis.addresses: ['127.0.0.1:6379'] -> ['a:1']\n", "redis.addresses: takes a restart\n"},
		{"a name", edit("name: look", "name: find"), "- rules.look\n+ rules.find\n", ""},
		{"a filter", edit("{orders: {}}", "{orders: {}, more: {}}"), "+ filters.more\n", "filters.more: takes a restart\n"},
		{"an answer of the file", "answer: {failed: [{status: 503}]}\n" + old, "+ answer.failed[0].status: [\"503\"]\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := command(t.Context(), "config", "diff", writeConfig(t, old), writeConfig(t, tt.file))
			want := exitDone
			if tt.errs != "" {
				want = exitFailed
			}
			if code != want || out != tt.out || errs != tt.errs {
				t.Errorf("exit code %d\n%s%s", code, out, errs)
			}
		})
	}
	bad := writeConfig(t, "locks: {s: {lease: 0s}}\n")
	if code, out, _ := command(t.Context(), "config", "diff", writeConfig(t, old), bad); code != exitUsage || out != "" {
		t.Errorf("a bad file: exit code %d, %s", code, out)
	}
	if code, _, _ := command(t.Context(), "config", "diff", bad); code != exitUsage {
		t.Errorf("one file: exit code %d", code)
	}
	code, out, _ := command(t.Context(), "config", "diff", "--json", writeConfig(t, old), writeConfig(t, edit("20s", "1m")))
	var d struct {
		Changes []map[string]any
		Restart []string
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil || code != exitDone || len(d.Changes) != 2 || d.Changes[0]["new"] != "1m" {
		t.Errorf("exit code %d, error %v: %s", code, err, out)
	}
}
