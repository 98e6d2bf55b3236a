package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/engine"
)

// creating has two rules that create, with filters whose answers are held for different times.
const creating = `
redis: {}
filters: {orders: {}, returns: {freshness: {window: 2s}, change_log: {lease: 10s}}}
rules:
  - name: order-create
    match: {methods: [POST], path: /orders}
    create: {filter: orders, learn: {response_json: id}}
  - name: return-create
    match: {methods: [POST], path: /returns}
    create: {filter: returns, learn: {response_json: id}}
`

// TestCheckTimeouts has check print what Envoy needs for each create.
func TestCheckTimeouts(t *testing.T) {
	file := writeConfig(t, creating)
	c, err := config.Load(file, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	held := engine.AnswerDelays(c)
	if len(held) != 2 || held[0].Longest >= held[1].Longest {
		t.Fatalf("held for %+v", held)
	}
	for _, h := range held {
		if h.MessageTimeout < h.Longest+100*time.Millisecond || h.MessageTimeout > h.Longest+time.Second || h.MessageTimeout%(100*time.Millisecond) != 0 {
			t.Errorf("message_timeout %v for %v", h.MessageTimeout, h.Longest)
		}
	}
	code, stdout, stderr := command(t.Context(), "check", "--timeouts", "--config", file)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != exitDone || stderr != "" || len(lines) != 3 {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	for i, h := range held {
		want := fmt.Sprintf("%s up to %v at least %v at least %v more than the backend takes", h.Rule, h.Longest, h.MessageTimeout, h.MessageTimeout)
		if got := strings.Join(strings.Fields(lines[i+1]), " "); got != want {
			t.Errorf("line %d is %q, want %q", i+1, got, want)
		}
	}
	var got struct {
		Rules []struct {
			Rule    string
			Held    float64 `json:"held_seconds"`
			Message float64 `json:"message_timeout_seconds"`
			Route   float64 `json:"route_timeout_beyond_backend_seconds"`
		}
	}
	if _, stdout, _ = command(t.Context(), "check", "--timeouts", "--json", "--config", file); json.Unmarshal([]byte(stdout), &got) != nil || len(got.Rules) != 2 {
		t.Fatalf("as JSON: %q", stdout)
	}
	for i, r := range got.Rules {
		if h := held[i]; r.Rule != h.Rule || r.Held != h.Longest.Seconds() || r.Message != h.MessageTimeout.Seconds() || r.Route != r.Message {
			t.Errorf("as JSON: %+v, want %+v", r, h)
		}
	}
}

// TestCheckTimeoutsWithoutCreates has nothing to print, and wrong flags.
func TestCheckTimeoutsWithoutCreates(t *testing.T) {
	file := writeConfig(t, serving)
	if code, stdout, _ := command(t.Context(), "check", "--timeouts", "--config", file); code != exitDone || stdout != "no rule creates orders: no answer is held\n" {
		t.Errorf("exit code %d, %q", code, stdout)
	}
	if code, stdout, _ := command(t.Context(), "check", "--timeouts", "--json", "--config", file); code != exitDone || stdout != `{"rules":[]}`+"\n" {
		t.Errorf("exit code %d, %q", code, stdout)
	}
	if code, _, stderr := command(t.Context(), "check", "--json", "--config", file); code != exitUsage || !strings.Contains(stderr, "--json is for --timeouts") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	bad := filepath.Join(t.TempDir(), "nowhere.yaml")
	if code, stdout, _ := command(t.Context(), "check", "--timeouts", "--config", bad); code != exitUsage || stdout != "" {
		t.Errorf("exit code %d, %q", code, stdout)
	}
}

// TestTimeoutsOfTheExamples compares those of the examples' Envoys with what the example's
// creates need, if the backend takes 20 s.
func TestTimeoutsOfTheExamples(t *testing.T) {
	const backend = 20 * time.Second
	c, _, err := config.LoadWith(filepath.Join("..", "..", "examples", "envoy", "ordergate.yaml"), config.Options{Getenv: func(string) string { return "" }, WithoutDSN: true})
	if err != nil {
		t.Fatal(err)
	}
	for file, timeouts := range map[string]map[string]time.Duration{
		"envoy.yaml":        {`(?m)^ *message_timeout: (\S+)$`: 0, `- name: writes\n.*\n.*\btimeout: (\w+)`: backend},
		"envoy-module.yaml": {`- name: writes\n.*\n.*\btimeout: (\w+)`: backend},
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "examples", "envoy", file))
		if err != nil {
			t.Fatal(err)
		}
		for pattern, more := range timeouts {
			found := regexp.MustCompile(pattern).FindSubmatch(text)
			if found == nil {
				t.Fatalf("%s has no %s", file, pattern)
			}
			timeout, err := time.ParseDuration(string(found[1]))
			for _, h := range engine.AnswerDelays(c) {
				if err != nil || timeout < h.MessageTimeout+more {
					t.Errorf("%s: %s is %v, %v, and rule %s needs %v", file, pattern, timeout, err, h.Rule, h.MessageTimeout+more)
				}
			}
		}
	}
}
