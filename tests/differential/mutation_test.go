package differential

import "slices"

// mutation is one class of what clients do to a request so that two readers
// take it for two orders.
type mutation struct {
	name  string // "the part of the request: what is odd about it"
	stage stage
	fits  func(*draft) bool // nil fits every draft
	apply func(*draft)
}

// stage says when a mutation is applied.
type stage int8

// The stages, in order.
const (
	spelling stage = iota // changes id, or how it is escaped, before it is put in its place
	shape                 // changes the parts of the request
	framing               // changes what surrounds them, whatever they are
)

// mutations are all classes.
func mutations() []mutation {
	return slices.Concat(
		numberMutations(), pathMutations(), parameterMutations(), overrideMutations(), phpMutations(),
		formMutations(), jsonMutations(), headerMutations(), cookieMutations(), methodMutations(),
	)
}

// apply changes the draft by mutations that fit it and returns the names of
// those that did: one may keep another from fitting.
func apply(d *draft, chosen []mutation) (names []string) {
	chosen = slices.Clone(chosen)
	slices.SortStableFunc(chosen, func(a, b mutation) int { return int(a.stage) - int(b.stage) })
	placed := false
	for _, m := range chosen {
		if m.stage > spelling && !placed {
			d.place()
			placed = true
		}
		if m.fits == nil || m.fits(d) {
			m.apply(d)
			names = append(names, m.name)
		}
	}
	if !placed {
		d.place()
	}
	return names
}

// from makes a condition on the source.
func from(sources ...source) func(*draft) bool {
	return func(d *draft) bool { return slices.Contains(sources, d.source) }
}
