package command

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// latchRules has rules with one latch, with one that a header names, with two, and without one.
const latchRules = `
locks: {settlement: {}, tenants: {key: "tenants:{tenant}:{id}"}}
rules:
  - name: one
    match: {methods: [POST], path: "/one/{id}"}
    id: {path: id}
    settle: {lock: settlement, require: [{exists: "open"}, {latch: "loaders:{id}"}]}
  - name: store
    match: {methods: [POST], path: "/store/{id}"}
    id: {path: id}
    settle: {lock: settlement, require: [{latch: "stores:{header:x-store}:{id}"}]}
  - name: two
    match: {methods: [POST], path: "/two/{id}"}
    id: {path: id}
    settle: {lock: settlement, require: [{latch: "loaders:{id}"}, {latch: "drivers"}]}
  - name: parts
    match: {methods: [POST], path: "/parts/{id}"}
    id: {path: id}
    parts: {tenant: {header: x-tenant, format: pattern, pattern: "[a-z]+"}}
    settle: {lock: tenants, require: [{latch: "cities:{tenant}:{id}"}]}
  - name: tagged
    match: {methods: [POST], path: "/tagged/{id}"}
    id: {path: id, format: uuid}
    settle: {lock: settlement, require: [{latch: "tags:{header:x-store}:{id}"}]}
  - name: uuid
    match: {methods: [POST], path: "/uuid/{id}"}
    id: {path: id, format: uuid}
    settle: {lock: settlement, require: [{latch: "uuids:{id}:{id}"}]}
  - name: none
    match: {methods: [POST], path: "/none/{id}"}
    id: {path: id}
    settle: {lock: settlement}
`

// TestLatch runs commands one after the other, with what others do to the keys in between.
func TestLatch(t *testing.T) {
	for name, start := range map[string]func(*bedtest.Bed) string{
		"single": func(bed *bedtest.Bed) string { return fmt.Sprintf("{addresses: [%s]}", bed.Redis().Addr()) },
		"cluster": func(bed *bedtest.Bed) string {
			return "{mode: cluster, addresses: " + list(bed.Cluster().Addrs()...) + "}"
		},
	} {
		t.Run(name, func(t *testing.T) {
			section := start(bedtest.New(t))
			file, client := writeConfig(t, "redis: "+section+latchRules), connected(t, section)
			party{t, client}.play("rpush loaders:11 a\nset loaders:12 soon\nset loaders:0 0\nset loaders:13 -3\nset drivers 2\n")
			for _, step := range latchSteps {
				code, stdout, stderr := command(t.Context(), append([]string{"latch", "--config", file}, strings.Fields(step.args)...)...)
				if code != step.code || strings.ReplaceAll(stdout+stderr, file, "FILE") != step.want+"\n" {
					t.Errorf("latch %s: exit code %d, %s%s", step.args, code, stdout, stderr)
				}
			}
			testLatchReplaced(t, file, client)
		})
	}
}

const latchOther = `is the key of no latch in FILE, which has loaders:{id}, stores:{header:x-store}:{id}, drivers, cities:{tenant}:{id}, tags:{header:x-store}:{id}, uuids:{id}:{id} (for an order ID, add --rule)`

const (
	latchID     = "6f1c2b3a-9a01-4c2d-8e3f-0123456789ab"
	latchDigits = `one can have, which requires loaders:{id}: want ORDER-ID (ORDER-ID: 1 to 19 digits without a leading zero)`
)

