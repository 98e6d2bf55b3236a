package config

import (
	"cmp"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/lazyregexp"
	"github.com/ordergate/ordergate/internal/orderid"
)

const maxDigits = 64 // bytes; no backend counts with longer numbers

func (v *validator) format(e *entry) {
	path, id := e.path, e.id
	longest := orderid.MaxBytes // an ID becomes part of a Redis key
	if id.Format != FormatPattern {
		longest = maxDigits
	}
	if id.Format != FormatUUID {
		between(v, path+".min_length", id.MinLength, 1, longest)
		between(v, path+".max_length", id.MaxLength, 1, longest)
		if id.MinLength > id.MaxLength && id.MaxLength >= 1 && id.MinLength <= longest {
			v.reject(path+".min_length", "min_length %d is more than max_length %d", id.MinLength, id.MaxLength)
		}
	}
	v.max(path, id)
	v.pattern(e)
	v.time(path, id)
}

// casesDiffer rejects two cases of IDs under one lock, since the same order would have two keys, and in
// one rule.
func (v *validator) casesDiffer(c *Config) {
	type use struct{ lock, name, format string }
	first := make(map[use]*entry)
	for i := range c.Rules {
		rule := rulePath(i)
		for _, e := range v.entries(rule, &c.Rules[i]) {
			if !e.id.FoldsCase() && e.id.Case != CaseAsIs {
				continue
			}
			of := use{cmp.Or(e.lock, rule), e.name, e.id.Format}
			was, ok := first[of]
			switch {
			case !ok:
				first[of] = e
			case was.id.Case == e.id.Case:
			case e.lock == "":
				v.reject(e.path+".case", "%s differs from that of %s: a request with both is refused; give both the same", quote(e.id.Case), was.path)
			default:
				v.reject(e.path+".case", "%s differs from that of %s, which has the same lock %s: an order would have two keys; give both the same", quote(e.id.Case), was.path, quote(e.lock))
			}
		}
	}
}

var idMaxType = reflect.TypeFor[IDMax]()

// idMaxWords are the largest numbers of types. A double has each whole number up to its own.
var idMaxWords = map[IDMax]string{
	"int32": "2147483647", "uint32": "4294967295", "double": "9007199254740992", "int64": "9223372036854775807",
}

// idMaxNumber matches a number as it may stand in an ID, but for underscores.
var idMaxNumber = lazyregexp.New(`^[1-9][0-9]*$`)

// Digits returns a valid largest number in digits; "" if there is none.
func (m IDMax) Digits() string {
	if digits := idMaxWords[m]; digits != "" {
		return digits
	}
	return strings.ReplaceAll(string(m), "_", "")
}

func (v *validator) max(path string, id *ID) {
	at := path + ".max"
	switch digits := id.Max.Digits(); {
	case id.Max == "" && !v.given(at) || id.Format == FormatUUID || id.Format == FormatPattern:
	case !idMaxNumber.MatchString(digits) || len(digits) > maxDigits:
		v.reject(at, "%s is neither a number of 1 to %d digits nor one of int32, uint32, double, int64", quote(string(id.Max)), maxDigits)
	case len(digits) < id.MinLength:
		v.reject(at, "%s has fewer digits than min_length %d, so no ID would fit", quote(string(id.Max)), id.MinLength)
	}
}

func (v *validator) pattern(e *entry) {
	id := e.id
	if id.Format != FormatPattern || id.Pattern == "" {
		return
	}
	at := e.path + ".pattern"
	re, err := syntax.Parse(id.Pattern, syntax.Perl)
	if err == nil {
		// The gate compiles this longer form, which alone may be too deep or too large.
		_, err = regexp.Compile(`\A(?:` + id.Pattern + `)\z`)
	}
	if err != nil {
		v.notRegexp(at, err)
		return
	}
	if asksFor(re, "{}") {
		v.reject(at, "requires a brace, and no ID has any: braces choose the slot of a key in Redis")
	}
	if e.role == ofPart && asksFor(re, "/") {
		v.reject(at, "asks for a slash, and no part has any: it separates the parts of an ID")
	}
}

