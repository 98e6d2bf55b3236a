package config

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

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
var ruleIndex = regexp.MustCompile(`^rules\[(\d+)\]`)

// pathOf returns the path of a setting with the name of its rule.
func (e *Effective) pathOf(s Setting) string {
	return ruleIndex.ReplaceAllStringFunc(s.Path, func(at string) string {
		i, _ := strconv.Atoi(ruleIndex.FindStringSubmatch(at)[1]) // the expression matches digits only
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
	if len(parts) < 3 || !isNamed(parts[0]+".") && parts[0] != "rules" {
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
