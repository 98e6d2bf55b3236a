package order

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/orderid"
)

// Separator separates the parts of a composed ID. No format accepts it in a part or in an
// ID, so two different orders never have the same composed ID.
const Separator = "/"

// Part is something that an order's ID is unique within: a tenant, for example. Each
// request of the rule must name it.
type Part struct {
	Name string
	ID   ID // where the part is, and what it looks like; read as strictly as the order's ID
}

// Prefix returns the parts of a composed ID, each with a separator behind it; "" for an ID
// without parts.
func Prefix(id string) string { return id[:strings.LastIndex(id, Separator)+1] }

// PartAt returns a part of a composed ID by its index; that behind the last part is the order's
// own ID. Of an ID without parts, it is the ID at index 0.
func PartAt(id string, index int) string {
	for ; index > 0; index-- {
		_, id, _ = strings.Cut(id, Separator)
	}
	part, _, _ := strings.Cut(id, Separator)
	return part
}

// checkParts refuses a part if a backend may take it for the order's ID, or for another
// part. It also refuses parts that make composed IDs longer than any ID may be.
func (r *Rule) checkParts() error {
	longest := 0
	for i := range r.Parts {
		p := &r.Parts[i]
		if p.ID.List {
			return fmt.Errorf("part %s: it is one text, not a list", p.Name)
		}
		if err := p.ID.check(); err != nil {
			return fmt.Errorf("part %s: %w", p.Name, err)
		}
		if slices.ContainsFunc(r.IDs, func(id ID) bool { return r.mayConfuse(&id, &p.ID) }) {
			return fmt.Errorf("part %s may be taken for the order's ID: their names are alike", p.Name)
		}
		for _, other := range r.Parts[:i] {
			if r.mayConfuse(&other.ID, &p.ID) {
				return fmt.Errorf("part %s may be taken for part %s: their names are alike", p.Name, other.Name)
			}
		}
		longest += p.ID.Format.longest() + len(Separator)
	}
	for i := range r.IDs {
		if n := longest + r.IDs[i].Format.longest(); n > orderid.MaxBytes && len(r.Parts) > 0 {
			return fmt.Errorf("an ID with its parts may have %d bytes: at most %d are allowed", n, orderid.MaxBytes)
		}
	}
	return nil
}

// mayConfuse reports whether a backend may take one ID of a request for the other. A
// backend that uses the whole path distinguishes members of the same name in two objects.
func (r *Rule) mayConfuse(a, b *ID) bool {
	if a.check() != nil || b.check() != nil || a.alias() != b.alias() {
		return false
	}
	return a.In != InJSON || b.In != InJSON || profiles[r.Backend].anyDepth || slices.Equal(a.Members, b.Members)
}

// compose puts the parts in front of the match's IDs. A request without one of them is
// refused.
func (r *compiled) compose(into []idText, s *headerFacts, m *Match) {
	if m.Result != Named && m.Result != Anonymous {
		return
	}
	var values, texts [maxIDs]string
	for i := range r.Parts {
		f, ok := &into[r.orders+i], false
		if f.times == 1 {
			values[i], ok = r.Parts[i].ID.Format.Canonical(f.text)
			texts[i] = f.text
		}
		if ok {
			continue
		}
		m.ID, m.Batch = "", nil
		switch f.times {
		case 0:
			m.refuse(Invalid, MissingPart)
			return
		case 1:
			m.Offset = f.offset
			m.refuse(Invalid, MalformedPart)
			return
		}
		m.refuse(Ambiguous, RepeatedPart)
		return
	}
	if s.partClaim.made && !r.agrees(values[:len(r.Parts)], s.partClaim.value) {
		m.ID, m.Batch = "", nil
		m.refuse(Ambiguous, s.partClaim.in.alias())
		return
	}
	id := m.ID
	if len(m.Batch) > 0 {
		id = m.Batch[0]
	}
	full := ""
	if len(r.Parts) == 1 {
		full = values[0] + Separator + id // one allocation, for the ID and its prefix
	} else {
		full = strings.Join(append(values[:len(r.Parts)], id), Separator)
	}
	canonical := full[:len(full)-len(id)]
	m.Prefix = canonical
	if parts := texts[:len(r.Parts)]; !slices.Equal(parts, values[:len(r.Parts)]) {
		m.Prefix = strings.Join(parts, Separator) + Separator
	}
	if m.Result == Anonymous {
		return
	}
	if m.ID = full; m.Text != "" || m.Prefix != canonical {
		m.Text = m.Prefix + cmp.Or(m.Text, id)
	}
	for i, id := range m.Batch {
		m.Batch[i] = canonical + id
	}
}

