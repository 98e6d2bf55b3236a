package differential

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"unicode/utf16"
)

// formMutations change the body that has the ID and what is said of it.
func formMutations() []mutation {
	inBody := func(d *draft) bool { return len(d.contentTypes) > 0 && d.text() != "" }
	formed := func(d *draft) bool { return len(d.form) > 0 && d.source == inForm }
	return []mutation{
		{"body: content type in other letters", shape, inBody, func(d *draft) {
			d.contentTypes = []string{pick(d.rand, strings.ToUpper(d.contentTypes[0]), d.contentTypes[0]+"; charset=utf-8", d.contentTypes[0]+";CHARSET=\"UTF-8\"", d.contentTypes[0]+" ;charset=utf8")}
		}},
		{"body: content type with more", shape, inBody, func(d *draft) {
			d.contentTypes = []string{d.contentTypes[0] + pick(d.rand, ", text/plain", ";", "; x=1", ";;", "; charset", "\t", "/", "+json", " x", "; boundary=b")}
		}},
		{"body: other content type", shape, inBody, func(d *draft) {
			d.contentTypes = []string{pick(d.rand, "text/plain", "application/x-www-form-urlencoded", "application/json", "text/json", "application/vnd.api+json", "application/xml", "*/*", "application/octet-stream", "x", "")}
		}},
		{"body: no content type", shape, inBody, func(d *draft) { d.contentTypes = nil }},
		{"body: two content types", shape, inBody, func(d *draft) {
			d.contentTypes = pick(d.rand,
				[]string{d.contentTypes[0], "text/plain"}, []string{"text/plain", d.contentTypes[0]}, []string{d.contentTypes[0], d.contentTypes[0]})
		}},
		{"body: charset", shape, inBody, func(d *draft) {
			charset := pick(d.rand, "UTF-16", "UTF-16LE", "UTF-7", "IBM037", "Shift_JIS", "ISO-8859-1", "UTF-32", "x", "cp1047")
			d.contentTypes = []string{d.contentTypes[0] + "; charset=" + charset}
			if d.rand.IntN(2) == 0 {
				d.body, d.form = inCharset(d.text(), charset), nil
			}
		}},
		{"body: charset in the parameters", shape, formed, func(d *draft) {
			d.insert(0, pick(d.rand, "_charset_=UTF-16", "_charset_=UTF-7"))
		}},
		{"body: content encoding", shape, inBody, func(d *draft) {
			coding := pick(d.rand, "gzip", "x-gzip", "deflate", "identity", "br", "gzip, identity", "")
			d.headers = append(d.headers, "Content-Encoding: "+coding)
			if strings.Contains(coding, "gzip") && d.rand.IntN(2) == 0 {
				d.body, d.form = zipped(d.text()), nil
			}
		}},
		{"body: multipart", shape, from(inForm, inQuery), func(d *draft) {
			*d.pairs() = nil
			d.setMultipart(pick(d.rand, "orderId", "orderId[]", "order.id", "ORDERID"), d.number())
		}},
		{"body: multipart beside the query", shape, from(inQuery), func(d *draft) {
			*d.pairs() = []string{"orderId=" + d.other()}
			d.setMultipart("orderId", d.number())
		}},
		{"body: large", shape, formed, func(d *draft) { d.insert(0, "x="+strings.Repeat("a", 100_000)) }},
		{"body: line end", shape, formed, func(d *draft) { d.append(pick(d.rand, "\n", "\r\n", "\x00", " ", "&\n")) }},
		{"body: before the form", shape, formed, func(d *draft) {
			d.form[0] = pick(d.rand, "\ufeff", "?", "\n", " ", "\r\n", "&", "#&") + d.form[0]
		}},
		{"body: another format", shape, formed, func(d *draft) {
			d.body = pick(d.rand, `{"orderId":`+d.number()+`}`, "orderId: "+d.number(), "orderId="+d.number()+"\r\n", "<orderId>"+d.number()+"</orderId>")
		}},
		{"body: form for JSON", shape, from(inJSON), func(d *draft) {
			d.body = ""
			d.setForm("orderId=" + d.number())
			if d.rand.IntN(2) == 0 {
				d.contentTypes = []string{"application/json"}
			}
		}},
		{"body: XML for JSON", shape, from(inJSON), func(d *draft) {
			d.body = "<order><orderId>" + d.number() + "</orderId></order>"
			d.contentTypes = []string{pick(d.rand, "application/xml", "text/xml", "application/json")}
		}},
		{"body: none for JSON, order elsewhere", shape, from(inJSON), func(d *draft) {
			d.body, d.contentTypes = "", nil
			d.elsewhere(d.number())
		}},
		{"body: decoy in JSON, order elsewhere", shape, from(inJSON), func(d *draft) {
			d.body = `{"orderId":` + d.other() + `}`
			d.query = append(d.query, "orderId="+d.number())
		}},
		{"body: broken JSON with the decoy, order elsewhere", shape, from(inJSON), func(d *draft) {
			d.body = `{"orderId":` + d.other() + pick(d.rand, "", ",}", "}}", "} x")
			d.query = append(d.query, "orderId="+d.number())
		}},
		{"body: on a route without", shape, from(inPath, inQuery, inHeader, inCookie), func(d *draft) {
			d.body = pick(d.rand, `{"orderId":`+d.other()+`}`, "orderId="+d.other(), "id="+d.other())
			d.contentTypes = []string{pick(d.rand, "application/json", "application/x-www-form-urlencoded", "text/plain")}
		}},
		{"body: JSON with the order, decoy elsewhere", shape, from(inPath, inQuery, inSnake, inHeader, inCookie, inScript, inFile), func(d *draft) {
			d.id = d.other()
			d.path, d.query, d.cookies, d.headers = "", nil, nil, nil
			d.place()
			name, value := pick(d.rand, "id", "orderId", "order_id", `\u0069d`), pick(d.rand, "%s", `"%s"`)
			d.body = fmt.Sprintf(`{"x":1,"`+name+`":`+value+`}`, d.number())
			d.contentTypes = []string{pick(d.rand, "application/json", "application/vnd.api+json", "text/json")}
		}},
		{"body: JSON with another method", shape, from(inPath, inFile), func(d *draft) {
			method := d.method
			d.method = "POST"
			d.body = pick(d.rand, `{"_method":"`+method+`"}`, `{"\u005fmethod":"`+strings.ToLower(method)+`"}`)
			d.contentTypes = []string{"application/json"}
		}},
		{"body: chunked", framing, nil, func(d *draft) { d.chunked = true }},
	}
}

