package command

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/audit"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestOnceForget deletes stored answers of orders with and without parts. The audit has each.
func TestOnceForget(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis("--user", "narrow", "on", ">secret", "~{*", "~order:lock:*", "~redisson_*", "&*", "+@all")
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	file := writeConfig(t, fmt.Sprintf(onceExplained, "addresses: ["+server.Addr()+"]"))
	narrow := writeConfig(t, fmt.Sprintf(onceExplained, "addresses: ["+server.Addr()+"], username: narrow, password_file: "+writeConfig(t, "secret")))
	const ofOrder, ofTenant = "{order:lock:1}:ordergate_once:batch", "{tenant:lock:acme/42}:ordergate_once:commission"
	for _, tt := range []struct {
		name, file   string
		args         []string
		code         int
		out, err     string // parts of the output
		kept, logged []string
	}{
		{"without parts", file, []string{"1", "--reason", "why"}, exitDone, ofOrder + ": forgotten\n", "", []string{ofTenant}, []string{ofOrder + " orders why"}},
		{"with parts", file, []string{"acme/42"}, exitDone, ofTenant + ": forgotten\n", "", []string{ofOrder}, []string{ofTenant + " settlement "}},
		{"of a lock", file, []string{"acme/42", "--lock", "settlement"}, exitDone, ofTenant + ": forgotten\n", "", []string{ofOrder}, []string{ofTenant + " settlement "}},
		{"nothing is stored", file, []string{"2"}, exitDone, "no answer is stored\n" + `"2" is no order ID of rule settle: want TENANT/ORDER-ID (TENANT: 1 to 64 bytes of the pattern [a-z]+; ORDER-ID: 1 to 19 digits without a leading zero)` + "\n", "", []string{ofOrder, ofTenant}, nil},
		{"without its parts", file, []string{"42", "--lock", "settlement"}, exitUsage, "", `once forget: "42" is no order ID of a rule that stores answers: want TENANT/ORDER-ID (`, []string{ofOrder, ofTenant}, nil},
		{"no order ID", file, []string{"01"}, exitUsage, "", `once forget: "01" is no order ID of a rule that stores answers: want TENANT/ORDER-ID (`, []string{ofOrder, ofTenant}, nil},
		{"an unknown lock", file, []string{"1", "--lock", "nosuch"}, exitUsage, "", `once forget: --lock "nosuch" is not in ` + file + ", which has orders, settlement", []string{ofOrder, ofTenant}, nil},
		{"a long reason", file, []string{"1", "--reason", strings.Repeat("a", audit.MaxReason+1)}, exitUsage, "", "once forget: --reason has 501 bytes", []string{ofOrder, ofTenant}, nil},
		{"no right to the audit", narrow, []string{"1"}, exitDone, ofOrder + ": forgotten\n", "once forget: forgotten, and ordergate locks audit will not show it: writing to ordergate:audit: NOPERM", []string{ofTenant}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bedtest.Check(t, client.FlushAll(t.Context()).Err())
			bedtest.Check(t, client.MSet(t.Context(), ofOrder, "a", ofTenant, "b").Err())
			code, stdout, stderr := command(t.Context(), append([]string{"once", "forget", "--config", tt.file}, tt.args...)...)
			if code != tt.code || !strings.Contains(stdout, tt.out) || !strings.Contains(stderr, tt.err) || (stderr == "") != (tt.err == "") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			if n := client.Exists(t.Context(), tt.kept...).Val(); int(n) != len(tt.kept) || int(client.Exists(t.Context(), ofOrder, ofTenant).Val()) != len(tt.kept) {
				t.Errorf("kept %d of %q", n, tt.kept)
			}
			entries, err := audit.Read(t.Context(), client, 0)
			bedtest.Check(t, err)
			var logged []string
			for _, e := range entries {
				if e.Action == audit.Forgot && e.Who == operatorName() {
					logged = append(logged, e.Key+" "+e.Lock+" "+e.Reason)
				}
			}
			if fmt.Sprint(logged) != fmt.Sprint(tt.logged) {
				t.Errorf("the audit has %q, want %q", logged, tt.logged)
			}
		})
	}
}

// TestOnceShow prints what is known of stored answers, without their bodies.
func TestOnceShow(t *testing.T) {
	t.Parallel()
	const upper, lower = "6F1C2B3A-9A01-4C2D-8E3F-0123456789AB", "6f1c2b3a-9a01-4c2d-8e3f-0123456789ab"
	server := bedtest.New(t).Redis()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	file := writeConfig(t, fmt.Sprintf(`
redis: {addresses: [%s]}
locks: {settlement: {}, other: {key: "other:{id}"}}
rules:
  - name: settle
    match: {methods: [POST], path: "/orders/{id}"}
    id: {path: id, format: uuid}
    settle: {lock: settlement, once: {name: commission}}
  - name: other
    match: {methods: [POST], path: "/other/{id}"}
    id: {path: id}
    settle: {lock: other}
`, server.Addr()))
	key := "{order:lock:" + lower + "}:ordergate_once:commission"
	at := time.Now().Add(-5 * time.Minute)
	text := fmt.Sprintf(`{"rule":"settle","at":%d,"status":201,"headers":[["x-secret","s3cret"]]}`+"\ns3cret", at.UnixMilli())
	for _, step := range []struct {
		change func() error
		args   []string
		code   int
		want   string // in the output
	}{
		{nil, []string{upper}, exitDone, "no answer is stored\n"},
		{nil, []string{upper, "--json"}, exitDone, "{\n  \"stored\": null\n}\n"},
		{func() error { return client.Set(t.Context(), key, text, 0).Err() }, []string{upper}, exitDone,
			"commission of lock settlement  " + key + ": stored by rule settle at " + at.UTC().Format(time.RFC3339) + ", 5m"},
		{nil, []string{lower, "--json"}, exitDone, fmt.Sprintf(`"state": "stored",
      "rule": "settle",
      "status": 201,
      "settled_at": "%s",`, at.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano))},
		{nil, []string{lower, "--json"}, exitDone, fmt.Sprintf(`"bytes": %d`, len(text))},
		{nil, []string{"1", "--lock", "other"}, exitUsage, "once show: no rule of " + file + " stores the answers of orders beside lock other\n"},
		{func() error { return client.Set(t.Context(), key, "a text", 0).Err() }, []string{upper}, exitDone, key + ": what is stored is no answer\n"},
		{func() error { return client.Del(t.Context(), key).Err() }, []string{upper}, exitDone, "no answer is stored\n"},
		{func() error { return client.RPush(t.Context(), key, "a").Err() }, []string{upper}, exitDone, key + ": reading the stored answer of order:lock:" + lower + ": WRONGTYPE"},
		{func() error { server.Kill(); return nil }, []string{upper}, exitFailed, "once show: reading the stored answer of order:lock:" + lower + ": "},
	} {
		if step.change != nil {
			bedtest.Check(t, step.change())
		}
		code, stdout, stderr := command(t.Context(), append([]string{"once", "show", "--config", file}, step.args...)...)
		if code != step.code || !strings.Contains(stdout+stderr, step.want) || strings.Contains(stdout+stderr, "s3cret") {
			t.Errorf("once show %q: exit code %d, %s%s\nwant %s", step.args, code, stdout, stderr, step.want)
		}
	}
}
