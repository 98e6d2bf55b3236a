package config

import (
	"bytes"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Setting is a value of a configuration in force, and what set it: a line of the file, a variable,
// or a default, which has neither.
type Setting struct {
	Path     string `json:"path"`
	Value    any    `json:"value"` // as a file has it
	Line     int    `json:"line,omitempty"`
	Variable string `json:"variable,omitempty"`

	text string
}

// Origin returns what set the value, in words.
func (s Setting) Origin() string {
	switch {
	case s.Variable != "":
		return s.Variable
	case s.Line > 0:
		return "line " + strconv.Itoa(s.Line)
	}
	return "default"
}

// Effective is a configuration with the origins of its values. It is safe for concurrent use.
type Effective struct {
	Config   *Config
	Warnings Warnings
	document *document
	getenv   func(string) string
}

// Settings returns all values, in the order of the file's sections and keys, without secrets.
func (e *Effective) Settings() []Setting {
	settings, _ := e.show()
	return settings
}

// WriteTo writes the configuration as a file that has every value, each with its origin in a
// comment. [Load] reads the same configuration from it.
func (e *Effective) WriteTo(w io.Writer) (int64, error) {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	_, root := e.show()
	if err := encoder.Encode(root); err != nil {
		return 0, err
	}
	return text.WriteTo(w)
}

func (e *Effective) show() ([]Setting, *yaml.Node) {
	s := shower{document: e.document, config: e.Config, getenv: e.getenv}
	root := s.mapping("", reflect.ValueOf(*e.Config))
	return s.settings, root
}

// shower writes a configuration as YAML nodes.
type shower struct {
	*document
	config   *Config
	settings []Setting
	rule     *Rule               // that the walk is in
	getenv   func(string) string // nil: none are known
}

// leaf adds a value to the settings, and its origin as a comment.
func (s *shower) leaf(path string, n *yaml.Node) *yaml.Node {
	// A variable that is not set may be the secret itself, in the place of a name.
	if strings.HasSuffix(path, "_env") && s.getenv != nil && s.getenv(n.Value) == "" && !mayShow("_env", n.Value) {
		hide(n)
	}
	set := Setting{Path: s.shown(path), Line: s.lines[path], Variable: s.setBy[path]}
	if err := n.Decode(&set.Value); err != nil {
		set.Value = n.Value
	}
	plain, _ := yaml.Marshal(n) // a node of ours can be written
	set.text = strings.TrimSpace(string(plain))
	n.LineComment = set.Origin()
	s.settings = append(s.settings, set)
	return n
}

// mapping returns the node of a struct.
func (s *shower) mapping(path string, v reflect.Value) *yaml.Node {
	m := &yaml.Node{Kind: yaml.MappingNode}
	if r, ok := v.Interface().(Rule); ok {
		s.rule = &r
	}
	for _, k := range keysOf(v.Type()) {
		f, at := k.in(v), join(path, k.key)
		empty := f.IsZero() || (f.Kind() == reflect.Slice || f.Kind() == reflect.Map) && f.Len() == 0
		if empty && !s.given(at) && !k.byDefault.IsValid() || !s.applies(path, v, k) || s.isInside(v, k) && !s.given(at) {
			continue
		}
		if n := s.value(at, f); n != nil {
			m.Content = append(m.Content, scalarNode(k.key), n)
		}
	}
	return m
}

// keysOfOrders are keys of stored answers that are for orders.
var keysOfOrders = []string{"keep", "name", "forget", "scope", "duplicate", "mismatch"}

// isInside reports whether a key has what another one says, or what a file cannot say.
func (s *shower) isInside(v reflect.Value, k *declaration) bool {
	switch of := v.Interface().(type) {
	case Once:
		return k.key == "keep" && (len(of.Forget) > 0 || of.For != 0) || s.rule.IsBy() && slices.Contains(keysOfOrders, k.key)
	case Reply:
		return of.BodyFile != "" && k.key == "body"
	case Rule:
		return of.Answer == s.config.Answer && k.key == "answer"
	}
	return false
}

// value returns the node of a value; nil: there is nothing to show.
func (s *shower) value(path string, v reflect.Value) *yaml.Node {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if n := special(v); n != nil {
		return s.leaf(path, n)
	}
	switch t := v.Type(); {
	case t.Kind() == reflect.Struct:
		m := s.mapping(path, v)
		if len(m.Content) > 0 {
			return m
		}
		if !s.given(path) {
			return nil
		}
		m.Style = yaml.FlowStyle
		return s.leaf(path, m)
	case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Struct:
		m := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range sortedNames(v) {
			inner := s.mapping(join(path, name.String()), v.MapIndex(name))
			if len(inner.Content) == 0 {
				inner.Style = yaml.FlowStyle
			}
			m.Content = append(m.Content, scalarNode(name.String()), inner)
		}
		return m
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			at := path + "[" + strconv.Itoa(i) + "]"
			if t == idsType {
				at = s.idPath(parent(path), i, v.Len())
			}
			list.Content = append(list.Content, s.mapping(at, v.Index(i)))
		}
		if v.Len() == 0 {
			list.Style = yaml.FlowStyle
			return s.leaf(path, list)
		}
		return list
	}
	return s.leaf(path, plainNode(v))
}

