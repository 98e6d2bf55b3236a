package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// schema is a JSON Schema, or a part of one.
type schema map[string]any

// Schema returns the JSON Schema (2020-12) of the file, made from the declarations of its keys.
// It refuses what is wrong with a single value. What several keys have to agree on, [Load] checks.
func Schema() map[string]any {
	b := schemaBuilder{comments: readComments(), defs: make(schema)}
	root := b.object(reflect.TypeFor[Config]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "ordergate.yaml"
	root["$defs"] = b.defs
	return root
}

type schemaBuilder struct {
	comments
	defs schema // of structs, by the names of their types
}

// The forms of values that are no plain text.
const (
	durationForm = `^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$`
	// numberForm has underscores: as YAML 1.2 has it, such a number is text.
	numberForm  = `^[-+]?[0-9]+(_[0-9]+)+$`
	nameForm    = `^[a-z0-9][a-z0-9_-]{0,62}$`
	addressForm = `^(unix:/.*|[^@]*:[0-9]{1,5})?$`
)

var (
	text  = schema{"type": "string"}
	texts = listOf(text)
	// word is a scalar that is read as text.
	word = schema{"type": []string{"string", "number", "boolean", "null"}}
)

func listOf(items schema) schema { return schema{"type": "array", "items": items} }

func anyOf(forms ...schema) schema { return schema{"anyOf": forms} }

func objectOf(properties schema) schema {
	return schema{"type": "object", "properties": properties, "additionalProperties": false}
}

// object returns the schema of a mapping with fixed keys.
func (b *schemaBuilder) object(t reflect.Type) schema {
	properties := make(schema)
	s := objectOf(properties)
	var rules []schema
	pairs := make(schema)
	for _, k := range keysOf(t) {
		p := b.value(k.field.Type)
		if _, isRef := p["$ref"]; !isRef {
			p = maps.Clone(p)
		}
		if text := b.of(t, k.field.Name); text != "" {
			p["description"] = text
		}
		b.limit(p, t, k)
		properties[k.key] = p
		if len(k.only) > 0 {
			rules = append(rules, b.only(k))
		}
		if k.with != nil {
			pairs[k.key] = k.with[:1]
		}
		if k.not != "" {
			rules = append(rules, schema{"not": schema{"required": []string{k.key, k.not}}})
		}
	}
	if len(rules) > 0 {
		s["allOf"] = rules
	}
	if len(pairs) > 0 {
		s["dependentRequired"] = pairs
	}
	if text, _, _ := strings.Cut(b.comments[t.Name()], "\n\n"); text != "" {
		s["description"] = strings.Join(strings.Fields(text), " ")
	}
	return s
}

// limit adds the words, the bounds and the default of a key.
func (b *schemaBuilder) limit(p schema, t reflect.Type, k *declaration) {
	if len(k.choices) > 0 {
		words := sortedKeys(k.aliases)
		for i := range k.choices {
			words = slices.Insert(words, i, k.choices[i].word)
		}
		p["enum"] = words
	}
	if isList := k.field.Type.Kind() == reflect.Slice; k.looks.expr != "" && k.field.Type.Kind() == reflect.String {
		p["pattern"] = k.looks.expr
	} else if k.looks.expr != "" && isList && k.field.Type.Elem() == reflect.TypeFor[string]() {
		p["items"] = schema{"type": "string", "pattern": k.looks.expr}
	}
	isTime := k.field.Type == reflect.TypeFor[time.Duration]()
	if k.least.IsValid() && !isTime {
		p["minimum"], p["maximum"] = k.least.Interface(), k.most.Interface()
	} else if k.least.IsValid() { // JSON Schema cannot compare durations
		p["description"] = strings.TrimSpace(fmt.Sprint(b.comments.of(t, k.field.Name), " ", number(k.least.Interface()), " to ", number(k.most.Interface()), "."))
	}
	if k.byDefault.IsValid() {
		p["default"] = k.byDefault.Interface()
		if isTime {
			p["default"] = number(k.byDefault.Interface())
		}
	}
}

// only returns the rule of a key that is for some mappings.
func (b *schemaBuilder) only(k *declaration) schema {
	var of []schema
	for _, c := range k.only {
		if c.words == nil {
			of = append(of, schema{"required": []string{c.key}})
			continue
		}
		other := c.of
		words := slices.Clone(c.words)
		for alias, word := range other.aliases {
			if slices.Contains(words, word) {
				words = append(words, alias)
			}
		}
		slices.Sort(words)
		has := schema{"properties": schema{c.key: schema{"enum": words}}}
		if !other.byDefault.IsValid() || !slices.Contains(c.words, other.byDefault.String()) || len(other.only) > 0 {
			has["required"] = []string{c.key}
		}
		of = append(of, has)
	}
	return schema{"if": schema{"required": []string{k.key}}, "then": anyOf(of...)}
}

// value returns the schema of a value.
func (b *schemaBuilder) value(t reflect.Type) schema {
	if s := b.special(t); s != nil {
		return s
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.value(t.Elem())
	case reflect.Struct:
		return b.ref(t)
	case reflect.Map:
		return schema{"type": "object", "propertyNames": schema{"pattern": nameForm}, "additionalProperties": b.value(t.Elem())}
	case reflect.Slice:
		return listOf(b.value(t.Elem()))
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.String:
		return text
	case reflect.Float64:
		return schema{"type": "number"}
	}
	return schema{"type": []string{"integer", "string"}, "pattern": numberForm}
}

// ref returns a reference to the schema of a mapping with fixed keys.
func (b *schemaBuilder) ref(t reflect.Type) schema {
	if _, known := b.defs[t.Name()]; !known {
		b.defs[t.Name()] = nil // so that a type may contain itself
		b.defs[t.Name()] = b.object(t)
	}
	return schema{"$ref": "#/$defs/" + t.Name()}
}

// special returns the schema of a type that a file may have in several forms; nil: it is none.
func (b *schemaBuilder) special(t reflect.Type) schema {
	header := objectOf(schema{"header": text})
	switch t {
	case reflect.TypeFor[time.Duration]():
		return anyOf(schema{"type": "string", "pattern": durationForm}, schema{"const": 0})
	case freshnessType:
		return anyOf(schema{"enum": []string{FreshnessWindow, FreshnessNone}}, schema{"type": "string", "pattern": `^\s*(window|none|window\s*:.*|\{\s*window\s*:.*\})\s*$`}, b.ref(reflect.TypeFor[windowMapping]()))
	case modeType:
		return anyOf(schema{"enum": []string{ModeEnforce, ModeObserve}}, b.ref(t))
	case shareType:
		return anyOf(schema{"type": "string", "pattern": `^(100(\.00?)?|[0-9]{1,2}(\.[0-9]{1,2})?)%$`}, b.ref(t))
	case parametersType:
		return schema{"type": "object", "additionalProperties": text}
	case queryType:
		return schema{"type": "object", "additionalProperties": anyOf(text, texts)}
	case idsType:
		return anyOf(b.value(t.Elem()), listOf(b.value(t.Elem())))
	case learnType:
		return anyOf(schema{"const": learnTable}, b.ref(t))
	case oncePartsType:
		return anyOf(text, header, listOf(anyOf(text, header)))
	case onceNamesType:
		return anyOf(schema{"const": true}, texts)
	case onceStatusType:
		return schema{"type": []string{"integer", "string"}, "pattern": `^([2-5](xx|\d\d)|4xx-final)$`, "minimum": 200, "maximum": 599}
	case idMaxType:
		return schema{"type": []string{"number", "string"}, "pattern": `^([1-9][0-9_]*|int32|uint32|double|int64)$`}
	case answerStatusesType:
		return anyOf(b.special(onceStatusType), listOf(b.special(onceStatusType)))
	case jsonTestsType:
		values := anyOf(word, listOf(word))
		return schema{"type": "object", "additionalProperties": anyOf(word, listOf(word),
			objectOf(schema{"is": values, "isnt": values, "exists": schema{"enum": []any{true, false, "true", "false"}}}))}
	}
	return nil
}
