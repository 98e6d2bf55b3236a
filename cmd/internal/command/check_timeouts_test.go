package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/timeouts"
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
	held := timeouts.AnswerDelays(c)
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
	if code, stdout, _ := command(t.Context(), "check", "--timeouts", "--json", "--config", file); code != exitDone || stdout != `{"rules":[],"waits":[]}`+"\n" {
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

// TestCheckTimeoutsOfWaits has rules whose requests wait.
func TestCheckTimeoutsOfWaits(t *testing.T) {
	file := writeConfig(t, `
redis: {addresses: [127.0.0.1:6379]}
filters: {orders: {sources: [table]}}
sources: {table: {kind: mysql, dsn_env: DSN, table: orders, id_column: id}}
locks: {settlement: {wait: {up_to: 1s}}, merchants: {kind: semaphore, permits: 2, key: "m:{id}", wait: {tries: 3, every: 500ms}}}
rules:
  - {name: note, match: {methods: [POST], path: /n}, once: {by: body, scope: [], wait: {up_to: 5s}}}
  - name: settle
    match: {methods: [POST], path: "/o/{id}"}
    id: {path: id}
    settle: {lock: settlement, limit: {lock: merchants, id: {header: x-merchant}}}
    once: {by: idempotency-key}
  - {name: put, match: {methods: [PUT], path: "/o/{id}"}, id: {path: id}, create: {filter: orders, learn: {response_json: id}, lock: settlement, dedup: {confirm: table, timeout: 300ms}}}
  - {name: ready, match: {methods: [POST], path: "/r/{id}"}, id: {path: id}, settle: {lock: settlement, require: [{exists: open}], once: {}}}
  - {name: shop, match: {methods: [POST], path: "/shop/{id}"}, id: {path: id}, settle: {lock: settlement, require: [{time: {from: "08:00", to: "18:00", zone: UTC}}]}}
  - {name: undo, match: {methods: [POST], path: "/u/{id}"}, id: {path: id}, settle: {lock: settlement}, once: {forget: true}}
  - {name: observed, mode: observe, match: {methods: [POST], path: "/observed/{id}"}, id: {path: id}, settle: {lock: settlement}}
`)
	want := []string{
		"note up to 8s message_timeout at least 8.2s once.wait",
		"settle up to 9.7s message_timeout at least 9.9s once.wait + locks.settlement.wait + locks.merchants.wait",
		"put up to 3.9s message_timeout at least 4.1s locks.settlement.wait + create.dedup.timeout",
		"put up to 300ms timeout of ext_authz at least 500ms create.dedup.timeout",
		"ready up to 6.1s message_timeout at least 6.3s locks.settlement.wait + settle.require",
		"shop up to 3.6s message_timeout at least 3.8s locks.settlement.wait",
		"undo up to 6.1s message_timeout at least 6.3s locks.settlement.wait + once.forget",
		"observed up to 2.5s message_timeout at least 2.7s locks.settlement.wait",
	}
	code, stdout, stderr := command(t.Context(), "check", "--timeouts", "--config", file)
	_, table, _ := strings.Cut(stdout, "\n\nRULE")
	lines := strings.Split(strings.TrimSpace(table), "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	if diff := cmp.Diff(append([]string{"REQUEST WAITS FOR TIMEOUT OF ENVOY KEYS"}, want...), lines); diff != "" || code != exitDone {
		t.Errorf("exit code %d, %s (-want +got):\n%s", code, stderr, diff)
	}
	var got struct {
		Waits []struct {
			Rule    string
			Keys    []string
			Longest float64 `json:"longest_seconds"`
			Envoy   string
			Least   float64 `json:"least_seconds"`
		}
	}
	_, stdout, _ = command(t.Context(), "check", "--timeouts", "--json", "--config", file)
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got.Waits) != len(want) {
		t.Fatalf("as JSON: %q, %v", stdout, err)
	}
	for i, w := range got.Waits {
		text := fmt.Sprintf("%s up to %v %s at least %v %s", w.Rule, seconds(w.Longest), w.Envoy, seconds(w.Least), strings.Join(w.Keys, " + "))
		if text != want[i] {
			t.Errorf("as JSON: %q, want %q", text, want[i])
		}
	}
}

func seconds(n float64) time.Duration {
	return time.Duration(n * float64(time.Second)).Round(time.Millisecond)
}

// TestTimeoutsOfTheExamples compares those of the examples' Envoys with what the example's
// creates need, if the backend takes 20 s.
func TestTimeoutsOfTheExamples(t *testing.T) {
	const backend = 20 * time.Second
	e, err := config.LoadEffective(filepath.Join("..", "..", "..", "examples", "envoy", "ordergate.yaml"), config.Options{Getenv: func(string) string { return "" }, WithoutDSN: true})
	if err != nil {
		t.Fatal(err)
	}
	c := e.Config
	for file, patterns := range map[string]map[string]time.Duration{
		"envoy.yaml":        {`(?m)^ *message_timeout: (\S+)$`: 0, `- name: writes\n.*\n.*\btimeout: (\w+)`: backend},
		"envoy-module.yaml": {`- name: writes\n.*\n.*\btimeout: (\w+)`: backend},
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "envoy", file))
		if err != nil {
			t.Fatal(err)
		}
		for pattern, more := range patterns {
			found := regexp.MustCompile(pattern).FindSubmatch(text)
			if found == nil {
				t.Fatalf("%s has no %s", file, pattern)
			}
			timeout, err := time.ParseDuration(string(found[1]))
			for _, w := range timeouts.RequestWaits(c) {
				if more == 0 && (w.Timeout != timeouts.MessageTimeout || timeout < w.Least) {
					t.Errorf("%s: %s is %v, and rule %s waits %+v", file, pattern, timeout, w.Rule, w)
				}
			}
			for _, h := range timeouts.AnswerDelays(c) {
				if err != nil || timeout < h.MessageTimeout+more {
					t.Errorf("%s: %s is %v, %v, and rule %s needs %v", file, pattern, timeout, err, h.Rule, h.MessageTimeout+more)
				}
			}
		}
	}
}
