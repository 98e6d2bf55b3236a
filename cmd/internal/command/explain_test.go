package command

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/explain"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// explained has every place of an ID and every action. The line for redis is
// put in.
const explained = `
redis: {%s}
filters: {orders: {}}
locks: {settlement: {key: "order:lock:{id}"}, merchants: {kind: semaphore, permits: 5, key: "merchant:settling:{id}"}, partial: {key: "part:{id}"}}
rules:
  - name: health
    match: {methods: [GET], path: /orders/health}
    pass: true
  - name: lookup
    match: {methods: [GET], path: "/orders/{id}"}
    id: {path: id}
    lookup: {filter: orders}
  - name: form
    match: {methods: [GET], path: /form}
    id: {query: order_id, optional: true, max: int32}
    lookup: {filter: orders}
  - name: create
    match: {methods: [POST], path: /orders}
    id: {json: orderId, optional: true}
    create: {filter: orders, learn: {response_json: orderId}}
  - name: settle
    match: {methods: [POST], path: "/orders/{id}/settle"}
    id: [{path: id}, {query: orderId}, {header: x-order-id}, {cookie: oid}, {form: orderId}]
    lookup: {filter: orders}
    settle: {lock: settlement}
  - name: batch
    match: {methods: [POST], path: /batch}
    id: {json: order.ids, list: true, max_list: 3}
    settle: {lock: settlement}
  - name: text-batch
    match: {methods: [POST], path: /text-batch}
    id: {json: ids, list: true, separator: ","}
    settle: {lock: settlement}
  - name: watched
    match: {methods: [POST], path: "/watched/{id}"}
    id: {path: id, format: uuid}
    settle: {lock: settlement}
    mode: observe
  - name: coded
    match: {methods: [POST], path: "/coded/{id}", host: pay.example}
    id: {path: id, format: pattern, pattern: "[A-Z].*"}
    settle: {lock: settlement, busy: {status: 423}}
  - name: limited
    match: {methods: [POST], path: "/limited/{id}"}
    id: {path: id}
    settle: {lock: settlement, limit: {lock: merchants, id: {json: merchantId}}}
  - name: part
    match: {methods: [POST], path: "/part/{id}"}
    id: {path: id}
    settle: {lock: partial}
    mode: {enforce: 80%%}
  - name: shop
    match: {methods: [POST], path: "/shop/{id}"}
    id: {path: id}
    settle: {lock: settlement}
    answer:
      failed: [{status: [302, 303], header: {location: "/login$"}}, {content_type: text/html, json: {a.b: {exists: false}}}]
      done: [{json: {code: [200, 201], data: {isnt: ~}}}]
`

// nowhere is a Redis that nobody needs.
const nowhere = "addresses: ['127.0.0.1:1']"

func explainConfig(t *testing.T, redis string) string {
	return writeConfig(t, fmt.Sprintf(explained, redis))
}

const (
	formType = "content-type: application/x-www-form-urlencoded"
	jsonType = "content-type: application/json"
)

