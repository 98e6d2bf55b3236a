package config

import (
	"regexp"
	"slices"
	"strings"
)

const (
	maxID     = 256 // bytes: an ID becomes part of a Redis key
	maxDigits = 64  // bytes: longer than any number that a backend counts with
)

var (
	// What no backend folds with another name; a dot, say, is an underscore to PHP.
	parameterName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	// A token of RFC 9110, 5.6.2, in lower case and within reason.
	headerName = regexp.MustCompile("^[a-z0-9!#$%&'*+.^_`|~-]{1,128}$")
)

func (v *validator) id(rule string, r Rule) {
	path, id := rule+".id", r.ID
	places := []struct{ key, value string }{{"path", id.Path}, {"query", id.Query}, {"header", id.Header}}
	var set []string
	for _, p := range places {
		if p.value != "" || v.given(join(path, p.key)) {
			set = append(set, p.key)
		}
	}
	switch {
	case len(set) > 1:
		v.refute(path, "has %s: give exactly one of path, query, header", strings.Join(set, " and "))
	case len(set) == 0 && r.Create == nil && !v.unusable(rule+".create"):
		v.lacks(path, []string{"path", "query", "header"}, "says not where the ID is: give exactly one of path, query, header")
	}
	if slices.Contains(set, "path") && !strings.Contains(r.Match.Path+"/", "/{"+id.Path+"}/") && r.Match.Path != "" && templateProblem(r.Match.Path) == "" {
		v.refute(path+".path", "%s is not a {name} in match.path %s", quote(id.Path), quote(r.Match.Path))
	}
	if slices.Contains(set, "query") && !parameterName.MatchString(id.Query) {
		v.refute(path+".query", "%s is not the name of a parameter: names are 1 to 128 letters, digits, _ and -", quote(id.Query))
	}
	if slices.Contains(set, "header") {
		v.header(path+".header", id.Header)
	}
	if id.Optional && r.Create == nil && !v.unusable(rule+".create") {
		v.refute(path+".optional", "is for create only: lookup and settle need an ID")
	}
	v.format(path, id)
}

func (v *validator) header(path, name string) {
	if !headerName.MatchString(name) {
		v.refute(path, "%s is not the name of a header in lower case", quote(name))
	}
}

// format checks what an ID looks like.
func (v *validator) format(path string, id ID) {
	v.choice(path+".format", id.Format, FormatDigits, FormatUUID, FormatPattern)
	longest := maxID
	switch id.Format {
	case FormatDigits:
		longest = maxDigits
	case FormatUUID:
		if id.MinLength != 0 || v.given(path+".min_length") {
			v.refute(path+".min_length", "is not for format uuid, which has one length: remove it")
		}
		if id.MaxLength != 0 || v.given(path+".max_length") {
			v.refute(path+".max_length", "is not for format uuid, which has one length: remove it")
		}
	}
	if id.Format != FormatUUID {
		between(v, path+".min_length", id.MinLength, 1, longest)
		between(v, path+".max_length", id.MaxLength, 1, longest)
		if id.MinLength > id.MaxLength && id.MaxLength >= 1 && id.MinLength <= longest {
			v.refute(path+".min_length", "min_length %d is more than max_length %d", id.MinLength, id.MaxLength)
		}
	}
	v.pattern(path, id)
}

func (v *validator) pattern(path string, id ID) {
	at := path + ".pattern"
	switch {
	case id.Format == FormatPattern && v.required(path, "pattern", id.Pattern, "an RE2 expression for the whole ID"):
		_, err := regexp.Compile(id.Pattern)
		if err == nil {
			// As it is used: it may be too deep or too large only there.
			_, err = regexp.Compile(`\A(?:` + id.Pattern + `)\z`)
		}
		if err != nil {
			v.refute(at, "is not an RE2 expression: %s", oneLine(strings.TrimPrefix(err.Error(), "error parsing regexp: ")))
		}
	case id.Format != FormatPattern && (id.Pattern != "" || v.given(at)) && !v.refused[path+".format"]:
		v.refute(at, "is for format pattern only: set it, or remove this")
	}
}
