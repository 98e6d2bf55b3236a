package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

const (
	// maxValues bounds the values of a file after expansion of its aliases. With aliases, a
	// few lines can stand for billions of values. A rule has about twenty values.
	maxValues = 1 << 18

	// maxViolations ends the reading of a file. A file with more violations is probably not a
	// configuration of ordergate.
	maxViolations = 1000
)

var (
	// yamlError extracts the line from an error of package yaml. The package has no type for
	// such errors.
	yamlError = lazyregexp.New(`^yaml: (?:line ([0-9]+): )?((?s:.*))`)

	// yamlParserError matches the errors of the yaml package's parser. Their lines start at 0.
	// The lines in errors of the package's scanner start at 1.
	yamlParserError = lazyregexp.New(`^(did not find expected (<|node content|'-' indicator|key|',' or )|` +
		`found (undefined tag handle|duplicate %|incompatible YAML document))`)
)

// read parses a file and returns the usable values, with the mapstructure tags of [Config]'s
// fields as keys. The values have the types of the fields. read reports the other values. It
// returns nil if no value is usable.
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
	keys := bytes.Count(data, []byte(":")) // about
	d.lines, d.mappings = make(map[string]int, keys), make(map[string]map[string]any, keys/4)
	r := reader{document: d, valuesLeft: maxValues}
	tree := r.structure(top, reflect.TypeFor[Config](), "")
	if r.exhausted {
		return nil // the validator would report the unread keys as missing
	}
	return tree
}

func (d *document) reportAt(line int, message string) {
	d.violations = append(d.violations, Violation{File: d.file, Line: max(line, 1), Message: message})
}

func (d *document) reportSyntax(err error, data []byte) {
	line, message := 1, err.Error()
	if m := yamlError.Compiled().FindStringSubmatch(message); m != nil {
		message = m[2]
		if m[1] != "" {
			line, _ = strconv.Atoi(m[1]) // the expression matches digits only
			if yamlParserError.MatchString(message) {
				line++
			}
		}
	}
	message = strings.Replace(message, "cannot start any token", "cannot start any token, such as a tab, or @ without quotes", 1)
	// For text missing at the end, yaml reports a line after the last line break.
	last := 1 + bytes.Count(bytes.TrimRight(data, "\n"), []byte("\n"))
	d.reportAt(min(line, last), "the file is not YAML: "+oneLine(message))
}

// reader walks the YAML nodes of a file together with the Go types of their values.
type reader struct {
	*document
	valuesLeft int // number of values before the limit
	exhausted  bool
}

// countValue counts one value and reports whether the reader may read it. At a limit, it
// reports a violation at the line and ends the reading.
func (r *reader) countValue(line int) bool {
	switch {
	case r.exhausted:
	case r.valuesLeft == 0:
		r.exhausted = true
		r.reportAt(line, fmt.Sprintf("the file has more than %d values with its aliases written out: make it shorter", maxValues))
	case len(r.violations) >= maxViolations:
		r.exhausted = true
		r.reportAt(line, "too many violations: the rest of the file is not checked")
	default:
		r.valuesLeft--
	}
	return !r.exhausted
}

// structure reads a mapping with fixed keys.
func (r *reader) structure(n *yaml.Node, t reflect.Type, path string) map[string]any {
	values := make(map[string]any, len(n.Content)/2)
	r.mappings[path] = values
	for key, value := range r.entries(n, path) {
		name := key.Value
		k := keyOf(t, name)
		if k == nil {
			r.partlyRead[path] = true
			r.unknown(key, path, t)
			continue
		}
		at := join(path, name)
		r.lines[at] = key.Line
		if v, ok := r.value(value, k.field.Type, at); ok {
			values[name] = v
		}
	}
	return values
}

// named reads a mapping whose keys are names chosen by the user.
func (r *reader) named(n *yaml.Node, t reflect.Type, path string) map[string]any {
	values := make(map[string]any)
	index := 0
	for key, value := range r.entries(n, path) {
		name, problem := key.Value, nameProblem(key.Value)
		if problem != "" {
			r.badNames[join(path, name)] = true
			name = "#" + strconv.Itoa(index)
		}
		index++
		at := r.entry(path, name, key)
		if problem != "" {
			r.report(at, problem)
		}
		v, ok := r.value(value, t, at)
		if !ok {
			v = map[string]any{} // keep the name, so that references to it stay valid
		}
		values[name] = v
	}
	return values
}

// entry records where an entry with a name of the user's is, and returns its path.
func (r *reader) entry(path, name string, key *yaml.Node) string {
	at := join(path, name)
	r.lines[at] = key.Line
	if text := keyText(key.Value); text != name {
		r.renamed[at] = join(r.shown(path), text)
	}
	return at
}

// item records where an item of a list is, and returns its path.
func (r *reader) item(path string, index int, n *yaml.Node) string {
	at := path + "[" + strconv.Itoa(index) + "]"
	r.lines[at] = n.Line
	return at
}

