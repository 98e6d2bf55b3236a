package config

import (
	"reflect"
	"slices"
)

// secretFields maps the fields for secrets to their keys. The file has each key only with the
// suffix _file or _env.
var secretFields = map[string]string{
	"Token": "token", "Password": "password", "SentinelPassword": "sentinel_password", "DSN": "dsn", "Secret": "secret",
}

// Changes returns the paths of the keys whose values differ between two
// configurations, in the order of the fields of [Config]: "redis.addresses",
// "locks.settlement.lease". If only one of the two has a section or an entry, the path ends
// there. The path of a rule contains its name: "rules.order-lookup". It is "rules" if only
// the order of the rules differs. The paths contain no values.
func Changes(a, b *Config) []string {
	var c changes
	c.compare("", reflect.ValueOf(*a), reflect.ValueOf(*b))
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
			key = secretFields[f.Name]
			if name := key + "_env"; fieldOf(b, name) != "" || fieldOf(b, key+"_file") == "" && fieldOf(a, name) != "" {
				key = name
			} else {
				key += "_file"
			}
		}
		c.compare(join(path, key), a.Field(i), b.Field(i))
	}
}

// fieldOf returns the text of a field of a structure, by its key.
func fieldOf(v reflect.Value, key string) string {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("mapstructure") == key {
			return v.Field(i).String()
		}
	}
	return ""
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
