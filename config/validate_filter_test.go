package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFilterValidation(t *testing.T) {
	const dated = `{path: id, format: timestamped, time: {layout: "20060102"}}`
	for _, tt := range []struct {
		name   string
		filter string
		id     string // of the rule that looks up in it
		want   []string
	}{
		{"a layout", "{layout: classic}", "{path: id}", nil},
		{"another layout", "{layout: flat}", "{path: id}", []string{`filters.orders.layout: "flat" is not one of blocked, classic`}},
		{"exact", "{kind: exact}", "{path: id}", nil},
		{"exact with a layout", "{kind: exact, layout: classic}", "{path: id}", []string{
			"filters.orders.layout: is for kind local only: remove it"}},
		{"days", "{segments: {keep: 30}}", dated, nil},
		{"days of IDs without one", "{segments: {keep: 30}}", "{path: id, format: digits}", []string{
			`filters.orders.segments.from: the IDs of rule "look" have format digits, which has no date: ` +
				"give them format timestamped or snowflake, or write from: arrival"}},
		{"days of arrival", "{segments: {keep: 30, from: arrival, older: absent}}", "{path: id}", nil},
		{"days of arrival without a word on old ones", "{segments: {keep: 30, from: arrival}}", "{path: id}", []string{
			"filters.orders.segments.older: an order that was forgotten cannot be told from one that never was: " +
				"accept that by older: absent, or have the ID tell its day (from: id)"}},
		{"no days", "{segments: {by: day}}", dated, []string{"filters.orders.segments.keep: 0 is out of range: 1 to 3660 are allowed"}},
		{"wrong in each", "{segments: {by: week, keep: 4000, from: now, older: gone}}", dated, []string{
			`filters.orders.segments.by: "week" is not day`,
			`filters.orders.segments.from: "now" is not one of id, arrival`,
			`filters.orders.segments.older: "gone" is not one of unknown, absent`,
			`filters.orders.segments.keep: 4000 is out of range: 1 to 3660 are allowed`,
		}},
		{"expand", "{expand: {}}", "{path: id}", nil},
		{"expand, wrong in each", "{expand: {at_fill: 0, by: 17, how: magic}}", "{path: id}", []string{
			"filters.orders.expand.at_fill: 0 is out of range: 0.1 to 1 are allowed",
			"filters.orders.expand.by: 17 is out of range: 1.1 to 16 are allowed",
			`filters.orders.expand.how: "magic" is not one of rebuild, layers`,
		}},
		{"expand exact", "{kind: exact, expand: {}}", "{path: id}", []string{
			"filters.orders.expand: a filter of kind exact has no size that it could outgrow: remove this"}},
		{"rebuild segments", "{segments: {keep: 3}, expand: {how: rebuild}}", dated, []string{
			"filters.orders.expand.how: segments grow by layers, each for itself: remove this, or write layers"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := "filters: {orders: " + tt.filter + "}\n" +
				`rules: [{name: look, match: {methods: [GET], path: "/orders/{id}"}, id: ` + tt.id + ", lookup: {filter: orders}}]\n"
			var got []string
			if _, err := Parse("f.yaml", []byte(file), env{}.get); err != nil {
				for line := range strings.SplitSeq(err.Error(), "\n") {
					_, text, _ := strings.Cut(line, ": ") // behind file and line
					got = append(got, text)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("unexpected violations (-want +got):\n%s", diff)
			}
		})
	}
}