func TestExplain(t *testing.T) {
	file := explainConfig(t, nowhere)
	tests := []struct {
		name string
		args []string
		want string // lines that have to follow each other, without their line breaks
	}{
		{"lookup", []string{"GET /orders/42"}, `
rule         lookup (lookup, enforce)
found        42 in path segment {id}
order ID     42
verdict      decided at run time, one of:
absent       404, if the filter is certain that there is no such order
maybe        the backend's, if the order may exist
unknown      the backend's, if the filter cannot tell now
reason       the order ID is well-formed: the filter decides`},
		{"settle", []string{"POST /orders/42/settle HTTP/1.1"}, `
request      POST /orders/42/settle
rule         settle (lookup and settle, enforce)
found        42 in path segment {id}
order ID     42
lock key     order:lock:42
verdict      decided at run time, one of:
absent       404, if the filter is certain that there is no such order
busy         409, if another holds the lock past the wait
unavailable  503, if Redis cannot be asked
overloaded   503, if too many settlements are in flight
acquired     the backend's, if the lock is free, or comes free within the wait
reason       the order ID is well-formed: the filter decides, then the lock`},
		{"settle, named in every place",
			[]string{"POST /orders/42/settle?orderId=42", "-H", "X-Order-Id: 42", "-H", "Cookie: a=1; oid=42", "-H", formType, "-d", "x=&orderId=42"}, `
found        42 in path segment {id}
found        42 in query parameter orderId
found        42 in header x-order-id
found        42 in cookie oid
found        42 in form field orderId
order ID     42
lock key     order:lock:42`},
		{"meanings of answers", []string{"POST /shop/42"}, `
reason       the order ID is well-formed: the lock decides
failed if    status 302 or 303 and header location matches /login$
failed if    content_type text/html and json a.b does not exist
done if      json code is 200 or 201 and json data is there, and not null`},
		{"lookup of nothing", []string{"GET /form"}, `
rule         form (lookup, enforce)
verdict      none
status       the backend's
reason       the request names no order, and need not: it goes on, and nothing is looked up`},
		{"lookup of an empty ID", []string{"GET /form?order_id="}, `
verdict      none
status       the backend's
reason       the request names no order, and need not: it goes on, and nothing is looked up`},
		{"number that wraps", []string{"GET /form?order_id=4294967338"}, `
verdict      invalid`},
		{"create", []string{"POST /orders"}, `
rule         create (create, enforce)
verdict      none
status       the backend's
reason       the request goes on, and the new ID is learned from the answer`},
		{"no rule", []string{"GET /"}, `
rule         none
verdict      none
status       the backend's
reason       no rule matches its method, host and path: the request goes on (rules with match.host want -H 'host: ...')`},
		{"exempted", []string{"GET /orders/health"}, `
rule         health (pass)
verdict      none
status       the backend's
reason       the rule exempts it: the request goes on`},
		{"exempted, whatever it has", []string{"GET /orders/health?action=x&_method=PUT"}, "rule         health (pass)"},
		{"host", []string{"POST /coded/A7", "-H", "Host: pay.example:8443"}, `
rule         coded (settle, enforce)
found        A7 in path segment {id}
order ID     A7
lock key     order:lock:A7
verdict      decided at run time, one of:
busy         423, if another holds the lock past the wait`},
		{"canonical", []string{"POST /watched/AAAAAAAA-1111-2222-3333-444444444444"}, `
rule         watched (settle, observe)
found        AAAAAAAA-1111-2222-3333-444444444444 in path segment {id}
order ID     aaaaaaaa-1111-2222-3333-444444444444
lock key     order:lock:aaaaaaaa-1111-2222-3333-444444444444:observe
verdict      decided at run time, one of:
busy         the backend's (409 if it were enforced), if another holds the lock past the wait`},
		{"observed", []string{"POST /watched/AAAAAAAA-1111-22x2-3333-444444444444"}, `
verdict      invalid
status       the backend's (400 if it were enforced)
reason       malformed_id: the order ID is malformed
path         /watched/AAAAAAAA-1111-22x2-3333-444444444444
byte                                  ^ 0x78 'x', offset 25`},
		{"list", []string{"POST /batch", "-H", jsonType, "-d", `{"order":{"ids":[22,"1"]}}`}, `
found        22 in JSON member order.ids
found        1 in JSON member order.ids
order ID     1, 22
lock key     order:lock:1
lock key     order:lock:22`},
		{"list in a text", []string{"POST /text-batch", "-H", jsonType, "-d", `{"ids":"22,1"}`}, `
found        22 in JSON member ids
found        1 in JSON member ids
order ID     1, 22`},
		{"malformed in a text", []string{"POST /text-batch", "-H", jsonType, "-d", `{"ids":"1, 2"}`}, `
body         {"ids":"1, 2"}
byte                   ^ 0x20 ' ', offset 10`},

		{"limit", []string{"POST /limited/42", "-H", jsonType, "-d", `{"merchantId":"7"}`}, `
found        42 in path segment {id}
found        7 in JSON member merchantId, for the limit
order ID     42
lock key     order:lock:42
limit key    merchant:settling:7
verdict      decided at run time, one of:
busy         409, if another holds the lock past the wait, or all permits are taken
unavailable  503, if Redis cannot be asked
overloaded   503, if too many settlements are in flight
acquired     the backend's, if the lock and a permit are free, or come free within the wait
reason       the order ID is well-formed: the lock decides`},
		{"limit, malformed", []string{"POST /limited/42", "-H", jsonType, "-d", `{"merchantId":"07"}`}, `
verdict      invalid
status       400
reason       malformed_limit: the ID that the limit is for is malformed
body         {"merchantId":"07"}
byte                        ^ 0x30 '0', offset 15`},
		{"limit, of the order's form", []string{"POST /limited/042", "-H", jsonType, "-d", `{"merchantId":"07"}`}, "path         /limited/042\nbyte                  ^ 0x30 '0', offset 9"},
		{"limit, missing", []string{"POST /limited/42", "-H", jsonType, "-d", `{}`}, "reason       missing_limit: the request does not have the ID that its limit is for: looked for in JSON merchantId\n"},
		{"limit, twice", []string{"POST /limited/42", "-H", jsonType, "-d", `{"merchantId":7,"merchant_id":8}`}, "reason       json_alias: a member may be read as the order ID\n"},

		{"path parameter", []string{"POST /orders/42;x=1/settle"}, `
verdict      invalid
status       400
reason       malformed_id: the order ID is malformed
path         /orders/42;x=1/settle
byte                   ^ 0x3b ';', offset 10`},
		{"other digits", []string{"GET /orders/4\xd9\xa2?a=1"}, `
found        4\xd9\xa2 in path segment {id}
verdict      invalid
status       400
reason       malformed_id: the order ID is malformed
path         /orders/4\xd9\xa2
byte                  ^ 0xd9, offset 9`},
		{"leading zero", []string{"GET /orders/042"}, "path         /orders/042\nbyte                 ^ 0x30 '0', offset 8"},
		{"too long", []string{"GET /orders/12345678901234567890"}, "byte                                    ^ 0x30 '0', offset 27"},
		{"pattern", []string{"POST /coded/A/", "-H", "host: pay.example"}, "reason       path_near"},
		{"not of the pattern", []string{"POST /coded/a7", "-H", "host: pay.example"}, "path         /coded/a7\npiece               ^ a7, offset 7"},
		{"never in a pattern", []string{"POST /coded/A\"7", "-H", "host: pay.example"}, "path         /coded/A\"7\nbyte                 ^ 0x22 '\"', offset 8"},
		{"doubled slash", []string{"POST //orders/42/settle"}, `
reason       path_near: the path may be read as one that a rule guards
path         //orders/42/settle
byte          ^ 0x2f '/', offset 1`},
		{"other method", []string{"DELETE /orders/42/settle"}, `
reason       other_method: the path is guarded under another method: a rule of its own, or match.other_methods: pass, lets it through
method       DELETE
byte         no single one`},
		{"query separator", []string{"GET /orders/42?a;b"}, "query        a;b\nbyte          ^ 0x3b ';', offset 1"},
		{"parameter alias", []string{"POST /orders/42/settle?a=1&ORDERID=42&b"}, `
reason       parameter_alias: a parameter may be read as the order ID or a route
query        a=1&ORDERID=42&b
piece            ^ ORDERID=42, offset 4`},
		{"form alias", []string{"POST /orders/42/settle", "-H", formType, "-d", "a=1&orderid=42"}, `
reason       parameter_alias: a parameter may be read as the order ID or a route
body         a=1&orderid=42
piece            ^ orderid=42, offset 4`},
		{"header alias", []string{"POST /orders/42/settle", "-H", "a: b", "-H", "X_Order_Id: 42", "-H", "c: d"}, `
reason       header_alias: a header may be read as the order ID
header       x_order_id: 42
piece        ^ x_order_id: 42, offset 0`},
		{"override", []string{"GET /orders/42", "-H", "x-original-url: /admin"}, "header       x-original-url: /admin\n"},
		{"malformed header", []string{"POST /orders/42/settle", "-H", "x-order-id: 4\t2"}, `
found        4\x092 in header x-order-id
verdict      invalid
status       400
reason       malformed_id: the order ID is malformed
header       4\x092
byte          ^ 0x09, offset 1`},
		{"repeated", []string{"POST /orders/42/settle", "-H", "cookie: a=b; oid=42; oid=43"}, `
reason       repeated_id: the order ID is given more than once
cookie       a=b; oid=42; oid=43
piece                         ^ 43, offset 17`},
		{"repeated in list", []string{"POST /batch", "-H", jsonType, "-d", `{"order":{"ids":[1,22,"1"]}}`}, `
reason       repeated_in_list: the list names an order twice
body         {"order":{"ids":[1,22,"1"]}}
piece                               ^ 1, offset 23`},
		{"malformed in list", []string{"POST /batch", "-H", jsonType, "-d", `{"order":{"ids":[1,"2 "]}}`}, `
body         {"order":{"ids":[1,"2 "]}}
byte                              ^ 0x20 ' ', offset 21`},
		{"one too many", []string{"POST /batch", "-H", jsonType, "-d", `{"order":{"ids":[1,2,3,"4"]}}`}, "piece                                ^ 4, offset 24"},
		{"bad JSON, far behind", []string{"POST /batch", "-H", jsonType, "-d", `{"a":"` + strings.Repeat("x", 200) + `"]`}, `
reason       bad_json: the body is not one plain JSON object
body         ...xxxxxxxxxxxxxxxxxxxxxxxxxxxxx"]
byte                                          ^ 0x5d ']', offset 207`},
		{"different", []string{"POST /orders/42/settle?orderId=43"}, `
found        42 in path segment {id}
found        43 in query parameter orderId
verdict      ambiguous
status       400
reason       different_ids: the request names different orders in different places
byte         no single one`},
		{"cut off JSON", []string{"POST /batch", "-H", jsonType, "-d", `{"a":1`}, "body         {\"a\":1\nbyte               ^ the end, offset 6\n"},
		{"no ID but a list of lists", []string{"POST /batch", "-H", jsonType, "-d", `{"order":{"ids":[[1]]}}`}, "byte                          ^ 0x5b '[', offset 17\n"},
		{"encoded", []string{"POST /batch", "-H", jsonType, "-H", "Content-Encoding: gzip", "-d", `{}`}, "header       content-encoding: gzip\n"},
		{"missing", []string{"POST /batch", "-H", jsonType, "-d", `{"order":{}}`}, "reason       missing_id: the request names no order: looked for in JSON order.ids\n"},
		{"no content type", []string{"POST /batch", "-d", `{}`}, "reason       content_type: the content type is not the rule's: there is no content-type header\n"},
		{"too large", []string{"POST /batch", "-H", jsonType, "-d", strings.Repeat(" ", 70<<10)}, "status       413\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := command(t.Context(), append([]string{"explain", "--config", file}, tt.args...)...)
			if code != exitDone || stderr != "" {
				t.Errorf("exit code %d, stderr %q", code, stderr)
			}
			if !strings.Contains(stdout, strings.TrimPrefix(tt.want, "\n")) {
				t.Errorf("got\n%s\nwant%s", stdout, tt.want)
			}
		})
	}
}

