package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// pages returns docs/configuration.md and those of the other sections.
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

// TestExamplesOfThePages reads what the pages show of whole sections.
func TestExamplesOfThePages(t *testing.T) {
	examples := 0
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(pages(t), -1) {
		section, _, _ := strings.Cut(m[1], ":")
		if keyOf(reflect.TypeFor[Config](), section) != nil {
			examples++
			mustParse(t, m[1], env{"ORDERS_DSN": "gate:secret@tcp(db)/shop"})
		}
	}
	if examples < 5 {
		t.Errorf("found %d examples: are the blocks still marked yaml?", examples)
	}
}
