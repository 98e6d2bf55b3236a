package config

import (
	"reflect"
	"slices"
	"strings"
)

// uses reports whether the caller uses a path, or a path that contains it or lies inside it.
func (o *Options) uses(path string) bool {
	return o.Uses == nil || slices.ContainsFunc(o.Uses, func(used string) bool { return within(path, used) || within(used, path) })
}

// divide separates the violations of sections in use from the others. A violation outside of
// every section counts as in use: it may be a misspelt section.
func (d *document) divide(o *Options) (used, elsewhere []Violation) {
	for _, v := range d.violations {
		path := v.Path
		if v.File == environmentFile {
			path = d.pathOf(v.Path)
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

// pathOf returns the path of a variable's key. The name may continue with a path inside the
// variable's value, such as an index.
func (d *document) pathOf(name string) string {
	variable, _, _ := strings.Cut(name, ".")
	variable, _, _ = strings.Cut(variable, "[")
	return d.variables[variable]
}
