package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const (
	tenantPart = `tenant: {header: x-tenant, format: pattern, pattern: "[a-z0-9-]{1,32}"}`
	partedFile = `
redis: {mode: cluster, addresses: ["a:1"]}
filters: {orders: {parts: [tenant]}}
sources: {}
locks: {settlement: {key: "order:lock:{tenant}:{id}"}}
rules:
  - {name: a, match: {methods: [POST], path: "/o/{id}"}, id: {path: id}, PARTS, lookup: {filter: orders}, settle: {lock: settlement}}
`
)

func partedWith(replace ...string) string {
	return strings.NewReplacer(append(replace, "PARTS", "parts: {"+tenantPart+"}")...).Replace(partedFile)
}

// TestParts has a case for each rule about parts. A case without wanted violations is accepted.
func TestParts(t *testing.T) {
	part := func(text string) string { return partedWith("PARTS", "parts: {tenant: "+text+"}") }
	other := func(rule string) string { return partedWith() + "  - {name: b, " + rule + "}\n" }
	for _, tt := range []struct {
		name, file string
		want       []string
	}{
		{"header", partedWith(), nil},
		{"path", bedtest.Replace(part(`{path: tenant, format: uuid}`), "/o/{id}", "/{tenant}/o/{id}"), nil},
		{"query, digits", part(`{query: tenant}`), nil},
		{"form", part(`{form: tenant}`), nil},
		{"JSON", part(`{json: tenant.name, json_type: string}`), nil},
		{"cookie", part(`{cookie: tenant, format: digits, max_length: 5}`), nil},
		{"two", partedWith("[tenant]", "[tenant, shop]", "{tenant}:{id}", "{tenant}:{shop}:{id}", "PARTS", "parts: {shop: {query: shop}, "+tenantPart+"}"), nil},
		{"a lock alone", partedWith("lookup: {filter: orders}, ", "", "filters: {orders: {parts: [tenant]}}", "filters: {}"), nil},
		{"a filter alone", partedWith(", settle: {lock: settlement}", "", "{tenant}:{id}", "{id}"), nil},
		{"hash tags", partedWith("order:lock:{tenant}:{id}", "order:lock:{{tenant}:{id}}"), nil},

		{"no parts", partedWith("PARTS, ", ""), []string{
			`rules[0]: parts.tenant is missing: tenant is among the parts of filters.orders, so say where a request has it`,
		}},
		{"a rule without the part of the lock", other(`match: {methods: [POST], path: "/p/{id}"}, id: {path: id}, settle: {lock: settlement}`), []string{
			`rules[1]: parts.tenant is missing: tenant is in the key "order:lock:{tenant}:{id}" of locks.settlement, so say where a request has it`,
		}},
		{"a rule without the part of the filter", other(`match: {methods: [POST], path: /p}, create: {filter: orders, learn: {response_json: id}}`), []string{
			`rules[1]: parts.tenant is missing: tenant is among the parts of filters.orders, so say where a request has it`,
		}},
		{"not in the key", partedWith("{tenant}:{id}", "{id}"), []string{
			`rules[0].parts.tenant: is not in the key "order:lock:{id}" of locks.settlement, so two orders would share a lock: write {tenant} in it`,
		}},
		{"the lock of a create", other(`match: {methods: [POST], path: /p}, id: {json: id}, parts: {tenant: {header: x-tenant}}, create: {filter: orders, learn: {response_json: id}, lock: settlement}`), nil},
		{"not in the key of the lock of a create", partedWith("locks: {", `locks: {plain: {key: "new:{id}"}, `) +
			`  - {name: b, match: {methods: [POST], path: /p}, id: {json: id}, parts: {tenant: {header: x-tenant}}, create: {filter: orders, learn: {response_json: id}, lock: plain}}` + "\n", []string{
			`rules[1].parts.tenant: is not in the key "new:{id}" of locks.plain, so two orders would share a lock: write {tenant} in it`,
		}},
		{"a part of the lock of a create alone", partedWith("{tenant}:{id}", "{tenant}/{id}", ", settle: {lock: settlement}", "") +
			`  - {name: b, match: {methods: [POST], path: /p}, id: {json: id}, parts: {tenant: {header: x-tenant, format: pattern, pattern: ".+"}}, create: {filter: orders, learn: {response_json: id}, lock: settlement}}` + "\n", nil},
		{"not in the filter", partedWith("{parts: [tenant]}", "{}"), []string{
			`rules[0].parts.tenant: is not among the parts of filters.orders, so two orders would share an entry: add tenant to them`,
		}},
		{"a part that nothing uses", partedWith("{parts: [tenant]}", "{}", "{tenant}:{id}", "{id}"), []string{
			`rules[0].parts.tenant: is not in the key "order:lock:{id}" of locks.settlement, so two orders would share a lock: write {tenant} in it`,
			`rules[0].parts.tenant: is not among the parts of filters.orders, so two orders would share an entry: add tenant to them`,
		}},
		{"another order", partedWith("[tenant]", "[shop, tenant]", "{tenant}:{id}", "{tenant}:{shop}:{id}", "PARTS", "parts: {shop: {query: shop}, "+tenantPart+"}"), []string{
			`rules[0].parts: are tenant, shop in the key of locks.settlement, and shop, tenant in filters.orders: give both one order, since it is that of a full ID`,
		}},
		{"empty", partedWith("PARTS", "parts: {}", "{parts: [tenant]}", "{}"), []string{`rules[0].parts: is empty: name a part, such as {tenant: {header: x-tenant}}, or remove it`}},
		{"no place", part(`{format: digits}`), []string{`rules[0].parts.tenant: says not where the part is: give exactly one of path, query, header, json, form, cookie`}},
		{"two places", part(`{header: x-tenant, query: tenant}`), []string{`rules[0].parts.tenant: has query and header: give exactly one of path, query, header, json, form, cookie`}},
		{"no such segment", part(`{path: tenant}`), []string{`rules[0].parts.tenant.path: "tenant" is not a {name} in match.path "/o/{id}"`}},
		{"a list", part(`{json: tenants, list: true}`), []string{`rules[0].parts.tenant.list: is not for a part, which is one text: remove it`}},
		{"optional", part(`{header: x-tenant, optional: true}`), []string{`rules[0].parts.tenant.optional: is not for a part, which each request has: remove it`}},
		{"a bad format", part(`{header: x-tenant, format: text}`), []string{`rules[0].parts.tenant.format: "text" is not one of digits, uuid, timestamped, snowflake, pattern`}},
		{"an unknown key", part(`{header: x-tenant, of: 1}`), []string{
			`rules[0].parts.tenant.of: unknown key: known here are case, cookie, form, format, header, json, json_type, list, max, max_body, max_length, max_list, min_length, optional, path, pattern, query, separator, time`,
		}},
		{"a slash", part(`{header: x-tenant, format: pattern, pattern: "[a-z]+/[a-z]+"}`), []string{`rules[0].parts.tenant.pattern: asks for a slash, and no part has any: it separates the parts of an ID`}},
		{"the order's name", part(`{query: id}`), []string{`rules[0].parts.tenant.query: "id" may be taken for "id" of rules[0].id, which is the order's: locate the part by another name`}},
		{"the order's name by folding", part(`{header: I_D}`), []string{`rules[0].parts.tenant.header: "i_d" may be taken for "id" of rules[0].id, which is the order's: locate the part by another name`}},
		{"a parameter of the match", bedtest.Replace(part(`{query: tenant}`), "match: {", "match: {query: {Tenant: a}, "), []string{
			`rules[0].match.query.Tenant: may be taken for "tenant" of rules[0].parts.tenant: match by another parameter`,
		}},
		{"a body of another type", bedtest.Replace(part(`{json: tenant}`), "id: {path: id}", "id: {form: id}"), []string{
			`rules[0].parts.tenant.json: stands in a body of another type than rules[0].id, which is the order's: no request has both`,
		}},
		{"the order's ID", strings.NewReplacer("tenant:", "id:").Replace(strings.NewReplacer("{parts: [tenant]}", "{}", "{tenant}:", "").Replace(part(`{header: x-tenant}`))), []string{
			`rules[0].parts.id: id is the order's ID: give the part another name`,
			`rules[0].parts.id: is not in the key "order:lock:{id}" of locks.settlement, so two orders would share a lock: write {id} in it`,
			`rules[0].parts.id: is not among the parts of filters.orders, so two orders would share an entry: add id to them`,
		}},
		{"a bad name", part(`{header: x-tenant}, Shop: {header: x-shop}`), []string{
			`rules[0].parts.Shop: "Shop" is no name: names are 1 to 63 of a-z, 0-9, _ and -, with a letter or digit first`,
		}},
		{"too long", part(`{header: x-tenant, format: pattern, pattern: ".+", max_length: 256}`), []string{
			`locks.settlement.key: "order:lock:{tenant}:{id}" has ":" behind {tenant}`,
		}},
		{"a pass", other(`match: {methods: [POST], path: /p}, pass: true, parts: {tenant: {header: x}}`), []string{
			`rules[1].parts: is not for a rule with pass, which exempts its requests: remove one of the two`,
		}},
		{"the lock of a limit", partedWith("locks: {", `locks: {merchant: {kind: semaphore, permits: 1, key: "m:{tenant}:{id}"}, `, "{lock: settlement}", "{lock: settlement, limit: {lock: merchant, id: {query: m}}}"), []string{
			`rules[0].settle.limit.lock: "merchant" has {tenant} in its key, and a limit has one ID and no parts: remove it from the key`,
		}},
		{"the name of a limit", partedWith("locks: {", `locks: {merchant: {kind: semaphore, permits: 1, key: "m:{id}"}, `, "{lock: settlement}", "{lock: settlement, limit: {lock: merchant, id: {query: xTenant}}}"), []string{
			`rules[0].settle.limit.id.query: "xTenant" may be taken for "x-tenant" of rules[0].parts.tenant: limit by an ID of another name`,
		}},

		{"a filter's parts, empty", partedWith("[tenant]", "[]", ", PARTS", "", "{tenant}:", ""), []string{`filters.orders.parts: is empty: name a part of the IDs, such as tenant, or remove it`}},
		{"a filter's parts, twice", partedWith("[tenant]", "[tenant, tenant]"), []string{`filters.orders.parts[1]: "tenant" is given twice: name a part once`}},
		{"a filter's parts, the ID", partedWith("[tenant]", "[tenant, id]"), []string{
			`filters.orders.parts[1]: id is the order's ID, which is always last: remove it`,
			`rules[0]: parts.id is missing: id is among the parts of filters.orders, so say where a request has it`,
		}},
		{"an exact filter", partedWith("{parts: [tenant]}", "{parts: [tenant], kind: exact}"), []string{
			`filters.orders.parts: is for kinds local, redis-bloom, redis-bitmap, redisson and layered only: set one of them, or remove this`,
		}},

		{"a letter of the part behind it", part(`{header: x-tenant, format: pattern, pattern: "[a-z0-9:]+"}`), nil}, // the ID, digits, cannot have it
		{"a letter of both", bedtest.Replace(part(`{header: x-tenant, format: pattern, pattern: "[a-z0-9:]+"}`), "id: {path: id}", `id: {path: id, format: pattern, pattern: "[0-9:]+"}`), []string{
			`locks.settlement.key: "order:lock:{tenant}:{id}" has ":" behind {tenant}, which can have that character too, so the keys of two orders may be the same: write another one there, such as /, or give the part a format without it`,
		}},
		{"a slash between", strings.NewReplacer("id: {path: id}", `id: {path: id, format: pattern, pattern: ".+"}`, "{tenant}:{id}", "{tenant}/{id}").Replace(part(`{header: x-tenant, format: pattern, pattern: ".+"}`)), nil},
		{"nothing between", partedWith("{tenant}:{id}", "{tenant}{id}"), []string{
			`locks.settlement.key: "order:lock:{tenant}{id}" has nothing between {tenant} and the next part, so the keys of two orders may be the same: write a character between them that neither can have, such as /`,
		}},
		{"twice in the key", partedWith("{tenant}:{id}", "{tenant}:{id}:{tenant}"), []string{`locks.settlement.key: "order:lock:{tenant}:{id}:{tenant}" has {tenant} in it more than once: once is enough`}},
		{"the keys of two locks", partedWith("locks: {", `locks: {plain: {key: "order:lock:{id}"}, `) + `  - {name: b, match: {methods: [POST], path: "/p/{id}"}, id: {path: id, format: pattern, pattern: "[a-z0-9:]+"}, settle: {lock: plain}}` + "\n", []string{
			`locks.settlement.key: "order:lock:{tenant}:{id}" begins like "order:lock:{id}" of locks.plain, so their keys could be the same: begin each lock's key with a text that no other one begins with, such as "plain:" and "settlement:"`,
		}},
		{"braces that are no hash tag", partedWith("order:lock:{tenant}:{id}", "order:{lock:{tenant}:{id}"), []string{
			`locks.settlement.key: "order:{lock:{tenant}:{id}" has braces in it that are no hash tag, so the keys of one lock would lie in several slots: write them around a part, as in order:lock:{{id}}, or leave them out`,
		}},
		{"a literal of earlier files", `{locks: {s: {key: "{orders}:lock:{id}"}}, redis: {mode: cluster, addresses: ["a:1"]}}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "too long" {
				got := violations(t, tt.file, nil)
				if !slices.ContainsFunc(got, func(line string) bool {
					return strings.Contains(line, "at most 256 are allowed, so lower a max_length")
				}) {
					t.Errorf("got %q", got)
				}
				return
			}
			expect(t, tt.file, tt.want)
		})
	}
}

func TestPartColumns(t *testing.T) {
	with := func(filter, source string) string {
		return `{filters: {orders: {sources: [db]` + filter + `}}, sources: {db: {kind: mysql, dsn_env: ORDERS_DSN, table: orders, id_column: id` + source + `}}}`
	}
	for _, tt := range []struct {
		name, file string
		want       []string
	}{
		{"none", with("", ""), nil},
		{"one", with(", parts: [tenant]", ", part_columns: {tenant: tenant_id}"), nil},
		{"a name with letters", with(", parts: [tenant]", ", part_columns: {tenant: Mandant Nr}"), nil},
		{"two filters", `{filters: {a: {sources: [db], parts: [tenant]}, b: {sources: [db], parts: [shop]}}, sources: {db: {kind: postgres, dsn_env: ORDERS_DSN, table: orders, id_column: id, part_columns: {tenant: t, shop: s}}}}`, nil},
		{"missing", with(", parts: [tenant]", ""), []string{`sources.db: part_columns.tenant is missing: filter "orders" has this part, so name the column of the table that has it`}},
		{"one missing", with(", parts: [tenant, shop]", ", part_columns: {tenant: t}"), []string{`sources.db: part_columns.shop is missing: filter "orders" has this part, so name the column of the table that has it`}},
		{"unused", with("", ", part_columns: {tenant: t}"), []string{`sources.db.part_columns.tenant: no filter of this source has the part tenant: add it to the parts of the filter, or remove this`}},
		{"empty", with("", ", part_columns: {}"), []string{`sources.db.part_columns: is empty: give a part and its column, such as {tenant: tenant_id}, or remove it`}},
		{"the column of the ID", with(", parts: [tenant]", ", part_columns: {tenant: id}"), []string{`sources.db.part_columns.tenant: "id" is also that of id_column: name a column of its own`}},
		{"no column", with(", parts: [tenant]", `, part_columns: {tenant: ""}`), []string{`sources.db.part_columns.tenant: "" is not the name of a column: names are 1 to 64 characters that can be printed`}},
		{"no text", with(", parts: [tenant]", `, part_columns: {tenant: [a]}`), []string{`sources.db.part_columns.tenant: is a list: it has to be text`}},
		{"a file", `{filters: {orders: {sources: [f], parts: [tenant]}}, sources: {f: {kind: csv, path: a.csv, part_columns: {tenant: t}}}}`, []string{`sources.f.part_columns: is for kinds mysql, postgres and kafka only: set one of them, or remove this`}},
		{"a file without", `{filters: {orders: {sources: [f], parts: [tenant]}}, sources: {f: {kind: csv, path: a.csv}}}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == nil {
				mustParse(t, tt.file, env{"ORDERS_DSN": "gate:secret@tcp(db)/shop"})
				return
			}
			got := violations(t, tt.file, env{"ORDERS_DSN": "gate:secret@tcp(db)/shop"})
			for i, line := range got {
				_, got[i], _ = strings.Cut(line, ": ")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("unexpected violations (-want +got):\n%s", diff)
			}
		})
	}
}

