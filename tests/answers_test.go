package tests

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// scripted is an order service that answers with the very bytes that a test has for the
// number in the query (?n=7), and then closes the connection.
type scripted struct {
	listener net.Listener
	wg       sync.WaitGroup
	answers  []string
}

func newScripted(t testing.TB, answers []string) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	b := &scripted{listener: l, answers: answers}
	b.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.wg.Go(func() { b.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		b.wg.Wait()
	})
	return b
}

func (b *scripted) addr() string { return b.listener.Addr().String() }

// serve answers one request. Without a number it is a lookup, of an order that there is.
func (b *scripted) serve(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return // Envoy's connection came to nothing
	}
	_, _ = io.Copy(io.Discard, r.Body)
	answer := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	if n, err := strconv.Atoi(r.URL.Query().Get("n")); err == nil {
		answer = b.answers[n]
	}
	_, _ = io.WriteString(conn, answer)
	_ = conn.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, conn) // until Envoy has read it all
}

// spelling is a way to name the order %N in an answer.
type spelling struct {
	name   string
	path   string // of the rule that creates it
	head   string // lines of the answer's header
	body   string
	coding func(string) string // nil: none
}

const other = "77" // stands before a number for another order that an answer names

// spellings are ways in which backends name a new order. Learned are those that the rules
// read; of the others nobody can tell which order it is.
func spellings() (learned, doubtful []spelling) {
	json := func(name, body string) spelling { return spelling{name: name, path: "/json", body: body} }
	at := func(name string, lines ...string) spelling {
		return spelling{name: name, path: "/at", head: strings.Join(lines, "\r\n") + "\r\n"}
	}
	learned = []spelling{
		json("a number", `{"orderId":%N}`),
		json("a string", `{"orderId":"%N"}`),
		json("escaped", `{"\u006frderId":"\u0031%T"}`),
		json("behind others", `{"a":[{"orderId":1}],"b":{"orderId":2},"orderId":%N}`),
		json("another name in other letters", `{"orderID":1,"OrderId":2,"orderId":%N}`),
		json("a byte order mark", "\ufeff"+`{"orderId":%N}`),
		json("Latin-1", "{\"name\":\"M\xfcller\",\"orderId\":%N}"),
		json("blanks", "\r\n\t {\r\n \"orderId\" :\t%N }\r\n\r\n"),
		json("text behind", `{"orderId":%N}<br>Warning`),
		json("large", `{"padding":"`+strings.Repeat("x", 300_000)+`","orderId":%N}`),
		{name: "nested", path: "/nested", body: `{"id":1,"data":{"order":{"id":%N}}}`},
		at("absolute", "Location: https://shop.example/orders/%N"),
		at("relative", "Location: /orders/%N"),
		at("blanks around", "Location: \t/orders/%N \t"),
		at("twice the same", "Location: /orders/%N", "Location: /orders/%N"),
		at("in other letters", "LOCATION: /orders/%N"),
		at("with a comma before", "Location: /a,b/orders/%N"),
		at("two, the first elsewhere", "Location: /login", "Location: /orders/%N"),
		{name: "in a header", path: "/header", head: "X-New-Order: %N\r\n"},
		{name: "in a header twice", path: "/header", head: "X-New-Order: %N\r\nX-New-Order: %N\r\n"},
	}
	doubtful = []spelling{
		json("an exponent", `{"orderId":%Ne0}`),
		json("a fraction", `{"orderId":%N.0}`),
		json("a leading zero", `{"orderId":"0%N"}`),
		json("blanks in the string", `{"orderId":" %N"}`),
		json("twice", `{"orderId":%N,"orderId":`+other+`%N}`),
		json("twice, and then text", `{"orderId":%N,"x":1,"orderId":`+other+`%N}<br>`),
		json("twice, once escaped", `{"orderId":%N,"\u006frderId":`+other+`%N}`),
		json("in an array", `[{"orderId":%N}]`),
		json("in a string", `"{\"orderId\":%N}"`),
		json("as an object", `{"orderId":{"$numberLong":"%N"}}`),
		json("null", `{"orderId":null,"id":%N}`),
		json("under another name", `{"order_id":%N}`),
		json("a number that is too large", `{"orderId":1%N9223372036854775807}`),
		json("with a prefix", `)]}',`+"\n"+`{"orderId":%N}`),
		json("as a call", `callback({"orderId":%N})`),
		json("text before", `<br>Warning: x{"orderId":%N}`),
		json("XML", `<orderId>%N</orderId>`),
		json("UTF-16", "\xff\xfe{\x00}\x00"),
		json("empty", ""),
		json("cut off", `{"orderId":%N`),
		json("two objects", `{"status":"new"}{"orderId":%N}`),
		{name: "nested twice", path: "/nested", body: `{"data":{"order":{"id":%N}},"data":{"order":{"id":` + other + `%N}}}`},
		{name: "nested, once without", path: "/nested", body: `{"data":{"order":{}},"data":{"order":{"id":%N}}}`},
		{name: "nested, twice within", path: "/nested", body: `{"data":{"order":{"id":%N},"order":{"id":` + other + `%N}}}`},
		{name: "gzip", path: "/json", head: "Content-Encoding: gzip\r\n", body: `{"orderId":%N}`, coding: zipped},
		{name: "gzip, unannounced", path: "/json", body: `{"orderId":%N}`, coding: zipped},
		{name: "deflate", path: "/json", head: "Content-Encoding: deflate\r\n", body: `{"orderId":%N}`, coding: deflated},
		{name: "br", path: "/json", head: "Content-Encoding: br\r\n", body: "\x8b\x07\x80{\"orderId\":%N}\x03"},
		at("with a query", "Location: /orders/%N?new=1"),
		at("with a fragment", "Location: /orders/%N#top"),
		at("with a slash", "Location: /orders/%N/"),
		at("escaped", "Location: /orders/%31%T"),
		at("elsewhere", "Location: /login"),
		at("none", "X: 1"),
		at("two", "Location: /orders/%N", "Location: /orders/"+other+"%N"),
		at("two in other letters", "location: /orders/%N", "Location: /orders/"+other+"%N"),
		at("two, the last elsewhere", "Location: /orders/%N", "Location: /login"),
		at("three", "Location: /orders/%N", "Location: /orders/"+other+"%N", "Location: /orders/"+other+other+"%N"),
		at("two in one", "Location: /orders/%N, /orders/"+other+"%N"),
		{name: "two headers", path: "/header", head: "X-New-Order: %N\r\nX-New-Order: " + other + "%N\r\n"},
		{name: "two in one header", path: "/header", head: "X-New-Order: %N,%N\r\n"},
	}
	return learned, doubtful
}

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

