package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/headername"
	"github.com/ordergate/ordergate/internal/lazyregexp"
)

const (
	maxIDs = 8 // entries; the gate searches each request of the rule for each of them

	defaultIDBody = 64 << 10 // bytes
	maxJSONNames  = 32       // in a path; half of the depth that a body may have
)

var (
	// parameterName matches names that no backend turns into another name. PHP, for example,
	// turns a dot into an underscore.
	parameterName = lazyregexp.New(`^[A-Za-z0-9_-]{1,128}$`)
	// headerName matches a token (RFC 9110, 5.6.2) of at most 128 bytes.
	headerName = lazyregexp.New("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")
	// memberName matches names that need no escapes in JSON. The gate compares names as the
	// rule has them.
	memberName = lazyregexp.New(`^[^\x00-\x1f"\\]+$`)
)

// idKeys are the keys of an entry that locate an ID.
var idKeys = []string{"path", "query", "header", "json", "form", "cookie"}

const oneLocation = "give exactly one of path, query, header, json, form, cookie"

// role is what the ID of an entry is.
type role struct{ none, advice, list, optional string } // messages

var (
	ofOrder = &role{
		none:     "does not name the ID's location: " + oneLocation,
		list:     "is for lookup and settle only: a create makes one order",
		optional: "is for lookup and create only: settle needs an ID",
	}
	ofPart = &role{
		none:     "says not where the part is: " + oneLocation,
		advice:   "locate the part by another name",
		list:     "is not for a part, which is one text: remove it",
		optional: "is not for a part, which each request has: remove it",
	}
	ofToken = &role{none: "names no place: give exactly one of query, header, json, form, cookie", advice: "give another name"}
	ofLimit = &role{
		none:     ofOrder.none,
		advice:   "limit by an ID of another name",
		list:     "is not for a limit: it is for one ID",
		optional: "is for create only: a limit needs an ID",
	}
)

// entry is an ID of a rule. The path is that in the file, and the name that in the key of the lock.
type entry struct {
	path, name, lock string
	id               *ID
	*role
}

// entries returns the IDs of a rule: those of the order, its parts, what settle.by has in place of them,
// and that of a limit. Bounds limit the comparisons of each with the others.
func (d *document) entries(path string, r *Rule) (all []*entry) {
	for i := range r.IDs[:min(len(r.IDs), maxIDs)] {
		all = append(all, &entry{d.idPath(path, i, len(r.IDs)), partID, r.OrderLock(), &r.IDs[i], ofOrder})
	}
	for _, name := range r.PartNames() {
		part := r.Parts[name]
		all = append(all, &entry{join(path+".parts", name), name, r.OrderLock(), &part, ofPart})
	}
	if r.Settle == nil {
		return all
	}
	for i, p := range r.Settle.By[:min(len(r.Settle.By), maxParts)] {
		id := p.ID()
		all = append(all, &entry{fmt.Sprintf("%s.settle.by[%d]", path, i), "", r.OrderLock(), &id, ofToken})
	}
	if l := r.Settle.Limit; l != nil {
		all = append(all, &entry{path + ".settle.limit.id", partID, l.Lock, &l.ID, ofLimit})
	}
	return all
}

// location is where an entry has its ID: a key, such as query, and its value.
type location struct {
	*entry
	key, value string
}

func (l location) at() string { return join(l.path, l.key) }

// lastName returns the last name of a location, folded into the form in which backends may
// confuse it with another. Package order folds names in the same way.
func (l location) lastName() string {
	name := l.value
	if l.key == "json" {
		name = name[strings.LastIndexByte(name, '.')+1:]
	}
	name = strings.TrimSpace(name)
	if open := strings.IndexByte(name, '['); open >= 0 && strings.IndexByte(name[open:], ']') >= 0 {
		name = name[:open]
	}
	return squash(bound.Replace(name))
}

// bound are the characters that PHP and Spring rewrite in names.
var bound = strings.NewReplacer(".", "", " ", "", "[", "")

