package extauthz

import (
	"bytes"
	"fmt"
	"unsafe"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// Field numbers of envoy.service.auth.v3.CheckRequest and of its parts.
const (
	fieldAttributes = 1 // CheckRequest -> AttributeContext
	fieldRequest    = 4 // AttributeContext -> Request
	fieldHTTP       = 2 // Request -> HttpRequest

	fieldMethod    = 2 // HttpRequest
	fieldHeaders   = 3 // map entries {1: key, 2: value}
	fieldPath      = 4 // with the query
	fieldHost      = 5
	fieldBody      = 11 // a string; fieldRawBody in its place with pack_as_bytes
	fieldRawBody   = 12
	fieldHeaderMap = 13 // config.core.v3.HeaderMap, in place of headers with encode_raw_headers

	fieldHeaderMapHeaders = 1 // repeated HeaderValue
	fieldKey              = 1 // of a map entry and of HeaderValue
	fieldValue            = 2
	fieldRawValue         = 3 // HeaderValue only
)

// check is one CheckRequest: the fields that a decision needs, read without decoding the
// message. It serves one call at a time and keeps its buffer.
type check struct {
	buf       []byte // the message; the other fields point into it
	http      []byte // its HttpRequest
	headerMap []byte // its HeaderMap, with encode_raw_headers
	method    []byte
	path      []byte
	host      []byte
	body      []byte
	hasBody   bool
}

// decode copies the message, a few hundred bytes. The transport reuses its own buffers
// after decode returns.
func (c *check) decode(data mem.BufferSlice) error {
	size := data.Len()
	if cap(c.buf) < size {
		c.buf = make([]byte, size)
	}
	*c = check{buf: c.buf[:size]}
	data.CopyTo(c.buf)
	return c.parse()
}

// parse walks down to the HTTP request. A message without one is valid, and matches no
// rule.
func (c *check) parse() error {
	request := c.buf
	var err error
	for _, number := range [...]protowire.Number{fieldAttributes, fieldRequest, fieldHTTP} {
		if request, err = lastField(request, number); err != nil {
			return fmt.Errorf("reading CheckRequest: %w", err)
		}
	}
	c.http = request
	return each(c.http, func(number protowire.Number, value []byte) {
		switch number {
		case fieldMethod:
			c.method = value
		case fieldPath:
			c.path = value
		case fieldHost:
			c.host = value
		case fieldHeaderMap:
			c.headerMap = value
		case fieldBody, fieldRawBody:
			c.body, c.hasBody = value, true
		}
	})
}

// headerPartial is the header that Envoy adds to a check whose body it has cut
// (allow_partial_message).
const headerPartial = "x-envoy-auth-partial-body"

// request returns the request of the check. Its strings share the check's buffer, which
// saves copies. Nothing changes that buffer before the check is answered.
func (c *check) request() order.Request {
	req := order.Request{Method: text(c.method), Host: text(c.host), Target: text(c.path), Header: c}
	if c.hasBody {
		req.Body, req.BodyState = c.body, order.BodyComplete
		if c.isPartial() {
			req.BodyState = order.BodyCut
		}
	}
	return req
}

func (c *check) isPartial() bool {
	for name, value := range order.All(c) {
		if name == headerPartial && value == "true" {
			return true
		}
	}
	return false
}

// mayForge reports whether forged may return anything. The name of each forged header
// contains "ordergate", in the lower case that Envoy gives all names. A search for the
// rarest letter of that word costs a tenth of a check of each header.
func (c *check) mayForge() bool {
	const before, after = "order", "gate"
	for rest := c.buf; ; {
		at := bytes.IndexByte(rest, after[0])
		if at < 0 {
			return false
		}
		if start := len(c.buf) - len(rest) + at - len(before); start >= 0 && bytes.HasPrefix(c.buf[start:], []byte(before+after)) {
			return true
		}
		rest = rest[at+1:]
	}
}

// forged is [gate.Forged]. It includes a verdict that was sent more than once: Envoy would
// overwrite only the first.
func (c *check) forged() []string {
	names, verdicts := gate.Forged(c), 0
	for name := range order.All(c) {
		if name == gate.HeaderVerdict {
			verdicts++
		}
	}
	if verdicts > 1 {
		names = append(names, gate.HeaderVerdict)
	}
	return names
}

// Next implements order.Header. The cursor is an offset into the part of the message with
// the headers. An earlier walk through it found no error.
func (c *check) Next(cursor int) (name, value string, next int) {
	message, want := c.http, protowire.Number(fieldHeaders)
	if c.headerMap != nil {
		message, want = c.headerMap, fieldHeaderMapHeaders
	}
	for cursor < len(message) {
		number, wireType, n := protowire.ConsumeTag(message[cursor:])
		if n < 0 {
			return "", "", -1
		}
		size := protowire.ConsumeFieldValue(number, wireType, message[cursor+n:])
		if size < 0 {
			return "", "", -1
		}
		field := message[cursor+n : cursor+n+size]
		cursor += n + size
		if number == want && wireType == protowire.BytesType {
			entry, _ := protowire.ConsumeBytes(field)
			key, v := keyValue(entry)
			return text(key), text(v), cursor
		}
	}
	return "", "", -1
}

func keyValue(entry []byte) (key, value []byte) {
	_ = each(entry, func(number protowire.Number, field []byte) {
		switch {
		case number == fieldKey:
			key = field
		case number == fieldValue, number == fieldRawValue:
			if len(field) > 0 {
				value = field
			}
		}
	})
	return key, value
}

// lastField returns the last occurrence of a length-delimited field, nil if there is none.
// (Protobuf merges occurrences of a message field; no encoder splits one.)
func lastField(message []byte, want protowire.Number) (field []byte, err error) {
	err = each(message, func(number protowire.Number, value []byte) {
		if number == want {
			field = value
		}
	})
	return field, err
}

// each calls see with every length-delimited field of a message, and skips other fields.
func each(message []byte, see func(protowire.Number, []byte)) error {
	for len(message) > 0 {
		number, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if wireType != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, wireType, message); n < 0 {
				return protowire.ParseError(n)
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		see(number, value)
		message = message[n:]
	}
	return nil
}

func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
