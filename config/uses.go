package config

import (
	"reflect"
	"slices"
	"strings"
)

// uses reports whether something at a path, or around it, is of use to the caller.
func (o *Options) uses(path string) bool {
	return o.Uses == nil || slices.ContainsFunc(o.Uses, func(used string) bool { return within(path, used) || within(used, path) })
}

// divide tells violations of what is used from others. One that no section has counts as
// used: it may be a slip of any section.
func (o *Options) divide(all []Violation) (used, elsewhere []Violation) {
	for _, v := range all {
		path := v.Path
		if v.File == environmentFile {
			path = pathOf(v.Path)
		}
		section, _, _ := strings.Cut(strings.Split(path, ".")[0], "[")
		if _, known := fieldsOf(reflect.TypeFor[Config]())[section]; !known || o.uses(path) {
			used = append(used, v)
		} else {
			elsewhere = append(elsewhere, v)
		}
	}
	return used, elsewhere
}

// pathOf returns a path that a variable is about, as far as its name tells: that of the key
// in a section without names, and otherwise the section's.
func pathOf(variable string) string {
	name, _, _ := strings.Cut(variable, ".")
	rest := strings.ToLower(strings.TrimPrefix(name, variablePrefix))
	for section := range fieldsOf(reflect.TypeFor[Config]()) {
		if key, ok := strings.CutPrefix(rest, section+"_"); ok && (section == "listen" || section == "redis") {
			return section + "." + key
		} else if ok || rest == section {
			return section
		}
	}
	return ""
}
