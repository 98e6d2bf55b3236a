package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// freshnessType is the one struct that a single word may stand for.
var freshnessType = reflect.TypeFor[Freshness]()

// freshnessForms is what may be written for it.
const freshnessForms = FreshnessBarrier + ", {" + FreshnessBounded + ": 200ms}, " + FreshnessNone

// bound is Freshness as a mapping.
type bound struct {
	Bounded time.Duration `mapstructure:"bounded"`
}

// freshness reads a Freshness. It stays one in the tree of values, so that a variable
// replaces all of what the file says.
func (r *reader) freshness(n *yaml.Node, path, shown string) (any, bool) {
	switch {
	case n.Kind == yaml.MappingNode:
		if d, ok := r.structure(n, reflect.TypeFor[bound](), path, shown)["bounded"].(time.Duration); ok {
			return Freshness{Mode: FreshnessBounded, Bounded: d}, true
		}
		if !r.foreign[path] && !r.refused[join(path, "bounded")] {
			r.report(path, "is empty: write one of "+freshnessForms)
		}
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str":
		f, problem := freshnessOf(n.Value)
		if problem == "" {
			return f, true
		}
		r.report(path, problem)
	default:
		r.report(path, fmt.Sprintf("is %s: write one of %s", describe(n), freshnessForms))
	}
	return nil, r.refuse(path)
}

// freshnessOf reads a text: a word, which is not looked at, or "bounded: 200ms", for
// variables, which hold no mappings.
func freshnessOf(text string) (f Freshness, problem string) {
	text = strings.TrimSpace(text)
	inner := text
	if strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}") {
		inner = text[1 : len(text)-1]
	}
	key, value, isMapping := strings.Cut(inner, ":")
	if !isMapping || strings.TrimSpace(key) != FreshnessBounded {
		return Freshness{Mode: text}, ""
	}
	d, problem := fromText(value, reflect.TypeFor[time.Duration]())
	if problem != "" {
		return Freshness{}, FreshnessBounded + ": " + problem
	}
	return Freshness{Mode: FreshnessBounded, Bounded: d.(time.Duration)}, ""
}

func (v *validator) freshness(path string, f Freshness) {
	switch f.Mode {
	case FreshnessBounded:
		if f.Bounded == 0 && !v.given(path+".bounded") {
			v.refute(path, "is bounded by nothing: write {%s: 200ms}", FreshnessBounded)
			return
		}
		between(v, path+".bounded", f.Bounded, 10*time.Millisecond, time.Minute)
	case FreshnessBarrier, FreshnessNone:
		if f.Bounded != 0 {
			v.refute(path, "has a time, which is for %s only: remove one of the two", FreshnessBounded)
		}
	default:
		v.refute(path, "%s is not one of %s", quote(f.Mode), freshnessForms)
	}
}
