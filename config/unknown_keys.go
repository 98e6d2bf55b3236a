package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// unknown reports a key of a mapping without a field, and suggests a similar key.
func (r *reader) unknown(key *yaml.Node, path string, t reflect.Type) {
	v := Violation{File: r.file, Line: key.Line, Path: join(r.shown(path), keyText(key.Value)), Message: "unknown key"}
	all := declarationsOf(t)
	isSecret := slices.ContainsFunc(all.secrets, func(f reflect.StructField) bool { return f.Tag.Get("secret") == key.Value })
	known := sortedKeys(all.byKey)
	switch near := nearest(key.Value, known); {
	case path == "" && (key.Value == "static_resources" || key.Value == "dynamic_resources"):
		v.Message = "this is a configuration of Envoy, and none of ordergate"
	case isSecret:
		what := cmp.Or(secretWords[key.Value], key.Value)
		if key.Value == "dsn" {
			what += " has a password and"
		}
		v.Message = fmt.Sprintf("a %s does not belong in this file: use %s_file or %[2]s_env", what, key.Value)
	case near != "":
		v.Message += fmt.Sprintf(", did you mean %s?", near)
	default:
		v.Message += ": known here are " + strings.Join(known, ", ")
	}
	r.violations = append(r.violations, v)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

var plainKey = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)

// keyText returns a key for a message, quoted unless it is plain.
func keyText(key string) string {
	if plainKey.MatchString(key) {
		return key
	}
	return quote(key)
}

// nearest returns the candidate for which the word is most likely a typing error, or "".
func nearest(word string, candidates []string) string {
	if len(word) > 64 { // no typing error, and the distance takes quadratic time
		return ""
	}
	best, bestDistance := "", 3 // at most two errors
	for _, c := range candidates {
		d := distance(squash(word), squash(c))
		if d < bestDistance && d < (len(c)+1)/2 { // many words are near a short one
			best, bestDistance = c, d
		}
	}
	return best
}

// separators are left out where names that differ by them are one. Making a replacer is dear.
var separators = strings.NewReplacer("_", "", "-", "")

// squash returns the same text for a name in camelCase, kebab-case and snake_case.
func squash(word string) string {
	return strings.ToLower(separators.Replace(word))
}

// distance returns the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// sortedKeys returns the keys of a map in order, so that every run gives the same messages in
// the same order.
func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// serviceVariable matches the variables, without the prefix ORDERGATE_, that Kubernetes sets
// for a service whose name begins with "ordergate". They include those of Docker links
// (kubernetes.io, "Discovering services").
var serviceVariable = lazyregexp.New(`(^|_)(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

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
		for _, k := range keysOf(v.Type()) {
			if strings.HasSuffix(k.key, "_env") {
				names = append(names, k.in(v).String())
			}
		}
		d.eachMapping(path, v, nil, false, visit)
	}
	visit("", reflect.ValueOf(*c))
	return names
}
