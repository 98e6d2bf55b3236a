package command

import (
	"strings"
	"testing"
)

// verdictRules have every kind of stored answer, and a lock of a create.
const verdictRules = `
redis: {addresses: ['127.0.0.1:1']}
filters: {orders: {}}
locks: {settlement: {}, session: {key: "session:{id}"}}
rules:
  - name: settle
    match: {methods: [POST], path: "/orders/{id}/settle"}
    id: {path: id}
    lookup: {filter: orders}
    settle: {lock: settlement, once: {name: commission}}
  - name: compared
    match: {methods: [POST], path: "/compared/{id}"}
    id: {path: id}
    settle: {lock: settlement, once: {fingerprint: body}, require: [{exists: "open:{id}"}]}
  - name: undo
    match: {methods: [POST], path: "/orders/{id}/undo"}
    id: {path: id}
    settle: {lock: settlement, once: {forget: true}}
  - name: watched
    match: {methods: [POST], path: "/watched/{id}"}
    id: {path: id}
    settle: {lock: settlement, once: {}}
    mode: observe
  - name: session
    match: {methods: [POST], path: /session}
    settle: {lock: session, by: [{cookie: SID}], once: {}}
  - name: payment
    match: {methods: [POST], path: /payments}
    once: {by: idempotency-key, required: true, scope: [{header: x-tenant}]}
  - name: note
    match: {methods: [POST], path: /notes}
    once: {by: [{header: x-user}, body], for: 3s}
  - name: both
    match: {methods: [POST], path: "/both/{id}"}
    id: {path: id}
    settle: {lock: settlement}
    once: {by: idempotency-key}
  - name: looked
    match: {methods: [GET], path: "/looked/{id}"}
    id: {path: id}
    lookup: {filter: orders}
    once: {by: idempotency-key}
  - name: create
    match: {methods: [POST], path: /orders}
    create: {filter: orders, learn: {response_json: orderId}, once: {}}
  - name: put
    match: {methods: [PUT], path: "/orders/{id}"}
    id: {path: id}
    create: {filter: orders, learn: {response_json: orderId}, lock: settlement}
  - name: headers
    match: {methods: [POST], path: "/headers/{id}"}
    id: {path: id}
    settle: {lock: settlement, require: [{exists: "day:{header:x-day}"}, {exists: "store:{header:x-store}"}]}
  - name: headers-watched
    match: {methods: [POST], path: "/headers-watched/{id}"}
    id: {path: id}
    settle: {lock: settlement, require: [{exists: "day:{header:x-day}"}]}
    mode: observe
`

