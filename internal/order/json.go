package order

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth bounds the nesting of a body. Parsers of backends have different limits, all of
// them higher.
const maxDepth = 64

// jsonReader reads one JSON object.
type jsonReader struct {
	rule   *compiled
	dec    *jsontext.Decoder
	into   []idText
	m      Match
	reason Reason
}

var errRefused = errors.New("refused")

// readJSON searches a body for the IDs. The body must be one object of RFC 8259, without
// repeated names and without trailing data. readJSON reads all of it: data after the ID can
// change how a backend reads it.
func (r *compiled) readJSON(body []byte, into []idText, m *Match) Reason {
	if r.scanJSON(body, into) {
		return NoReason
	}
	return r.parseJSON(body, into, m)
}

// parseJSON is readJSON with a complete parser.
func (r *compiled) parseJSON(body []byte, into []idText, m *Match) Reason {
	if tooDeep(body) {
		return BadJSON
	}
	// The reader works on copies. So a request without a body needs no heap memory for its
	// own.
	d := &jsonReader{rule: r, dec: jsontext.NewDecoder(bytes.NewBuffer(body)), into: slices.Clone(into), m: *m}
	defer func() {
		copy(into, d.into)
		*m = d.m
	}()
	// The IDs to search for at the top level: all IDs in JSON.
	var here []int
	for i := range r.IDs {
		if r.IDs[i].In == InJSON {
			here = append(here, i)
		}
	}
	err := d.readObject(here, 0)
	if err == nil {
		if _, end := d.dec.ReadToken(); !errors.Is(end, io.EOF) {
			err = errNotPlain
		}
	}
	switch {
	case d.reason != NoReason:
		return d.reason
	case err != nil:
		d.m.Offset = int(d.dec.InputOffset())
		return BadJSON
	}
	return NoReason
}

var errNotPlain = errors.New("not one plain JSON object")

