package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const lockedCreate = match + `, id: {path: id}, create: {filter: orders, learn: {response_json: id}, lock: settlement}`

const settleRule = match + `, id: {path: id}, settle: {lock: settlement}`

func TestModes(t *testing.T) {
	for text, want := range map[string]Mode{
		"enforce":                    {Word: ModeEnforce},
		"observe":                    {Word: ModeObserve},
		"{enforce: 10%}":             {Word: ModeEnforce, Share: Share{Orders: 1000}},
		"{enforce: 0.01%}":           {Word: ModeEnforce, Share: Share{Orders: 1}},
		"{enforce: '12.5%'}":         {Word: ModeEnforce, Share: Share{Orders: 1250}},
		"{enforce: 99.99%}":          {Word: ModeEnforce, Share: Share{Orders: 9999}},
		"{enforce: 100%}":            {Word: ModeEnforce},
		"{enforce: 100.00%}":         {Word: ModeEnforce},
		"{enforce: {header: x-Try}}": {Word: ModeEnforce, Share: Share{Header: "x-try"}},
		"{enforce: {header: x-try, value: '1 2'}}": {Word: ModeEnforce, Share: Share{Header: "x-try", Value: "1 2"}},
	} {
		c := mustParse(t, ruleWith("{"+lookup+", id: {path: id}, mode: "+text+"}"), nil)
		if diff := cmp.Diff(want, c.Rules[0].Mode); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		again := mustParse(t, ruleWith("{"+lookup+", id: {path: id}, mode: "+c.Rules[0].Mode.String()+"}"), nil)
		if diff := cmp.Diff(want, again.Rules[0].Mode); diff != "" {
			t.Errorf("%s, written as %s (-want +got):\n%s", text, c.Rules[0].Mode, diff)
		}
		if diff := cmp.Diff([]string(nil), Changes(c, again)); diff != "" {
			t.Errorf("%s changes (-want +got):\n%s", text, diff)
		}
	}
	if c := mustParse(t, ruleWith("{"+lookup+", id: {path: id}}"), nil); c.Rules[0].Mode != (Mode{Word: ModeEnforce}) {
		t.Errorf("the default is %s", c.Rules[0].Mode)
	}
}

