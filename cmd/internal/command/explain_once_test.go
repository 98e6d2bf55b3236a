package command

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/explain"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const onceExplained = `
redis: {%s}
locks: {settlement: {key: "tenant:lock:{tenant}/{id}"}, orders: {}}
rules:
  - name: settle
    match: {methods: [POST], path: "/orders/{id}/settle"}
    id: {path: id}
    parts: {tenant: {header: x-tenant, format: pattern, pattern: "[a-z]+"}}
    settle:
      lock: settlement
      once: {name: commission}
      require: [{latch: "loaders:{tenant}/{id}"}, {exists: "open:{tenant}"}, {value: {key: "day:{header:x-day}", is: closed}}, {time: {}}]
  - name: batch
    match: {methods: [POST], path: /batch}
    id: {json: ids, list: true}
    settle: {lock: orders, once: {}, require: [{missing: "frozen:{id}"}]}
  - name: payment
    match: {methods: [POST], path: /payments}
    once: {by: idempotency-key, scope: [{header: x-tenant}]}
  - name: undo
    match: {methods: [POST], path: "/undo/{id}"}
    id: {path: id}
    settle: {lock: orders, once: {forget: true}}
  - name: timed
    match: {methods: [POST], path: "/timed/{id}"}
    id: {path: id}
    settle: {lock: orders, require: [{time: {}}]}
