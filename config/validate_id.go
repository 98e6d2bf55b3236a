package config

import (
	"regexp"
	"slices"
	"strings"
)

const (
	maxIDs       = 8       // entries: each is looked for in every request of the rule
	maxIDList    = 1000    // IDs: each is looked up, or locked, for one request
	maxIDBody    = 1 << 20 // bytes: a body is held in memory while it is read
	maxJSONNames = 32      // in a path: half of how deep a body may nest
)

var (
	// What no backend folds with another name; a dot, say, is an underscore to PHP.
	parameterName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	// A token of RFC 9110, 5.6.2, within reason.
	headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")
	// What JSON has no need to escape: names are compared as they are written.
	memberName = regexp.MustCompile(`^[^\x00-\x1f"\\]+$`)
)

// idLocation is where an ID stands: a key of an entry, which goes by its path, and
// its value.
type idLocation struct{ entry, key, name string }

// locationsOf returns the places that an entry names. More or fewer than one are a
// mistake, but for the entry of a create that has none.
func (v *validator) locationsOf(path string, id ID) []idLocation {
	places := []idLocation{
		{path, "path", id.Path}, {path, "query", id.Query}, {path, "header", id.Header},
		{path, "json", id.JSON}, {path, "form", id.Form}, {path, "cookie", id.Cookie},
	}
	return slices.DeleteFunc(places, func(p idLocation) bool { return p.name == "" && !v.given(join(path, p.key)) })
}

// ids checks the entries of a rule, which is not one that passes.
func (v *validator) ids(path string, r Rule) {
	at, n := path+".id", len(r.IDs)
	needed := r.Create == nil && !v.unusable(path+".create") && !v.discarded[path+".pass"]
	switch {
	case n > maxIDs:
		v.reject(at, "has %d entries: at most %d are allowed", n, maxIDs)
	case n == 0 && v.given(at):
		v.reject(at, "is empty: say where the ID is, or remove it in a rule with create")
	case n == 0 && needed:
		v.rejectNoLocation(at)
	}
	var earlier []idLocation
	for i, id := range r.IDs[:min(n, maxIDs)] { // each is compared with those before it
		here := v.idPath(path, i, n)
		places := v.locationsOf(here, id)
		if len(places) == 0 && (needed || n > 1) {
			v.rejectNoLocation(here)
		}
		v.location(here, places, r.Match.Path)
		v.locationsDiffer(places, earlier)
		earlier = append(earlier, places...)
		v.bodyOptions(here, id, r.Create != nil)
		if id.Optional && needed {
			v.reject(here+".optional", "is for create only: lookup and settle need an ID")
		}
		if r.Create != nil && id.Optional != r.IDs[0].Optional {
			v.reject(here+".optional", "differs from that of %s: give all entries of a rule the same", v.idPath(path, 0, n))
		}
		v.format(here, id)
	}
	v.idsAgree(path, r.IDs[:min(n, maxIDs)])
}

func (v *validator) rejectNoLocation(path string) {
	v.rejectMissing(path, []string{"path", "query", "header", "json", "form", "cookie"},
		"says not where the ID is: give exactly one of path, query, header, json, form, cookie")
}

// location checks what an entry says of where its ID stands.
func (v *validator) location(path string, places []idLocation, template string) {
	if len(places) > 1 {
		keys := make([]string, len(places))
		for i, p := range places {
			keys[i] = p.key
		}
		v.reject(path, "has %s: give exactly one of path, query, header, json, form, cookie", strings.Join(keys, " and "))
	}
	for _, p := range places {
		at := join(path, p.key)
		switch p.key {
		case "path":
			if template != "" && templateProblem(template) == "" && !strings.Contains(template+"/", "/{"+p.name+"}/") {
				v.reject(at, "%s is not a {name} in match.path %s", quote(p.name), quote(template))
			}
		case "header":
			v.header(at, p.name)
		case "json":
			if !isMemberPath(p.name) {
				v.reject(at, "%s is not a path of 1 to %d member names joined by dots, such as data.orderId", quote(p.name), maxJSONNames)
			}
		default:
			if !parameterName.MatchString(p.name) {
				what := map[string]string{"query": "a parameter", "form": "a field", "cookie": "a cookie"}[p.key]
				v.reject(at, "%s is not the name of %s: names are 1 to 128 letters, digits, _ and -", quote(p.name), what)
			}
		}
	}
}

func isMemberPath(path string) bool {
	names := strings.Split(path, ".")
	wrong := func(name string) bool { return !memberName.MatchString(name) }
	return len(path) <= maxJSONPath && len(names) <= maxJSONNames && !slices.ContainsFunc(names, wrong)
}

func (v *validator) header(path, name string) {
	if !headerName.MatchString(name) {
		v.reject(path, "%s is not the name of a header", quote(name))
	}
}

// bodyOptions checks the options of IDs that stand in a body.
func (v *validator) bodyOptions(path string, id ID, create bool) {
	_, json := v.origins[path+".json"]
	_, form := v.origins[path+".form"]
	json, form = json || id.JSON != "", form || id.Form != ""
	v.option(path, "json_type", id.JSONType != "", json, "json")
	v.option(path, "list", id.List, json, "json")
	v.option(path, "max_list", id.MaxList != 0, id.List || v.discarded[path+".list"], "list")
	v.option(path, "max_body", id.MaxBody != 0, json || form, "json and form")
	if id.JSON != "" {
		v.choice(path+".json_type", id.JSONType, JSONAny, JSONString, JSONNumber)
	}
	if id.List && create {
		v.reject(path+".list", "is for lookup and settle only: a create makes one order")
	}
	if id.List {
		between(v, path+".max_list", id.MaxList, 1, maxIDList)
	}
	if id.JSON != "" || id.Form != "" {
		between(v, path+".max_body", id.MaxBody, 1, maxIDBody)
	}
}

// option refuses a key that means nothing without another.
func (v *validator) option(path, key string, set, owned bool, owners string) {
	if at := join(path, key); (set || v.given(at)) && !owned {
		v.reject(at, "is for %s only: set it, or remove this", owners)
	}
}
