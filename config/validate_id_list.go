package config

import "strings"

// locationsDiffer refuses an entry that looks where an earlier one of its rule
// looks: both find the same text, or refuse what the other looks for.
func (v *validator) locationsDiffer(places, earlier []idLocation) {
	for _, p := range places {
		for _, e := range earlier {
			at := join(p.entry, p.key)
			if p.key == e.key && p.name == e.name {
				v.reject(at, "%s is also that of %s: name a place once", quote(p.name), e.entry)
				break
			}
			if p.key == "header" && e.key == "header" && foldHeader(p.name) == foldHeader(e.name) {
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

// collide reports whether two JSON paths cannot both be looked for: one leads
// through what is the other's ID, or through a name that the other takes for a
// different spelling of its own.
func collide(a, b string) bool {
	namesA, namesB := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(namesA), len(namesB)) {
		if namesA[i] != namesB[i] {
			return squash(namesA[i]) == squash(namesB[i])
		}
	}
	return true
}

// foldHeader brings the name of a header into the form that CGI makes of it (RFC 3875,
// 4.1.18): whatever is neither a letter nor a digit is one character.
func foldHeader(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(name))
}

// idsAgree refuses an entry that no request can use: the path always has its ID, with which
// that of every other place has to agree.
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
		case i == inPath, id.Path == ids[inPath].Path: // placesDiffer tells of the same one
		case id.Path != "":
			v.reject(here+".path", "%s is a second segment beside that of %s: each request has both, and is refused unless they are equal: name the one that is the order",
				quote(id.Path), always)
		case areDisjoint(id, ids[inPath]):
			v.reject(here, "no ID fits both this format and that of %s, which each request has: a request with both is refused; give both one format, or remove this", always)
		}
	}
}

// areDisjoint reports whether no text is an ID of both, as far as formats and lengths tell.
func areDisjoint(a, b ID) bool {
	if a.Format == FormatPattern || b.Format == FormatPattern {
		return false
	}
	if a.Format == FormatUUID || b.Format == FormatUUID {
		return a.Format != b.Format
	}
	return a.MaxLength < b.MinLength || b.MaxLength < a.MinLength
}
