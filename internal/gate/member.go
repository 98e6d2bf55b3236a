package gate

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// member returns the value at a path of object members, with the kind of its first token; the
// text of an object or an array is "". It refuses a body that repeats a member of the path after
// it, because parsers differ in which one they use. It ignores invalid JSON after the value. It
// accepts Latin-1 and a byte order mark, which old backends write. Its errors quote nothing of
// the body; a [noMember] says that the body has no such member.
func member(body []byte, path []string) (text string, kind jsontext.Kind, err error) {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	d := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for _, name := range path {
		if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
			return "", 0, errNotJSON
		}
		if found, err := enterMember(d, name); err != nil {
			return "", 0, err
		} else if !found {
			return "", 0, noMember(name)
		}
	}
	switch kind = d.PeekKind(); kind {
	case '{', '[':
		err = d.SkipValue()
	default:
		var t jsontext.Token
		if t, err = d.ReadToken(); err == nil {
			text = t.String()
		}
	}
	if err != nil || kind == '0' && d.InputOffset() == int64(len(body)) { // the number may continue: an object ends with a brace
		return "", 0, errNotJSON
	}
	for _, name := range slices.Backward(path) {
		if again, err := enterMember(d, name); err != nil {
			return text, kind, nil // the rest was cut off, or is not JSON
		} else if again {
			return "", 0, fmt.Errorf("the answer has two members %q", name)
		}
	}
	return text, kind, nil
}

// noMember is the name of a member that an answer lacks.
type noMember string

// Error implements error.
func (m noMember) Error() string { return fmt.Sprintf("the answer has no member %q", string(m)) }

var errNotJSON = errors.New("the answer is not JSON")

// enterMember reads an object up to the value of the next member with this name, or to its
// end.
func enterMember(d *jsontext.Decoder, name string) (found bool, err error) {
	for d.PeekKind() != '}' {
		t, err := d.ReadToken()
		if err != nil {
			return false, errNotJSON
		}
		if t.String() == name {
			return true, nil
		}
		if err := d.SkipValue(); err != nil {
			return false, errNotJSON
		}
	}
	_, err = d.ReadToken()
	return false, err
}
