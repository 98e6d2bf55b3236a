package condition

import "strings"

// Template is a text with places for the order's ID and for headers. Nil is "".
type Template []Part

// Part is a part of a [Template]: a text, the order's ID, or a header.
type Part struct {
	Text   string
	ID     bool
	Header int    // the index of the header's value, from 1; 0: none
	Name   string // of the header, for [Template.String]
}

// Expand returns the text for an order.
func (t Template) Expand(id string, headers []string) string {
	if len(t) == 1 && !t[0].ID && t[0].Header == 0 {
		return t[0].Text
	}
	var b strings.Builder
	for i := range t {
		switch p := &t[i]; {
		case p.ID:
			b.WriteString(id)
		case p.Header > 0:
			b.WriteString(headers[p.Header-1])
		default:
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// String returns the template as the configuration has it.
func (t Template) String() string {
	var b strings.Builder
	for i := range t {
		switch p := &t[i]; {
		case p.ID:
			b.WriteString("{id}")
		case p.Header > 0:
			b.WriteString("{header:" + p.Name + "}")
		default:
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

func (t Template) namesOrder() bool {
	for i := range t {
		if t[i].ID {
			return true
		}
	}
	return false
}
