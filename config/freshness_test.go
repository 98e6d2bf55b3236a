package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFreshness(t *testing.T) {
	bounded := func(d time.Duration) Freshness { return Freshness{Mode: FreshnessBounded, Bounded: d} }
	for _, tt := range []struct {
		name, text string // what follows "freshness: "
		want       Freshness
		violations []string // nil: accepted
	}{
		{"barrier", "barrier", Freshness{Mode: FreshnessBarrier}, nil},
		{"none", "none", Freshness{Mode: FreshnessNone}, nil},
		{"in quotes", `" none "`, Freshness{Mode: FreshnessNone}, nil},
		{"bounded", "{bounded: 200ms}", bounded(200 * time.Millisecond), nil},
		{"bounded, over lines", "\n      bounded: 1m", bounded(time.Minute), nil},
		{"bounded, in quotes", `"bounded: 10ms"`, bounded(10 * time.Millisecond), nil},
		{"bounded, as text with braces", `"{ bounded : 1s }"`, bounded(time.Second), nil},
		{"an alias", "&f {bounded: 2s}", bounded(2 * time.Second), nil},

		{"another word", "stale", Freshness{}, []string{`2: filters.orders.freshness: "stale" is not one of barrier, {bounded: 200ms}, none`}},
		{"no word", `""`, Freshness{}, []string{`2: filters.orders.freshness: "" is not one of barrier, {bounded: 200ms}, none`}},
		{"no value", "", Freshness{}, []string{`2: filters.orders.freshness: has no value: give it one or remove the key`}},
		{"bounded by nothing", "bounded", Freshness{}, []string{`2: filters.orders.freshness: is bounded by nothing: write {bounded: 200ms}`}},
		{"a number", "200", Freshness{}, []string{`2: filters.orders.freshness: is a number: write one of barrier, {bounded: 200ms}, none`}},
		{"a list", "[barrier]", Freshness{}, []string{`2: filters.orders.freshness: is a list: write one of barrier, {bounded: 200ms}, none`}},
		{"an empty mapping", "{}", Freshness{}, []string{`2: filters.orders.freshness: is empty: write one of barrier, {bounded: 200ms}, none`}},
		{"another key", "{bound: 200ms}", Freshness{}, []string{`2: filters.orders.freshness.bound: unknown key, did you mean bounded?`}},
		{"the field of the mode", "{mode: bounded, bounded: 200ms}", Freshness{}, []string{`2: filters.orders.freshness.mode: unknown key: known here are bounded`}},
		{"no unit", "{bounded: 200}", Freshness{}, []string{`2: filters.orders.freshness.bounded: "200" has no unit: write it as a duration such as 30s or 100ms`}},
		{"no unit, in quotes", `"bounded: 200"`, Freshness{}, []string{`2: filters.orders.freshness: bounded: "200" has no unit: write it as a duration such as 30s or 100ms`}},
		{"half in braces", `"{bounded: 1s"`, Freshness{}, []string{`2: filters.orders.freshness: "{bounded: 1s" is not one of barrier, {bounded: 200ms}, none`}},
		{"short", "\n      bounded: 9ms", Freshness{}, []string{`3: filters.orders.freshness.bounded: 9ms is out of range: 10ms to 1m are allowed`}},
		{"zero", "{bounded: 0s}", Freshness{}, []string{`2: filters.orders.freshness.bounded: 0s is out of range: 10ms to 1m are allowed`}},
		{"long, in quotes", `"bounded: 61s"`, Freshness{}, []string{`2: filters.orders.freshness.bounded: 1m1s is out of range: 10ms to 1m are allowed`}},
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

// TestFreshnessMadeInGo has what no file can say.
func TestFreshnessMadeInGo(t *testing.T) {
	for f, want := range map[Freshness]string{
		{Mode: FreshnessBarrier}:                       "",
		{Mode: FreshnessBarrier, Bounded: time.Second}: "filters.f.freshness: has a time, which is for bounded only: remove one of the two",
		{Bounded: time.Second}:                         `filters.f.freshness: "" is not one of barrier, {bounded: 200ms}, none`,
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
