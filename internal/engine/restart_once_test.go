package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestStoredTakesRestart has changes that hide stored answers from the calls that would get them,
// and changes that do not.
func TestStoredTakesRestart(t *testing.T) {
	const (
		settle  = `{name: settle, match: {methods: [POST], path: "/o/{id}/settle"}, id: {path: id}, settle: {lock: a, once: {name: pay}}}`
		plain   = `{name: settle, match: {methods: [POST], path: "/o/{id}/settle"}, id: {path: id}, settle: {lock: a, once: {}}}`
		apart   = `{name: settle, match: {methods: [POST], path: "/o/{id}/settle"}, id: {path: id}, settle: {lock: a}, once: {name: pay}}`
		never   = `{name: settle, match: {methods: [POST], path: "/o/{id}/settle"}, id: {path: id}, settle: {lock: a}}`
		fast    = `{name: fast, match: {methods: [POST], path: "/o/{id}/{verb}", query: {fast: "1"}}, id: {path: id}, settle: {lock: a, once: {name: pay}}}`
		undo    = `{name: undo, match: {methods: [POST], path: "/o/{id}/undo"}, id: {path: id}, settle: {lock: a, once: {forget: true}}}`
		payment = `{name: payment, match: {methods: [POST], path: "/p"}, once: {by: [{header: x-a}, body], scope: [authorization, {header: x-b}]}}`
		create  = `{name: order, match: {methods: [POST], path: "/o"}, create: {filter: orders, learn: {response_json: id}, once: {}}}`
		tenants = `{name: tenants, match: {methods: [POST], path: "/t/{id}"}, id: {path: id}, parts: {tenant: {header: x-tenant}}, settle: {lock: t}, once: {by: body, scope: []}}`
	)
	with := func(rule string, replace ...string) string { return strings.NewReplacer(replace...).Replace(rule) }
	for _, tt := range []struct {
		name  string
		steps [][]string // the rules of each version
		want  []string   // what the last step cannot change
	}{
		{"another name", [][]string{{settle}, {with(settle, "name: pay", "name: other")}}, []string{"rules.settle.settle.once.name"}},
		{"no name", [][]string{{settle}, {plain}}, []string{"rules.settle.settle.once.name"}},
		{"a name", [][]string{{plain}, {settle}}, []string{"rules.settle.settle.once.name"}},
		{"once of the rule", [][]string{{settle}, {apart}}, nil},
		{"another name in once of the rule", [][]string{{settle}, {with(apart, "pay", "other")}}, []string{"rules.settle.once.name"}},
		{"the rule's name, which is also that of the answers", [][]string{{plain}, {with(plain, "name: settle", "name: commission")}}, []string{"rules.commission.name"}},
		{"the rule's name alone", [][]string{{settle}, {with(settle, "name: settle", "name: commission")}}, []string{"rules.commission.name"}},
		{"both names", [][]string{{settle}, {with(settle, "name: settle", "name: commission", "name: pay", "name: other")}}, []string{"rules.commission.name", "rules.commission.settle.once.name"}},
		{"a rule before it", [][]string{{settle}, {fast, settle}}, []string{"rules.fast.settle.once"}},
		{"a rule behind it", [][]string{{settle}, {settle, fast}}, nil},
		{"for some time without", [][]string{{settle}, {never}, {plain}}, []string{"rules.settle.settle.once.name"}},
		{"no answers any more", [][]string{{settle}, {never}, {settle}}, nil},
		{"observed", [][]string{{settle}, {with(settle, "{name: settle", "{mode: observe, name: settle", "pay", "other")}}, nil},
		{"other headers of callers", [][]string{{settle}, {with(settle, "name: pay", "name: pay, scope: [], keep: 1h, fingerprint: body")}}, nil},
		{"what is forgotten", [][]string{{settle, undo}, {settle, with(undo, "true", "[pay]")}}, nil},

		{"parts of a key", [][]string{{payment}, {with(payment, ", body]", "]")}}, []string{"rules.payment.once.by"}},
		{"their order", [][]string{{payment}, {with(payment, "{header: x-a}, body", "body, {header: x-a}")}}, []string{"rules.payment.once.by"}},
		{"the scope of a key", [][]string{{payment}, {with(payment, "authorization, ", "")}}, []string{"rules.payment.once.scope"}},
		{"the order of the scope", [][]string{{payment}, {with(payment, "authorization, {header: x-b}", "{header: x-b}, authorization")}}, nil},
		{"the name of a rule with keys", [][]string{{payment}, {with(payment, "name: payment", "name: pay")}}, []string{"rules.pay.name"}},
		{"how long a key is kept", [][]string{{payment}, {with(payment, "once: {", "once: {for: 3s, wait: {up_to: 2s}, required: true, ")}}, nil},
		{"the key of a create", [][]string{{create}, {with(create, "once: {}", "once: {by: body, scope: []}")}}, []string{"rules.order.create.once.by"}},
		{"the scope of a create", [][]string{{create}, {with(create, "once: {}", "once: {scope: [authorization]}")}}, []string{"rules.order.create.once.scope"}},
		{"the form of a tenant", [][]string{{tenants}, {with(tenants, "x-tenant", "x-tenant, format: uuid")}}, []string{"rules.tenants.parts", "rules.tenants.settle.lock"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before *config.Config
			var past [][]lockingRule
			for i, rules := range tt.steps {
				text := "redis: {mode: embedded}\nfilters: {orders: {}}\nlocks: {a: {key: \"a:{id}\"}, t: {key: \"t:{tenant}/{id}\"}}\nrules:\n  - " + strings.Join(rules, "\n  - ") + "\n"
				c, err := config.Parse("a.yaml", []byte(text), nil)
				bedtest.Check(t, err)
				if before != nil {
					var want []string
					if i == len(tt.steps)-1 {
						want = tt.want
					}
					if got := takesRestart(before, c, past, config.Changes(before, c)); !slices.Equal(got, want) {
						t.Errorf("step %d: %q, want %q", i, got, want)
					}
					past = append(past, lockingRules(before))
				}
				before = c
			}
		})
	}
}