func TestExplainRefusesWrongUsage(t *testing.T) {
	file := explainConfig(t, nowhere)
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"nothing", nil, "want one request line, got 0 arguments: quote it"},
		{"not quoted", []string{"GET", "/orders/42"}, "want one request line, got 2 arguments: quote it"},
		{"no method", []string{"/orders/42"}, `"/orders/42" is not METHOD TARGET`},
		{"no slash", []string{"GET orders/42"}, `the target "orders/42" does not begin with /`},
		{"no target", []string{"GET "}, `"GET " is not METHOD TARGET`},
		{"no header", []string{"GET /", "-H", "host"}, `-H "host" is not 'name: value'`},
		{"pseudo header", []string{"GET /", "-H", ":authority: a"}, `-H ":authority: a" is not 'name: value'`},
		{"no file", []string{"GET /", "-d", "@no/such/file"}, "reading -d: open no/such/file"},
		{"no configuration", []string{"GET /", "--config", "no/such/file"}, "no/such/file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := command(t.Context(), append([]string{"explain", "--config", file}, tt.args...)...)
			if code != exitUsage || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, stdout %q, stderr %q, want one line with %q", code, stdout, stderr, tt.want)
			}
		})
	}
}

// explainJSON runs explain --json.
func explainJSON(t *testing.T, stdin io.Reader, args ...string) (e explain.Explanation, raw string) {
	t.Helper()
	var out, errs strings.Builder
	cmd := newCommand(&out, &errs, func(string) string { return "" })
	cmd.SetIn(stdin)
	cmd.SetArgs(append([]string{"explain", "--json"}, args...))
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out.String()), &e); err != nil {
		t.Fatalf("%v in\n%s", err, out.String())
	}
	return e, out.String()
}

