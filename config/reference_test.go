package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
)

// TestReference compares docs/reference.md with the declarations.
func TestReference(t *testing.T) {
	const file = "../docs/reference.md"
	want := newReference().page()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/reference.md is not that of the declarations: go test ./config -run TestReference -update")
	}
}

// keyReference writes a section for each type of mapping.
type keyReference struct {
	schemaBuilder
	paths map[reflect.Type][]string // where a type stands
	order []reflect.Type
	out   strings.Builder
}

func newReference() *keyReference {
	r := &keyReference{schemaBuilder: schemaBuilder{comments: readComments()}, paths: make(map[reflect.Type][]string)}
	r.find(reflect.TypeFor[Config](), "")
	return r
}

// mappingOf returns the struct that a value has, by itself, in a list or by names; nil: none. The path
// is that of its keys.
func mappingOf(t reflect.Type, path string) (reflect.Type, string) {
	switch t = typeWithKeys(t); {
	case t == jsonTestsType:
		return nil, ""
	case t.Kind() == reflect.Struct:
		return t, path
	case t.Kind() == reflect.Slice:
		return mappingOf(t.Elem(), path+"[]")
	case t.Kind() == reflect.Map:
		return mappingOf(t.Elem(), path+".NAME")
	}
	return nil, ""
}

func (r *keyReference) find(t reflect.Type, path string) {
	r.paths[t] = append(r.paths[t], path)
	if len(r.paths[t]) > 1 {
		return
	}
	r.order = append(r.order, t)
	for _, k := range keysOf(t) {
		if inner, at := mappingOf(k.field.Type, join(path, k.key)); inner != nil {
			r.find(inner, at)
		}
	}
}

// title returns the path of a type of mapping, or its name if there are several.
func (r *keyReference) title(t reflect.Type) string {
	if len(r.paths[t]) == 1 {
		return r.paths[t][0]
	}
	var b strings.Builder
	for i, c := range t.Name() {
		if unicode.IsUpper(c) && i > 0 && t.Name() != "ID" && t.Name() != "TLS" {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

func (r *keyReference) link(t reflect.Type) string {
	title := r.title(t)
	anchor := strings.NewReplacer(".", "", "[", "", "]", "").Replace(strings.ToLower(title))
	return "[" + strings.NewReplacer("[", `\[`, "]", `\]`).Replace(title) + "](#" + anchor + ")"
}

func (r *keyReference) page() string {
	r.out.WriteString("# Reference of the configuration\n\n" +
		"Every key of the file, made from the code. [Configuration](configuration.md) says why, when and how large. " +
		"`ordergate schema` has the same for editors. A [reload](reload.md) applies a change of any key that says nothing of a restart.\n")
	for _, t := range r.order {
		if title := r.title(t); title == "" {
			r.out.WriteString("\n## The file\n")
		} else {
			fmt.Fprintf(&r.out, "\n## %s\n", title)
		}
		if paths := r.paths[t]; len(paths) > 1 {
			fmt.Fprintf(&r.out, "\nAt `%s`.\n", strings.Join(paths, "`, `"))
		}
		if title := r.title(t); title != "" && !slices.ContainsFunc(r.paths[t], func(path string) bool { return !takesRestart(path) }) {
			r.out.WriteString("\nAny change takes a restart.\n")
		}
		r.out.WriteString("\n| key | value | default | |\n|---|---|---|---|\n")
		for _, k := range keysOf(t) {
			text := r.of(t, k.field.Name)
			if k.not != "" {
				text += " Excludes `" + k.not + "`."
			}
			if len(k.only) > 0 {
				text += " For " + onlyText(k) + " only."
			}
			text += map[string]string{
				changeRestart: " A change takes a restart.",
				ChangeLock:    " A change takes a restart where requests would take another lock.",
				ChangeAnswers: " A change takes a restart where calls would not find stored answers.",
				changeForm:    " A change takes a restart where a filter or a lock would need other IDs.",
			}[k.change]
			cells := []string{"`" + k.key + "`", r.values(k), defaultText(k), strings.TrimSpace(text)}
			fmt.Fprintf(&r.out, "| %s |\n", strings.ReplaceAll(strings.Join(cells, "\x00"), "|", `\|`))
		}
	}
	return strings.ReplaceAll(r.out.String(), "\x00", " | ")
}

// takesRestart reports whether a change of a mapping takes a restart, by its path in the page.
func takesRestart(path string) bool {
	path, _, _ = strings.Cut(path, "[]")
	return TakesRestart(path)
}

func onlyText(k *declaration) string {
	var texts []string
	for _, c := range k.only {
		text := "`" + c.key + "`"
		if c.words != nil {
			text += " `" + strings.Join(c.words, "`, `") + "`"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " or ")
}

func defaultText(k *declaration) string {
	switch {
	case k.need != "" && !k.byDefault.IsValid():
		return "required"
	case !k.byDefault.IsValid():
		return ""
	case k.field.Type.Kind() == reflect.Slice:
		return "`" + k.field.Tag.Get("default") + "`"
	}
	return "`" + number(k.byDefault.Interface()) + "`"
}

// values says what a key may have.
func (r *keyReference) values(k *declaration) string {
	t := k.field.Type
	kind := ""
	if inner, _ := mappingOf(t, ""); inner != nil {
		kind = r.link(inner)
		switch t.Kind() {
		case reflect.Slice:
			kind = "list of " + kind
		case reflect.Map:
			kind = "by name: " + kind
		}
	}
	switch {
	case len(k.choices) > 0:
		var words []string
		for _, c := range k.choices {
			word := "`" + c.word + "`"
			if c.kinds != nil {
				word += " (`kind` " + strings.Join(c.kinds, ", ") + ")"
			}
			words = append(words, word)
		}
		return strings.Join(words, ", ")
	case k.least.IsValid():
		return number(k.least.Interface()) + " to " + number(k.most.Interface())
	case kind != "":
		return kind
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	}
	switch t.Kind() {
	case reflect.Slice:
		if t == jsonTestsType {
			return "mapping"
		}
		return "list"
	case reflect.Map:
		return "mapping"
	case reflect.Bool, reflect.Pointer:
		return "`true`, `false`"
	case reflect.String:
		return "text"
	}
	return "number"
}
