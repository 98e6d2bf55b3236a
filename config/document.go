package config

import (
	"maps"
	"strconv"
	"strings"
	"sync"
)

// document records the origin of each value of a configuration, and the violations found.
//
// Paths are those of the YAML file, such as "rules[1].id.format". An entry with a rejected
// name ("filters.Orders") has the path "filters.#3" instead: viper would fold the name's case.
// The reader thus reports violations inside such an entry too.
type document struct {
	file       string
	lines      map[string]int            // of the keys of values; 0 of one that a variable has set
	setBy      map[string]string         // the variables that have set values, by paths
	renamed    map[string]string         // paths as the user wrote them, where they differ
	discarded  map[string]bool           // paths of unusable values, which the reader left out
	partlyRead map[string]bool           // paths of mappings with a key that the reader could not use
	badNames   map[string]bool           // "filters.Orders": defined, but under a rejected name
	mappings   map[string]map[string]any // by their paths, those with fixed keys: the usable values
	violations []Violation
	variables  map[string]string  // from the name of a variable to the path of its key
	uses       map[string]lockUse // of the locks, by their names; after the defaults
}

func newDocument(file string) *document {
	return &document{
		file:       file,
		lines:      make(map[string]int),
		setBy:      make(map[string]string),
		discarded:  make(map[string]bool),
		partlyRead: make(map[string]bool),
		badNames:   make(map[string]bool),
		renamed:    make(map[string]string),
		mappings:   make(map[string]map[string]any),
	}
}

// report records a violation at a path. It uses the line or the variable of the value, and
// the path as the user wrote it. If the path has no origin (a missing key, for example), it
// uses the origin of the nearest enclosing path.
func (d *document) report(path, message string) {
	for around := path; around != ""; around = parent(around) {
		line, ok := d.lines[around]
		if !ok {
			continue
		}
		v := Violation{File: d.file, Line: line, Path: d.shown(path), Message: message}
		if variable := d.setBy[around]; variable != "" {
			v.File, v.Path = environmentFile, variable+path[len(around):]
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

// shown returns a path as the user wrote it.
func (d *document) shown(path string) string {
	for around := path; len(d.renamed) > 0 && around != ""; around = parent(around) {
		if text, ok := d.renamed[around]; ok {
			return text + path[len(around):]
		}
	}
	return path
}

// given reports whether the user gave a usable value. It distinguishes an explicit zero from
// a missing value.
func (d *document) given(path string) bool {
	_, ok := d.lines[path]
	return ok && !d.discarded[path]
}

// givenIn reports the same of a key of a mapping with fixed keys. It needs no path of the key.
func (d *document) givenIn(path, key string) bool {
	_, ok := d.mappings[path][key]
	return ok
}

// unusable reports whether the reader discarded the value at the path, or one that contains
// it. A discarded value has its violation already, so its absence is no second violation.
func (d *document) unusable(path string) bool {
	for ; len(d.discarded) > 0 && path != ""; path = parent(path) {
		if d.discarded[path] {
			return true
		}
	}
	return false
}

// override records that the value of a variable replaces that of the file.
func (d *document) override(path, variable string, value any) {
	maps.DeleteFunc(d.lines, func(p string, _ int) bool { return within(p, path) })
	maps.DeleteFunc(d.discarded, func(p string, _ bool) bool { return within(p, path) })
	maps.DeleteFunc(d.mappings, func(p string, _ map[string]any) bool { return within(p, path) })
	d.lines[path], d.setBy[path] = 0, variable
	section := parent(path)
	if d.mappings[section] == nil {
		d.mappings[section] = make(map[string]any)
	}
	d.mappings[section][strings.TrimPrefix(path[len(section):], ".")] = value
}

// beside takes steps at once. None changes what another one reads. Their violations come in the order of
// the steps.
func (d *document) beside(steps []func(*document)) {
	documents := make([]document, len(steps))
	var wg sync.WaitGroup
	for i, step := range steps {
		documents[i] = *d
		documents[i].violations = nil
		wg.Go(func() { step(&documents[i]) })
	}
	wg.Wait()
	for i := range documents {
		d.violations = append(d.violations, documents[i].violations...)
	}
}

// rulesAtOnce is the number of rules in one step.
const rulesAtOnce = 200

// ofRules returns steps that do something with each rule.
func (c *Config) ofRules(do func(d *document, path string, r *Rule)) (steps []func(*document)) {
	for from := 0; from < len(c.Rules); from += rulesAtOnce {
		steps = append(steps, func(d *document) {
			for i := from; i < min(from+rulesAtOnce, len(c.Rules)); i++ {
				do(d, rulePath(i), &c.Rules[i])
			}
		})
	}
	return steps
}

func rulePath(index int) string { return "rules[" + strconv.Itoa(index) + "]" }

// idPath returns the path of entry i of a rule's n IDs. A single entry that the file has
// without a list has no index.
func (d *document) idPath(rule string, i, n int) string {
	if n == 1 {
		if _, isList := d.lines[rule+".id[0]"]; !isList {
			return rule + ".id"
		}
	}
	return rule + ".id[" + strconv.Itoa(i) + "]"
}

// parent returns the path of the mapping or list that contains path; "" for a top-level key.
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
