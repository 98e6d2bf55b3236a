package config

import (
	"reflect"
	"slices"
)

// secretFields are those that a file has no key for, but one with _file or _env
// behind it, by the names of the fields.
var secretFields = map[string]string{
	"Token": "token", "Password": "password", "SentinelPassword": "sentinel_password", "DSN": "dsn", "Secret": "secret",
}

// Changes returns the paths of the keys whose values differ between two
// configurations, in the order of the fields of [Config]: "redis.addresses",
// "locks.settlement.lease". A path ends earlier where only one of the two has what it
// leads to. Rules go by their names: "rules.order-lookup", or "rules" if they only
// stand in another order. Nothing is told of the values.
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
	// A value. That of a secret may have changed with the place that it comes from.
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

// compareRules goes by the names, which are unique in a valid configuration.
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