// tooDeep counts brackets outside strings.
func tooDeep(body []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// readObject reads an object. Its members may be step level of the paths of the IDs in
// here.
func (d *jsonReader) readObject(here []int, level int) error {
	t, err := d.dec.ReadToken()
	if err != nil {
		return err
	}
	if t.Kind() != '{' {
		return errNotPlain
	}
	for d.dec.PeekKind() != '}' {
		name, err := d.dec.ReadValue()
		if err != nil {
			return err
		}
		if err := d.readMember(name[1:len(name)-1], here, level); err != nil {
			return err
		}
	}
	_, err = d.dec.ReadToken()
	return err
}

// readMember reads the value of a member. The name is raw, without quotes.
func (d *jsonReader) readMember(name []byte, here []int, level int) error {
	plain := unquoted(name)
	folded := foldName(plain)
	if level == 0 && profiles[d.rule.Backend].members {
		switch {
		case plain == "_method":
			return d.readMethod()
		case d.isDottedPath(plain):
			return d.refuse(JSONAlias)
		}
	}
	var next []int
	for _, i := range here {
		id := &d.rule.IDs[i]
		want := id.Members[level]
		switch {
		case string(name) == want:
			if level+1 < len(id.Members) {
				next = append(next, i)
				continue
			}
			return d.readID(i)
		case folded == foldName(want):
			return d.refuse(JSONAlias)
		}
	}
	switch {
	case len(next) > 0:
		return d.readObject(next, level+1)
	case level == 0 && d.rule.isAlias(folded, InJSON),
		profiles[d.rule.Backend].anyDepth && d.isIDName(folded):
		return d.refuse(JSONAlias)
	}
	return d.skipValue()
}

// readMethod reads the method that some backends use in place of the request's.
func (d *jsonReader) readMethod() error {
	value, err := d.dec.ReadValue()
	if err != nil {
		return err
	}
	if value.Kind() != '"' || !d.rule.AdmitsMethod(string(value[1:len(value)-1])) {
		return d.refuse(MethodOverride)
	}
	return nil
}

// isDottedPath reports whether a name is the whole path of an ID. Some libraries look for
// the whole name first (Arr::get of Laravel, _.get of lodash): for them the member
// "order.id" is the member id of order.
func (d *jsonReader) isDottedPath(name string) bool {
	return strings.Contains(name, ".") && slices.ContainsFunc(d.rule.IDs, func(id ID) bool { return strings.Join(id.Members, ".") == name })
}

// skipValue reads a value without an ID. It refuses an ID's name at any depth, for a
// backend that searches by name alone.
func (d *jsonReader) skipValue() error {
	if !profiles[d.rule.Backend].anyDepth {
		return d.dec.SkipValue()
	}
	depth := d.dec.StackDepth()
	for {
		t, err := d.dec.ReadToken()
		if err != nil {
			return err
		}
		if t.Kind() == '"' && d.isName() && d.isIDName(foldName(t.String())) {
			return d.refuse(JSONAlias)
		}
		if d.dec.StackDepth() == depth {
			return nil
		}
	}
}

// isName reports whether the last token is a member's name.
func (d *jsonReader) isName() bool {
	kind, length := d.dec.StackIndex(d.dec.StackDepth())
	return kind == '{' && length%2 == 1
}

func (d *jsonReader) isIDName(folded string) bool {
	for i := range d.rule.IDs {
		if d.rule.IDs[i].In == InJSON && folded == d.rule.aliases[i] {
			return true
		}
	}
	return false
}

func (d *jsonReader) refuse(r Reason) error {
	d.reason = r
	d.m.Offset = int(d.dec.InputOffset())
	return errRefused
}

// unquoted resolves the escapes in a name.
func unquoted(raw []byte) string {
	if bytes.IndexByte(raw, '\\') >= 0 {
		quoted := append(append([]byte{'"'}, raw...), '"')
		if text, err := jsontext.AppendUnquote(nil, quoted); err == nil {
			raw = text
		}
	}
	return string(raw)
}

// readID records an ID, or a list of IDs.
func (d *jsonReader) readID(i int) error {
	id := &d.rule.IDs[i]
	if id.List {
		return d.readList(id)
	}
	text, err := d.readScalar(id, d.rule.malformed(i))
	if err != nil {
		return err
	}
	d.into[i].text = text
	d.into[i].times++
	d.into[i].offset = int(d.dec.InputOffset()) - len(text)
	return nil
}

// readScalar reads a string without escapes, or a number. The format decides on its bytes
// whether it is an ID.
func (d *jsonReader) readScalar(id *ID, malformed Reason) (string, error) {
	value, err := d.dec.ReadValue()
	if err != nil {
		return "", err
	}
	switch kind := value.Kind(); {
	case kind == '"' && id.JSONType != OnlyNumber && bytes.IndexByte(value, '\\') < 0:
		return string(value[1 : len(value)-1]), nil
	case kind == '0' && id.JSONType != OnlyString:
		return string(value), nil
	}
	return "", d.refuse(malformed)
}

func (d *jsonReader) readList(id *ID) error {
	if id.Separator != "" {
		text, err := d.readScalar(id, MalformedID)
		if err != nil {
			return err
		}
		for text := range strings.SplitSeq(text, id.Separator) {
			if err := d.addToList(id, text); err != nil {
				return err
			}
		}
		return d.sortList()
	}
	t, err := d.dec.ReadToken()
	if err != nil {
		return err
	}
	if t.Kind() != '[' {
		return d.refuse(MalformedID)
	}
	for d.dec.PeekKind() != ']' {
		text, err := d.readScalar(id, MalformedID)
		if err != nil {
			return err
		}
		if err := d.addToList(id, text); err != nil {
			return err
		}
	}
	if err := d.sortList(); err != nil {
		return err
	}
	_, err = d.dec.ReadToken()
	return err
}

func (d *jsonReader) addToList(id *ID, text string) error {
	canonical, ok := id.Format.Canonical(text)
	if !ok || len(d.m.Batch) == id.MaxList {
		return d.refuse(MalformedID)
	}
	d.m.Batch = append(d.m.Batch, canonical)
	return nil
}

func (d *jsonReader) sortList() error {
	slices.Sort(d.m.Batch)
	for i := 1; i < len(d.m.Batch); i++ {
		if d.m.Batch[i] == d.m.Batch[i-1] {
			return d.refuse(RepeatedInList)
		}
	}
	return nil
}
