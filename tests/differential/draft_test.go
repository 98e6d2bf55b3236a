package differential

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// source is where a route of the backends has its order ID.
type source string

// The sources, each with routes of its own, since one path falls under one rule.
const (
	inPath   source = "path"   // /orders/{id} and /orders/{id}/settle
	inQuery  source = "query"  // /query/order and /query/settle, and so on below
	inForm   source = "form"   // application/x-www-form-urlencoded
	inJSON   source = "json"   // {"orderId": 42}
	inHeader source = "header" // X-Order-Id
	inCookie source = "cookie" // orderId
	inSnake  source = "snake"  // order_id in the query, a name that PHP makes of others
	inScript source = "script" // /index.php?action=settle&id=42
	inFile   source = "file"   // /shop/index.php?id=42 and /shop/settle.php?id=42, scripts of their own

	newAtPath   source = "new"        // POST /orders: creates, whose order the backend chooses
	newByScript source = "new-script" // POST /index.php?action=create
	newByFile   source = "new-file"   // POST /shop/create.php
)

// sourcesOf returns the sources of a backend: the last three are those of PHP behind a web server.
func sourcesOf(front bool) []source {
	all := []source{inPath, inQuery, inForm, inJSON, inHeader, inCookie}
	if front {
		all = append(all, inSnake, inScript, inFile)
	}
	return all
}

// isServed reports whether a backend has a route. Lookups by a body want Envoy to show it,
// which it does not do for front controllers: they are tested with the example as it is.
func isServed(s source, settle, front bool) bool {
	return settle || !front || s != inForm && s != inJSON
}

// ways are the values of x-way that the Spring applications know for a source:
// how the handler takes its ID.
var ways = map[source][]string{
	inPath:   {"long", "string", "model"},
	inQuery:  {"long", "string", "list", "model"},
	inForm:   {"long", "string", "list", "model"},
	inJSON:   {"long", "model", "lenient"},
	inHeader: {"long", "string", "list"},
	inCookie: {"long", "string"},
	inSnake:  {"long"},
	inScript: {"long"},
	inFile:   {"long"},

	newAtPath: {"long"}, newByScript: {"long"}, newByFile: {"long"},
}

// draft is a request in the making: its parts in the spelling of the wire, for
// mutations to change before they are put together.
type draft struct {
	rand   *rand.Rand
	source source
	settle bool
	order  int64  // what the request aims at
	decoy  int64  // what a part that the gate may look at says instead
	way    string // x-way

	id     string              // the order as it is spelt, before the encoding of its place
	escape func(string) string // that encoding, for a path, query or form

	method       string
	path         string
	query        []string // pairs
	cookies      []string // pairs
	form         []string // pairs, when body is empty
	body         string
	contentTypes []string
	headers      []string // whole lines
	version      string   // "HTTP/1.1", or what [overHTTP2] is
	chunked      bool
	alone        bool // what follows on the connection can't be told apart: it needs one of its own
}

// number is the plain spelling of the order that the request aims at.
func (d *draft) number() string { return strconv.FormatInt(d.order, 10) }

// other is the plain spelling of the decoy.
func (d *draft) other() string { return strconv.FormatInt(d.decoy, 10) }

// newDraft returns the plain request for an order in a source.
func newDraft(r *rand.Rand, s source, settle bool, order, decoy int64, way string) *draft {
	d := &draft{rand: r, source: s, settle: settle, order: order, decoy: decoy, way: way, version: "HTTP/1.1"}
	d.id = d.number()
	d.escape = pick(r, escapeAll, escapeFew)
	d.method = "POST"
	if strings.HasPrefix(string(s), "new") {
		d.headers = []string{"x-new: " + d.number()}
	}
	if !settle && s != inForm && s != inJSON {
		d.method = "GET"
	}
	return d
}

// action is the last word of a route that has its ID elsewhere.
func (d *draft) action() string {
	if d.settle {
		return "settle"
	}
	return "order"
}

// verb is what the front controller calls the route.
func (d *draft) verb() string {
	if d.source == newByScript {
		return "create"
	}
	if d.settle {
		return "settle"
	}
	return "show"
}

