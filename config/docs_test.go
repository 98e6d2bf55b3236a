package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// pages returns docs/configuration.md and those that have the rest of the keys.
func pages(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, name := range []string{"configuration", "configuration-filters", "configuration-sources", "configuration-rules"} {
		text, err := os.ReadFile("../docs/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
		all.WriteByte('\n')
	}
	return all.String()
}

// TestPagesHaveEveryKey looks for the keys in code, behind what they belong to or alone.
func TestPagesHaveEveryKey(t *testing.T) {
	words := make(map[string]bool)
	for _, code := range regexp.MustCompile("(?s)```yaml.*?```|`[^`\n]+`").FindAllString(pages(t), -1) {
		for _, word := range regexp.MustCompile(`[a-z_]+`).FindAllString(code, -1) {
			words[word] = true
		}
	}
	var look func(reflect.Type, string)
	look = func(typ reflect.Type, path string) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Map || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		switch {
		case typ == freshnessType:
			typ = reflect.TypeFor[windowMapping]()
		case typ == modeType:
			typ = reflect.TypeFor[modeMapping]()
		case typ == shareType:
			typ = reflect.TypeFor[shareMapping]()
		case typ.Kind() != reflect.Struct:
			return
		}
		for key, field := range fieldsOf(typ) {
			if !words[key] {
				t.Errorf("the pages do not have %s", join(path, key))
			}
			look(field, join(path, key))
		}
	}
	look(reflect.TypeFor[Config](), "")
}

// TestExamplesOfThePages reads what the pages show of whole sections.
func TestExamplesOfThePages(t *testing.T) {
	examples := 0
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(pages(t), -1) {
		section, _, _ := strings.Cut(m[1], ":")
		if _, ok := fieldsOf(reflect.TypeFor[Config]())[section]; ok {
			examples++
			mustParse(t, m[1], env{"ORDERS_DSN": "gate:secret@tcp(db)/shop"})
		}
	}
	if examples < 5 {
		t.Errorf("found %d examples: are the blocks still marked yaml?", examples)
	}
}
