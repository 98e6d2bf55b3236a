package config

import (
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/headername"
)

// locationDiffers rejects a location that a backend may take for an earlier one of its rule, or that no
// request has together with it. Two entries of an order find the same text, or each refuses the other's
// ID.
func (v *validator) locationDiffers(l location, earlier []location, backend string) {
	for _, e := range earlier {
		bothOfOrder := l.role == ofOrder && e.role == ofOrder
		same := func(key string) bool { return l.key == key && e.key == key }
		switch {
		case bothOfOrder && same(l.key) && l.value == e.value:
			v.reject(l.at(), "%s is also that of %s: name a location once", quote(l.value), e.path)
		case bothOfOrder && same("header") && headername.Equal(l.value, e.value):
			v.reject(l.at(), "%s may be taken for %s of %s, so that a request with either is refused: name the one that clients send",
				quote(l.value), quote(e.value), e.path)
		case bothOfOrder && same("json") && collide(l.value, e.value):
			v.reject(l.at(), "%s collides with %s of %s: give paths that differ in a name, and not by case, _ or - only",
				quote(l.value), quote(e.value), e.path)
		case bothOfOrder:
			continue
		case mayBeTakenFor(l, e, backend):
			v.reject(l.at(), "%s may be taken for %s of %s: %s", quote(l.value), quote(e.value), e.whose(), l.advice)
		case l.key == "json" && e.key == "form" || l.key == "form" && e.key == "json":
			if e.role == ofOrder && slices.ContainsFunc(earlier, func(o location) bool { return o.role == ofOrder && o.key != e.key }) {
				continue // another entry of the order goes with this one
			}
			v.reject(l.at(), "stands in a body of another type than %s: no request has both", e.whose())
		default:
			continue
		}
		return
	}
}

// whose returns the path of the entry, and that it is the order's.
func (e *entry) whose() string {
	if e.role == ofOrder {
		return e.path + ", which is the order's"
	}
	return e.path
}

// mayBeTakenFor reports whether a backend may take the ID at one location for that at another. A
// backend that uses the whole path distinguishes members of the same name in two objects.
func mayBeTakenFor(l, o location, backend string) bool {
	byPath := l.key == "json" && o.key == "json" && (backend == BackendSpring || backend == BackendPHP)
	return l.lastName() == o.lastName() && (!byPath || collide(l.value, o.value))
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