func TestModeViolations(t *testing.T) {
	lookupIn := func(mode string) string { return ruleWith("{" + lookup + ", id: {path: id}, mode: " + mode + "}") }
	settleIn := func(mode string) string { return ruleWith("{" + settleRule + ", mode: " + mode + "}") }
	second := `, {name: b, match: {methods: [PUT], path: "/o/{id}"}, id: {path: id}, settle: {lock: settlement}`
	twoIn := func(a, b string) string { return ruleWith("{" + settleRule + a + "}" + second + b + "}") }
	const forms = "enforce, observe, {enforce: 10%}, {enforce: {header: x-canary}}"
	for _, tt := range []struct {
		name, file string
		want       []string
	}{
		{"a bare percentage", lookupIn("10%"), []string{"rules[0].mode: is text: write one of " + forms}},
		{"a number", lookupIn("10"), []string{"rules[0].mode: is a number: write one of " + forms}},
		{"a list", lookupIn("[enforce]"), []string{"rules[0].mode: is a list: write one of " + forms}},
		{"an empty mapping", lookupIn("{}"), []string{"rules[0].mode: is empty: write one of " + forms}},
		{"another word", lookupIn("{observe: 90%}"), []string{"rules[0].mode.observe: unknown key: known here are enforce"}},
		{"no value", lookupIn("{enforce: }"), []string{"rules[0].mode.enforce: has no value: give it one or remove the key"}},
		{"no percent sign", lookupIn("{enforce: 10}"), []string{`rules[0].mode.enforce: "10" has no unit: write it as a percentage such as 10%`}},
		{"a fraction", lookupIn("{enforce: 0.1}"), []string{`rules[0].mode.enforce: "0.1" has no unit: write it as a percentage such as 10%`}},
		{"three decimals", lookupIn("{enforce: 0.001%}"), []string{`rules[0].mode.enforce: "0.001%" is not a percentage such as 10% or 0.25%, with at most two decimals`}},
		{"a sign", lookupIn("{enforce: +1%}"), []string{`rules[0].mode.enforce: "+1%" is not a percentage such as 10% or 0.25%, with at most two decimals`}},
		{"a blank", lookupIn("{enforce: 1 %}"), []string{`rules[0].mode.enforce: "1 %" is not a percentage such as 10% or 0.25%, with at most two decimals`}},
		{"nothing", lookupIn("{enforce: 0.00%}"), []string{`rules[0].mode.enforce: 0.00% enforces nothing: write mode: observe`}},
		{"more than all", lookupIn("{enforce: 100.01%}"), []string{`rules[0].mode.enforce: 100.01% is out of range: 0.01% to 100% are allowed`}},
		{"a list of shares", lookupIn("{enforce: [10%]}"), []string{"rules[0].mode.enforce: is a list: write a percentage such as 10%, or {header: x-canary}"}},
		{"no header", lookupIn("{enforce: {value: a}}"), []string{"rules[0].mode.enforce: says not which header: write {header: x-canary}"}},
		{"a header and more", lookupIn("{enforce: {header: a, percent: 1}}"), []string{"rules[0].mode.enforce.percent: unknown key: known here are header, locks, value"}},
		{"an empty header", lookupIn("{enforce: {header: ''}}"), []string{`rules[0].mode.enforce.header: is empty: give the name of a header`}},
		{"no name of a header", lookupIn("{enforce: {header: 'a b'}}"), []string{`rules[0].mode.enforce.header: "a b" is not the name of a header`}},
		{"a header of ours", lookupIn("{enforce: {header: x-ordergate-key}}"), []string{`rules[0].mode.enforce.header: "x-ordergate-key" is not passed on to ordergate as the client sent it: choose another header`}},
		{"an empty value", lookupIn("{enforce: {header: a, value: ''}}"), []string{`rules[0].mode.enforce.value: "" is not a value of 1 to 256 visible characters`}},
		{"a value with a line break", lookupIn(`{enforce: {header: a, value: "1\n2"}}`), []string{`rules[0].mode.enforce.value: "1\n2" is not a value of 1 to 256 visible characters`}},
		{"a number for a value", lookupIn(`{enforce: {header: a, value: 1}}`), []string{`rules[0].mode.enforce.value: is a number: it has to be text, in quotes`}},
		{"locks without a lock", lookupIn("{enforce: {header: a, locks: true}}"), []string{"rules[0].mode.enforce.locks: is for a rule that takes a lock: remove it"}},
		{"pass", ruleWith("{" + match + ", pass: true, mode: {enforce: 10%}}"), []string{"rules[0].mode: {enforce: 10%} is not for a rule with pass, which enforces nothing: remove it"}},
		{"a create that names orders", ruleWith("{" + create + ", id: {path: id}, mode: {enforce: 10%}}"), nil},
		{"a create that names none", ruleWith("{" + create + ", mode: {enforce: 10%}}"), []string{"rules[0].mode.enforce: 10% is a share of orders, and requests of this rule name none: write enforce or observe"}},

		{"a settlement by header", settleIn("{enforce: {header: a}}"), []string{"rules[0].mode.enforce: {header: a} would enforce an order in one request and not in the next, so that its lock excludes nothing without the header: write a share of orders such as 10%, or add locks: true if you want that"}},
		{"a settlement by header, wanted", settleIn("{enforce: {header: a, locks: true}}"), nil},
		{"a create with a lock, by header", ruleWith("{" + lockedCreate + ", mode: {enforce: {header: a}}}"), []string{"rules[0].mode.enforce: {header: a} would enforce an order in one request and not in the next, so that its lock excludes nothing without the header: write a share of orders such as 10%, or add locks: true if you want that"}},
		{"a create with a lock, by header, wanted", ruleWith("{" + lockedCreate + ", mode: {enforce: {header: a, locks: true}}}"), nil},
		{"a create with the lock of another share", ruleWith("{" + lockedCreate + ", mode: {enforce: 10%}}" + second + "}"), []string{`rules[1].mode: enforce differs from {enforce: 10%} of "a", which takes the same lock, settlement: an order is enforced by all rules of its lock, or by none`}},
		{"keys alone", ruleWith("{" + match + ", once: {by: idempotency-key}, mode: {enforce: 10%}}"), []string{"rules[0].mode.enforce: 10% is a share of orders, and requests of this rule name none: write enforce or observe"}},
		{"keys, by header", ruleWith("{" + match + ", once: {by: idempotency-key}, mode: {enforce: {header: a}}}"), []string{"rules[0].mode.enforce: {header: a} would enforce an order in one request and not in the next, so that its lock excludes nothing without the header: write a share of orders such as 10%, or add locks: true if you want that"}},
		{"keys, by header, wanted", ruleWith("{" + match + ", once: {by: idempotency-key}, mode: {enforce: {header: a, locks: true}}}"), nil},
		{"the same share", twoIn(", mode: {enforce: 10%}", ", mode: {enforce: 10.0%}"), nil},
		{"enforced beside observed", twoIn("", ", mode: observe"), nil},
		{"all", twoIn(", mode: {enforce: 100%}", ""), nil},
		{"another share", twoIn(", mode: {enforce: 10%}", ", mode: {enforce: 20%}"), []string{`rules[1].mode: {enforce: 20%} differs from {enforce: 10%} of "a", which takes the same lock, settlement: an order is enforced by all rules of its lock, or by none`}},
		{"a share beside all", twoIn(", mode: {enforce: 10%}", ""), []string{`rules[1].mode: enforce differs from {enforce: 10%} of "a", which takes the same lock, settlement: an order is enforced by all rules of its lock, or by none`}},
		{"a share beside none", twoIn(", mode: observe", ", mode: {enforce: 20%}"), []string{`rules[1].mode: {enforce: 20%} differs from observe of "a", which takes the same lock, settlement: an order is enforced by all rules of its lock, or by none`}},
		{"another header", twoIn(", mode: {enforce: {header: a, locks: true}}", ", mode: {enforce: {header: b, locks: true}}"), []string{`rules[1].mode: {enforce: {header: b, locks: true}} differs from {enforce: {header: a, locks: true}} of "a", which takes the same lock, settlement: an order is enforced by all rules of its lock, or by none`}},
	} {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.file, tt.want) })
	}
}

