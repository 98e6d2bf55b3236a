package config

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

// Validate returns an [*InvalidError] with every violation of the limits in the comments of
// [Config], without file and lines, or nil. Call [Config.EnsureDefaults] before it. Validate
// does not change c and does not read the file system.
func (c *Config) Validate() error {
	doc := newDocument("")
	doc.uses = c.lockUses()
	c.validate(doc)
	return invalid(doc.violations)
}

func (c *Config) validate(doc *document) {
	v := &validator{document: doc, config: c}
	for i := range c.Rules {
		if c.Rules[i].Pass {
			v.pass(rulePath(i), &c.Rules[i])
		}
	}
	checks := []func(*document){
		func(d *document) { (&validator{d, c}).keys("", reflect.ValueOf(c).Elem()) },
		func(d *document) { (&validator{d, c}).sections(c) },
	}
	checks = append(checks, c.ofRules(func(d *document, path string, r *Rule) { (&validator{d, c}).rule(path, r) })...)
	doc.beside(append(checks, func(d *document) { (&validator{d, c}).rulesAgree(c) }))
}

// sections checks what concerns several keys at once, but for those of rules.
func (v *validator) sections(c *Config) {
	if at := "front_controllers"; len(c.FrontControllers) > 0 || v.given(at) {
		if !slices.ContainsFunc(c.Rules, func(r Rule) bool { return hasFrontControllers(r.Backend) }) && len(c.Rules) > 0 {
			v.reject(at, "is for backend %s and %s, which no rule has: remove it", BackendStrict, BackendPHP)
		}
	}
	v.answer("answer", c.Answer)
	v.listen(c)
	if c.Redis != nil {
		v.redis(c.Redis)
	} else if c.needsRedis() {
		v.reject("redis", "is missing: locks, create, require, freshness %s, follow, kafka, reconcile and share_load need it", FreshnessWindow)
	}
	for _, name := range sortedKeys(c.Filters) {
		v.filter(join("filters", name), name, c.Filters[name])
	}
	v.filtersDiffer(c)
	for _, name := range sortedKeys(c.Sources) {
		v.source(join("sources", name), name, c.Sources[name])
	}
	v.followersDiffer(c)
	for _, name := range sortedKeys(c.Locks) {
		v.lock(join("locks", name), name, c.Locks[name])
	}
	v.lockKeysDiffer(c)
}

// rulesAgree checks what concerns several rules.
func (v *validator) rulesAgree(c *Config) {
	if c.Log.Decisions != nil {
		v.decisionLog("log.decisions", c.Log.Decisions)
	}
	v.casesDiffer(c)
	v.ruleNamesDiffer(c.Rules)
	v.sharesAgree(c)
	v.rulesAreReached(c.Rules)
}

// validator has the state that all checks share.
type validator struct {
	*document
	config *Config
}

// reject reports a violation at a path, unless the reader discarded the value.
func (d *document) reject(path, format string, args ...any) {
	if !d.unusable(path) {
		d.report(path, fmt.Sprintf(format, args...))
	}
}

// rejectMissing reports that a mapping lacks one of the keys. It reports nothing if the reader
// could not use a key of the mapping, since the user may have meant one of them.
func (d *document) rejectMissing(path string, keys []string, format string, args ...any) {
	if !d.partlyRead[path] && !slices.ContainsFunc(keys, func(key string) bool { return d.discarded[join(path, key)] }) {
		d.reject(path, format, args...)
	}
}

// without rejects keys of a mapping that are given, or have a value.
func (v *validator) without(path string, of any, message string, keys ...string) {
	s := reflect.ValueOf(of).Elem()
	for _, key := range keys {
		if at := join(path, key); v.given(at) || !valueOf(s, key).IsZero() {
			v.reject(at, "%s", message)
		}
	}
}

// notGiven rejects keys of a mapping that are given. They may have values of their own.
func (v *validator) notGiven(path, message string, keys ...string) {
	for _, key := range keys {
		if v.givenIn(path, key) {
			v.reject(join(path, key), "%s", message)
		}
	}
}

// required returns has. It reports a violation if the key is missing or empty.
func (v *validator) required(path, key string, has bool, what string) bool {
	if has {
		return true
	}
	if v.given(join(path, key)) {
		v.reject(join(path, key), "is empty: give %s", what)
	} else {
		v.rejectMissing(path, []string{key}, "%s is missing: give %s", key, what)
	}
	return false
}

var (
	validName    = lazyregexp.New(nameForm)
	variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// nameProblem returns the fault of a name that the user chose, or "". Names have no upper case
// and no dots, because viper's keys do not preserve them.
func nameProblem(name string) string {
	if validName.MatchString(name) {
		return ""
	}
	return fmt.Sprintf("%s is no name: names are 1 to 63 of a-z, 0-9, _ and -, with a letter or digit first", quote(name))
}

// choice checks that a value is one of the choices.
func (v *validator) choice(path, value string, choices ...string) {
	switch {
	case slices.Contains(choices, value):
	case len(choices) == 1:
		v.reject(path, "%s is not %s", quote(value), choices[0])
	default:
		v.reject(path, "%s is not one of %s", quote(value), strings.Join(choices, ", "))
	}
}

// between checks that a value is in the range from least to most, both included.
func between[T cmp.Ordered](v *validator, path string, value, least, most T) {
	if !(least <= value && value <= most) { // the reversed comparisons would accept NaN
		v.reject(path, "%s is out of range: %s to %s are allowed", number(value), number(least), number(most))
	}
}

// number returns a number as a user would write it in the file.
func number(value any) string {
	switch n := value.(type) {
	case uint32:
		return number(uint64(n))
	case uint64:
		text := strconv.FormatUint(n, 10)
		for i := len(text) - 3; i > 0; i -= 3 {
			text = text[:i] + "_" + text[i:]
		}
		return text
	case time.Duration:
		text := n.String()
		if n != 0 {
			for _, idle := range []string{"m0s", "h0m"} { // 1h0m0s is 1h
				if strings.HasSuffix(text, idle) {
					text = text[:len(text)-2]
				}
			}
		}
		return text
	case float64:
		if math.Abs(n) >= 1e-3 && math.Abs(n) < 1e6 {
			return strconv.FormatFloat(n, 'f', -1, 64)
		}
	}
	return fmt.Sprint(value)
}

// reference checks that a section has an entry of a name. It reports nothing if the name may belong to
// an entry that the reader rejected.
func (v *validator) reference(path, section, name string) {
	defined := valueOf(reflect.ValueOf(v.config).Elem(), section)
	unsure := v.unusable(section) || v.partlyRead[section] || v.badNames[join(section, name)] ||
		defined.Len() == 0 && v.partlyRead[""]
	if defined.MapIndex(reflect.ValueOf(name)).IsValid() || unsure {
		return
	}
	var names []string
	for _, other := range sortedNames(defined) {
		if nameProblem(other.String()) == "" {
			names = append(names, other.String())
		}
	}
	switch near := nearest(name, names); {
	case len(names) == 0:
		v.reject(path, "%s is not defined: there is nothing under %s", quote(name), section)
	case near != "":
		v.reject(path, "%s is not defined under %s, did you mean %s?", quote(name), section, near)
	default:
		v.reject(path, "%s is not defined under %s, which has %s", quote(name), section, strings.Join(names, ", "))
	}
}