// drawnKey is a key with the IDs in it, and the values of two orders.
type drawnKey struct {
	key    KeyTemplate
	ids    keyIDs
	values [2]map[string]string
}

// drawKey draws a key with one or two variables, whose texts and values have few letters.
func drawKey(t *rapid.T, letters string) drawnKey {
	text := rapid.StringMatching("[" + letters + "]{0,3}")
	d := drawnKey{KeyTemplate{Texts: []string{text.Draw(t, "text")}}, make(keyIDs), [2]map[string]string{{}, {}}}
	for _, name := range []string{"tenant", "id"}[rapid.IntRange(0, 1).Draw(t, "from"):] {
		d.key.Names, d.key.Texts = append(d.key.Names, name), append(d.key.Texts, text.Draw(t, "text"))
		pattern := rapid.SampledFrom([]string{"[ab]+", "a+", "[a:]+", ":+", "[ab:_]+", "b"}).Draw(t, "pattern")
		d.ids[name] = []ID{{Format: FormatPattern, Pattern: pattern}}
		for i := range d.values {
			d.values[i][name] = rapid.StringMatching(pattern).Draw(t, "value")
		}
	}
	return d
}

func (d drawnKey) of(order int) string {
	return d.key.Key(func(name string) string { return d.values[order][name] })
}

