package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFreshness(t *testing.T) {
	window := func(d time.Duration) Freshness { return Freshness{Mode: FreshnessWindow, Window: d} }
	for _, tt := range []struct {
		name, text string // what follows "freshness: "
		want       Freshness
		violations []string // nil: accepted
	}{
		{"a word", "window", window(DefaultWindow), nil},
		{"none", "none", Freshness{Mode: FreshnessNone}, nil},
		{"in quotes", `" none "`, Freshness{Mode: FreshnessNone}, nil},
		{"a window", "{window: 200ms}", window(200 * time.Millisecond), nil},
		{"a window, over lines", "\n      window: 5s", window(5 * time.Second), nil},
		{"a window, in quotes", `"window: 100ms"`, window(100 * time.Millisecond), nil},
		{"a window, as text with braces", `"{ window : 1s }"`, window(time.Second), nil},
		{"an alias", "&f {window: 2s}", window(2 * time.Second), nil},

		{"another word", "stale", Freshness{}, []string{`2: filters.orders.freshness: "stale" is not one of {window: 500ms}, none`}},
		{"no word", `""`, Freshness{}, []string{`2: filters.orders.freshness: "" is not one of {window: 500ms}, none`}},
		{"no value", "", Freshness{}, []string{`2: filters.orders.freshness: has no value: give it one or remove the key`}},
		{"a number", "200", Freshness{}, []string{`2: filters.orders.freshness: is a number: write one of {window: 500ms}, none`}},
		{"a list", "[window]", Freshness{}, []string{`2: filters.orders.freshness: is a list: write one of {window: 500ms}, none`}},
		{"an empty mapping", "{}", Freshness{}, []string{`2: filters.orders.freshness: is empty: write one of {window: 500ms}, none`}},
		{"another key", "{windows: 200ms}", Freshness{}, []string{`2: filters.orders.freshness.windows: unknown key, did you mean window?`}},
		{"the field of the mode", "{mode: window, window: 200ms}", Freshness{}, []string{`2: filters.orders.freshness.mode: unknown key: known here are window`}},
		{"no unit", "{window: 200}", Freshness{}, []string{`2: filters.orders.freshness.window: "200" has no unit: write it as a duration such as 30s or 100ms`}},
		{"no unit, in quotes", `"window: 200"`, Freshness{}, []string{`2: filters.orders.freshness: window: "200" has no unit: write it as a duration such as 30s or 100ms`}},
		{"half in braces", `"{window: 1s"`, Freshness{}, []string{`2: filters.orders.freshness: "{window: 1s" is not one of {window: 500ms}, none`}},
		{"short", "\n      window: 99ms", Freshness{}, []string{`3: filters.orders.freshness.window: 99ms is out of range: 100ms to 10s are allowed`}},
		{"zero", "{window: 0s}", Freshness{}, []string{`2: filters.orders.freshness.window: 0s is out of range: 100ms to 10s are allowed`}},
		{"zero, in quotes", `"window: 0s"`, Freshness{}, []string{`2: filters.orders.freshness.window: 0s is out of range: 100ms to 10s are allowed`}},
		{"long, in quotes", `"window: 11s"`, Freshness{}, []string{`2: filters.orders.freshness.window: 11s is out of range: 100ms to 10s are allowed`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := "filters:\n  orders: {freshness: " + tt.text + "}\nredis: {}\n"
			if len(tt.text) > 0 && tt.text[0] == '\n' {
				file = "filters: {orders: {\n    freshness: {" + tt.text + "}}}\nredis: {}\n"
			}
			if tt.violations == nil {
				if got := mustParse(t, file, nil).Filters["orders"].Freshness; got != tt.want {
					t.Errorf("read as %+v, want %+v", got, tt.want)
				}
				return
			}
			want := make([]string, len(tt.violations))
			for i, line := range tt.violations {
				want[i] = "f.yaml:" + line
			}
			if diff := cmp.Diff(want, violations(t, file, nil)); diff != "" {
				t.Errorf("unexpected violations (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWindowBesideOtherTimes has windows that fit, and do not fit, the filter's other times.
func TestWindowBesideOtherTimes(t *testing.T) {
	for _, tt := range []struct {
		name, filter string
		want         []string
	}{
		{"as long as stale_after", "{freshness: {window: 5s}}", nil},
		{"longer than stale_after", "{freshness: {window: 5001ms}}", []string{
			"f.yaml:1: filters.orders.freshness.window: 5.001s is longer than stale_after (5s), after which nothing is absent: write a shorter window, or a longer stale_after",
		}},
		{"longer than the least stale_after", "{freshness: {window: 2s}, stale_after: 1s}", []string{
			"f.yaml:1: filters.orders.freshness.window: 2s is longer than stale_after (1s), after which nothing is absent: write a shorter window, or a longer stale_after",
		}},
		{"with a stale_after out of range", "{freshness: {window: 2s}, stale_after: 10ms}", []string{"f.yaml:1: filters.orders.stale_after: 10ms is out of range: 1s to 1h are allowed"}},
		{"the longest", "{freshness: {window: 10s}, stale_after: 10s, change_log: {lease: 10s}}", nil},
		{"almost as long as expel", "{freshness: {window: 9s}, stale_after: 10s, change_log: {expel: 10s}}", nil},
		{"as long as expel", "{freshness: {window: 10s}, stale_after: 10s, change_log: {expel: 10s}}", []string{
			"f.yaml:1: filters.orders.freshness.window: 10s and a tenth are longer than change_log.expel (10s): an ordergate could be expelled while earlier windows are open; write a shorter window, or a longer expel",
		}},
		{"no window", "{freshness: none, stale_after: 1s, change_log: {expel: 10s}}", nil},
		{"the shortest, with the shortest lease", "{freshness: {window: 100ms}, change_log: {lease: 200ms}}", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := "filters: {orders: " + tt.filter + "}\nredis: {}\n"
			if tt.want == nil {
				mustParse(t, file, nil)
				return
			}
			if diff := cmp.Diff(tt.want, violations(t, file, nil)); diff != "" {
				t.Errorf("unexpected violations (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFreshnessMadeInGo has what no file can say.
func TestFreshnessMadeInGo(t *testing.T) {
	for f, want := range map[Freshness]string{
		{}:                      "",
		{Mode: FreshnessWindow}: "",
		{Mode: FreshnessWindow, Window: time.Second}: "",
		{Mode: FreshnessWindow, Window: -1}:          "filters.f.freshness.window: -1ns is out of range: 100ms to 10s are allowed",
		{Mode: FreshnessNone, Window: time.Second}:   "filters.f.freshness: has a time, which is for window only: remove one of the two",
		{Window: time.Second}:                        `filters.f.freshness: "" is not one of {window: 500ms}, none`,
	} {
		c := &Config{Redis: &Redis{}, Filters: map[string]Filter{"f": {Freshness: f}}}
		c.EnsureDefaults()
		got := ""
		if err := c.Validate(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%+v: got %q, want %q", f, got, want)
		}
	}
}
