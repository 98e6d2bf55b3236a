package config

import "strconv"

// maxCapacity is 10^11, a terabit of bits at ten an ID: past what one process holds.
const maxCapacity = 100_000_000_000

func (v *validator) filter(path, name string, f Filter) {
	v.choice(path+".kind", f.Kind, FilterLocal, FilterExact)
	between(v, path+".capacity", f.Capacity, 1, maxCapacity)
	between(v, path+".false_positive_rate", f.FalsePositiveRate, 1e-9, 0.5)
	v.choice(path+".freshness", f.Freshness, FreshnessBarrier, FreshnessNone)
	v.layout(path, f)
	v.segments(path+".segments", name, f.Segments)
	v.expand(path+".expand", f)
	seen := make(map[string]bool)
	for i, name := range f.Sources {
		at := path + ".sources[" + strconv.Itoa(i) + "]"
		if seen[name] {
			v.refute(at, "%s is given twice: name a source once", quote(name))
		} else {
			reference(v, at, "sources", name, v.config.Sources)
		}
		seen[name] = true
	}
}

func (v *validator) source(path string, s Source) {
	if !v.required(path, "kind", s.Kind, "the kind of source, "+SourceCSV) {
		return
	}
	v.choice(path+".kind", s.Kind, SourceCSV)
	if s.Kind == SourceCSV {
		v.required(path, "path", s.Path, "the path of a file with one ID a line")
	}
}
