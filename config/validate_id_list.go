package config

import (
	"strings"

	"github.com/ordergate/ordergate/internal/headername"
)

// locationsDiffer rejects an entry whose location overlaps with that of an earlier entry of its
// rule. Both entries would find the same text, or each would refuse the other's ID.
func (v *validator) locationsDiffer(places, earlier []idLocation) {
	for _, p := range places {
		for _, e := range earlier {
			at := join(p.entry, p.key)
			if p.key == e.key && p.name == e.name {
				v.reject(at, "%s is also that of %s: name a location once", quote(p.name), e.entry)
				break
			}
			if p.key == "header" && e.key == "header" && headername.Equal(p.name, e.name) {
				v.reject(at, "%s may be taken for %s of %s, so that a request with either is refused: name the one that clients send",
					quote(p.name), quote(e.name), e.entry)
				break
			}
			if p.key == "json" && e.key == "json" && collide(p.name, e.name) {
				v.reject(at, "%s collides with %s of %s: give paths that differ in a name, and not by case, _ or - only",
					quote(p.name), quote(e.name), e.entry)
				break
			}
		}
	}
}

// collide reports whether a rule cannot have both JSON paths. Either one path is a prefix of the
// other, or their first different names are spellings of the same name.
func collide(a, b string) bool {
	namesA, namesB := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(namesA), len(namesB)) {
		if namesA[i] != namesB[i] {
			return squash(namesA[i]) == squash(namesB[i])
		}
	}
	return true
}

// idsAgree rejects an entry that no request can use. If an entry has its ID in the path, each
// request has that ID, and the IDs at all other locations must equal it.
func (v *validator) idsAgree(path string, ids []ID) {
	inPath := -1
	for i, id := range ids {
		if id.Path != "" {
			inPath = i
			break
		}
	}
	if inPath < 0 {
		return
	}
	always := v.idPath(path, inPath, len(ids))
	for i, id := range ids {
		switch here := v.idPath(path, i, len(ids)); {
		case i == inPath, id.Path == ids[inPath].Path: // locationsDiffer reports equal locations
		case id.Path != "":
			v.reject(here+".path", "%s is a second segment beside that of %s: each request has both, and is refused unless they are equal: name the one that is the order",
				quote(id.Path), always)
		case areDisjoint(id, ids[inPath]):
			v.reject(here, "no ID fits both this format and that of %s, which each request has: a request with both is refused; give both one format, or remove this", always)
		}
	}
}

// areDisjoint reports whether no text can be an ID of both entries. It compares only formats
// and lengths.
func areDisjoint(a, b ID) bool {
	if a.Format == FormatPattern || b.Format == FormatPattern {
		return false
	}
	if a.Format == FormatUUID || b.Format == FormatUUID {
		return a.Format != b.Format
	}
	return a.MaxLength < b.MinLength || b.MaxLength < a.MinLength
}
