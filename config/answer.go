package config

import (
	"fmt"
	"iter"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Answer is what the backend's answers mean, where their status alone does not tell. In each
// list one condition that holds is enough. Failed counts before absent, and absent before done.
type Answer struct {
	Done   []AnswerCondition `mapstructure:"done" items:"16 conditions"`   // the backend did what the request asks for
	Failed []AnswerCondition `mapstructure:"failed" items:"16 conditions"` // it certainly did not
	Absent []AnswerCondition `mapstructure:"absent" items:"16 conditions"` // it has no such order
}

// AnswerCondition is a condition on an answer. All of its members must hold; at least one is
// set.
type AnswerCondition struct {
	Status AnswerStatuses `mapstructure:"status" form:"answer_status"` // 404, 2xx, or a list of them
	// Header maps names, in any case, to RE2 patterns. A line of the header must match.
	Header      map[string]string `mapstructure:"header" form:"header"`
	ContentType string            `mapstructure:"content_type" form:"lower"` // the media type, without parameters, in any case
	// JSON maps dotted paths of members to a value, a list of values, {isnt: value} or {exists: false}.
	JSON JSONTests `mapstructure:"json"`
}

// AnswerStatuses are statuses, one of which the answer has.
type AnswerStatuses []OnceStatus

// JSONTests are tests of members of a JSON body. A file has a mapping from their dotted paths to
// a value, a list of values, {isnt: value} or {exists: false}.
type JSONTests []JSONTest

// JSONTest is a test of one member. One of Is, Isnt and Exists is set. Values compare as text,
// so 200 is also "200".
type JSONTest struct {
	Path   string   `mapstructure:"path"`   // dotted path of member names
	Is     []string `mapstructure:"is"`     // the member has one of these values
	Isnt   []string `mapstructure:"isnt"`   // it is there, and has none of these values
	Exists string   `mapstructure:"exists"` // "true" or "false"
}

var (
	answerStatusesType = reflect.TypeFor[AnswerStatuses]()
	jsonTestsType      = reflect.TypeFor[JSONTests]()
)

func (r *reader) answerStatuses(n *yaml.Node, path string) (any, bool) {
	texts, ok := r.texts(n, path)
	return texts, ok || r.discard(path)
}

// items yields a value, or those of a list, with their paths. It ends at the limit of values.
func (r *reader) items(n *yaml.Node, path string) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		if n.Kind != yaml.SequenceNode {
			_ = r.countValue(n.Line) && yield(path, n)
			return
		}
		for i, item := range n.Content {
			if !r.countValue(item.Line) || !yield(r.item(path, i, item), resolve(item)) {
				return
			}
		}
	}
}

// texts reads a scalar, or a list of scalars, as texts. It reports anything else.
func (r *reader) texts(n *yaml.Node, path string) (texts []string, ok bool) {
	for at, item := range r.items(n, path) {
		if item.Kind != yaml.ScalarNode {
			r.report(at, fmt.Sprintf("is %s: write a value, or a list of values", describe(item)))
			return nil, false
		}
		texts = append(texts, jsonText(item))
	}
	if len(texts) == 0 && !r.exhausted {
		r.report(path, "is an empty list: give it a value or remove the key")
	}
	return texts, len(texts) > 0
}

// jsonText returns the text of a scalar as JSON has it: null for ~, and true for True.
func jsonText(n *yaml.Node) string {
	switch n.ShortTag() {
	case "!!null":
		return "null"
	case "!!bool":
		return strings.ToLower(n.Value)
	}
	return n.Value
}

func (r *reader) jsonTests(n *yaml.Node, path string) (any, bool) {
	if n.Kind != yaml.MappingNode {
		return r.wrong(n, path, "{member: value}, such as {resultCode: 200}")
	}
	tests, usable := make([]any, 0), true
	for key, value := range r.entries(n, path) {
		at := r.entry(path, key.Value, key)
		test := map[string]any{"path": key.Value}
		op, operand := "is", resolve(value)
		if operand.Kind == yaml.MappingNode {
			if len(operand.Content) != 2 {
				r.report(at, "has to be a value, a list of values, {isnt: value} or {exists: false}")
				usable = false
				continue
			}
			op, operand = operand.Content[0].Value, resolve(operand.Content[1])
		}
		texts, ok := r.texts(operand, at)
		switch {
		case !ok:
		case op == "is", op == "isnt":
			test[op] = texts
		case op == "exists" && len(texts) == 1 && (texts[0] == "true" || texts[0] == "false"):
			test[op] = texts[0]
		default:
			r.report(at, "has to be a value, a list of values, {isnt: value} or {exists: false}")
			ok = false
		}
		usable = usable && ok
		tests = append(tests, test)
	}
	if !usable {
		return nil, r.discard(path)
	}
	return tests, true
}

var answerKeys = []string{"done", "failed", "absent"}

func (v *validator) answer(path string, a *Answer) {
	if a == nil || v.unusable(path) {
		return
	}
	if len(a.Done)+len(a.Failed)+len(a.Absent) == 0 {
		v.rejectMissing(path, answerKeys, "says nothing: give it done, failed or absent")
	}
	for n, conditions := range [][]AnswerCondition{a.Done, a.Failed, a.Absent} {
		for i, c := range conditions {
			v.answerCondition(fmt.Sprintf("%s.%s[%d]", path, answerKeys[n], i), c)
		}
	}
}

func (v *validator) answerCondition(path string, c AnswerCondition) {
	if len(c.Status) == 0 && len(c.Header) == 0 && c.ContentType == "" && len(c.JSON) == 0 {
		v.rejectMissing(path, []string{"status", "header", "content_type", "json"}, "holds for every answer: give it status, header, content_type or json")
	}
	for _, name := range v.headerNames(path+".header", c.Header) {
		if _, err := regexp.Compile(c.Header[name]); err != nil {
			v.reject(join(path+".header", name), "is not an RE2 pattern: %s", oneLine(err.Error()))
		}
	}
	for _, test := range c.JSON {
		if at := join(path+".json", test.Path); test.Path == "" || len(test.Path) > maxJSONPath || strings.Contains("."+test.Path+".", "..") {
			v.reject(at, "is not a dotted path of member names")
		}
	}
}
