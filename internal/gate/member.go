package gate

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// memberText returns the text of the string or number at a path of object members. It
// refuses a body that repeats a member of the path after it, because parsers differ in
// which one they use. It ignores invalid JSON after the value. It accepts Latin-1 and a
// byte order mark, which old backends write. Its errors quote nothing of the body.
func memberText(body []byte, path []string) (string, error) {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	d := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for _, name := range path {
		if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
			return "", errNotJSON
		}
		if found, err := enterMember(d, name); err != nil {
			return "", err
		} else if !found {
			return "", fmt.Errorf("the answer has no member %q", name)
		}
	}
	t, err := d.ReadToken()
	if err != nil {
		return "", errNotJSON
	}
	text := ""
	switch t.Kind() {
	case '"':
		text = t.String()
	case '0':
		if d.InputOffset() == int64(len(body)) { // the number may continue: an object ends with a brace
			return "", errNotJSON
		}
		text = t.String()
	default:
		return "", fmt.Errorf("member %q of the answer is neither a string nor a number", path[len(path)-1])
	}
	for _, name := range slices.Backward(path) {
		if again, err := enterMember(d, name); err != nil {
			return text, nil // the rest was cut off, or is not JSON
		} else if again {
			return "", fmt.Errorf("the answer has two members %q", name)
		}
	}
	return text, nil
}

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
