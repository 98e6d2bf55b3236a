package config

import (
	"fmt"
	"reflect"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// resolve returns the value that an alias refers to, and other nodes unchanged.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias // never an alias: an anchor belongs to a value
	}
	return n
}

// paddedNumber matches a whole number with a leading zero. YAML 1.1 reads it as octal, but
// most people mean decimal.
var paddedNumber = lazyregexp.New(`^[-+]?0[0-9_]`)

// scalar converts a single value to a field's type. The problem is empty if the value has
// that type.
func scalar(n *yaml.Node, t reflect.Type) (value any, problem string) {
	if n.Kind != yaml.ScalarNode {
		return nil, fmt.Sprintf("is %s: it has to be %s", describe(n), describeType(t))
	}
	tag := n.ShortTag()
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return duration(n.Value, tag)
	case t.Kind() == reflect.String && tag == "!!str":
		return n.Value, ""
	case t.Kind() == reflect.String:
		return nil, fmt.Sprintf("is %s: it has to be text, in quotes", describe(n))
	}
	into := reflect.New(t)
	fits := (t.Kind() == reflect.Bool && tag == "!!bool") ||
		(t.Kind() == reflect.Float64 && (tag == "!!float" || tag == "!!int")) ||
		(tag == "!!int" && !paddedNumber.MatchString(n.Value))
	if !fits || n.Decode(into.Interface()) != nil {
		return nil, fmt.Sprintf("%s is not %s", quote(n.Value), describeType(t))
	}
	return into.Elem().Interface(), ""
}

// duration parses a Go duration with a unit. Only 0 needs none.
func duration(text, tag string) (any, string) {
	d, err := time.ParseDuration(text)
	switch {
	case err == nil && (tag == "!!str" || text == "0"):
		return d, ""
	case tag == "!!int" || tag == "!!float":
		return nil, fmt.Sprintf("%s has no unit: write it as a duration such as 30s or 100ms", quote(text))
	}
	return nil, fmt.Sprintf("%s is not a duration such as 30s, 100ms or 1m30s", quote(text))
}

// describe returns the type of a node for a message.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!str":
		return "text"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!timestamp":
		return "a date"
	}
	return "of the type " + quote(n.Tag)
}

func describeType(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 30s"
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Float64:
		return "a number such as 0.001"
	}
	return "a whole number such as 1_000_000"
}
