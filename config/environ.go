package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// variablePrefix begins the names of the variables that set keys.
	variablePrefix = "ORDERGATE_"
	// environmentFile is the "file" of a violation in a variable.
	environmentFile = "environment"
)

// environment returns the values that environment variables override, in the shape of the
// tree from the file. Rules have no variables: they are a list, so the names of their
// variables would contain indices.
func (d *document) environment(tree map[string]any, getenv func(string) string) map[string]any {
	paths := make(map[string]reflect.Type)
	for _, k := range keysOf(reflect.TypeFor[Config]()) {
		section, t := k.key, k.field.Type
		if t.Kind() != reflect.Map {
			addLeaves(paths, t, section)
			continue
		}
		entries, _ := tree[section].(map[string]any) // nil if the file lacks the section
		for name := range entries {
			if nameProblem(name) == "" {
				addLeaves(paths, t.Elem(), join(section, name))
			}
		}
	}
	d.variables = make(map[string]string, len(paths))
	overrides := make(map[string]any)
	for _, path := range sortedKeys(paths) {
		variable := variableOf(path)
		other, taken := d.variables[variable]
		if !taken {
			d.variables[variable] = path
		}
		text := getenv(variable)
		if text == "" {
			continue
		}
		if taken {
			d.reportVariable(variable, fmt.Sprintf("stands for both %s and %s: rename one of them", other, path))
			continue
		}
		value, problem := fromText(text, paths[path])
		if problem != "" {
			d.reportVariable(variable, problem)
			continue
		}
		d.override(path, variable, value)
		put(overrides, strings.Split(path, "."), value)
	}
	return overrides
}

func (d *document) reportVariable(variable, message string) {
	d.violations = append(d.violations, Violation{File: environmentFile, Path: variable, Message: message})
}

// addLeaves collects the paths below path that hold a scalar or a list.
func addLeaves(paths map[string]reflect.Type, t reflect.Type, path string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Map || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
		return // a variable has one value, or a list of texts
	}
	if t.Kind() != reflect.Struct || t == freshnessType {
		paths[path] = t
		return
	}
	for _, k := range keysOf(t) {
		addLeaves(paths, k.field.Type, join(path, k.key))
	}
}

var underscored = strings.NewReplacer(".", "_", "-", "_")

// variableOf returns the name of a key's variable. It follows viper's scheme, with "_" in
// place of characters that a shell does not allow in a name.
func variableOf(path string) string {
	return variablePrefix + strings.ToUpper(underscored.Replace(path))
}

// fromText converts a variable's text to a field's type. It keeps text as it is, splits lists
// at commas, and reads other types as YAML does.
func fromText(text string, t reflect.Type) (value any, problem string) {
	switch {
	case t == freshnessType:
		return freshnessOf(text)
	case t.Kind() == reflect.String:
		return text, ""
	case t.Kind() == reflect.Slice:
		items := strings.Split(text, ",")
		for i, item := range items {
			items[i] = strings.TrimSpace(item)
		}
		if slices.Contains(items, "") {
			return nil, "has an empty item: separate the items by single commas"
		}
		return items, ""
	}
	return scalar(&yaml.Node{Kind: yaml.ScalarNode, Value: strings.TrimSpace(text)}, t)
}

// put sets a value in nested mappings. It creates missing mappings.
func put(m map[string]any, path []string, value any) {
	for _, key := range path[:len(path)-1] {
		inner, ok := m[key].(map[string]any)
		if !ok {
			inner = make(map[string]any)
			m[key] = inner
		}
		m = inner
	}
	m[path[len(path)-1]] = value
}