// TestExplainJSONKeys holds the keys, which scripts rely on.
func TestExplainJSONKeys(t *testing.T) {
	want := []string{
		"actions", "answers", "because", "byte", "conditions", "enforced", "forgets", "found", "id", "ids", "limit_key", "live", "lock_key", "lock_keys", "method", "mode", "near", "offset", "once_key", "part",
		"part_text", "piece", "possible", "raw_id", "reason", "rule", "share", "status", "stored", "table", "target", "verdict",
	}
	file := explainConfig(t, nowhere)
	for _, line := range []string{"GET /", "GET /orders/42", "POST /orders/4 2/settle", "GET /orders/\xff"} {
		_, raw := explainJSON(t, nil, "--config", file, line)
		var object map[string]any
		if err := json.Unmarshal([]byte(raw), &object); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(object))); diff != "" {
			t.Errorf("%s: keys (-want +got):\n%s", line, diff)
		}
		for key, value := range object {
			switch key {
			case "actions", "forgets", "found", "ids", "lock_keys", "possible":
				if _, ok := value.([]any); !ok {
					t.Errorf("%s: %s is %v, want a list", line, key, value)
				}
			}
		}
	}
	e, _ := explainJSON(t, nil, "--config", file, "GET /orders/\xff")
	if e.Target != `/orders/\xff` || *e.Byte != "0xff" || *e.Offset != 8 || *e.Status != 400 || *e.Reason != "malformed_id" {
		t.Errorf("got %+v", e)
	}
}