var latchSteps = []struct {
	args string
	code int
	want string
}{
	{"show loaders:42", exitDone, "loaders:42: open, no key"},
	{"count-down loaders:42", exitDone, "loaders:42: open, no key; waiters notified: 0"},
	{"set --rule one 42 2", exitDone, "loaders:42: closed, count 2; waiters notified: 0"},
	{"set loaders:42 3", exitFailed, `latch: setting latch "loaders:42": the latch is set (--replace gives it another count)`},
	{"show loaders:42", exitDone, "loaders:42: closed, count 2"},
	{"count-down loaders:42", exitDone, "loaders:42: closed, count 1; waiters notified: 0"},
	{"show --json --rule one 42", exitDone, "{\n  \"key\": \"loaders:42\",\n  \"open\": false,\n  \"exists\": true,\n  \"count\": 1,\n  \"heard\": null\n}"},
	{"count-down --rule one 42 --json", exitDone, "{\n  \"key\": \"loaders:42\",\n  \"open\": true,\n  \"exists\": false,\n  \"count\": 0,\n  \"heard\": 0\n}"},
	{"set --rule parts acme/42 1", exitDone, "cities:acme:42: closed, count 1; waiters notified: 0"},
	{"show --rule parts 42", exitUsage, `latch: "42" is no order ID of rule parts: want TENANT/ORDER-ID (TENANT: 1 to 64 bytes of the pattern [a-z]+; ORDER-ID: 1 to 19 digits without a leading zero)`},
	{"show --rule uuid 6F1C2B3A-9A01-4C2D-8E3F-0123456789AB", exitDone, "uuids:" + latchID + ":" + latchID + ": open, no key"},
	{"show --rule uuid no-uuid", exitUsage, `latch: "no-uuid" is no order ID of rule uuid: want ORDER-ID (ORDER-ID: a UUID)`},
	{"show uuids:" + latchID + ":" + latchID, exitDone, "uuids:" + latchID + ":" + latchID + ": open, no key"},
	{"show uuids:" + latchID + ":6f1c2b3a-9a01-4c2d-8e3f-0123456789ac", exitUsage, `latch: "uuids:` + latchID + `:6f1c2b3a-9a01-4c2d-8e3f-0123456789ac" ` + latchOther},
	{"show tags:north:7:" + latchID, exitDone, "tags:north:7:" + latchID + ": open, no key"},
	{"show tags:north:6F1C2B3A-9A01-4C2D-8E3F-0123456789AB", exitUsage, `latch: "tags:north:6F1C2B3A-9A01-4C2D-8E3F-0123456789AB" is no key that a request of rule tagged can have, which requires tags:{header:x-store}:{id}: want ORDER-ID (ORDER-ID: a UUID)`},
	{"set loaders:042 1", exitUsage, `latch: "loaders:042" is no key that a request of rule ` + latchDigits},
	{"set loaders:{id} 1", exitUsage, `latch: "loaders:{id}" is no key that a request of rule ` + latchDigits},
	{"show loaders:0", exitDone, "loaders:0: open, count 0"},
	{"show loaders:13", exitDone, "loaders:13: open, count -3"},
	{"show drivers", exitDone, "drivers: closed, count 2"},
	{"show stores:7:42", exitDone, "stores:7:42: open, no key"},

	{"show loaders:11", exitFailed, `latch: reading latch "loaders:11": the key holds no latch`},
	{"count-down loaders:12", exitFailed, `latch: reading latch "loaders:12": the key holds no latch`},
	{"set loaders:12 1", exitFailed, `latch: setting latch "loaders:12": the key holds no latch`},
	{"set loaders:12 1 --replace", exitFailed, `latch: setting latch "loaders:12": the key holds no latch`},
	{"set loaders:11 0 --replace", exitFailed, `latch: setting latch "loaders:11": the key holds no latch`},

	{"show loader:42", exitUsage, `latch: "loader:42" ` + latchOther},
	{"set drivers:2 1", exitUsage, `latch: "drivers:2" ` + latchOther},
	{"count-down 42\x1b", exitUsage, `latch: "42\x1b" ` + latchOther},
	{"show --rule none 42", exitUsage, `latch: --rule "none" is no rule with a latch in FILE, which has one, store, two, parts, tagged, uuid`},
	{"show --rule two 42", exitUsage, "latch: rule two requires loaders:42 and drivers: give one of them, without --rule"},
	{"show --rule store 42", exitUsage, "latch: rule store requires stores:{header:x-store}:{id}, which takes a header of the request: give the key, without --rule"},
	{"set loaders:42", exitUsage, "ordergate latch set: want a key and a count, got 1 arguments"},
	{"show", exitUsage, "ordergate latch show: want one key, got 0 arguments"},
	{"set loaders:42 many", exitUsage, `latch set: "many" is no count: want a number from 0`},
	{"set loaders:42 9223372036854775808", exitUsage, `latch set: "9223372036854775808" is no count: want a number from 0`},
	{"set -- loaders:42 -1", exitUsage, `latch set: "-1" is no count: want a number from 0`},
	{"set loaders:42 1 --reason why", exitUsage, "latch set: --reason is for --replace, which is on record"},
}

