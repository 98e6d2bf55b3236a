package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// serviceVariable matches the variables, without the prefix ORDERGATE_, that Kubernetes sets
// for a service whose name begins with "ordergate". They include those of Docker links
// (kubernetes.io, "Discovering services").
var serviceVariable = regexp.MustCompile(`(^|_)(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// unknownVariables returns a violation for each variable that has the prefix of keys, but no
// key. It skips variables of Kubernetes, and those that the file names. Its messages contain
// no values of variables.
func (d *document) unknownVariables(c *Config, environ []string) (unknown []Violation) {
	environ = slices.DeleteFunc(slices.Clone(environ), func(variable string) bool { return !strings.HasPrefix(variable, variablePrefix) })
	if len(environ) == 0 {
		return nil
	}
	named := d.namedVariables(c)
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(variable, "=")
		rest := strings.TrimPrefix(name, variablePrefix)
		_, isKey := d.variables[name]
		switch {
		case value == "" || isKey || slices.Contains(named, name):
		case serviceVariable.MatchString(rest), strings.HasSuffix("_"+rest, "_PORT") && strings.Contains(value, "://"):
		default:
			unknown = append(unknown, Violation{File: environmentFile, Path: name, Message: d.unknownVariable(rest)})
		}
	}
	return unknown
}

func (d *document) unknownVariable(rest string) string {
	if rest == "RULES" || strings.HasPrefix(rest, "RULES_") {
		return "is ignored: rules have no variables"
	}
	text := "is ignored: it stands for no key of the file"
	if near := nearest(variablePrefix+rest, sortedKeys(d.variables)); near != "" {
		text += fmt.Sprintf(", did you mean %s?", near)
	}
	return text
}

// namedVariables returns the variables that the file names for secrets.
func (d *document) namedVariables(c *Config) (names []string) {
	var visit func(string, reflect.Value)
	visit = func(path string, v reflect.Value) {
		for _, k := range d.keysOf(v.Type()) {
			if strings.HasSuffix(k.key, "_env") {
				names = append(names, v.FieldByIndex(k.field.Index).String())
			}
		}
		d.eachMapping(path, v, nil, false, visit)
	}
	visit("", reflect.ValueOf(*c))
	return names
}
