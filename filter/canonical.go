package filter

// CanonicalForms returns the canonical forms of an ID by the rules that look it up, each
// once: the first, and the others if the rules differ. A filter and a set in Redis each convert
// an ID when they take it. Callers pass IDs as they came, and the change log has them so:
// instances may have different rules. The function must be safe for concurrent use.
type CanonicalForms func(id string) (first string, others []string)

// All returns the forms of several IDs. A nil CanonicalForms returns the IDs unchanged.
func (c CanonicalForms) All(ids []string) []string {
	if c == nil {
		return ids
	}
	all := make([]string, 0, len(ids))
	for _, id := range ids {
		c.each(id, func(form string) { all = append(all, form) })
	}
	return all
}

// each calls do with each form of one ID.
func (c CanonicalForms) each(id string, do func(form string)) {
	if c == nil {
		do(id)
		return
	}
	first, others := c(id)
	do(first)
	for _, other := range others {
		do(other)
	}
}