// testLatchReplaced replaces a latch while a client listens, and finds that in the audit.
func testLatchReplaced(t *testing.T, file string, client redis.UniversalClient) {
	const channel = "redisson_countdownlatch__channel__{loaders:7}"
	subscribe := client.Subscribe
	if _, cluster := client.(*redis.ClusterClient); cluster {
		subscribe = client.SSubscribe
	}
	listener := subscribe(t.Context(), channel)
	defer func() { _ = listener.Close() }()
	if _, err := listener.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ args, want, message string }{
		{"set loaders:7 3", "loaders:7: closed, count 3; waiters notified: 1\n", "1"},
		{"set loaders:7 0 --replace --reason gone", "loaders:7: open, no key; waiters notified: 1\n", "0"},
		{"set loaders:7 1", "loaders:7: closed, count 1; waiters notified: 1\n", "1"},
		{"count-down loaders:7", "loaders:7: open, no key; waiters notified: 1\n", "0"},
	} {
		code, stdout, stderr := command(t.Context(), append([]string{"latch", "--config", file}, strings.Fields(step.args)...)...)
		if code != exitDone || stdout != step.want || stderr != "" {
			t.Errorf("latch %s: exit code %d, %s%s", step.args, code, stdout, stderr)
		}
		if m, err := listener.ReceiveMessage(t.Context()); err != nil || m.Payload != step.message {
			t.Errorf("latch %s: the message is %v (%v), want %s", step.args, m, err, step.message)
		}
	}
	_, stdout, _ := command(t.Context(), "locks", "audit", "--config", file)
	if want := `^TIME .*\n\S+ +\S+@\S+ +set +loaders:7 \(latch, count 0\) +- +- +gone\n$`; !regexp.MustCompile(want).MatchString(stdout) {
		t.Errorf("the audit:\n%s", stdout)
	}
	_, stdout, _ = command(t.Context(), "locks", "audit", "--json", "--config", file)
	if !strings.Contains(stdout, `"count": 0`) || !strings.Contains(stdout, `"key": "loaders:7"`) {
		t.Errorf("the audit: %s", stdout)
	}
}

// TestLatchOfALoader has a file and a user of Redis with no more than a loader needs.
func TestLatchOfALoader(t *testing.T) {
	text, err := os.ReadFile("../../../docs/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile("(?m)^user loader on >PASSWORD (.*)$").FindSubmatch(text)
	if words == nil {
		t.Fatal("docs/conditions.md has no user for a loader")
	}
	server := bedtest.New(t).Redis(append([]string{"--user", "loader", "on", ">loader-secret"}, append(strings.Fields(string(words[1])), "--user", "default", "off")...)...)
	t.Setenv("PW", "loader-secret")
	file := writeConfig(t, fmt.Sprintf("redis: {addresses: [%s], username: loader, password_env: PW}\n", server.Addr()))
	for _, step := range []struct{ args, want string }{
		{"set loaders:1 2", "loaders:1: closed, count 2; waiters notified: 0\n"},
		{"count-down loaders:1", "loaders:1: closed, count 1; waiters notified: 0\n"},
		{"show loaders:1", "loaders:1: closed, count 1\n"},
		{"count-down loaders:1", "loaders:1: open, no key; waiters notified: 0\n"},
		{"set loaders:1 1 --replace", "loaders:1: closed, count 1; waiters notified: 0\n"},
		{"show frozen:1", `latch: reading latch "frozen:1": NOPERM`},
		{"show ordergate:audit", `latch: reading latch "ordergate:audit": NOPERM`},
	} {
		code, stdout, stderr := commandWith(t, nil, append([]string{"latch", "--config", file}, strings.Fields(step.args)...)...)
		if got := stdout + stderr; code == exitDone && stderr != "" || !strings.HasPrefix(got, step.want) || (code == exitDone) != (stdout != "") || strings.Contains(got, "secret") {
			t.Errorf("latch %s: exit code %d, %s", step.args, code, got)
		}
	}
}

// TestLatchUnreachable names a Redis that other processes cannot reach, and one that is away.
func TestLatchUnreachable(t *testing.T) {
	for text, want := range map[string]string{
		"redis: {mode: embedded}\n":             "has redis.mode embedded: its latches are inside the serving process, and no other process can reach them\n",
		"backend: strict\n":                     "has no redis\n",
		"redis: {addresses: ['127.0.0.1:1']}\n": `latch: reading latch "loaders:1": dial tcp 127.0.0.1:1: connect: connection refused` + "\n",
	} {
		code, stdout, stderr := command(t.Context(), "latch", "show", "loaders:1", "--config", writeConfig(t, text))
		if code == exitDone || stdout != "" || !strings.HasSuffix(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %s%s", text, code, stdout, stderr)
		}
	}
}
