package config

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/orderid"
)

const (
	maxDigits = 64 // bytes; no backend counts with longer numbers
	maxShift  = 32 // bits; the other 31 of 63 count the milliseconds of three weeks
)

// format checks the format, the lengths, the pattern and the time of an ID.
func (v *validator) format(path string, id ID) {
	v.choice(path+".format", id.Format, FormatDigits, FormatUUID, FormatTimestamped, FormatSnowflake, FormatPattern)
	longest := orderid.MaxBytes // an ID becomes part of a Redis key
	switch id.Format {
	case FormatDigits, FormatTimestamped, FormatSnowflake:
		longest = maxDigits
	case FormatUUID:
		if id.MinLength != 0 || v.given(path+".min_length") {
			v.reject(path+".min_length", "is not for format uuid, which has one length: remove it")
		}
		if id.MaxLength != 0 || v.given(path+".max_length") {
			v.reject(path+".max_length", "is not for format uuid, which has one length: remove it")
		}
	}
	if id.Format != FormatUUID {
		between(v, path+".min_length", id.MinLength, 1, longest)
		between(v, path+".max_length", id.MaxLength, 1, longest)
		if id.MinLength > id.MaxLength && id.MaxLength >= 1 && id.MinLength <= longest {
			v.reject(path+".min_length", "min_length %d is more than max_length %d", id.MinLength, id.MaxLength)
		}
	}
	v.pattern(path, id)
	v.time(path, id)
}

func (v *validator) pattern(path string, id ID) {
	at := path + ".pattern"
	switch {
	case id.Format == FormatPattern && v.required(path, "pattern", id.Pattern != "", "an RE2 expression for the whole ID"):
		_, err := regexp.Compile(id.Pattern)
		if err == nil {
			// The gate compiles this longer form, which alone may be too deep or too large.
			_, err = regexp.Compile(`\A(?:` + id.Pattern + `)\z`)
		}
		if err != nil {
			v.notRegexp(at, err)
		} else if re, err := syntax.Parse(id.Pattern, syntax.Perl); err == nil && asksFor(re, isBrace) {
			v.reject(at, "requires a brace, and no ID has any: braces choose the slot of a key in Redis")
		}
	case id.Format != FormatPattern && (id.Pattern != "" || v.given(at)) && !v.discarded[path+".format"]:
		v.reject(at, "is for format pattern only: set it, or remove this")
	}
}

// notRegexp reports why an expression does not compile.
func (v *validator) notRegexp(path string, err error) {
	v.reject(path, "is not an RE2 expression: %s", oneLine(strings.TrimPrefix(err.Error(), "error parsing regexp: ")))
}

// asksFor reports whether a part of an expression matches only such characters.
func asksFor(re *syntax.Regexp, is func(rune) bool) bool {
	switch re.Op {
	case syntax.OpLiteral:
		return slices.ContainsFunc(re.Rune, is)
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			if re.Rune[i] != re.Rune[i+1] || !is(re.Rune[i]) {
				return false
			}
		}
		return len(re.Rune) > 0
	}
	return slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return asksFor(sub, is) })
}

func isBrace(r rune) bool { return r == '{' || r == '}' }

// time checks the location of the date in an ID.
func (v *validator) time(path string, id ID) {
	at, t := path+".time", id.Time
	switch {
	case v.discarded[path+".format"]:
	case id.Format == FormatTimestamped:
		v.option(at, "epoch", t.Epoch != "", false, "format snowflake")
		v.option(at, "shift", t.Shift != 0, false, "format snowflake")
		if !isDateLayout(t.Layout) {
			v.reject(at+".layout", "%s is not a layout of digits for a whole date, such as 20060102150405, 20060102 or 060102", quote(t.Layout))
		} else if most := id.MaxLength - len(t.Layout); t.At < 0 || t.At > most && most >= 0 {
			v.reject(at+".at", "%d is out of range: 0 to %d are allowed, or the date goes past max_length", t.At, most)
		} else if most < 0 {
			v.reject(at+".layout", "%s is longer than max_length %d", quote(t.Layout), id.MaxLength)
		}
	case id.Format == FormatSnowflake:
		v.option(at, "layout", t.Layout != "", false, "format timestamped")
		v.option(at, "at", t.At != 0, false, "format timestamped")
		between(v, at+".shift", t.Shift, 0, maxShift)
		v.epoch(path, t.Epoch)
	case t != IDTime{} || v.given(at):
		v.reject(at, "is for formats timestamped and snowflake only: set one of them, or remove this")
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
var datePart = regexp.MustCompile(`^(?:2006|002|01|02|04|05|06|15)`)

// dateParts returns the elements of a layout. It returns nil if the layout has other text, or
// the same element twice.
func dateParts(layout string) map[string]bool {
	parts := make(map[string]bool)
	for layout != "" {
		part := datePart.FindString(layout)
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