// text is the body as it will be sent.
func (d *draft) text() string {
	if d.body != "" {
		return d.body
	}
	return strings.Join(d.form, "&")
}

// inCharset encodes ASCII in one of the charsets that the mutation names; in
// those without a case here it is the same.
func inCharset(s, charset string) string {
	var b strings.Builder
	switch charset {
	case "UTF-16", "UTF-16LE":
		for _, u := range utf16.Encode([]rune(s)) {
			pair := []byte{byte(u >> 8), byte(u)}
			if charset == "UTF-16LE" {
				pair[0], pair[1] = pair[1], pair[0]
			}
			b.Write(pair)
		}
	case "UTF-32":
		for _, c := range []byte(s) {
			b.Write([]byte{0, 0, 0, c})
		}
	case "UTF-7":
		return strings.ReplaceAll(s, "4", "+ADQ-")
	case "IBM037", "cp1047":
		for _, c := range []byte(s) {
			b.WriteByte(ebcdic(c))
		}
	default:
		return s
	}
	return b.String()
}

// ebcdic is a character's code in IBM's code pages 037 and 1047, for those that
// a form has.
func ebcdic(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return 0xf0 + c - '0'
	case 'a' <= c && c <= 'i':
		return 0x81 + c - 'a'
	case 'j' <= c && c <= 'r':
		return 0x91 + c - 'j'
	case 's' <= c && c <= 'z':
		return 0xa2 + c - 's'
	case c == 'I':
		return 0xc9
	case c == '=':
		return 0x7e
	case c == '&':
		return 0x50
	}
	return c
}

func zipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(s)); err != nil {
		panic(fmt.Errorf("compressing into memory: %w", err))
	}
	if err := w.Close(); err != nil {
		panic(fmt.Errorf("compressing into memory: %w", err))
	}
	return b.String()
}