// TestExplainVerdicts lists the verdicts that each request can get, and no others.
func TestExplainVerdicts(t *testing.T) {
	const key, grpc = "idempotency-key: k", "content-type: application/grpc"
	file := writeConfig(t, verdictRules)
	for _, tt := range []struct {
		line    string
		headers []string
		want    string // the verdicts; of a single one also the status
	}{
		{"POST /orders/1/settle", nil, "absent busy unavailable overloaded acquired replayed duplicate"},
		{"POST /orders/1/settle", []string{grpc}, "absent busy unavailable overloaded acquired replayed duplicate"},
		{"POST /compared/1", nil, "busy unavailable overloaded acquired replayed duplicate mismatch not_ready"},
		{"POST /orders/1/undo", nil, "busy unavailable overloaded acquired"},
		{"POST /watched/1", []string{grpc}, "busy unavailable overloaded acquired replayed duplicate"},
		{"POST /session", []string{"cookie: SID=a"}, "busy unavailable overloaded acquired replayed duplicate"},
		{"POST /payments", []string{key}, "unavailable acquired replayed duplicate mismatch in_use"},
		{"POST /payments", []string{key, grpc}, "unavailable acquired replayed duplicate mismatch in_use"},
		{"POST /notes", []string{"x-user: u"}, "unavailable acquired replayed duplicate mismatch in_use"},
		{"POST /notes", nil, "none"},
		{"POST /both/1", []string{key}, "busy unavailable overloaded acquired replayed duplicate mismatch in_use"},
		{"POST /both/1", nil, "busy unavailable overloaded acquired"},
		{"GET /looked/1", []string{key}, "absent unavailable acquired replayed duplicate mismatch in_use"},
		{"GET /looked/1", nil, "absent maybe unknown"},
		{"POST /orders", []string{key}, "unavailable acquired replayed duplicate mismatch in_use"},
		{"POST /orders", nil, "none"},
		{"PUT /orders/1", nil, "busy unavailable acquired"},
		{"PUT /orders/1", []string{"content-type: application/json", "content-encoding: gzip"}, "ambiguous"},
		{"POST /headers/1", []string{"x-day: mon", "x-store: 1"}, "busy unavailable overloaded acquired not_ready"},
		{"POST /headers/1", nil, "invalid"},
		{"POST /headers-watched/1", nil, "invalid"},
		{"POST /payments", nil, "invalid"},
	} {
		args := []string{"--config", file, tt.line}
		for _, h := range tt.headers {
			args = append(args, "-H", h)
		}
		e, raw := explainJSON(t, strings.NewReader(""), args...)
		var got []string
		for _, p := range e.Possible {
			got = append(got, p.Verdict)
			if len(e.Possible) > 1 && (p.When == nil || *p.When == "") {
				t.Errorf("%s %q: %s without a condition", tt.line, tt.headers, p.Verdict)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s %q: %s, want %s\n%s", tt.line, tt.headers, got, tt.want, raw)
		}
	}
}

// TestExplainOnceText has what explain says about keys, headers of conditions, and answers that a
// call deletes.
func TestExplainOnceText(t *testing.T) {
	file := writeConfig(t, verdictRules)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"POST /orders/1/undo"}, "lock key     order:lock:1\nforgets      {order:lock:1}:ordergate_once:commission\nforgets      {order:lock:1}:ordergate_once:compared\n"},
		{[]string{"POST /notes"}, "verdict      none\nstatus       the backend's\nreason       the request has no key: it goes on, and nothing is stored\n"},
		{[]string{"POST /notes", "-H", "x-user: u"}, "acquired     the backend's, if it is the first call with its key\n"},
		{[]string{"POST /both/1", "-H", "idempotency-key: k"}, "acquired     the backend's, if the lock is free, or comes free within the wait\n"},
		{[]string{"POST /payments"}, "reason       missing_key: the request has no idempotency key: there is no idempotency-key\n"},
		{[]string{"POST /payments", "-H", "idempotency-key: a,b"}, "reason       malformed_key: the idempotency key is malformed: it is made of idempotency-key, x-tenant\n"},
		{[]string{"POST /headers/1", "-H", "x-day: mon"}, "reason       missing_header: a header that a condition of the settlement needs is missing: there is no x-store\n"},
		{[]string{"POST /headers/1"}, "is missing: there is no x-day, x-store\n"},
		{[]string{"POST /headers/1", "-H", "a: b", "-H", "x-store: 1", "-H", "x-day: m n", "-H", "c: d"}, "\nheader       x-day: m n\npiece        ^ x-day: m n, offset 0\n"},
		{[]string{"POST /headers/1", "-H", "x-store: 1", "-H", "x-day: m", "-H", "x_day: n"}, "\nheader       x_day: n\npiece        ^ x_day: n, offset 0\n"},
		{[]string{"POST /headers-watched/1"}, "verdict      invalid\nstatus       the backend's (400 if it were enforced)\nreason       missing_header: "},
		{[]string{"--live", "PUT /orders/1"}, "\nlock now     order:lock:1: store not reachable: "},
	} {
		code, stdout, stderr := command(t.Context(), append([]string{"explain", "--config", file}, tt.args...)...)
		if code != exitDone || !strings.Contains(stdout, tt.want) {
			t.Errorf("%q: exit code %d, %s%s\nwant %s", tt.args, code, stdout, stderr, tt.want)
		}
	}
}
