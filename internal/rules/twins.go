package rules

import (
	"errors"
	"fmt"

	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/spelling"
)

// Twins says that a column takes two IDs for the same order, and what to do.
type Twins struct {
	Column int // of the IDs' columns, with those of their parts before it
	Text   string
}

// FindTwins returns what a database takes for one order and formats for two. Columns are those of
// the IDs, with those of their parts before it.
func FindTwins(formats []order.Format, columns []spelling.Column) (all []Twins, err error) {
	for _, f := range formats {
		parts := []order.Format{f}
		if f.Kind == order.Composed {
			parts = f.Composite.Formats
		}
		if len(parts) != len(columns) {
			continue
		}
		for i := range parts {
			c, part := &columns[i], "id"
			if i < len(columns)-1 {
				part = "part"
			}
			t, err := twinsIn(&parts[i], c)
			if err != nil {
				return nil, err
			}
			if t == nil {
				continue
			}
			remedy := "let its pattern accept one of them"
			switch {
			case c.IsNumber:
				remedy = "write format: digits"
			case t.byCase:
				remedy = "write case: lower"
			}
			all = append(all, Twins{i, fmt.Sprintf("column %s (%s) takes %q and %q for one order, and the rule for two, with a lock and a place in the filter each: %s in the rule's %s",
				c.Name, c.Type, t.one, t.other, remedy, part)})
		}
	}
	return all, nil
}

// twins are two IDs of a format that a column takes for the same.
type twins struct {
	one, other string
	byCase     bool // [order.Format].Case can make one of all such IDs
}

// uuidAsIs matches a UUID with letters of one case.
const uuidAsIs = `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}`

// maxAsked is how many pairs a database is asked about, for one column and format.
const maxAsked = 100

// twinsIn returns two IDs of a format that a column takes for the same; nil: there are none. Numbers have one
// spelling, as have UUIDs in one case.
func twinsIn(f *order.Format, c *spelling.Column) (*twins, error) {
	expr := uuidAsIs
	switch {
	case f.Kind == order.Pattern:
		expr = f.Pattern.String()
	case f.Kind != order.UUID || f.Case != order.AsIs:
		return nil, nil
	}
	find := func(f *order.Format) (*twins, error) {
		var failure error
		asked := 0
		one, other, found, err := spelling.Find(expr, f.Min, f.Case != order.AsIs, &c.Equality, func(one, other string) bool {
			a, isOne := f.Canonical(one)
			b, isOther := f.Canonical(other)
			if !isOne || !isOther || a == b || asked == maxAsked {
				return false
			}
			asked++
			same, err := c.Same(one, other)
			failure = errors.Join(failure, err)
			return same
		})
		if err = errors.Join(failure, err); err != nil || !found {
			return nil, err
		}
		return &twins{one: one, other: other}, nil
	}
	t, err := find(f)
	if t == nil || f.Case != order.AsIs {
		return t, err
	}
	folded := *f
	folded.Case = order.Lower
	if f.Kind == order.Pattern {
		if folded.Pattern, err = order.CompilePattern(expr, order.Lower); err != nil {
			return nil, err
		}
	}
	others, err := find(&folded)
	t.byCase = others == nil
	return t, err
}
