package source

import (
	"strings"
	"testing"
	"time"
)

// TestBetween has cursors of all types that have an order.
func TestBetween(t *testing.T) {
	for _, tc := range []struct {
		name, typ, first, last string
		valid                  func(string) bool // nil: there is none between
	}{
		{"numbers", "bigint(20)", "7", "9", func(s string) bool { return s == "7" || s == "8" }},
		{"negative numbers", "bigint", "-9223372036854775808", "9223372036854775807", nil},
		{"equal numbers", "int", "7", "7", nil},
		{"times", "datetime(6)", "2026-01-02 03:04:05.000001", "2026-01-02 03:04:06", func(s string) bool { return strings.HasPrefix(s, "2026-01-02 03:04:05") }},
		{"times with a zone", "timestamp with time zone", "2026-01-02 03:04:05+00", "2026-01-03 03:04:05.5+00",
			func(s string) bool { _, err := time.Parse("2006-01-02 15:04:05.999999-07", s); return err == nil }},
		{"dates", "date", "2026-01-02", "2026-02-02", func(s string) bool { _, err := time.Parse("2006-01-02", s); return err == nil }},
		{"UUIDs", "uuid", "00000000-aaaa-4000-8000-000000000000", "ffffffff-aaaa-4000-8000-000000000000",
			func(s string) bool { return len(s) == 36 && isHex(s) && strings.Count(s, "-") == 4 && s[8] == '-' }},
		{"binary", "binary(4)", "00AA0000", "00BB0000", func(s string) bool { return len(s) == 8 && strings.ToUpper(s) == s && strings.HasPrefix(s, "00") }},
		{"ULIDs", "char(26)", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01BRZ3NDEKTSV4RRFFQ69G5FAV", func(s string) bool { return s == "01A" || s == "01B" }},
		{"texts", "varchar(20)", "A-1", "R-999", func(s string) bool { return len(s) == 1 && "A" <= s && s <= "R" }},
		{"one text", "varchar(20)", "A-1", "A-1", nil},
		{"a text and a longer one", "varchar(20)", "A-1", "A-12", nil},
		{"nothing between", "varchar(20)", "A-", "A/", nil},
		{"another type", "decimal(3,1)", "1.5", "2.5", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 100 {
				got, ok := between(tc.typ, tc.first, tc.last)
				if ok != (tc.valid != nil) || ok && !tc.valid(got) {
					t.Fatalf("%q, %v", got, ok)
				}
			}
		})
	}
}