func deflated(text string) string {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestSpeed)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// framings are ways to send an answer.
var framings = []struct {
	name  string
	frame func(status, head, body string) string
}{
	{"with its length", func(status, head, body string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s", status, head, len(body), body)
	}},
	{"in chunks", func(status, head, body string) string {
		return "HTTP/1.1 " + status + "\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n" + chunks(body) + "0\r\n\r\n"
	}},
	{"with trailers", func(status, head, body string) string {
		return "HTTP/1.1 " + status + "\r\n" + head + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(body) + "0\r\nX-Sum: 1\r\nLocation: /orders/1\r\n\r\n"
	}},
	{"of HTTP/1.0, up to the end", func(status, head, body string) string {
		return "HTTP/1.0 " + status + "\r\n" + head + "\r\n" + body
	}},
	{"up to the end", func(status, head, body string) string {
		return "HTTP/1.1 " + status + "\r\n" + head + "\r\n" + body
	}},
	{"after 100", func(status, head, body string) string {
		return fmt.Sprintf("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s", status, head, len(body), body)
	}},
	{"after 102 and 103", func(status, head, body string) string {
		return fmt.Sprintf("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </orders/1>\r\nLocation: /orders/1\r\n\r\nHTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s", status, head, len(body), body)
	}},
	{"cut off", func(status, head, body string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s", status, head, len(body)+1000, body)
	}},
}

