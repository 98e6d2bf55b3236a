package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// page returns docs/configuration.md.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPageHasEveryKey looks for the keys in code, behind what they belong to or alone.
func TestPageHasEveryKey(t *testing.T) {
	words := make(map[string]bool)
	for _, code := range regexp.MustCompile("(?s)```yaml.*?```|`[^`\n]+`").FindAllString(page(t), -1) {
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
			typ = reflect.TypeFor[windowed]()
		case typ.Kind() != reflect.Struct:
			return
		}
		for key, field := range fieldsOf(typ) {
			if !words[key] {
				t.Errorf("the page does not have %s", join(path, key))
			}
			look(field, join(path, key))
		}
	}
	look(reflect.TypeFor[Config](), "")
}

// TestExamplesOfThePage reads what the page shows of whole sections.
func TestExamplesOfThePage(t *testing.T) {
	examples := 0
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(page(t), -1) {
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
