package config

import (
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestSettleBy has settlements by something that is no order, each with the violations that it has
// to have.
func TestSettleBy(t *testing.T) {
	rule := func(settle, more string) string {
		return "listen: {}\nredis: {mode: embedded}\nlocks: {session: {key: \"s:{id}\"}, other: {key: \"o:{id}\", kind: semaphore, permits: 1}}\n" +
			"rules:\n  - {name: a, match: {methods: [POST], path: /a}, settle: " + settle + "}\n" + more
	}
	order := "  - {name: b, match: {methods: [POST], path: \"/b/{id}\"}, id: {path: id}, settle: {lock: %}}\n"
	for _, tt := range []struct {
		name, file string
		want       []string
	}{
		{"good", rule("{lock: session, by: [{cookie: SID}, {header: X-Tenant}], once: {}}", ""), nil},
		{"repeats", rule("{lock: session, by: [{cookie: SID}], once: {for: 0s}}", ""), nil},
		{"repeats for too long", rule("{lock: session, by: [{cookie: SID}], once: {for: 61m}}", ""), []string{"rules[0].settle.once.for: 1h1m is out of range: 0s to 1h are allowed"}},
		{"empty", rule("{lock: session, by: []}", ""), []string{"rules[0].settle.by: is empty", "rules[0].id: does not name"}},
		{"no place", rule("{lock: session, by: [{}]}", ""), []string{"rules[0].settle.by[0]: names no place"}},
		{"two places in one", rule("{lock: session, by: [{cookie: a, query: b}]}", ""), []string{"rules[0].settle.by[0]: has query and cookie"}},
		{"alike", rule("{lock: session, by: [{cookie: SID}, {query: sid}]}", ""), []string{"rules[0].settle.by[1].query: \"sid\" may be taken for"}},
		{"two bodies", rule("{lock: session, by: [{form: a}, {json: b}]}", ""), []string{"rules[0].settle.by[1].json: stands in a body of another type than rules[0].settle.by[0]: no request has both"}},
		{"too many", rule("{lock: session, by: [{query: a}, {query: b}, {query: c}, {query: d}, {query: e}]}", ""), []string{"rules[0].settle.by: has 5 places"}},
		{"with a limit", rule("{lock: session, by: [{cookie: a}], limit: {lock: other, id: {query: m}}}", ""), []string{"rules[0].settle.limit: is for an order"}},
		{"kept", rule("{lock: session, by: [{cookie: a}], once: {keep: 1h}}", ""), []string{"rules[0].settle.once.keep: is for orders"}},
		{"a lock of orders", rule("{lock: session, by: [{cookie: a}]}", bedtest.Replace(order, "%", "session")), []string{"rules[0].settle.lock: \"session\" is also the lock of orders"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if len(tt.want) == 0 {
				mustParse(t, tt.file, nil)
				return
			}
			got := violations(t, tt.file, nil)
			if len(got) != len(tt.want) {
				t.Fatalf("got %q", got)
			}
			for i, v := range got {
				if !strings.Contains(v, tt.want[i]) {
					t.Errorf("got %q, want %q", v, tt.want[i])
				}
			}
		})
	}
	c := mustParse(t, rule("{lock: session, by: [{header: X-Sid}], once: {}}", ""), nil)
	if l := c.Locks["session"]; l.KeepFence != 30*time.Second || !l.OfTokens() || c.Rules[0].Settle.By[0].Header != "x-sid" {
		t.Errorf("lock %+v, by %+v", l, c.Rules[0].Settle.By)
	}
	if o := c.Rules[0].Settle.Once; o.For != 5*time.Second || o.Keep != 65*time.Second || o.Fingerprint != FingerprintBody || len(o.Scope) != 0 {
		t.Errorf("once %+v", o)
	}
}
