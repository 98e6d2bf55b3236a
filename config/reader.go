package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	// maxValues bounds the values of a file with its aliases written out, which
	// can make a few lines stand for billions. A rule has about twenty.
	maxValues = 1 << 18

	// maxViolations bounds how many violations are looked for: past it the file
	// is none of ours.
	maxViolations = 1000
)

var (
	// yamlError takes the line out of an error of package yaml, which has no
	// type for it.
	yamlError = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?((?s:.*))`)

	// yamlParserError matches the errors of the yaml package's parser. It counts
	// lines from 0 in them, and from 1 in those of its scanner.
	yamlParserError = regexp.MustCompile(`^(did not find expected (<|node content|'-' indicator|key|',' or )|` +
		`found (undefined tag handle|duplicate %|incompatible YAML document))`)
)

// read parses a file and returns what is usable of it, in the types of
// [Config]'s fields, keyed as their mapstructure tags say. The rest is reported.
// It returns nil when nothing is usable.
func (d *document) read(data []byte) map[string]any {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var root, second yaml.Node
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		d.reportAt(1, "the file is empty")
		return nil
	case err != nil:
		d.reportSyntax(err, data)
		return nil
	}
	top := resolve(root.Content[0])
	if top.Kind == yaml.ScalarNode && top.ShortTag() == "!!null" {
		d.reportAt(1, "the file is empty")
		return nil
	}
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		d.reportSyntax(err, data)
	default:
		d.reportAt(second.Line, "a second document starts here: the file holds exactly one")
	}
	if top.Kind != yaml.MappingNode {
		d.reportAt(top.Line, fmt.Sprintf("the file is %s: it has to be a mapping", describe(top)))
		return nil
	}
	r := reader{document: d, valuesLeft: maxValues}
	tree := r.structure(top, reflect.TypeFor[Config](), "", "")
	if r.exhausted {
		return nil // what was not reached would be found missing
	}
	return tree
}

func (d *document) reportAt(line int, message string) {
	d.violations = append(d.violations, Violation{File: d.file, Line: max(line, 1), Message: message})
}

func (d *document) reportSyntax(err error, data []byte) {
	line, message := 1, err.Error()
	if m := yamlError.FindStringSubmatch(message); m != nil {
		message = m[2]
		if m[1] != "" {
			line, _ = strconv.Atoi(m[1]) // digits by the expression
			if yamlParserError.MatchString(message) {
				line++
			}
		}
	}
	// What is missing at the end is missed past the last line break.
	last := 1 + bytes.Count(bytes.TrimRight(data, "\n"), []byte("\n"))
	d.reportAt(min(line, last), "the file is not YAML: "+oneLine(message))
}

// reader walks the nodes of a file along the types that they are to become.
type reader struct {
	*document
	valuesLeft int // values that may still be read
	exhausted  bool
}

// countValue counts one value and reports whether it may still be read.
func (r *reader) countValue(line int) bool {
	switch {
	case r.exhausted:
	case r.valuesLeft == 0:
		r.exhausted = true
		r.reportAt(line, fmt.Sprintf("the file has more than %d values with its aliases written out: make it shorter", maxValues))
	case len(r.violations) >= maxViolations:
		r.exhausted = true
		r.reportAt(line, "too much is wrong: the file is not checked from here on")
	default:
		r.valuesLeft--
	}
	return !r.exhausted
}

// structure reads a mapping with fixed keys.
func (r *reader) structure(n *yaml.Node, t reflect.Type, path, shown string) map[string]any {
	fields := fieldsOf(t)
	values := make(map[string]any)
	for key, value := range r.entries(n, path, shown) {
		name := key.Value
		field, known := fields[name]
		at, atShown := join(path, name), join(shown, name)
		if !known {
			r.partlyRead[path] = true
			r.unknown(key, at, join(shown, keyText(name)), fields)
			continue
		}
		r.origins[at] = origin{line: key.Line, shown: atShown}
		if v, ok := r.value(value, field, at, atShown); ok {
			values[name] = v
		}
	}
	return values
}

// named reads a mapping from names that the user chose.
func (r *reader) named(n *yaml.Node, t reflect.Type, path, shown string) map[string]any {
	values := make(map[string]any)
	index := 0
	for key, value := range r.entries(n, path, shown) {
		name := key.Value
		atShown := join(shown, keyText(name))
		if problem := nameProblem(name); problem != "" {
			r.badNames[join(path, name)] = true
			name = "#" + strconv.Itoa(index)
			r.origins[join(path, name)] = origin{line: key.Line, shown: atShown}
			r.report(join(path, name), problem)
		}
		index++
		at := join(path, name)
		r.origins[at] = origin{line: key.Line, shown: atShown}
		v, ok := r.value(value, t, at, atShown)
		if !ok {
			v = map[string]any{} // kept, so that no reference to it dangles
		}
		values[name] = v
	}
	return values
}

// entries yields the keys of a mapping with their values, those that are no
// text or were given before excepted.
func (r *reader) entries(n *yaml.Node, path, shown string) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		seen := make(map[string]int) // the line
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !r.countValue(n.Content[i].Line) {
				return
			}
			key := resolve(n.Content[i])
			where := Violation{File: r.file, Line: n.Content[i].Line, Path: join(shown, keyText(key.Value))}
			first, repeated := seen[key.Value]
			switch {
			case key.Kind != yaml.ScalarNode:
				where.Path = shown
				where.Message = fmt.Sprintf("a key is %s: keys are plain words", describe(key))
			case key.ShortTag() == "!!merge":
				where.Message = "merge keys are not read: write the keys out, or use an alias for a whole value"
			case repeated:
				where.Message = fmt.Sprintf("is given twice, first in line %d", first)
			default:
				seen[key.Value] = n.Content[i].Line
				// At the line of this use, should the key be an alias.
				at := *key
				at.Line = n.Content[i].Line
				if !yield(&at, n.Content[i+1]) {
					return
				}
				continue
			}
			r.partlyRead[path] = true
			r.violations = append(r.violations, where)
		}
	}
}

// parametersType is the one mapping whose names are the backend's: they keep their case.
var parametersType = reflect.TypeFor[map[string]string]()

// parameters reads a mapping from names to texts.
func (r *reader) parameters(n *yaml.Node, path, shown string) map[string]string {
	values := make(map[string]string)
	for key, value := range r.entries(n, path, shown) {
		at := join(path, key.Value)
		r.origins[at] = origin{line: key.Line, shown: join(shown, keyText(key.Value))}
		text, problem := scalar(resolve(value), reflect.TypeFor[string]())
		if problem != "" {
			r.report(at, problem)
			r.partlyRead[path] = true
			continue
		}
		values[key.Value] = text.(string)
	}
	return values
}

// idsType is the one list whose brackets may be left out around a single mapping.
var idsType = reflect.TypeFor[[]ID]()

// value reads one value. It reports false when the value is of no use.
func (r *reader) value(n *yaml.Node, t reflect.Type, path, shown string) (any, bool) {
	n = resolve(n)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	problem := ""
	switch kind := t.Kind(); {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		problem = "has no value: give it one or remove the key"
	case t == freshnessType:
		return r.freshness(n, path, shown)
	case kind == reflect.Struct && n.Kind == yaml.MappingNode:
		return r.structure(n, t, path, shown), true
	case t == parametersType && n.Kind == yaml.MappingNode:
		return r.parameters(n, path, shown), true
	case kind == reflect.Map && n.Kind == yaml.MappingNode:
		return r.named(n, t.Elem(), path, shown), true
	case t == idsType && n.Kind == yaml.MappingNode:
		return []any{r.structure(n, t.Elem(), path, shown)}, true
	case kind == reflect.Slice && n.Kind == yaml.SequenceNode:
		return r.list(n, t.Elem(), path, shown), true
	case kind == reflect.Struct || kind == reflect.Map:
		problem = fmt.Sprintf("is %s: it has to be a mapping%s", describe(n), asMapping(n, t))
	case t == idsType:
		problem = fmt.Sprintf("is %s: it has to be a mapping or a list of mappings", describe(n))
	case kind == reflect.Slice:
		problem = fmt.Sprintf("is %s: it has to be a list", describe(n))
	default:
		var v any
		if v, problem = scalar(n, t); problem == "" {
			return v, true
		}
	}
	r.report(path, problem)
	return nil, r.discard(path)
}

// asMapping shows how a duration is written where a mapping is wanted; "" for other values.
// Of several keys that could be meant, the last is the one that bounds the others.
func asMapping(n *yaml.Node, t reflect.Type) string {
	if n.Kind != yaml.ScalarNode || t.Kind() != reflect.Struct {
		return ""
	}
	value := n.Value
	if n.ShortTag() == "!!int" {
		value += "s" // what the unit would be is a guess
	} else if _, problem := duration(value, n.ShortTag()); problem != "" {
		return ""
	}
	for i := t.NumField() - 1; i >= 0; i-- {
		if f := t.Field(i); f.Type == reflect.TypeFor[time.Duration]() {
			return fmt.Sprintf(", such as {%s: %s}", f.Tag.Get("mapstructure"), value)
		}
	}
	return ""
}

// discard marks a value as left out; it returns false.
func (r *reader) discard(path string) bool {
	r.discarded[path] = true
	return false
}

// list reads a list. A value of no use keeps its place, so that the indices of
// the others are those of the file.
func (r *reader) list(n *yaml.Node, t reflect.Type, path, shown string) any {
	texts, mappings := make([]string, 0), make([]any, 0)
	for i, item := range n.Content {
		if !r.countValue(item.Line) {
			break
		}
		index := "[" + strconv.Itoa(i) + "]"
		r.origins[path+index] = origin{line: item.Line, shown: shown + index}
		v, ok := r.value(item, t, path+index, shown+index)
		switch {
		case t.Kind() == reflect.String && ok:
			texts = append(texts, v.(string))
		case t.Kind() == reflect.String:
			texts = append(texts, "")
		case ok:
			mappings = append(mappings, v)
		default:
			mappings = append(mappings, map[string]any{})
		}
	}
	if t.Kind() == reflect.String {
		return texts
	}
	return mappings
}
