package config

import (
	"reflect"
	"slices"
	"strings"
)

// Kinds of keys, by their tag change, that a reload cannot always change.
const (
	changeRestart = "restart" // never
	ChangeLock    = "lock"    // where requests would take another lock than calls that run
	ChangeAnswers = "answers" // where calls would not find the stored answers of others
	changeForm    = "form"    // where a filter would need its IDs in another form
)

// ChangeOf returns what a path of [Changes] is: a kind of key, or "".
func ChangeOf(path string) string {
	d, t := newDocument(""), reflect.TypeFor[Config]()
	for key := range strings.SplitSeq(path, ".") {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch t.Kind() {
		case reflect.Map:
			t = t.Elem() // the key is a name
			continue
		case reflect.Slice: // by the name of a rule
			return ""
		}
		keys := d.keysOf(t)
		k := keys[slices.IndexFunc(keys, func(k *declaration) bool { return k.key == key })]
		if k.change != "" {
			return k.change
		}
		t = k.field.Type
	}
	return ""
}

// TakesRestart reports whether no reload changes what is at a path of [Changes].
func TakesRestart(path string) bool { return ChangeOf(path) == changeRestart }

// Identity returns a struct with nothing but its keys of a kind. Lists whose order means nothing
// are sorted.
func Identity[T any](of T, kind string) T {
	return identity(reflect.ValueOf(of), kind).Interface().(T)
}

func identity(of reflect.Value, kind string) reflect.Value {
	kept := reflect.New(of.Type()).Elem()
	for i := range of.NumField() {
		f := of.Field(i)
		switch tag := of.Type().Field(i).Tag.Get("change"); {
		case tag == kind+asSet:
			sorted := slices.Sorted(slices.Values(f.Convert(reflect.TypeFor[[]string]()).Interface().([]string)))
			kept.Field(i).Set(reflect.ValueOf(sorted).Convert(f.Type()))
		case tag != kind:
		case f.Kind() == reflect.Pointer && !f.IsNil():
			inner := reflect.New(f.Type().Elem())
			inner.Elem().Set(identity(f.Elem(), kind))
			kept.Field(i).Set(inner)
		default:
			kept.Field(i).Set(f)
		}
	}
	return kept
}

// asSet ends the tag change of a list whose order means nothing.
const asSet = ",set"

// Changes returns the paths of the keys whose values differ between two
// configurations, in the order of the fields of [Config]: "redis.addresses",
// "locks.settlement.lease". If only one of the two has a section or an entry, the path ends
// there. The path of a rule contains its name: "rules.order-lookup". It is "rules" if only
// the order of the rules differs. The paths contain no values.
func Changes(a, b *Config) []string {
	return ChangesIn("", *a, *b)
}

// ChangesIn returns the paths of the keys that differ between two structs of one type, which stand at
// a path.
func ChangesIn[T any](path string, a, b T) []string {
	var c changes
	c.compareFields(path, reflect.ValueOf(a), reflect.ValueOf(b))
	return c.paths
}

type changes struct{ paths []string }

func (c *changes) compare(path string, a, b reflect.Value) {
	if reflect.DeepEqual(a.Interface(), b.Interface()) {
		return
	}
	before := len(c.paths)
	switch t := a.Type(); {
	case t == reflect.TypeFor[[]Rule]():
		c.compareRules(a.Interface().([]Rule), b.Interface().([]Rule))
		return
	case t == freshnessType:
	case t.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
		c.compare(path, a.Elem(), b.Elem())
	case t.Kind() == reflect.Struct:
		c.compareFields(path, a, b)
	case t.Kind() == reflect.Map:
		c.compareEntries(path, a, b)
	}
	// This is a value. A secret may have changed together with the key of its file or variable,
	// so its path may be in the list already.
	if len(c.paths) == before && !slices.Contains(c.paths, path) {
		c.paths = append(c.paths, path)
	}
}

func (c *changes) compareFields(path string, a, b reflect.Value) {
	for i := range a.NumField() {
		f := a.Type().Field(i)
		key := f.Tag.Get("mapstructure")
		if key == "-" {
			key = f.Tag.Get("secret") + "_file"
			in := func(v reflect.Value, at string) bool { return v.FieldByName(f.Name+at).String() != "" }
			if in(b, "Env") || !in(b, "File") && in(a, "Env") {
				key = f.Tag.Get("secret") + "_env"
			}
		}
		c.compare(join(path, key), a.Field(i), b.Field(i))
	}
}

func (c *changes) compareEntries(path string, a, b reflect.Value) {
	var names []string
	for _, m := range []reflect.Value{a, b} {
		for _, name := range m.MapKeys() {
			names = append(names, name.String())
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		in, inB := a.MapIndex(reflect.ValueOf(name)), b.MapIndex(reflect.ValueOf(name))
		if !in.IsValid() || !inB.IsValid() {
			c.paths = append(c.paths, join(path, name))
			continue
		}
		c.compare(join(path, name), in, inB)
	}
}

// compareRules compares rules by name. Names are unique in a valid configuration.
func (c *changes) compareRules(a, b []Rule) {
	before := len(c.paths)
	for _, r := range a {
		if i := indexOfRule(b, r.Name); i < 0 || !reflect.DeepEqual(r, b[i]) {
			c.paths = append(c.paths, join("rules", r.Name))
		}
	}
	for _, r := range b {
		if indexOfRule(a, r.Name) < 0 {
			c.paths = append(c.paths, join("rules", r.Name))
		}
	}
	if len(c.paths) == before {
		c.paths = append(c.paths, "rules")
	}
}

func indexOfRule(rules []Rule, name string) int {
	return slices.IndexFunc(rules, func(r Rule) bool { return r.Name == name })
}
