package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestPartsTakeRestart has changes that give an order another lock or another entry in its
// filter, and changes that do not.
func TestPartsTakeRestart(t *testing.T) {
	const file = `
filters: {orders: {parts: [tenant]}}
locks: {settlement: {key: "order:lock:{tenant}:{id}"}}
rules:
  - {name: lookup, match: {methods: [GET], path: "/o/{id}"}, id: {path: id}, parts: {tenant: {header: x-tenant}}, lookup: {filter: orders}}
  - {name: settle, match: {methods: [POST], path: "/o/{id}"}, id: {path: id}, parts: {tenant: {header: x-tenant}}, settle: {lock: settlement}}
`
	parsed := func(replace ...string) *config.Config {
		c, err := config.Parse("f.yaml", []byte(strings.NewReplacer(replace...).Replace(file)), nil)
		bedtest.Check(t, err)
		return c
	}
	const settle, lookup = "parts: {tenant: {header: x-tenant}}, settle", "parts: {tenant: {header: x-tenant}}, lookup"
	for _, tt := range []struct {
		name     string
		from, to *config.Config
		want     []string
	}{
		{"nothing", parsed(), parsed(), nil},
		{"another place", parsed(), parsed(settle, "parts: {tenant: {query: tenant}}, settle"), nil},
		{"a UUID", parsed(), parsed(settle, "parts: {tenant: {header: x-tenant, format: uuid}}, settle"), []string{"rules.settle.settle.lock"}},
		{"a {tenant} that was literal", parsed(settle, "settle"), parsed(), []string{"rules.settle.settle.lock"}},
		{"a {tenant} that becomes literal", parsed(), parsed(settle, "settle"), []string{"rules.settle.settle.lock"}},
		{"another key", parsed(), parsed(`"order:lock:{tenant}:{id}"`, `"lock:{tenant}:{id}"`), []string{"locks.settlement.key"}},
		{
			"another form", parsed(), parsed(lookup, "parts: {tenant: {header: x-tenant, format: uuid}}, lookup"),
			[]string{"rules.lookup (the form of the IDs of filter orders)"},
		},
		{
			"parts of the filter", parsed("{orders: {parts: [tenant]}}", "{orders: {}}", lookup, "lookup"), parsed(),
			[]string{"filters.orders.parts", "rules.lookup (the form of the IDs of filter orders)"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := takesRestart(tt.from, tt.to, nil, config.Changes(tt.from, tt.to)); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