// special returns the node of a type that a file may have in several forms; nil: it is none.
func special(v reflect.Value) *yaml.Node {
	switch of := v.Interface().(type) {
	case Freshness:
		if of.Mode == FreshnessWindow {
			return flow(yaml.MappingNode, scalarNode(FreshnessWindow), plainNode(reflect.ValueOf(of.Window)))
		}
		return scalarNode(of.Mode)
	case Mode:
		if of.Share == (Share{}) {
			return scalarNode(of.Word)
		}
		share := scalarNode(of.Share.String())
		if of.Share.Header != "" {
			share = plainNode(reflect.ValueOf(map[string]string{"header": of.Share.Header}))
			if of.Share.Value != "" {
				share.Content = append(share.Content, scalarNode("value"), scalarNode(of.Share.Value))
			}
			if of.Share.Locks {
				share.Content = append(share.Content, scalarNode("locks"), plainNode(reflect.ValueOf(true)))
			}
		}
		return flow(yaml.MappingNode, scalarNode(of.Word), share)
	case Learn:
		if of.Table {
			return scalarNode(learnTable)
		}
	case OnceParts:
		list := flow(yaml.SequenceNode)
		for _, part := range of {
			n := scalarNode(part)
			if name, isHeader := strings.CutPrefix(part, OnceHeader); isHeader {
				n = flow(yaml.MappingNode, scalarNode("header"), scalarNode(name))
			}
			list.Content = append(list.Content, n)
		}
		return list
	case OnceNames:
		if len(of) > 0 && of[0] == OnceAll {
			return plainNode(reflect.ValueOf(true))
		}
	case JSONTests:
		m := flow(yaml.MappingNode)
		for _, t := range of {
			values := plainNode(reflect.ValueOf(append(t.Is, t.Isnt...)))
			switch {
			case len(t.Isnt) > 0:
				values = flow(yaml.MappingNode, scalarNode("isnt"), values)
			case t.Exists != "":
				values = flow(yaml.MappingNode, scalarNode("exists"), scalarNode(t.Exists))
			}
			m.Content = append(m.Content, scalarNode(t.Path), values)
		}
		return m
	}
	return nil
}

func flow(kind yaml.Kind, content ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: kind, Style: yaml.FlowStyle, Content: content}
}

// scalarNode returns a text on one line.
func scalarNode(text string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(text)
	if n.Style&yaml.LiteralStyle != 0 {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// plainNode returns a scalar, a list of texts or a mapping of them, on one line.
func plainNode(v reflect.Value) *yaml.Node {
	switch v.Kind() {
	case reflect.String:
		return scalarNode(v.String())
	case reflect.Slice:
		list := flow(yaml.SequenceNode)
		for i := range v.Len() {
			list.Content = append(list.Content, plainNode(v.Index(i)))
		}
		return list
	case reflect.Map:
		m := flow(yaml.MappingNode)
		for _, name := range sortedNames(v) {
			m.Content = append(m.Content, scalarNode(name.String()), plainNode(v.MapIndex(name)))
		}
		return m
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: number(v.Interface())}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		n.Tag = "!!str"
	}
	return n
}
