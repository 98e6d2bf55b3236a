package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// FuzzParse: whatever the file and a variable hold, there is a value or there
// are violations of one line each, in order, each of the file's with a line; a value validates again, and its
// defaults are complete. testdata/fuzz/FuzzParse holds the corpus.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	examples, _ := filepath.Glob("../examples/*/ordergate.yaml") // no error: the pattern is valid
	if files = append(files, examples...); err != nil || len(files) < 10 {
		f.Fatalf("too few files to start from: %q, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data), "200_000_000")
	}
	f.Fuzz(func(t *testing.T, file, variable string) {
		if strings.Contains(file, "_file") || strings.Contains(file, "tls") {
			t.Skip("names a file of this machine")
		}
		c, err := Parse("f.yaml", []byte(file), func(name string) string {
			switch name {
			case "ORDERGATE_FILTERS_ORDERS_CAPACITY", "REDIS_PASSWORD", "ORDERGATE_REDIS_ADDRESSES", "ORDERGATE_BACKEND",
				"ORDERGATE_FILTERS_ORDERS_FRESHNESS", "ORDERS_DSN", "ADMIN_TOKEN":
				return variable
			}
			return ""
		})
		if err == nil {
			if err := c.Validate(); err != nil {
				t.Errorf("accepted, then refused: %v", err)
			}
			return
		}
		var wrong *InvalidError
		if !errors.As(err, &wrong) {
			t.Fatalf("not an InvalidError: %v", err)
		}
		last := 0
		for _, v := range wrong.Violations {
			if v.Line < last || v.Line == 0 && v.File == "f.yaml" {
				t.Errorf("out of order, or without a line: %s", v)
			}
			last = v.Line
			if strings.ContainsFunc(v.String(), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("not one line of plain text: %q", v.String())
			}
		}
	})
}