// template returns the key as a file has it.
func (d drawnKey) template() string {
	return d.key.Key(func(name string) string { return "{" + name + "}" })
}

// TestUnambiguousKeys has a key of two orders: if it counts as unambiguous, they have different
// keys.
func TestUnambiguousKeys(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		d := drawKey(t, "ab:/")
		if _, _, ok := d.key.isUnambiguous(d.ids); ok {
			accepted++
			if same := cmp.Equal(d.values[0], d.values[1]); !same && d.of(0) == d.of(1) {
				t.Fatalf("%q: %v have one key %q", d.key, d.values, d.of(0))
			}
		}
	})
	if accepted == 0 {
		t.Error("no key was accepted")
	}
}

// TestSameKeys has keys of two locks: if nothing is rejected, they have no key in common, observed
// or not. If none of a lock's own keys is rejected, none of an order is that of another's lock.
func TestSameKeys(t *testing.T) {
	accepted, braces := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawKey(t, "a:{}"), drawKey(t, "a:{}")
		if other := rapid.IntRange(0, 3).Draw(t, "other"); other > 0 { // two that begin alike
			b.key.Texts[0] = a.key.Texts[0] + b.key.Texts[0][:min(other-1, len(b.key.Texts[0]))]
		}
		kinds := rapid.SampledFrom([]string{LockExclusive, LockFair, LockRead, LockWrite})
		c := &Config{Locks: map[string]Lock{
			"a": {Kind: kinds.Draw(t, "kind"), Format: FormatRedisson, Key: a.template()},
			"b": {Kind: kinds.Draw(t, "kind"), Format: FormatRedisson, Key: b.template()},
		}}
		uses := map[string]lockUse{"a": {a.key, a.ids}, "b": {b.key, b.ids}}
		rejected := func(check func(*validator)) bool {
			v := &validator{document: newDocument(""), config: c}
			v.uses = uses
			check(v)
			return len(v.violations) > 0
		}
		sides := a.template() == b.template() // one key, of a read and a write lock
		if !sides && !rejected(func(v *validator) { v.lockKeysDiffer(c) }) {
			accepted++
			for _, ends := range [][2]string{{"", ""}, {ObservedSuffix, ""}, {"", ObservedSuffix}} {
				if a.of(0)+ends[0] == b.of(1)+ends[1] {
					t.Fatalf("%q and %q have the key %q", a.template(), b.template(), a.of(0))
				}
			}
		}
		if !rejected(func(v *validator) { v.ownKeysDiffer("locks.a.key", "a") }) && strings.ContainsAny(strings.Join(a.key.Texts, ""), "{}") {
			braces++
			for _, around := range [][2]string{{"ab:", ""}, {"", ":b"}, {"", "::b_"}, {"b_:", ""}} { // as those of redislock
				if around[0]+a.of(0)+around[1] == a.of(1) {
					t.Fatalf("%q of one order is the key of another's: %v", a.of(1), a.values)
				}
			}
		}
	})
	if accepted == 0 || braces == 0 {
		t.Errorf("accepted %d pairs, and %d keys with braces", accepted, braces)
	}
}