// agrees reports whether a claimed part is one of the request's parts.
func (r *compiled) agrees(values []string, claimed string) bool {
	for i := range values {
		if value, ok := r.Parts[i].ID.Format.Canonical(claimed); ok && value == values[i] {
			return true
		}
	}
	return false
}

// foreignPartNames returns the folded names by which other rules read a part, if the rule has
// parts and its backend may merge all names. A name that other rules read an order by is
// among the foreign names.
func (t *Table) foreignPartNames(r *compiled) (names []string) {
	for o, j := range t.foreignParts(r) {
		if name := o.aliases[j]; !slices.Contains(r.aliases, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// foreignParts is foreignOrders for the parts of rules with parts.
func (t *Table) foreignParts(r *compiled) iter.Seq2[*compiled, int] {
	return func(yield func(*compiled, int) bool) {
		if len(r.Parts) == 0 || !profiles[r.Backend].parameters {
			return
		}
		for i := range t.rules {
			o := &t.rules[i]
			for j := o.orders; !o.Pass && j < o.orders+len(o.Parts); j++ {
				if !yield(o, j) {
					return
				}
			}
		}
	}
}

// malformed returns the reason to refuse a malformed ID.
func (r *compiled) malformed(i int) Reason {
	switch {
	case i == r.limit:
		return MalformedLimit
	case r.isOrder(i):
		return MalformedID
	}
	return MalformedPart
}

// Composite is the format of a composed ID.
type Composite struct {
	Formats []Format // of the parts, in their order, and then of the order's ID
}

// ComposedOf returns the format of IDs with parts. It must be checked by the formats' own
// rules before.
func ComposedOf(parts []Format, id Format) Format {
	if len(parts) == 0 {
		return id
	}
	return Format{Kind: Composed, Composite: &Composite{append(slices.Clip(parts), id)}}
}

// OfID returns the format of the order's ID alone.
func (f *Format) OfID() *Format {
	if f.Kind != Composed {
		return f
	}
	return &f.Composite.Formats[len(f.Composite.Formats)-1]
}

var errNoComposite = errors.New("a composed ID without parts")

func (c *Composite) check() error {
	if c == nil || len(c.Formats) < 2 {
		return errNoComposite
	}
	for i := range c.Formats {
		if c.Formats[i].Kind == Composed {
			return errNoComposite
		}
		if err := c.Formats[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Composite) canonical(text string) (string, bool) {
	rest, changed, last := text, false, len(c.Formats)-1
	for i := range c.Formats {
		one, tail, more := strings.Cut(rest, Separator)
		canonical, ok := c.Formats[i].Canonical(one)
		if !ok || more != (i < last) {
			return "", false
		}
		changed = changed || canonical != one
		rest = tail
	}
	if !changed {
		return text, true
	}
	texts := strings.Split(text, Separator)
	for i := range texts {
		texts[i], _ = c.Formats[i].Canonical(texts[i])
	}
	return strings.Join(texts, Separator), true
}

// withoutParts returns the order's own ID.
func withoutParts(id string) string { return id[len(Prefix(id)):] }

// longest returns the length of the longest ID of the format, in bytes.
func (f *Format) longest() int {
	switch f.Kind {
	case UUID:
		return uuidBytes
	case Hashed:
		return hashedBytes
	}
	return f.Max
}