// TestSharesOfOneKey has two locks of one key, and a lock that only limits.
func TestSharesOfOneKey(t *testing.T) {
	const file = `
locks:
  reading: {kind: read, key: "k:{id}"}
  writing: {kind: write, key: "k:{id}"}
  merchants: {kind: semaphore, permits: 2, key: "m:{id}"}
  other: {key: "o:{id}"}
rules:
- {name: a, match: {methods: [GET], path: "/o/{id}"}, id: {path: id}, settle: {lock: reading}, mode: {enforce: 10%}}
- {name: b, match: {methods: [PUT], path: "/o/{id}"}, id: {path: id}, settle: {lock: writing}, mode: {enforce: 20%}}
- {name: c, match: {methods: [POST], path: "/o/{id}"}, id: {path: id}, settle: {lock: other, limit: {lock: merchants, id: {header: m}}}, mode: {enforce: 20%}}
- {name: d, match: {methods: [POST], path: "/p/{id}"}, id: {path: id}, settle: {lock: merchants}}
`
	want := []string{
		`rules[1].mode: {enforce: 20%} differs from {enforce: 10%} of "a", which takes the same lock, writing: an order is enforced by all rules of its lock, or by none`,
		`rules[3].mode: enforce differs from {enforce: 20%} of "c", which takes the same lock, merchants: an order is enforced by all rules of its lock, or by none`,
	}
	expect(t, file, want)
}
