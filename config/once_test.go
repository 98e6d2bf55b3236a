package config

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Parts of the files of TestOnce.
const (
	onceOrder = match + `, id: {path: id}, settle: {lock: orders, once: `
	onceKey   = match + `, once: `
)

// onceFile returns a file with rules, and locks of several kinds.
func onceFile(rules string) string {
	return "filters: {orders: {}}\nlocks: {orders: {}, fair: {kind: fair, key: \"f:{id}\"}, write: {kind: write, key: \"w:{id}\"}, read: {kind: read, key: \"w:{id}\"}, " +
		"permits: {kind: semaphore, permits: 2, key: \"s:{id}\"}, quorum: {kind: quorum, key: \"q:{id}\", quorum: {addresses: [\"a:1\", \"b:1\", \"c:1\"]}}}\n" +
		"rules: [" + rules + "]\n"
}

// TestOnce has a case for each rule about stored answers.
func TestOnce(t *testing.T) {
	const undo = `, {name: b, match: {methods: [POST], path: "/o/{id}/undo"}, id: {path: id}, settle: {lock: orders, once: `
	for _, tt := range []struct {
		name, rules string
		want        []string // behind "f.yaml:3: rules["; nil: accepted
	}{
		{"of an order, the least", onceOrder + "{}}}", nil},
		{"of an order, all", onceOrder + `{keep: 1h, statuses: [2xx, "404", 303], scope: [], max_body: 1, headers: [Content-Type], name: commission, fingerprint: body, duplicate: {status: 410}, mismatch: {status: 400}}}}`, nil},
		{"of an order, as once of the rule", match + `, id: {path: id}, settle: {lock: orders}, once: {keep: 8760h, max_body: 1_048_576}}`, nil},
		{"of an order and by a key", match + `, id: {path: id}, settle: {lock: orders, once: {keep: 1s, max_body: 0, headers: []}}, once: {by: idempotency-key}}`, nil},
		{"fair", match + `, id: {path: id}, settle: {lock: fair, once: {}}}`, nil},
		{"write", match + `, id: {path: id}, settle: {lock: write, once: {}}}`, nil},
		{"by a key, the least", onceKey + "{by: idempotency-key}}", nil},
		{"by a key, all", onceKey + `{by: [Idempotency-Key, body, {header: X-User}], required: true, scope: [{header: X-Tenant}, authorization], fingerprint: none, keep: 1h,
			statuses: [2xx, 3xx, 4xx-final, 5xx], wait: {up_to: 5s}, lease: 1s, hold: 1s, in_use: {status: 425}, missing: {status: 422}, unavailable: {status: 500}}}`, nil},
		{"by a key, for a time", onceKey + "{by: [{header: x-user}, body], for: 3s, lease: 1h, hold: 24h}}", nil},
		{"of a create", match + ", create: {filter: orders, learn: {response_json: id}, once: {}}}", nil},
		{"forget all", onceOrder + "{}}}" + undo + "{forget: true}}}", nil},
		{"forget one", onceOrder + "{name: pay}}}" + undo + "{forget: [pay]}}}", nil},

		{"neither an order nor a key", onceKey + "{}}", []string{
			"0].once: by is missing: give by: idempotency-key, or parts such as [header: x-user, body]",
		}},
		{"of an order twice", match + `, id: {path: id}, settle: {lock: orders, once: {}}, once: {}}`, []string{
			"0].once: has no by, and settle.once is for the order already: give it by, or remove one of the two",
		}},
		{"by a key twice", match + ", once: {by: idempotency-key}, create: {filter: orders, learn: {response_json: id}, once: {}}}", []string{
			"0].create.once: is given as once of the rule already: remove one of the two",
		}},
		{"by of an order", onceOrder + "{by: idempotency-key}}}", []string{
			"0].settle.once.by: is for once of the rule: settle.once is for the order",
		}},
		{"read", match + `, id: {path: id}, settle: {lock: read, once: {}}}`, []string{
			`0].settle.once: is for a lock of kind exclusive, fair or write: "read" is of kind read`,
		}},
		{"semaphore", match + `, id: {path: id}, settle: {lock: permits, once: {}}}`, []string{
			`0].settle.once: is for a lock of kind exclusive, fair or write: "permits" is of kind semaphore`,
		}},
		{"quorum", match + `, id: {path: id}, settle: {lock: quorum}, once: {}}`, []string{
			`0].once: is for a lock of kind exclusive, fair or write: "quorum" is of kind quorum`,
		}},
		{"of an order with what is for a key", onceOrder + "{scope: authorization, required: false, wait: {tries: 1}, lease: 30s, hold: 90s, in_use: {status: 409}, missing: {}, unavailable: {status: 503}, for: 3s}}}", []string{
			"0].settle.once.required: is for once with by: remove it",
			"0].settle.once.wait: is for once with by: remove it",
			"0].settle.once.lease: is for once with by: remove it",
			"0].settle.once.hold: is for once with by: remove it",
			"0].settle.once.in_use: is for once with by: remove it",
			"0].settle.once.missing: is for once with by: remove it",
			"0].settle.once.unavailable: is for once with by: remove it",
			"0].settle.once.for: is for once with by: remove it",
		}},
		{"by a key with what is for an order", onceKey + "{by: idempotency-key, name: a, forget: true, duplicate: {status: 409}}}", []string{
			"0].once.name: is for once of an order, without by: remove it",
			"0].once.forget: is for once of an order, without by: remove it",
		}},
		{"a name in two words", onceOrder + `{name: "two words"}}}`, []string{
			`0].settle.once.name: "two words" is no name: names are 1 to 63 of a-z, 0-9, _ and -, with a letter or digit first`,
		}},

		{"forget what is not stored", match + `, id: {path: id}, settle: {lock: orders, once: {forget: true}}}`, []string{
			`0].settle.once.forget: no rule with lock "orders" stores answers: there is nothing to forget`,
		}},
		{"forget what another lock has", match + `, id: {path: id}, settle: {lock: fair, once: {name: pay}}}` + undo + "{forget: [pay]}}}", []string{
			`1].settle.once.forget[0]: "pay" is not the name of stored answers of lock "orders"`,
		}},
		{"forget in mode observe", onceOrder + "{name: pay}}}" + undo + "{forget: true}}, mode: observe}", []string{
			`1].settle.once.forget: a rule in mode observe deletes them at its end, so that clients of rule "a" may get the answers of settlements that are undone: enforce this rule, too`,
		}},
		{"both in mode observe", onceOrder + "{name: pay}}, mode: observe}" + undo + "{forget: true}}, mode: observe}", nil},
		{"forget an unknown name", onceOrder + "{name: pay}}}" + undo + "{forget: [pay, paid]}}}", []string{
			`1].settle.once.forget[1]: "paid" is not the name of stored answers of lock "orders"`,
		}},
		{"forget and store", onceOrder + "{}}}" + undo + "{forget: true, keep: 1h, statuses: [2xx], max_body: 1, headers: [], name: b, fingerprint: none, duplicate: {}, mismatch: {}}}}", []string{
			"1].settle.once.keep: excludes forget: a call that undoes stores no answer",
			"1].settle.once.max_body: excludes forget: a call that undoes stores no answer",
			"1].settle.once.headers: excludes forget: a call that undoes stores no answer",
			"1].settle.once.name: excludes forget: a call that undoes stores no answer",
			"1].settle.once.fingerprint: excludes forget: a call that undoes stores no answer",
			"1].settle.once.duplicate: excludes forget: a call that undoes stores no answer",
			"1].settle.once.mismatch: excludes forget: a call that undoes stores no answer",
		}},
		{"forget: false", onceOrder + "{forget: false}}}", []string{"0].settle.once.forget: is true or false: write true, or a list of names"}},
		{"forget: []", onceOrder + "{forget: []}}}", []string{"0].settle.once.forget: is a list: write true, or a list of names"}},

		{"a part twice", onceKey + "{by: [{header: X-User}, body, {header: x-user}]}}", []string{
			`0].once.by[2]: "header:x-user" is given twice: give each part once`,
		}},
		{"a header that is none", onceKey + `{by: [{header: "x user"}, {header: Idempotency-Key}]}}`, []string{
			`0].once.by[0]: "x user" is not the name of a header`,
			`0].once.by[1]: {header: idempotency-key} has a form of its own: write idempotency-key`,
		}},
		{"headers that are not the call's", onceKey + "{by: [{header: TE}, {header: Content-Length}, {header: X-Ordergate-Key}], scope: [{header: Host}, {header: connection}, {header: Accept-Encoding}, {header: x-tenant}, {header: expect}]}}", []string{
			`0].once.by[0]: "te" belongs to one connection, not to the call: name another header, such as x-tenant`,
			`0].once.by[1]: "content-length" belongs to one connection, not to the call: name another header, such as x-tenant`,
			`0].once.by[2]: "x-ordergate-key" is removed from requests: name another header, such as x-tenant`,
			`0].once.scope[0]: the host counts already: remove it`,
			`0].once.scope[1]: "connection" belongs to one connection, not to the call: name another header, such as x-tenant`,
			`0].once.scope[2]: "accept-encoding" is removed from requests: name another header, such as x-tenant`,
			`0].once.scope[4]: "expect" is removed from requests: name another header, such as x-tenant`,
		}},
		{"an unknown part", onceKey + "{by: [idempotency-key, path]}}", []string{
			`0].once.by[1]: "path" is not one of idempotency-key, body, {header: name}`,
		}},
		{"a scope that is no header", onceKey + "{by: idempotency-key, scope: [body, authorization, authorization]}}", []string{
			`0].once.scope[0]: "body" is not a header: write {header: name}`,
			`0].once.scope[2]: "authorization" is given twice: give each part once`,
		}},
		{"a scope of the key itself", onceKey + "{by: idempotency-key, scope: [{header: Idempotency-Key}, idempotency-key]}}", []string{
			`0].once.scope[0]: idempotency-key is for by: give a header that tells callers apart, such as {header: x-tenant}`,
			`0].once.scope[1]: idempotency-key is for by: give a header that tells callers apart, such as {header: x-tenant}`,
		}},
		{"a part that is a mapping", onceKey + "{by: [{cookie: a}]}}", []string{
			"0].once.by[0]: is a mapping: write idempotency-key, body, or {header: name}",
		}},
		{"no part", onceKey + "{by: []}}", []string{
			"0].once.by: is empty: give a part, such as idempotency-key, or remove it",
		}},
		{"a body without a caller", onceKey + "{by: [body]}}", []string{
			"0].once.by: has the body alone, so a caller may get the answer of another: add {header: name}, or give scope ([]: all callers are one)",
		}},
		{"keep by both names", onceKey + "{by: body, scope: [], keep: 3s, for: 3s}}", []string{"0].once.for: is another name of keep: remove one of the two"}},

		{"out of range", onceKey + `{by: idempotency-key, keep: 999ms, lease: 999ms, hold: 999ms, max_body: -1, statuses: [], fingerprint: headers, wait: {tries: 0}, in_use: {status: 199}, missing: {status: 199}, unavailable: {status: 199}, mismatch: {status: 199}}}`, []string{
			`0].once.fingerprint: "headers" is not one of body, none`,
			"0].once.statuses: is empty: give one, such as 2xx",
			"0].once.max_body: -1 is out of range: 0 to 1048576 are allowed",
			"0].once.lease: 999ms is out of range: 1s to 1h are allowed",
			"0].once.hold: 999ms is out of range: 1s to 24h are allowed",
			"0].once.wait.tries: 0 is out of range: 1 to 1000 are allowed",
			"0].once.mismatch.status: 199 is out of range: 200 to 599 are allowed",
			"0].once.in_use.status: 199 is out of range: 200 to 599 are allowed",
			"0].once.missing.status: 199 is out of range: 200 to 599 are allowed",
			"0].once.unavailable.status: 199 is out of range: 200 to 599 are allowed",
			"0].once.keep: 999ms is out of range: 1s to 8760h are allowed",
		}},
		{"out of range at the other end", onceKey + "{by: body, scope: [], for: 8761h, lease: 61m, hold: 25h, max_body: 1_048_577}}", []string{
			"0].once.max_body: 1048577 is out of range: 0 to 1048576 are allowed",
			"0].once.lease: 1h1m is out of range: 1s to 1h are allowed",
			"0].once.hold: 25h is out of range: 1s to 24h are allowed",
			"0].once.for: 8761h is out of range: 1s to 8760h are allowed",
		}},
		{"statuses", onceOrder + `{statuses: [1xx, "99", "2000", ok, 20x, "204", 5xx]}}}`, []string{
			`0].settle.once.statuses[0]: "1xx" is not a status to store: write one such as 201, or 2xx for all of a kind`,
			`0].settle.once.statuses[1]: "99" is not a status to store: write one such as 201, or 2xx for all of a kind`,
			`0].settle.once.statuses[2]: "2000" is not a status to store: write one such as 201, or 2xx for all of a kind`,
			`0].settle.once.statuses[3]: "ok" is not a status to store: write one such as 201, or 2xx for all of a kind`,
			`0].settle.once.statuses[4]: "20x" is not a status to store: write one such as 201, or 2xx for all of a kind`,
		}},
		{"headers", onceOrder + `{headers: [Set-Cookie, x-ordergate-key, X-Envoy-Attempt-Count, vary, x-ok]}}}`, []string{
			`0].settle.once.headers[0]: "set-cookie" cannot be stored: it is not of the answer alone, or ordergate sets it`,
			`0].settle.once.headers[1]: "x-ordergate-key" cannot be stored: it is not of the answer alone, or ordergate sets it`,
			`0].settle.once.headers[2]: "x-envoy-attempt-count" cannot be stored: it is not of the answer alone, or ordergate sets it`,
			`0].settle.once.headers[3]: "vary" cannot be stored: it is not of the answer alone, or ordergate sets it`,
		}},
		{"headers for one origin", onceOrder + `{headers: [Access-Control-Allow-Origin, access-control-allow-credentials, timing-allow-origin, connection]}}}`, []string{
			`0].settle.once.headers[0]: "access-control-allow-origin" cannot be stored: it depends on the Origin of the request`,
			`0].settle.once.headers[1]: "access-control-allow-credentials" cannot be stored: it depends on the Origin of the request`,
			`0].settle.once.headers[2]: "timing-allow-origin" cannot be stored: it depends on the Origin of the request`,
			`0].settle.once.headers[3]: "connection" cannot be stored: it is not of the answer alone, or ordergate sets it`,
		}},
		{"an unknown key", onceOrder + "{keeps: 1h}}}", []string{"0].settle.once.keeps: unknown key, did you mean keep?"}},
		{"pass", match + ", pass: true, once: {by: body}}", []string{
			"0].once: is not for a rule with pass, which exempts its requests: remove one of the two",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var want []string
			for _, w := range tt.want {
				want = append(want, "f.yaml:3: rules["+w)
			}
			compareViolations(t, onceFile(strings.ReplaceAll("{"+tt.rules, "\n", " ")), nil, want)
		})
	}
}

// TestOnceDefaults fills in what the file leaves out.
func TestOnceDefaults(t *testing.T) {
	file := onceFile("{" + onceOrder + `{}}}, {name: b, match: {methods: [POST], path: /p}, once: {by: idempotency-key}}, ` +
		`{name: c, match: {methods: [POST], path: /c}, create: {filter: orders, learn: {response_json: id}, once: {}}}, ` +
		`{name: d, match: {methods: [POST], path: /d}, once: {by: [{header: X-User}, body], for: 3s}}, ` +
		`{name: e, match: {methods: [POST], path: "/o/{id}/undo"}, id: {path: id}, settle: {lock: orders}, once: {forget: true}}`)
	rules := mustParse(t, file, nil).Rules
	conflict := Reply{Status: http.StatusConflict}
	mismatch := Reply{Status: http.StatusUnprocessableEntity}
	order := &Once{
		Name: "a", Fingerprint: FingerprintNone, Keep: 24 * time.Hour, Statuses: []OnceStatus{"2xx"}, MaxBody: 65_536,
		Headers: []string{"content-type", "location"}, Duplicate: conflict, Mismatch: mismatch,
		Scope: OnceParts{OnceHeader + "authorization", OnceHeader + "cookie"},
	}
	key := *order
	key.Scope, key.Name, key.By, key.Fingerprint, key.Statuses = nil, "", OnceParts{OnceIdempotencyKey}, FingerprintBody, []OnceStatus{"2xx", notRetried}
	key.Wait, key.Lease, key.Hold = Wait{Tries: 1, Every: 100 * time.Millisecond}, 135*time.Second, 90*time.Second
	key.InUse, key.Missing = Reply{Status: http.StatusConflict, RetryAfter: time.Second}, Reply{Status: http.StatusBadRequest}
	key.Unavailable = Reply{
		Status: http.StatusServiceUnavailable, Body: `{"error":"the request cannot be taken now, try again"}`, RetryAfter: time.Second,
	}
	click := key
	click.By, click.Fingerprint, click.Keep, click.For = OnceParts{OnceHeader + "x-user", OnceBody}, FingerprintNone, 3*time.Second, 3*time.Second
	for name, pair := range map[string][2]*Once{
		"settle.once": {order, rules[0].Settle.Once}, "once": {&key, rules[1].Once}, "create.once": {&key, rules[2].Create.Once},
		"once for double clicks": {&click, rules[3].Once}, "forget": {{Forget: OnceNames{OnceAll, "a"}, Keep: 24 * time.Hour, Statuses: []OnceStatus{"2xx"}}, rules[4].Once},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestMarksOutlastAnswers has answers by keys that are for orders which a call may undo.
func TestMarksOutlastAnswers(t *testing.T) {
	const undo = `{name: undo, match: {methods: [POST], path: "/o/{id}/undo"}, id: {path: id}, settle: {lock: orders}, once: {forget: true}}`
	for keyed, want := range map[string]time.Duration{
		`path: "/o/{id}/keyed"}, id: {path: id}, settle: {lock: orders}, once: {by: idempotency-key, keep: 168h}}`: 168 * time.Hour,
		`path: /keyed}, once: {by: idempotency-key, keep: 168h}}`:                                                  24 * time.Hour,
	} {
		rules := mustParse(t, onceFile("{"+onceOrder+"{}}}, {name: keyed, match: {methods: [POST], "+keyed+", "+undo), nil).Rules
		if got := rules[2].Settle.Once; got != nil {
			t.Fatal("the undo is no once of the rule")
		}
		if got := rules[2].Once.Keep; got != want {
			t.Errorf("%s: marks last for %v, want %v", keyed, got, want)
		}
	}
}

// TestOnceOtherMethods lets no other method reach the backend without the key that a rule requires.
func TestOnceOtherMethods(t *testing.T) {
	create := ", create: {filter: orders, learn: {response_json: id}, once: "
	for text, want := range map[string]string{
		onceKey + "{by: idempotency-key}}":                    OtherMethodsPass,
		onceKey + "{by: idempotency-key, required: true}}":    OtherMethodsRefuse,
		onceKey + "{by: [{header: a}], required: true}}":      OtherMethodsRefuse,
		match + create + "{}}}":                               OtherMethodsPass,
		match + create + "{required: true}}}":                 OtherMethodsRefuse,
		match + ", lookup: {filter: orders}, id: {path: id}}": OtherMethodsPass,
		`name: a, match: {methods: [POST], path: /p, other_methods: pass}, once: {by: idempotency-key, required: true}}`: OtherMethodsPass,
	} {
		if got := mustParse(t, onceFile("{"+text), nil).Rules[0].Match.OtherMethods; got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestStoresStatus decides which answers are stored.
func TestStoresStatus(t *testing.T) {
	o := Once{Statuses: []OnceStatus{"2xx", notRetried, "503"}}
	for status, want := range map[int]bool{
		200: true, 204: true, 299: true, 300: false, 400: true, 401: false, 403: false, 404: true, 407: false, 408: false, 409: false, 425: false, 429: false, 499: true, 500: false, 503: true,
	} {
		if got := o.StoresStatus(status); got != want {
			t.Errorf("status %d: %v", status, got)
		}
	}
}
