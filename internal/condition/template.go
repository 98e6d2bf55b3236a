package condition

import (
	"cmp"
	"strings"

	"github.com/ordergate/ordergate/internal/order"
)

// Template is a text with places for the order's ID, the parts of a composed ID, and headers. Nil
// is "".
type Template []Part

// Part is a part of a [Template]: a text, a part of the order's ID, or a header.
type Part struct {
	Text   string
	ID     bool
	Index  int    // of ID: which part of a composed ID, as in [order.PartAt]
	Header int    // the index of the header's value, from 1; 0: none
	Name   string // of the part or the header, for [Template.String]; "" of ID: the order's own ID
}

// Expand returns the text for an order. The ID is composed if the rule has parts.
func (t Template) Expand(id string, headers []string) string {
	if len(t) == 1 && !t[0].ID && t[0].Header == 0 {
		return t[0].Text
	}
	var b strings.Builder
	for i := range t {
		switch p := &t[i]; {
		case p.ID:
			b.WriteString(order.PartAt(id, p.Index))
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
			b.WriteString("{" + cmp.Or(p.Name, "id") + "}")
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
		if t[i].ID && t[i].Name == "" { // all orders of a request have the same parts
			return true
		}
	}
	return false
}