func (v *validator) notRegexp(path string, err error) {
	v.reject(path, "is not an RE2 expression: %s", oneLine(strings.TrimPrefix(err.Error(), "error parsing regexp: ")))
}

// asksFor reports whether a part of an expression matches only these characters.
func asksFor(re *syntax.Regexp, these string) bool {
	switch re.Op {
	case syntax.OpLiteral:
		return strings.ContainsAny(string(re.Rune), these)
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			if re.Rune[i] != re.Rune[i+1] || !strings.ContainsRune(these, re.Rune[i]) {
				return false
			}
		}
		return len(re.Rune) > 0
	}
	return slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return asksFor(sub, these) })
}

func (v *validator) time(path string, id *ID) {
	at := path + ".time"
	switch {
	case v.discarded[path+".format"]:
	case id.Format == FormatTimestamped:
		v.without(at, &id.Time, "is for format snowflake only: set it, or remove this", "shift")
		v.date(path, id)
	case id.Format == FormatSnowflake:
		v.without(at, &id.Time, "is for format timestamped only: set it, or remove this", "layout", "at")
		v.epoch(path, id.Time.Epoch)
	}
}

// epochDigits are the units of an epoch of format timestamped, and the digits of a count.
var epochDigits = map[string]int{"ms": 13, "s": 10}

func (v *validator) date(path string, id *ID) {
	at, t := path+".time", id.Time
	key, value, length := ".layout", t.Layout, len(t.Layout)
	if t.Epoch != "" || v.given(at+".epoch") {
		key, value, length = ".epoch", t.Epoch, epochDigits[t.Epoch]
	}
	most := id.MaxLength - length
	switch {
	case key == ".epoch" && (t.Layout != "" || v.given(at+".layout")):
		v.reject(at+".epoch", "excludes layout: give one of them")
	case key == ".epoch" && length == 0:
		v.reject(at+".epoch", "%s is neither ms nor s: with format timestamped, it is the unit of a count since 1970 (13 digits of ms, 10 of s)", quote(t.Epoch))
	case key == ".layout" && !isDateLayout(t.Layout):
		v.reject(at+".layout", "%s is not a layout of digits for a whole date, such as 20060102150405, 20060102 or 060102", quote(t.Layout))
	case most < 0:
		v.reject(at+key, "%s is longer than max_length %d", quote(value), id.MaxLength)
	case t.At < 0 || t.At > most:
		v.reject(at+".at", "%d is out of range: 0 to %d are allowed, or the date goes past max_length", t.At, most)
	}
}

func (v *validator) epoch(path, epoch string) {
	const what = "the instant from which milliseconds are counted, such as 2010-11-04T01:42:54.657Z"
	at := path + ".time"
	switch _, err := time.Parse(time.RFC3339, epoch); {
	case epoch == "" && !v.given(at):
		v.rejectMissing(path, []string{"time"}, "time.epoch is missing: give %s", what)
	case v.required(at, "epoch", epoch != "", what) && err != nil:
		v.reject(at+".epoch", "%s is not a time of RFC 3339: give %s", quote(epoch), what)
	}
}

// datePart matches the elements of package time's layouts that are a fixed number of digits.
// No element is the prefix of another, so a layout has only one reading. The 12-hour clock,
// 03, is missing because it does not distinguish morning and evening.
var datePart = lazyregexp.New(`^(?:2006|002|01|02|04|05|06|15)`)

// dateParts returns the elements of a layout. It returns nil if the layout has other text, or
// the same element twice.
func dateParts(layout string) map[string]bool {
	parts := make(map[string]bool)
	for layout != "" {
		part := datePart.Compiled().FindString(layout)
		if part == "" || parts[part] {
			return nil
		}
		parts[part] = true
		layout = layout[len(part):]
	}
	return parts
}

// isDateLayout reports whether a layout has only such elements, with one year and one day.
func isDateLayout(layout string) bool {
	parts := dateParts(layout)
	return parts["2006"] != parts["06"] && (parts["01"] && parts["02"]) != parts["002"]
}
