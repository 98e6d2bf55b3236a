package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ordergate/ordergate/internal/lazyregexp"
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
	t := reflect.TypeFor[Config]()
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
		k := keyOf(t, key)
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

// Difference is a value, or an entry of a section, that two configurations do not share.
type Difference struct {
	Path string `json:"path"` // a rule's has its name
	Old  any    `json:"old"`  // nil: there is none
	New  any    `json:"new"`

	text string
}

// String returns the difference as one line: "+ path" is new, "- path" is gone, "~ path" changes.
func (d Difference) String() string { return d.text }

// Differences returns what changes from e to another configuration, in the order of the keys.
// Values that defaults or variables change are among them. A secret has its path only.
func (e *Effective) Differences(to *Effective) []Difference {
	paths, was, entries := e.byPath()
	others, is, otherEntries := to.byPath()
	differences := []Difference{}
	seen := make(map[string]bool)
	add := func(d Difference, sign, text string) {
		if !seen[d.Path] {
			seen[d.Path] = true
			d.text = strings.TrimSpace(sign + " " + d.Path + text)
			differences = append(differences, d)
		}
	}
	for _, path := range slices.Concat(paths, others) {
		a, had := was[path]
		b, has := is[path]
		entry := entryOf(path)
		switch {
		case had && has && reflect.DeepEqual(a.Value, b.Value):
		case had && has:
			add(Difference{Path: path, Old: a.Value, New: b.Value}, "~", ": "+a.text+" -> "+b.text)
		case has && entry != "" && !entries[entry]:
			add(Difference{Path: entry, New: entryText}, "+", "")
		case had && entry != "" && !otherEntries[entry]:
			add(Difference{Path: entry, Old: entryText}, "-", "")
		case has:
			add(Difference{Path: path, New: b.Value}, "+", ": "+b.text)
		default:
			add(Difference{Path: path, Old: a.Value}, "-", ": "+a.text)
		}
	}
	if old, now := ruleNames(e.Config, to.Config), ruleNames(to.Config, e.Config); !slices.Equal(old, now) {
		add(Difference{Path: "rules", Old: old, New: now}, "~", ": another order: "+strings.Join(now, ", "))
	}
	for _, path := range Changes(e.Config, to.Config) {
		if !strings.HasPrefix(path, "rules") && !slices.ContainsFunc(differences, func(d Difference) bool { return within(d.Path, path) || within(path, d.Path) }) {
			add(Difference{Path: path, Old: "(hidden)", New: "(hidden)"}, "~", ": the content of the secret")
		}
	}
	return differences
}

// entryText stands for a whole entry of a section.
const entryText = "(entry)"

// ruleIndex matches the beginning of a path in a rule.
var ruleIndex = lazyregexp.New(`^rules\[(\d+)\]`)

// pathOf returns the path of a setting with the name of its rule.
func (e *Effective) pathOf(s Setting) string {
	return ruleIndex.Compiled().ReplaceAllStringFunc(s.Path, func(at string) string {
		i, _ := strconv.Atoi(ruleIndex.Compiled().FindStringSubmatch(at)[1]) // the expression matches digits only
		return join("rules", e.Config.Rules[i].Name)
	})
}

// byPath returns the settings by their paths, the paths in order, and the entries of sections.
func (e *Effective) byPath() (paths []string, settings map[string]Setting, entries map[string]bool) {
	settings, entries = make(map[string]Setting), make(map[string]bool)
	for _, s := range e.Settings() {
		path := e.pathOf(s)
		paths = append(paths, path)
		settings[path] = s
		entries[entryOf(path)] = true
	}
	return paths, settings, entries
}

// entryOf returns the entry of a section that a path is in; "": none.
func entryOf(path string) string {
	parts := strings.SplitN(path, ".", 3)
	if len(parts) < 3 || !slices.Contains([]string{"filters", "sources", "locks", "rules"}, parts[0]) {
		return ""
	}
	return join(parts[0], parts[1])
}

// ruleNames returns the names of the rules that another configuration has too.
func ruleNames(c, other *Config) (names []string) {
	for _, r := range c.Rules {
		if indexOfRule(other.Rules, r.Name) >= 0 {
			names = append(names, r.Name)
		}
	}
	return names
}
