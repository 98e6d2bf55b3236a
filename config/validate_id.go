package config

import (
	"regexp"
	"slices"
	"strings"
)

const (
	maxIDs = 8 // entries; the gate searches each request of the rule for each of them

	defaultIDBody = 64 << 10 // bytes
	maxJSONNames  = 32       // in a path; half of the depth that a body may have
)

var (
	// parameterName matches names that no backend turns into another name. PHP, for example,
	// turns a dot into an underscore.
	parameterName = lazily(`^[A-Za-z0-9_-]{1,128}$`)
	// headerName matches a token (RFC 9110, 5.6.2) of at most 128 bytes.
	headerName = lazily("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")
	// memberName matches names that need no escapes in JSON. The gate compares names as the
	// rule has them.
	memberName = regexp.MustCompile(`^[^\x00-\x1f"\\]+$`)
)

// idLocation is the location of an ID in a request: the path of a rule's entry, a key of the
// entry, such as query, and the key's value.
type idLocation struct{ entry, key, name string }

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

// locationsOf returns the locations that an entry names. A valid entry has exactly one. Only
// the single entry of a create rule may have none.
func (v *validator) locationsOf(path string, id ID) (places []idLocation) {
	for _, p := range [...]idLocation{
		{path, "path", id.Path}, {path, "query", id.Query}, {path, "header", id.Header},
		{path, "json", id.JSON}, {path, "form", id.Form}, {path, "cookie", id.Cookie},
	} {
		if p.name != "" || v.givenIn(path, p.key) {
			places = append(places, p)
		}
	}
	return places
}

// ids checks the entries of a rule without pass.
func (v *validator) ids(path string, r Rule) {
	at, n := path+".id", len(r.IDs)
	needed := r.Create == nil && !r.IsBy() && (r.Once == nil || r.Lookup != nil || r.Settle != nil) && !v.unusable(path+".create") && !v.discarded[path+".pass"]
	if n == 0 && needed && !v.given(at) {
		v.rejectNoLocation(at)
	}
	var earlier []idLocation
	for i, id := range r.IDs[:min(n, maxIDs)] { // the limit bounds the comparisons with earlier entries
		here := v.idPath(path, i, n)
		places := v.locationsOf(here, id)
		if len(places) == 0 && (needed || n > 1) {
			v.rejectNoLocation(here)
		}
		v.location(here, places, r.Match.Path)
		v.locationsDiffer(places, earlier)
		earlier = append(earlier, places...)
		if id.List && r.Create != nil {
			v.reject(here+".list", "is for lookup and settle only: a create makes one order")
		}
		if id.Optional && r.Settle != nil {
			v.reject(here+".optional", "is for lookup and create only: settle needs an ID")
		} else if id.Optional != r.IDs[0].Optional {
			v.reject(here+".optional", "differs from that of %s: give all entries of a rule the same", v.idPath(path, 0, n))
		}
		v.format(here, id)
	}
	v.idsAgree(path, r.IDs[:min(n, maxIDs)])
}

func (v *validator) rejectNoLocation(path string) {
	v.rejectMissing(path, []string{"path", "query", "header", "json", "form", "cookie"},
		"does not name the ID's location: give exactly one of path, query, header, json, form, cookie")
}

// location checks the locations that an entry names.
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
		if p.key == "path" && template != "" && templateProblem(template) == "" && !strings.Contains(template+"/", "/{"+p.name+"}/") {
			v.reject(at, "%s is not a {name} in match.path %s", quote(p.name), quote(template))
		}
	}
}

func isMemberPath(path string) bool {
	names := strings.Split(path, ".")
	wrong := func(name string) bool { return !memberName.MatchString(name) }
	return len(path) <= maxJSONPath && len(names) <= maxJSONNames && !slices.ContainsFunc(names, wrong)
}

// option rejects a key that has no effect without one of its owners.
func (v *validator) option(path, key string, set, owned bool, owners string) {
	if at := join(path, key); (set || v.given(at)) && !owned {
		v.reject(at, "is for %s only: set it, or remove this", owners)
	}
}
