package config

import (
	"slices"
	"strings"
)

// limit checks the limit of a rule with settle.
func (v *validator) limit(path string, r Rule) {
	l, at := r.Settle.Limit, path+".settle.limit"
	if l == nil {
		return
	}
	if l.Lock != "" {
		lock, defined := v.config.Locks[l.Lock]
		switch {
		case defined && lock.Kind != LockSemaphore && !v.unusable("locks."+l.Lock):
			v.reject(at+".lock", "%s is of kind %s: a limit takes one of kind %s", quote(l.Lock), lock.Kind, LockSemaphore)
		case l.Lock == r.Settle.Lock:
			v.reject(at+".lock", "%s is the lock of the order: a limit takes another", quote(l.Lock))
		}
	}
	at += ".id"
	if !v.given(at) && v.given(path) {
		v.rejectMissing(path+".settle.limit", []string{"id"}, "id is missing: name the location of the ID that is limited")
		return
	}
	places := v.locationsOf(at, l.ID)
	if len(places) == 0 {
		v.rejectNoLocation(at)
	}
	v.location(at, places, r.Match.Path)
	if l.ID.List {
		v.reject(at+".list", "is not for a limit: it is for one ID")
	}
	if l.ID.Optional {
		v.reject(at+".optional", "is for create only: a limit needs an ID")
	}
	v.format(at, l.ID)
	v.limitDiffers(path, places, r)
}

// limitDiffers rejects the ID of a limit if a backend may confuse it with the order's ID, or if
// no request can contain both.
func (v *validator) limitDiffers(path string, places []idLocation, r Rule) {
	if len(places) != 1 {
		return
	}
	p := places[0]
	orders := v.orderPlaces(path, &r)
	if i := slices.IndexFunc(orders, func(o idLocation) bool { return mayBeTakenFor(p, o, r.Backend) }); i >= 0 {
		v.reject(join(p.entry, p.key), "%s may be taken for %s of %s, which is the order's: limit by an ID of another name",
			quote(p.name), quote(orders[i].name), orders[i].entry)
		return
	}
	for _, o := range v.partPlaces(path, &r) {
		if mayBeTakenFor(p, o, r.Backend) {
			v.reject(join(p.entry, p.key), "%s may be taken for %s of %s: limit by an ID of another name", quote(p.name), quote(o.name), o.entry)
			return
		}
	}
	forms, jsons := countBodies(orders)
	if n := len(r.IDs); p.key == "json" && forms == n && n > 0 || p.key == "form" && jsons == n && n > 0 {
		v.reject(join(p.entry, p.key), "stands in a body of another type than the order's ID: no request has both")
	}
}

// bound are the characters that PHP and Spring rewrite in names.
var bound = strings.NewReplacer(".", "", " ", "", "[", "")

// lastName returns the last name of a location, folded into the form in which backends may
// confuse it with another. Package order folds names in the same way.
func lastName(p idLocation) string {
	name := p.name
	if p.key == "json" {
		name = name[strings.LastIndexByte(name, '.')+1:]
	}
	name = strings.TrimSpace(name)
	if open := strings.IndexByte(name, '['); open >= 0 && strings.IndexByte(name[open:], ']') >= 0 {
		name = name[:open]
	}
	return squash(bound.Replace(name))
}
