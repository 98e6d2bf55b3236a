package config

import (
	"bytes"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// hidden stands for a value that a report does not show.
const hidden = "(hidden)"

var (
	// userInfo matches the user and the password in an address.
	userInfo = lazyregexp.New(`[^\s/@:]*:[^\s@]*@`)
	// shoutedName matches the names that variables have by custom. Another text may be a secret in
	// the wrong place.
	shoutedName = lazyregexp.New(`^[A-Z_][A-Z0-9_]*$`)
	// secretName matches the names of keys and variables whose values are secrets.
	secretName = lazyregexp.New(`(?i)pass|secret|token|dsn|credential|auth\b|private`)
	// keyOfLine matches a line of YAML up to its value.
	keyOfLine = lazyregexp.New(`^\s*(?:- +)*[A-Za-z_][A-Za-z0-9_-]*:`)
	// passwordOfDSN matches the password in a data source name, in each of its three forms.
	passwordOfDSN = lazyregexp.New(`^[^:@/]*:(.*)@(?:[a-z0-9]+)?\(|^[a-z]+://[^:@/]*:([^@]*)@|\bpassword\s*=\s*('[^']*'|\S+)`)
)

// Redact returns the text of a configuration file for a report: without comments, values of unknown
// keys, names that may be secrets, and users and passwords in addresses. Of a text that is not YAML
// it returns the keys.
func Redact(data []byte) []byte {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil || len(root.Content) == 0 {
		var b bytes.Buffer
		for line := range bytes.Lines(data) {
			if key := keyOfLine.Compiled().Find(line); key != nil {
				b.Write(key)
				b.WriteByte(' ')
			}
			b.WriteString(hidden + "\n")
		}
		return b.Bytes()
	}
	redact(root.Content[0], reflect.TypeFor[Config](), make(map[*yaml.Node]bool))
	root.HeadComment, root.LineComment, root.FootComment = "", "", ""
	text, err := yaml.Marshal(&root)
	if err != nil {
		return []byte(hidden + "\n")
	}
	return text
}

// redact hides what is below a node. The type is that of its value, nil for one that has none.
func redact(n *yaml.Node, t reflect.Type, seen map[*yaml.Node]bool) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode && seen[n] {
		return
	}
	seen[n] = true
	t = typeWithKeys(t)
	switch {
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			redact(key, reflect.TypeFor[string](), seen)
			var of reflect.Type
			switch {
			case t != nil && t.Kind() == reflect.Struct:
				if k := keyOf(t, key.Value); k != nil {
					of = k.field.Type
				}
			case t != nil && t.Kind() == reflect.Map:
				of = t.Elem()
			}
			redact(value, of, seen)
			if of != nil && value.Kind == yaml.ScalarNode && !mayShow(key.Value, value.Value) {
				hide(value)
			}
		}
	case n.Kind == yaml.SequenceNode:
		if t != nil && t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		for _, item := range n.Content {
			redact(item, t, seen)
		}
	case t == nil:
		hide(n)
	default:
		n.Value = userInfo.Compiled().ReplaceAllString(n.Value, hidden+"@")
	}
}

// typeWithKeys returns the type that has the keys of a type's mapping.
func typeWithKeys(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == freshnessType {
		return reflect.TypeFor[windowMapping]()
	}
	return t
}

// mayShow reports whether the value of a known key may be shown. Some users write a secret in the
// place of the name of its variable or file.
func mayShow(key, value string) bool {
	switch {
	case strings.HasSuffix(key, "_env"):
		return shoutedName.MatchString(value)
	case strings.HasSuffix(key, "_file") && secretName.MatchString(key):
		return strings.Contains(value, "/") && !strings.Contains(value, "@")
	}
	return true
}

func hide(n *yaml.Node) { n.Tag, n.Style, n.Value = "!!str", 0, hidden }

// FileSecrets returns the secrets that a configuration file holds or names, however wrong it is: those
// of variables and files, and what stands in the wrong place. They are for a report that must have
// none. The variables are in the form of os.Environ.
func FileSecrets(data []byte, environ []string) (secrets []string) {
	values := make(map[string]string)
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		values[name] = value
		if strings.HasPrefix(name, variablePrefix) {
			secrets = append(secrets, namedSecret(strings.ToLower(name), value, values)...)
		}
	}
	var root yaml.Node
	if yaml.Unmarshal(data, &root) != nil {
		return withParts(secrets)
	}
	var walk func(n *yaml.Node)
	seen := make(map[*yaml.Node]bool)
	walk = func(n *yaml.Node) {
		if seen[n] {
			return
		}
		seen[n] = true
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if value := n.Content[i+1]; value.Kind == yaml.ScalarNode {
				secrets = append(secrets, namedSecret(n.Content[i].Value, value.Value, values)...)
			}
		}
		for _, inner := range n.Content {
			walk(inner)
		}
	}
	walk(&root)
	return withParts(secrets)
}

// namedSecret returns the secrets of one key.
func namedSecret(key, value string, variables map[string]string) (secrets []string) {
	switch {
	case strings.HasSuffix(key, "_env"):
		secrets = append(secrets, variables[value])
	case strings.HasSuffix(key, "_file") && secretName.MatchString(key):
		if text, err := readSecretFile(value); err == nil {
			secrets = append(secrets, text)
		}
	case !secretName.MatchString(key):
		return nil
	}
	if !mayShow(key, value) || !strings.HasSuffix(key, "_env") && !strings.HasSuffix(key, "_file") {
		secrets = append(secrets, value)
	}
	return secrets
}

// Secrets returns the secrets of a configuration, those that its files have by now included. They are
// for a report that must have none.
func (c *Config) Secrets() (secrets []string) {
	newDocument("").eachSecret("", reflect.ValueOf(c).Elem(), func(s secretOf) {
		secrets = append(secrets, s.field.String())
		if now, err := readSecretFile(s.file); err == nil {
			secrets = append(secrets, now)
		}
	}, nil)
	return withParts(secrets)
}

// withParts adds the passwords of data source names, and removes empty texts.
func withParts(secrets []string) []string {
	for _, s := range slices.Clone(secrets) {
		if m := passwordOfDSN.Compiled().FindStringSubmatch(s); m != nil {
			secrets = append(secrets, m[1], m[2], strings.Trim(m[3], "'"))
		}
	}
	return slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
}

// InForce returns a configuration as YAML, with its defaults and what variables have set, and without
// secrets.
func (c *Config) InForce() []byte {
	s := shower{document: newDocument(""), config: c}
	text, err := yaml.Marshal(s.mapping("", reflect.ValueOf(*c)))
	if err != nil {
		return []byte(hidden + "\n")
	}
	return Redact(text) // and without the origins, which the file of now may not have
}

// ReadFile returns the text of a configuration file.
func ReadFile(path string) ([]byte, error) { return readFile(path, maxFileSize) }