`

// TestExplainOnce shows stored answers and conditions, and changes neither.
func TestExplainOnce(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	file := writeConfig(t, fmt.Sprintf(onceExplained, "addresses: ["+server.Addr()+"]"))
	store := func(key, text string) {
		t.Helper()
		bedtest.Check(t, client.Set(t.Context(), key, text, 0).Err())
	}
	at := time.Now().Add(-5 * time.Minute)
	record := func(rest string) string { return fmt.Sprintf(`{"rule":"settle","at":%d%s}`+"\n", at.UnixMilli(), rest) }
	store("{tenant:lock:acme/42}:ordergate_once:commission", record(`,"status":201,"headers":[["x-secret","s3cret"]]`)+"s3cret")
	store("{tenant:lock:acme/43}:ordergate_once:commission", "a text")
	bedtest.Check(t, client.RPush(t.Context(), "{tenant:lock:acme/44}:ordergate_once:commission", "a").Err())
	store("{order:lock:1}:ordergate_once:batch", record(""))
	store("loaders:acme/42", "1")
	store("loaders:acme/43", "x")
	store("open:acme", "1")
	store("day:7", "closed")
	store("frozen:2", "1")
	before := dump(t, client)

	const stored = `stored by rule settle at TIME, 5mAGO ago, `
	for _, tt := range []struct {
		name, line string
		args       []string
		want       []string // the lines behind those of the locks
	}{
		{"stored", "POST /orders/42/settle", []string{"-H", "x-tenant: acme", "-H", "x-day: 7"}, []string{
			"answer now   {tenant:lock:acme/42}:ordergate_once:commission: " + stored + "status 201",
			"condition    latch loaders:acme/42: does not hold", "condition    exists open:acme: holds", "condition    value day:7: holds", "condition    time: holds",
		}},
		{"other types", "POST /orders/43/settle", []string{"-H", "x-tenant: acme", "-H", "x-day: 8"}, []string{
			"answer now   {tenant:lock:acme/43}:ordergate_once:commission: what is stored is no answer",
			"condition    latch loaders:acme/43: cannot be checked: NOLATCH the key holds no number", "condition    exists open:acme: holds", "condition    value day:8: does not hold", "condition    time: holds",
		}},
		{"a list", "POST /orders/44/settle", []string{"-H", "x-tenant: acme", "-H", "x-day: 7"}, []string{
			"answer now   {tenant:lock:acme/44}:ordergate_once:commission: reading the stored answer of tenant:lock:acme/44: WRONGTYPE Operation against a key holding the wrong kind of value",
			"condition    latch loaders:acme/44: holds", "condition    exists open:acme: holds", "condition    value day:7: holds", "condition    time: holds",
		}},
		{"of another tenant", "POST /orders/42/settle", []string{"-H", "x-tenant: bolt", "-H", "x-day: 7"}, []string{
			"answer now   {tenant:lock:bolt/42}:ordergate_once:commission: none stored",
			"condition    latch loaders:bolt/42: holds", "condition    exists open:bolt: does not hold", "condition    value day:7: holds", "condition    time: holds",
		}},
		{"a batch", "POST /batch", []string{"-H", jsonType, "-d", `{"ids":[1,2]}`}, []string{
			"answer now   {order:lock:1}:ordergate_once:batch: " + stored + "without its answer",
			"answer now   {order:lock:2}:ordergate_once:batch: none stored",
			"condition    missing frozen:1: holds", "condition    missing frozen:2: does not hold",
		}},
		{"a key", "POST /payments", []string{"-H", "idempotency-key: k"}, []string{"answer now   {ordergate:once:payment:HASH}:ordergate_once:answer: none stored"}},
		{"no key", "POST /payments", nil, []string{"lock now     nothing to ask: this request takes no lock"}},
		{"forgets", "POST /undo/1", nil, []string{"answer now   {order:lock:1}:ordergate_once:batch: " + stored + "without its answer"}},
		{"a header is missing", "POST /orders/42/settle", []string{"-H", "x-tenant: acme"}, []string{"lock now     nothing to ask: this request takes no lock"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := command(t.Context(), append([]string{"explain", "--config", file, "--live", tt.line}, tt.args...)...)
			if code != exitDone || stderr != "" || strings.Contains(stdout, "s3cret") {
				t.Fatalf("exit code %d, stderr %q, stdout\n%s", code, stderr, stdout)
			}
			stdout = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:]+Z, 5m[\d.]*s`).ReplaceAllString(stdout, "TIME, 5mAGO")
			stdout = regexp.MustCompile(`payment:[\w-]{22}}`).ReplaceAllString(stdout, "payment:HASH}")
			var got []string
			for line := range strings.Lines(stdout) {
				if strings.HasPrefix(line, "answer now") || strings.HasPrefix(line, "condition") || strings.Contains(line, "nothing to ask") {
					got = append(got, strings.TrimSuffix(line, "\n"))
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff(before, dump(t, client)); diff != "" {
		t.Errorf("asking has changed Redis (-before +after):\n%s", diff)
	}

	e, _ := explainJSON(t, nil, "--config", file, "--live", "POST /orders/42/settle", "-H", "x-tenant: acme", "-H", "x-day: 7")
	if len(e.Stored) != 1 || e.Stored[0].State != explain.StateStored || *e.Stored[0].Status != 201 || e.Stored[0].At.UnixMilli() != at.UnixMilli() || *e.Stored[0].Age < 300e9 {
		t.Errorf("got %+v", e.Stored)
	}
	if len(e.Conditions) != 4 || *e.Conditions[0].Holds || *e.Conditions[0].Key != "loaders:acme/42" || e.Conditions[3].Key != nil {
		t.Errorf("got %+v", e.Conditions)
	}
}

// dump returns the content of a Redis, by key.
func dump(t *testing.T, client *redis.Client) map[string]string {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*").Result()
	bedtest.Check(t, err)
	content := make(map[string]string)
	for _, key := range keys {
		content[key] = client.Dump(t.Context(), key).Val() + client.PTTL(t.Context(), key).Val().String()
	}
	return content
}

// TestExplainOnceWithoutRedis asks where there is nobody.
func TestExplainOnceWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, section := range []string{"addresses: ['127.0.0.1:1']", "mode: embedded"} {
		file := writeConfig(t, fmt.Sprintf(onceExplained, section))
		e, _ := explainJSON(t, nil, "--config", file, "--live", "POST /orders/42/settle", "-H", "x-tenant: acme", "-H", "x-day: 7")
		if len(e.Stored) != 1 || e.Stored[0].State != stateUnreachable || e.Stored[0].Error == nil {
			t.Errorf("%s: got %+v", section, e.Stored)
		}
		if len(e.Conditions) != 4 || e.Conditions[0].Holds != nil || e.Conditions[0].Error == nil || !*e.Conditions[3].Holds {
			t.Errorf("%s: got %+v", section, e.Conditions)
		}
		e, _ = explainJSON(t, nil, "--config", file, "--live", "POST /timed/42")
		if len(e.Conditions) != 1 || !*e.Conditions[0].Holds {
			t.Errorf("%s: a time: got %+v", section, e.Conditions)
		}
	}
	e, _ := explainJSON(t, nil, "--config", writeConfig(t, fmt.Sprintf(onceExplained, nowhere)), "POST /timed/42")
	if e.Stored != nil || e.Conditions != nil {
		t.Errorf("without --live: %+v, %+v", e.Stored, e.Conditions)
	}
}