// TestMayHave has the characters of IDs. Those of patterns are in texts that match.
func TestMayHave(t *testing.T) {
	for _, tt := range []struct {
		id      ID
		has, no string
	}{
		{ID{Format: FormatDigits}, "0189", "a-:"},
		{ID{Format: FormatUUID, Case: CaseLower}, "09af-", "AFg:"},
		{ID{Format: FormatUUID, Case: CaseUpper}, "09AF-", "afg:"},
		{ID{Format: FormatUUID, Case: CaseAsIs}, "09AFaf-", "gG:"},
		{ID{Format: FormatPattern, Pattern: `[a-c]+|d?e*`}, "abcde", "fA:"},
		{ID{Format: FormatPattern, Pattern: "(?i)ks"}, "KkSs", "a"},
		{ID{Format: FormatPattern, Pattern: "[a-c]k", Case: CaseUpper}, "acACkK", "d"},
		{ID{Format: FormatPattern, Pattern: `a/{b}%[à-ü]`}, "ab", "/{}%c"},
		{ID{Format: FormatPattern, Pattern: `(?s).*`}, "a:!~", "/{} \u007f"},
		{ID{Format: FormatPattern, Pattern: `[^a]`}, "b:", "a/"},
	} {
		for i, chars := range []string{tt.has, tt.no} {
			for _, c := range []byte(chars) {
				if tt.id.mayHave(c) != (i == 0) {
					t.Errorf("%v: %q is %v", tt.id, c, i != 0)
				}
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SampledFrom([]string{`(?i)[k-s]{2}ſ?`, `\d+:?`, `(a|b[^c-z])+`, `\w`, `(?:x\.)*`}).Draw(t, "pattern")
		for _, c := range []byte(rapid.StringMatching(pattern).Draw(t, "text")) {
			if id := (ID{Format: FormatPattern, Pattern: pattern}); c > ' ' && c < 0x7f && !strings.ContainsRune("%;,/\\?#&+\"{}", rune(c)) && !id.mayHave(c) {
				t.Fatalf("%s: no %q", pattern, c)
			}
		}
	})
}