// entries yields the keys of a mapping with their values. It reports and skips keys that are
// not scalars, merge keys and repeated keys.
func (r *reader) entries(n *yaml.Node, path string) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		seen := make(map[string]int, len(n.Content)/2) // from a key to its line
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !r.countValue(n.Content[i].Line) {
				return
			}
			key := resolve(n.Content[i])
			first, repeated := seen[key.Value]
			if key.Kind == yaml.ScalarNode && key.ShortTag() != "!!merge" && !repeated {
				seen[key.Value] = n.Content[i].Line
				if key != n.Content[i] { // use the line of the alias
					at := *key
					at.Line = n.Content[i].Line
					key = &at
				}
				if !yield(key, n.Content[i+1]) {
					return
				}
				continue
			}
			where := Violation{File: r.file, Line: n.Content[i].Line, Path: join(r.shown(path), keyText(key.Value))}
			switch {
			case key.Kind != yaml.ScalarNode:
				where.Path = r.shown(path)
				where.Message = fmt.Sprintf("a key is %s: keys are plain words", describe(key))
			case repeated && key.ShortTag() != "!!merge":
				where.Message = fmt.Sprintf("is given twice, first in line %d", first)
			default:
				where.Message = "merge keys are not read: write the keys out, or use an alias for a whole value"
			}
			r.partlyRead[path] = true
			r.violations = append(r.violations, where)
		}
	}
}

// The types of mappings whose names keep their case: some are those of the backend. Those of a query
// have a text or a list of texts each.
var parametersType, queryType = reflect.TypeFor[map[string]string](), reflect.TypeFor[map[string]QueryValues]()

// parameters reads such a mapping, for which viper must have no map of any values: it would fold the
// names.
func (r *reader) parameters(n *yaml.Node, t reflect.Type, path string) any {
	values := reflect.MakeMap(t)
	for key, value := range r.entries(n, path) {
		at := r.entry(path, key.Value, key)
		if v, ok := r.value(value, t.Elem(), at); ok {
			values.SetMapIndex(reflect.ValueOf(key.Value), reflect.ValueOf(v).Convert(t.Elem()))
		} else {
			r.partlyRead[path] = true
		}
	}
	return values.Interface()
}

// idsType is the type of the only list that a file may replace with a single mapping.
var idsType = reflect.TypeFor[[]ID]()

// learnType is the type of a mapping that a file may replace with the name of its key learnTable.
var learnType = reflect.TypeFor[Learn]()

const learnTable = "table"

// value reads one value. For an unusable value, it reports a violation and returns false.
func (r *reader) value(n *yaml.Node, t reflect.Type, path string) (any, bool) {
	n = resolve(n)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	problem := ""
	switch kind := t.Kind(); {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		problem = "has no value: give it one or remove the key"
	case t == freshnessType:
		return r.freshness(n, path)
	case t == onceStatusType && n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int":
		return n.Value, true
	case t == idMaxType && n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!int" || n.ShortTag() == "!!float"): // a float beyond 64 bits
		return n.Value, true
	case t == oncePartsType:
		return r.onceParts(n, path)
	case t == answerStatusesType:
		return r.answerStatuses(n, path)
	case t == jsonTestsType:
		return r.jsonTests(n, path)
	case t == learnType && n.Kind == yaml.ScalarNode:
		if n.Value == learnTable {
			return map[string]any{learnTable: true}, true
		}
		problem = fmt.Sprintf("is %s: write %s, or a mapping with response_json or response_header", describe(n), learnTable)
	case t == onceNamesType:
		return r.onceNames(n, path)
	case t == modeType:
		return r.mode(n, path)
	case t == shareType:
		return r.share(n, path)
	case kind == reflect.Struct && n.Kind == yaml.MappingNode:
		return r.structure(n, t, path), true
	case (t == queryType || t == parametersType) && n.Kind == yaml.MappingNode:
		return r.parameters(n, t, path), true
	case t == queryType.Elem() && n.Kind == yaml.ScalarNode:
		text, ok := r.value(n, reflect.TypeFor[string](), path)
		return []string{fmt.Sprint(text)}, ok
	case kind == reflect.Map && n.Kind == yaml.MappingNode:
		return r.named(n, t.Elem(), path), true
	case t == idsType && n.Kind == yaml.MappingNode:
		return []any{r.structure(n, t.Elem(), path)}, true
	case kind == reflect.Slice && n.Kind == yaml.SequenceNode:
		return r.list(n, t.Elem(), path), true
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

// statusNumber matches a status that a reply may have.
var statusNumber = lazyregexp.New(`^[45]\d\d$`)

// asMapping suggests a mapping for a duration or the status of a reply, or "" for other values.
// Of several fields that are durations it suggests the last, which bounds the others.
func asMapping(n *yaml.Node, t reflect.Type) string {
	if n.Kind != yaml.ScalarNode || t.Kind() != reflect.Struct {
		return ""
	}
	value := n.Value
	if t == replyType && statusNumber.MatchString(value) {
		return fmt.Sprintf(", such as {status: %s}", value)
	}
	if n.ShortTag() == "!!int" {
		value += "s" // seconds are a guess
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

// discard marks a value as unusable. It always returns false.
func (r *reader) discard(path string) bool {
	r.discarded[path] = true
	return false
}

// wrong reports a value of a kind that its key does not have.
func (r *reader) wrong(n *yaml.Node, path, forms string) (any, bool) {
	r.report(path, "is "+describe(n)+": write "+forms)
	return nil, r.discard(path)
}

// list reads a list. It replaces an unusable item with an empty one, so that the other items
// keep the indices of the file.
func (r *reader) list(n *yaml.Node, t reflect.Type, path string) any {
	texts, mappings := make([]string, 0), make([]any, 0)
	for i, item := range n.Content {
		if !r.countValue(item.Line) {
			break
		}
		v, ok := r.value(item, t, r.item(path, i, item))
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
