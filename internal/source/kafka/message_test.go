package kafka

import (
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/orderid"
)

// TestMessages has messages as Canal and Debezium write them, and others.
func TestMessages(t *testing.T) {
	rows := Options{Format: Canal, Table: "shop.orders", ID: []string{"order_id"}}
	objects := Options{Format: JSON, ID: []string{"order", "id"}}
	tenants := Options{Format: Debezium, ID: []string{"order_id"}, Parts: [][]string{{"tenant"}}}
	canal := func(kind, rest string) string {
		return `{"data":[{"order_id":"42","note":"a"},{"order_id":"43"}],"database":"shop","es":1,"id":7,"isDdl":false,"old":null,` +
			`"table":"orders","type":"` + kind + `"` + rest + `}`
	}
	event := func(op, after string) string {
		return `{"before":null,"after":` + after + `,"source":{"connector":"mysql","db":"shop","table":"orders"},"op":"` + op + `","ts_ms":1}`
	}
	for _, tt := range []struct {
		name    string
		opts    Options
		message string
		want    string // IDs with blanks between them
		reason  string
	}{
		{"canal insert", rows, canal("INSERT", ""), "42 43", ""},
		{"canal update", rows, canal("UPDATE", ""), "42 43", ""},
		{"canal delete", rows, canal("DELETE", ""), "", ""},
		{"canal truncate", rows, `{"data":null,"isDdl":true,"type":"TRUNCATE","table":"orders","database":"shop","sql":"truncate orders"}`, "", ""},
		{"canal, of another table", rows, strings.Replace(canal("INSERT", ""), `"orders"`, `"items"`, 1), "", ""},
		{"canal, of another database", rows, strings.Replace(canal("INSERT", ""), `"shop"`, `"test"`, 1), "", ""},
		{"canal, one row of two without an ID", rows, strings.Replace(canal("INSERT", ""), `"42"`, `null`, 1), "43", "order_id is neither a text nor a number"},
		{"canal without data", rows, `{"type":"INSERT","table":"orders","database":"shop","isDdl":false}`, "", "its data are no list of rows"},

		{"debezium create", rows, event("c", `{"order_id":42,"note":null}`), "42", ""},
		{"debezium snapshot", rows, event("r", `{"order_id":9223372036854775807}`), "9223372036854775807", ""},
		{"debezium update", rows, event("u", `{"order_id":"a-1"}`), "a-1", ""},
		{"debezium delete", rows, event("d", `null`), "", ""},
		{"debezium truncate", rows, event("t", `null`), "", ""},
		{"debezium with its schema", rows, `{"schema":{"type":"struct"},"payload":` + event("c", `{"order_id":42}`) + `}`, "42", ""},
		{"debezium of PostgreSQL", rows, `{"after":{"order_id":42},"op":"c","source":{"db":"erp","schema":"shop","table":"orders"}}`, "42", ""},
		{"debezium, of another table", rows, strings.Replace(event("c", `{"order_id":42}`), `"orders"`, `"items"`, 1), "", ""},
		{"debezium without a row", rows, event("c", `null`), "", "order_id is missing: there is no object"},
		{"debezium, a decimal in bytes", rows, event("c", `{"order_id":{"scale":0,"value":"Kg=="}}`), "", "order_id is neither a text nor a number"},
		{"with a part", tenants, event("c", `{"order_id":42,"tenant":"acme"}`), "acme/42", ""},
		{"without its part", tenants, event("c", `{"order_id":42,"tenant":""}`), "", "tenant is empty, or has a slash"},
		{"a slash in a part", tenants, event("c", `{"order_id":42,"tenant":"a/b"}`), "", "tenant is empty, or has a slash"},

		{"a tombstone", rows, "", "", ""},
		{"a null", rows, "null", "", ""},
		{"an object of neither", rows, `{"order_id":42}`, "", "it is neither a message of Canal nor one of Debezium"},
		{"no JSON", rows, `{"order_id":`, "", "it is no message of canal-json: invalid JSON at byte 12"},
		{"a list", rows, `[1]`, "", "it is no message of canal-json: its member \"\" has another type than it should"},

		{"an object", objects, `{"order":{"id":"42"}}`, "42", ""},
		{"a number", objects, `{"order":{"id":12345678901234567890123}}`, "12345678901234567890123", ""},
		{"a float", objects, `{"order":{"id":42.0}}`, "42", ""},
		{"an exponent", objects, `{"order":{"id":4.2e1}}`, "42", ""},
		{"a fraction", objects, `{"order":{"id":42.5}}`, "", "order.id is a number with a fraction"},
		{"a large exponent", objects, `{"order":{"id":1e999999999}}`, "", "order.id is a number of too many digits"},
		{"a small exponent", objects, `{"order":{"id":1e-999999999}}`, "", "order.id is a number of too many digits"},
		{"no member", objects, `{"order":{}}`, "", "order.id is missing"},
		{"no object", objects, `{"order":7}`, "", "order.id is missing: there is no object"},
		{"a bool", objects, `{"order":{"id":true}}`, "", "order.id is neither a text nor a number"},
		{"no ID", objects, `{"order":{"id":""}}`, "", "empty"},
		{"10 MB", objects, `{"x":"` + strings.Repeat("x", 10<<20) + `","order":{"id":42}}`, "42", ""},
		{"deep", objects, strings.Repeat(`{"order":`, 9000) + "1" + strings.Repeat("}", 9000), "", "order.id is missing"},
		{"too deep", objects, strings.Repeat(`[`, 20000), "", "order.id is missing: there is no object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.opts.Check = orderid.Check[string]
			ids, reason := tt.opts.idsIn([]byte(tt.message))
			if got := strings.Join(ids, " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if (reason == "") != (tt.reason == "") || !strings.Contains(reason, tt.reason) {
				t.Errorf("reason %q, want %q", reason, tt.reason)
			}
		})
	}
}

// FuzzMessage has any message: an ID that comes out passes the check.
func FuzzMessage(f *testing.F) {
	formats := []Format{Canal, Debezium, JSON}
	f.Add(uint8(0), []byte(`{"data":[{"id":"1"}],"type":"INSERT","table":"t","database":"d"}`))
	f.Add(uint8(1), []byte(`{"payload":{"op":"c","after":{"id":1}}}`))
	f.Add(uint8(2), []byte(`{"id":4.2e1}`))
	f.Fuzz(func(t *testing.T, format uint8, message []byte) {
		opts := Options{Format: formats[int(format)%len(formats)], ID: []string{"id"}, Check: orderid.Check[string]}
		ids, _ := opts.idsIn(message)
		if i := slices.IndexFunc(ids, func(id string) bool { return orderid.Check(id) != "" }); i >= 0 {
			t.Errorf("%q is no ID", ids[i])
		}
	})
}