// chunks cuts a body in pieces.
func chunks(body string) string {
	var b strings.Builder
	for body != "" {
		n := min(len(body), 7+len(body)/3)
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String()
}

// answerRules create orders in each way in which an answer can name one.
const answerRules = `  - {name: json, match: {methods: [POST], path: /json}, id: {format: digits}, create: {filter: orders, learn: {response_json: orderId}}}
  - {name: nested, match: {methods: [POST], path: /nested}, id: {format: digits}, create: {filter: orders, learn: {response_json: data.order.id}}}
  - {name: header, match: {methods: [POST], path: /header}, id: {format: digits}, create: {filter: orders, learn: {response_header: x-new-order}}}
  - name: at
    match: {methods: [POST], path: /at}
    id: {format: digits}
    create: {filter: orders, learn: {response_header: Location, pattern: "/orders/([0-9]+)$"}}
  - name: order-create
`

// TestAnswersOfCreates has creates answered in every way. Each order that a client may have
// been told of is learned, or there is a doubt.
func TestAnswersOfCreates(t *testing.T) {
	t.Parallel()
	type made struct {
		name, path string
		id         string
		doubtful   bool
	}
	var all []made
	var answers []string
	add := func(s spelling, doubtful bool, status string, frame func(status, head, body string) string, how string) {
		id := fmt.Sprint(100_000 + len(all)) // it begins with 1
		fill := strings.NewReplacer("%N", id, "%T", id[1:])
		body := fill.Replace(s.body)
		if s.coding != nil {
			body = s.coding(body)
		}
		all = append(all, made{s.name + ", " + status + " " + how, s.path, id, doubtful})
		answers = append(answers, frame(status, fill.Replace(s.head)+"Connection: close\r\n", body)) // Envoy may not use it again
	}
	learned, doubtful := spellings()
	for i, s := range append(append([]spelling{}, learned...), doubtful...) {
		for j, f := range framings {
			plain := s.name == "a number" || s.name == "absolute" || s.name == "in a header"
			if !plain && (f.name == "cut off" || (i+j)%3 > 0) { // the doubt of one that is cut off lasts for 10 s
				continue
			}
			status := []string{"201 Created", "200 OK", "303 See Other", "202 Accepted"}[(i+j)%4]
			add(s, i >= len(learned) || f.name == "cut off", status, f.frame, f.name)
		}
	}
	b := newScripted(t, answers)
	s := newStack(t, settings{
		backend: b.addr(), orders: 10, envoy: unhurried(t),
		gate: edit(t, "  - name: order-create\n", answerRules, "sources: [seed]", "sources: [seed]\n    stale_after: 60s"),
	})
	for i, m := range all {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		got, err := s.send(ctx, "POST", fmt.Sprintf("%s?n=%d", m.path, i), "")
		cancel()
		if err != nil || got.status == 502 { // cut off: the client may hear of the end before ordergate does, and not of the order
			bedtest.Eventually(t, "the order is not refused: "+m.name, func() bool { return s.must("GET", "/orders/"+m.id, "").status == 200 })
		}
		named := []string{m.id}
		if strings.Contains(answers[i], other+m.id) {
			named = append(named, other+m.id)
		}
		for _, id := range named {
			if a := s.must("GET", "/orders/"+id, ""); a.status != 200 {
				t.Errorf("%s: %d, order %s is %d %q (%v)\n\t%.300q", m.name, got.status, id, a.status, a.verdict, err, answers[i])
			}
		}
		certain := s.must("GET", "/orders/9999", "").status == 404
		if !certain && !m.doubtful {
			t.Errorf("%s: there is a doubt (%v)\n\t%.300q", m.name, err, answers[i])
		}
		if !certain {
			s.reload(t)
		}
	}
}

// reload has ordergate read its sources again, until nothing is in doubt.
func (s *stack) reload(t testing.TB) {
	t.Helper()
	bedtest.Eventually(t, "the doubt is cleared", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.GateAddr(s.gate, "admin")+"/filters/orders/load", nil)
		must(t, err)
		response, err := client.Do(req)
		must(t, err)
		_ = response.Body.Close()
		return s.must("GET", "/orders/9999", "").status == 404
	})
}