func TestExplainData(t *testing.T) {
	file, body := explainConfig(t, nowhere), `{"order":{"ids":[7]}}`
	path := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"as it is": body, "file": "@" + path, "stdin": "@-"} {
		t.Run(name, func(t *testing.T) {
			e, _ := explainJSON(t, strings.NewReader(body), "--config", file, "POST /batch", "-H", jsonType, "-d", data)
			if e.LockKey == nil || *e.LockKey != "order:lock:7" {
				t.Errorf("got %+v", e)
			}
		})
	}
	t.Run("endless", func(t *testing.T) {
		e, _ := explainJSON(t, endless{}, "--config", file, "POST /batch", "-H", jsonType, "-d", "@-")
		if e.Reason == nil || *e.Reason != "body_too_large" {
			t.Errorf("got %+v", e)
		}
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestExplainDecidesAsTheServer compares with the gate that serve builds.
func TestExplainDecidesAsTheServer(t *testing.T) {
	file := explainConfig(t, "mode: embedded")
	c, err := config.Load(file, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	m, err := engine.New(t.Context(), c, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()

	pick := func(t *rapid.T, name string, parts ...string) string { return rapid.SampledFrom(parts).Draw(t, name) }
	rapid.Check(t, func(t *rapid.T) {
		id := pick(t, "ID", "42", "1001", "042", "4%32", "42;x=1", "\xff", "", "A7", "AAAAAAAA-1111-2222-3333-444444444444")
		target := pick(t, "before", "/limited/", "/part/", "/orders/", "/orders/", "/ORDERS/", "//orders/", "/batch", "/watched/", "/coded/", "/x/../orders/", "/index.php") + id +
			pick(t, "after", "", "/settle", "/settle", "/settle/", "?") +
			pick(t, "query", "", "?orderId=42", "?a=1&orderId=43&orderId=1", "?ORDERID=1", "?a;b", "?route=orders", "?_method=PUT")
		line := pick(t, "method", "GET", "POST", "DELETE") + " " + target
		var headers []string
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			headers = append(headers, pick(t, "header", "x-order-id: 42", "X_Order_Id: 1", "cookie: a; oid=42", "cookie: OID=1", formType, jsonType,
				"content-encoding: gzip", "x-original-url: /", "connection: x-order-id", "host: pay.example", "a: b"))
		}
		q, err := explain.New(line, headers)
		if err != nil {
			t.Fatal(err)
		}
		q.Body = []byte(pick(t, "body", "", "a=1&orderId=42", "orderid=4", `{"order":{"ids":[1,2]}}`, `{"order":{"ids":[1,"1"]}}`,
			`{"merchantId":7}`, `{"merchantId":"07"}`, `{"merchantId":7,"MerchantId":7}`, `{"order":{"ids":{}}}`, `{"order":{"ids":[0x1]}}`, `{"ORDER":1}`, strings.Repeat("[", 70), rapid.String().Draw(t, "garbage")))

		e, err := q.Explain(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		seen := q.Request
		if len(seen.Body) == 0 { // ext_authz does not see that there is none
			seen.BodyState = order.BodyUnseen
		}
		d, call := m.Gate().Screen(t.Context(), seen), m.Gate().Open(q.Request)
		if d.Reason == order.NoReason {
			d = m.Gate().Screen(t.Context(), q.Request)
		}
		compareDecision(t, e, &d, call, m.Gate())
		if err := e.Print(io.Discard); err != nil {
			t.Error(err)
		}
		if err := admin.WriteJSON(io.Discard, e); err != nil {
			t.Error(err)
		}
	})
}

func compareDecision(t *rapid.T, e *explain.Explanation, d *gate.Decision, call *gate.Call, g *gate.Gate) {
	if call.NeedsLock != (e.LockKey != nil) || call.NeedsLock && call.Key() != *e.LockKey {
		t.Errorf("lock key %q, explained as %+v", call.Key(), e)
	}
	if call.NeedsLock && (call.LimitKey() != "") != (e.LimitKey != nil) || e.LimitKey != nil && call.LimitKey() != *e.LimitKey {
		t.Errorf("limit key %q, explained as %+v", call.LimitKey(), e)
	}
	verdicts := map[string]bool{}
	for _, p := range e.Possible {
		verdicts[p.Verdict] = true
	}
	switch {
	case d.Rule < 0 && e.Rule != nil && *e.Rule != "health", d.Rule >= 0 && g.Policies()[d.Rule].Rule.Name != *e.Rule:
		t.Errorf("rule %d, explained as %+v", d.Rule, e)
	case (d.Reason == order.NoReason) != (e.Reason == nil), e.Reason != nil && *e.Reason != d.Reason.Name():
		t.Errorf("reason %v, explained as %+v", d.Reason, e)
	case e.Reason != nil && (*e.Verdict != d.Verdict.String() || d.Refused != (e.Status != nil) || *e.Part == ""):
		t.Errorf("verdict %v, refused %v, explained as %+v", d.Verdict, d.Refused, e)
	case d.Rule >= 0 && *e.Enforced == d.Observed:
		t.Errorf("observed %v, explained as %+v", d.Observed, e)
	case d.Verdict == gate.VerdictAbsent && !verdicts["absent"]: // the filter holds nothing
		t.Errorf("verdict %v, explained as %+v", d.Verdict, e)
	case call.NeedsLock && d.Reason == order.NoReason && !(verdicts["acquired"] && verdicts["busy"] && verdicts["unavailable"]):
		t.Errorf("a lock is needed, explained as %+v", e)
	case e.Offset != nil && (*e.Offset < 0 || e.Column > len(*e.PartText)):
		t.Errorf("offset %d, column %d of %s", *e.Offset, e.Column, *e.PartText)
	}
}
