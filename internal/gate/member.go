package gate

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// memberText returns the text of the string or number at a path of object
// members. It reads no further than the value, refuses duplicate names and
// invalid UTF-8 on the way there, and quotes nothing of the body in its errors.
func memberText(body []byte, path []string) (string, error) {
	d := jsontext.NewDecoder(bytes.NewReader(body))
	for _, name := range path {
		if err := enterMember(d, name); err != nil {
			return "", err
		}
	}
	t, err := d.ReadToken()
	if err != nil {
		return "", errNotJSON
	}
	switch t.Kind() {
	case '"':
		return t.String(), nil
	case '0':
		if d.InputOffset() == int64(len(body)) { // there may be more of it: an object ends with a brace
			return "", errNotJSON
		}
		return t.String(), nil
	}
	return "", fmt.Errorf("member %q of the answer is neither a string nor a number", path[len(path)-1])
}

var errNotJSON = errors.New("the answer is not JSON")

// enterMember reads an object up to the value of the named member.
func enterMember(d *jsontext.Decoder, name string) error {
	t, err := d.ReadToken()
	if err != nil || t.Kind() != '{' {
		return errNotJSON
	}
	for d.PeekKind() != '}' {
		t, err := d.ReadToken()
		if err != nil {
			return errNotJSON
		}
		if t.String() == name {
			return nil
		}
		if err := d.SkipValue(); err != nil {
			return errNotJSON
		}
	}
	return fmt.Errorf("the answer has no member %q", name)
}