// headerNames rejects names that are none, and those that are given in two cases. It returns the
// others, in order.
func (v *validator) headerNames(path string, headers map[string]string) (names []string) {
	for _, name := range sortedKeys(headers) {
		switch {
		case !headerName.MatchString(name):
			v.reject(path, "%s is not a name of a header", quote(name))
		case name != strings.ToLower(name):
			v.reject(path, "%s is given twice, in another case", quote(name))
		default:
			names = append(names, name)
		}
	}
	return names
}

// locations returns the locations that an entry names. A valid entry has exactly one. Only the
// single entry of a create rule may have none.
func (v *validator) locations(e *entry) (all []location) {
	for _, l := range [...]location{
		{e, "path", e.id.Path}, {e, "query", e.id.Query}, {e, "header", e.id.Header},
		{e, "json", e.id.JSON}, {e, "form", e.id.Form}, {e, "cookie", e.id.Cookie},
	} {
		if l.value != "" || v.givenIn(e.path, l.key) {
			all = append(all, l)
		}
	}
	return all
}

// ids checks the IDs of a rule without pass, and returns their locations.
func (v *validator) ids(path string, r *Rule, entries []*entry) (all []location) {
	needed := r.Create == nil && !r.IsBy() && (r.Once == nil || r.Lookup != nil || r.Settle != nil) && !v.unusable(path+".create") && !v.discarded[path+".pass"]
	if at := path + ".id"; len(r.IDs) == 0 && needed && !v.given(at) {
		v.rejectMissing(at, idKeys, "%s", ofOrder.none)
	}
	for _, e := range entries {
		isOrder := e.role == ofOrder
		if limit := path + ".settle.limit"; e.role == ofLimit && v.given(limit) && !v.given(e.path) {
			v.rejectMissing(limit, []string{"id"}, "id is missing: name the location of the ID that is limited")
			continue
		}
		here := v.locations(e)
		if len(here) == 0 && (!isOrder || needed || len(r.IDs) > 1) {
			v.rejectMissing(e.path, idKeys, "%s", e.none)
		}
		v.location(e.path, here, r.Match.Path)
		for _, l := range here {
			v.locationDiffers(l, all, r.Backend)
		}
		all = append(all, here...)
		if e.id.List && (!isOrder || r.Create != nil) {
			v.reject(e.path+".list", "%s", e.list)
		}
		if e.id.Optional && (!isOrder || r.Settle != nil) {
			v.reject(e.path+".optional", "%s", e.optional)
		} else if isOrder && e.id.Optional != r.IDs[0].Optional {
			v.reject(e.path+".optional", "differs from that of %s: give all entries of a rule the same", v.idPath(path, 0, len(r.IDs)))
		}
		if e.role != ofToken {
			v.format(e)
		}
	}
	v.idsAgree(path, r.IDs[:min(len(r.IDs), maxIDs)])
	return all
}

// location checks the locations that an entry names.
func (v *validator) location(path string, all []location, template string) {
	if len(all) > 1 {
		keys := make([]string, len(all))
		for i, l := range all {
			keys[i] = l.key
		}
		v.reject(path, "has %s: %s", strings.Join(keys, " and "), oneLocation)
	}
	for _, l := range all {
		if l.key == "path" && template != "" && templateProblem(template) == "" && !strings.Contains(template+"/", "/{"+l.value+"}/") {
			v.reject(l.at(), "%s is not a {name} in match.path %s", quote(l.value), quote(template))
		}
	}
}

func isMemberPath(path string) bool {
	names := strings.Split(path, ".")
	wrong := func(name string) bool { return !memberName.MatchString(name) }
	return len(path) <= maxJSONPath && len(names) <= maxJSONNames && !slices.ContainsFunc(names, wrong)
}

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
		here := func() string { return v.idPath(path, i, len(ids)) }
		switch {
		case i == inPath, id.Path == ids[inPath].Path: // locationsDiffer reports equal locations
		case id.Path != "":
			v.reject(here()+".path", "%s is a second segment beside that of %s: each request has both, and is refused unless they are equal: name the one that is the order",
				quote(id.Path), always)
		case areDisjoint(id, ids[inPath]):
			v.reject(here(), "no ID fits both this format and that of %s, which each request has: a request with both is refused; give both one format, or remove this", always)
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
