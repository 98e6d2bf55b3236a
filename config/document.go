package config

import (
	"maps"
	"strconv"
	"strings"
)

// document is what is known of a configuration beyond its values: where each
// was given, and what has been found wrong with them.
//
// Paths are those of the YAML file, "rules[1].id.format", but for the entry of
// a refused name ("filters.Orders"), which goes by "filters.#3": viper would
// fold its case, and what is wrong inside it is to be reported too.
type document struct {
	file       string
	origins    map[string]origin
	discarded  map[string]bool // paths of values that were of no use and were left out
	partlyRead map[string]bool // mappings that hold a key that is not read
	badNames   map[string]bool // "filters.Orders": defined, though under a name that is refused
	violations []Violation
	variables  map[string]string // the path of the key that each stands for
}

// origin says where a value was given.
type origin struct {
	line     int    // of its key in the file
	shown    string // its path as the user wrote it
	variable string // the environment variable, when it came from one
}

func newDocument(file string) *document {
	return &document{
		file:       file,
		origins:    make(map[string]origin),
		discarded:  make(map[string]bool),
		partlyRead: make(map[string]bool),
		badNames:   make(map[string]bool),
	}
}

// report notes a violation at a path, in the words and at the place of the one
// who gave the value. What has no place of its own, a missing key say, is
// reported at that of the nearest thing around it.
func (d *document) report(path, message string) {
	for around := path; around != ""; around = parent(around) {
		p, ok := d.origins[around]
		if !ok {
			continue
		}
		v := Violation{File: d.file, Line: p.line, Path: p.shown + path[len(around):], Message: message}
		if p.variable != "" {
			v.File, v.Line, v.Path = environmentFile, 0, p.variable+path[len(around):]
		}
		d.violations = append(d.violations, v)
		return
	}
	v := Violation{File: d.file, Path: path, Message: message}
	if d.file != "" {
		v.Line = 1
	}
	d.violations = append(d.violations, v)
}

// given reports whether the user gave a usable value: a zero that was written
// is not the same as no value.
func (d *document) given(path string) bool {
	_, ok := d.origins[path]
	return ok && !d.discarded[path]
}

// unusable reports whether the value at the path, or one around it, has been
// refused already, so that its absence is not held against the user again.
func (d *document) unusable(path string) bool {
	for ; path != ""; path = parent(path) {
		if d.discarded[path] {
			return true
		}
	}
	return false
}

// override notes that a variable takes the place of what the file says.
func (d *document) override(path, variable string) {
	maps.DeleteFunc(d.origins, func(p string, _ origin) bool { return within(p, path) })
	maps.DeleteFunc(d.discarded, func(p string, _ bool) bool { return within(p, path) })
	d.origins[path] = origin{shown: path, variable: variable}
}

// idPath returns the path of one of a rule's n IDs. The one that is written
// without a list around it has no index either.
func (d *document) idPath(rule string, i, n int) string {
	path := rule + ".id"
	if _, isList := d.origins[path+"[0]"]; n == 1 && !isList {
		return path
	}
	return path + "[" + strconv.Itoa(i) + "]"
}

// parent returns the path of what holds the value at path; "" above the top.
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// schemaPath turns "filters.orders.kind" into "filters.*.kind" and
// "rules[3].id" into "rules[].id".
func schemaPath(path string) string {
	var b strings.Builder
	for i, part := range strings.Split(path, ".") {
		if i > 0 {
			b.WriteByte('.')
		}
		if name, _, isList := strings.Cut(part, "["); isList {
			b.WriteString(name + "[]")
		} else if i == 1 && isNamed(b.String()) {
			b.WriteByte('*')
		} else {
			b.WriteString(part)
		}
	}
	return b.String()
}

// isNamed reports whether a section, written with its dot, holds named entries.
func isNamed(section string) bool {
	return section == "filters." || section == "sources." || section == "locks."
}