// script is the path of the script that does it.
func (d *draft) script() string {
	if d.settle {
		return "/shop/settle.php"
	}
	return "/shop/index.php"
}

// place puts the ID where the source has it.
func (d *draft) place() {
	d.path = "/" + string(d.source) + "/" + d.action()
	switch d.source {
	case inPath:
		d.path = d.pathOf(d.escape(d.id))
	case inQuery:
		d.query = append(d.query, "orderId="+d.escape(d.id))
	case inSnake:
		d.query = append(d.query, "order_id="+d.escape(d.id))
	case inScript:
		d.path = "/index.php"
		d.query = append(d.query, "action="+d.verb(), "id="+d.escape(d.id))
	case inFile:
		d.path = d.script()
		d.query = append(d.query, "id="+d.escape(d.id))
	case newAtPath:
		d.path = "/orders"
	case newByFile:
		d.path = "/shop/create.php"
	case newByScript:
		d.path = "/index.php"
		d.query = append(d.query, "action="+d.verb())
	case inForm:
		d.form = append(d.form, "orderId="+d.escape(d.id))
		d.contentTypes = []string{"application/x-www-form-urlencoded"}
	case inJSON:
		d.body = `{"orderId":` + d.jsonValue() + `}`
		d.contentTypes = []string{"application/json"}
	case inHeader:
		d.headers = append(d.headers, "X-Order-Id: "+d.id)
	case inCookie:
		d.cookies = append(d.cookies, "orderId="+d.id)
	}
}

// pathOf is the path of the route that has the ID in it, for any text there.
func (d *draft) pathOf(id string) string {
	if d.settle {
		return "/orders/" + id + "/settle"
	}
	return "/orders/" + id
}

// jsonValue spells the ID as JSON, or as what may pass for it.
func (d *draft) jsonValue() string {
	if d.rand.IntN(2) == 0 {
		return d.id
	}
	return `"` + strings.NewReplacer(`"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(d.id) + `"`
}

// pairs is the list that has the ID, nil where it stands alone.
func (d *draft) pairs() *[]string {
	switch d.source {
	case inQuery, inSnake, inScript, inFile:
		return &d.query
	case inForm:
		return &d.form
	case inCookie:
		return &d.cookies
	default:
		return nil
	}
}

// bytes puts the request together.
func (d *draft) bytes(name string) string {
	var b strings.Builder
	target := d.path
	if len(d.query) > 0 {
		target += "?" + strings.Join(d.query, "&")
	}
	fmt.Fprintf(&b, "%s %s %s\r\nHost: orders\r\nx-case: %s\r\nx-way: %s\r\n", d.method, target, d.version, name, d.way)
	if len(d.cookies) > 0 {
		fmt.Fprintf(&b, "Cookie: %s\r\n", strings.Join(d.cookies, "; "))
	}
	for _, h := range d.headers {
		b.WriteString(h + "\r\n")
	}
	body := d.body
	if body == "" {
		body = strings.Join(d.form, "&")
	}
	if body != "" {
		for _, t := range d.contentTypes {
			b.WriteString("Content-Type: " + t + "\r\n")
		}
	}
	switch {
	// The chunks of a lookup's GET are announced to nobody: docs/order-ids.md has that.
	case d.chunked && body != "" && (d.settle || d.method != "GET"):
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		at := d.rand.IntN(len(body)) // an empty chunk would be the last one
		for _, part := range []string{body[:at], body[at:]} {
			if part != "" {
				fmt.Fprintf(&b, "%x\r\n%s\r\n", len(part), part)
			}
		}
		b.WriteString("0\r\n\r\n")
	case body != "" || d.method == "POST":
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	default:
		b.WriteString("\r\n")
	}
	return b.String()
}

// escapeAll escapes every byte that is not unreserved (RFC 3986, section 2.3).
func escapeAll(s string) string { return escapeUnless(s, "-._~") }

// escapeFew escapes what a request line can't have, and a % of its own.
func escapeFew(s string) string { return escapeUnless(s, "-._~!$&'()*+,;=:@\"<>[]^`{|}\\") }

// escapeNone leaves every byte as it is, so that the server has to judge it.
func escapeNone(s string) string { return s }

func escapeUnless(s, safe string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(safe, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }
