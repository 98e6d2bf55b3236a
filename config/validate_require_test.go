package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// requireIn returns a file with one rule that has conditions.
func requireIn(require string) string {
	return `locks: {orders: {}}
rules: [{name: a, match: {methods: [POST], path: "/o/{id}"}, id: {path: id}, settle: {lock: orders, require: ` + require + `}}]
`
}

const kindsOfConditions = "latch, exists, missing, value, geo, time"

const sharesLock = ` can make the same key as "order:lock:{id}" of locks.orders, the lock that a settlement has during the check: give the condition a key of its own`

func TestRequire(t *testing.T) {
	const tooLong, wide = "0123456789012345678901234567890123456789012345678901234567890123", `[{exists: a}, {exists: a}, {exists: a}, {exists: a}, `
	for _, tt := range []struct {
		name, require string
		want          []string // without "rules[0].settle.require"
	}{
		{"each kind", `[{latch: "loaders:{id}"}, {exists: "open:{id}"}, {missing: "frozen:{id}"}, {value: {key: "day:{header:X-Day}", is: closed}},
			{geo: {key: couriers, member: "{id}", to: "{header:x-store}", within: 500m}}, {time: {from: "08:00", to: "20:00", days: [mon..fri], zone: Europe/Berlin}}]`, nil},
		{"an answer", `[{latch: a, otherwise: {status: 409, body: "{}", retry_after: 0s}}]`, nil},
		{"hash tag", `[{latch: "loaders:{{id}}"}, {exists: "{day:{header:x-day}}:open:{id}"}]`, nil},
		{"is an empty text", `[{value: {key: a, is: ""}}]`, []string{`[0].value.is: is empty: give it a text`}},
		{"is not", `[{value: {key: a, is_not: closed, codec: default}}]`, nil},
		{"time without anything", `[{time: {}}]`, nil},
		{"time over midnight", `[{time: {from: "22:00", to: "06:00", days: [fri, sat..sun]}}]`, nil},
		{"time without quotes", `[{time: {from: 08:00, to: 24:00}}]`, nil},
		{"distances", `[{geo: {key: a, member: b, to: c, within: 0m}}, {geo: {key: a, member: b, to: c, within: 1.5 km}}, {geo: {key: a, member: b, to: c, within: 12ft}}, {geo: {key: a, member: b, to: c, within: 0.1mi}}]`, nil},

		{"empty", `[]`, []string{`: is empty: give it a condition, or remove it`}},
		{"no list", `{latch: a}`, []string{`: is a mapping: it has to be a list`}},
		{"no condition", `[{}]`, []string{`[0]: is no condition: give it one of ` + kindsOfConditions}},
		{"an answer alone", `[{otherwise: {status: 409}}]`, []string{`[0]: is no condition: give it one of ` + kindsOfConditions}},
		{"two kinds", `[{latch: a, exists: b}]`, []string{`[0]: has latch and exists: give each condition an entry of its own`}},
		{"two kinds, one empty", `[{latch: "", time: {}}]`, []string{`[0].latch: is empty: give a key, such as "loaders:{id}"`, `[0]: has latch and time: give each condition an entry of its own`}},
		{"unknown kind", `[{latches: a}]`, []string{`[0].latches: unknown key, did you mean latch?`}},
		{"too many", wide[:len(wide)-2] + strings.Repeat(`, {exists: a}`, 13) + `]`, []string{`: has 17 conditions: at most 16 are allowed`}},
		{"key of another type", `[{latch: 1}]`, []string{`[0].latch: is a number: it has to be text, in quotes`}},
		{"unknown placeholder", `[{latch: "loaders:{tenant}"}]`, []string{`[0].latch: has {tenant}: known are {id} and {header:NAME}`}},
		{"hash tag around no placeholder", `[{latch: "{loaders}:{id}"}]`, []string{`[0].latch: has {loaders}: known are {id} and {header:NAME}`}},
		{"placeholder in another case", `[{exists: "{ID}"}]`, []string{`[0].exists: has {ID}: known are {id} and {header:NAME}`}},
		{"two hash tags", `[{exists: "{{id}}:{{id}}"}]`, []string{`[0].exists: has braces that do not match in "{{id}}:{{id}}": besides {id} and {header:NAME}, one pair is allowed around them`}},
		{"open brace", `[{exists: "a:{id"}]`, []string{`[0].exists: has braces that do not match in "a:{id": besides {id} and {header:NAME}, one pair is allowed around them`}},
		{"brace the other way round", `[{exists: "}{id}{"}]`, []string{`[0].exists: has braces that do not match in "}{id}{": besides {id} and {header:NAME}, one pair is allowed around them`}},
		{"no header", `[{exists: "{header:}"}, {exists: "{header:x store}"}]`, []string{
			`[0].exists: has {header:}, which names no header: write it as {header:x-store}`,
			`[1].exists: has {header:x store}, which names no header: write it as {header:x-store}`,
		}},
		{"a header of ours", `[{exists: "{header:X-Ordergate-Key}"}]`, []string{`[0].exists: has {header:X-Ordergate-Key}, a header that ordergate sets: use one of the client's`}},
		{"a long key", `[{exists: "` + strings.Repeat(tooLong, 4) + `x"}]`, []string{`[0].exists: is 257 bytes long: at most 256 are allowed`}},
		{"a key that cannot be printed", `[{exists: "a\tb"}]`, []string{`[0].exists: "a\tb" has a character in it that cannot be printed: leave it out`}},
		{"value without anything", `[{value: {}}]`, []string{`[0].value: key is missing: give a key, such as "day:{id}"`, `[0].value: compares with nothing: give it is or is_not`}},
		{"value twice", `[{value: {key: a, is: b, is_not: c}}]`, []string{`[0].value.is_not: excludes is: give one of the two`}},
		{"value of a number", `[{value: {key: a, is: 1}}]`, []string{`[0].value.is: is a number: it has to be text, in quotes`}},
		{"codec", `[{value: {key: a, is: b, codec: kryo}}]`, []string{`[0].value.codec: "kryo" is not one of string, default`}},
		{"value that is a text", `[{value: closed}]`, []string{`[0].value: is text: it has to be a mapping`}},
		{"geo without anything", `[{geo: {}}]`, []string{
			`[0].geo: key is missing: give the key of a GEO set`, `[0].geo: member is missing: give a member of the set, such as "{id}"`,
			`[0].geo: to is missing: give a member of the set, such as "{header:x-store}"`, `[0].geo: within is missing: give a distance, such as 500m`,
		}},
		{"geo with wrong values", `[{geo: {key: "{a}", member: "{b}", to: "{c}", within: 500}}]`, []string{
			`[0].geo.within: is a number: it has to be text, in quotes`, `[0].geo.key: has {a}: known are {id} and {header:NAME}`,
			`[0].geo.member: has {b}: known are {id} and {header:NAME}`, `[0].geo.to: has {c}: known are {id} and {header:NAME}`,
		}},
		{"wrong distances", `[{geo: {key: a, member: b, to: c, within: 500cm}}, {geo: {key: a, member: b, to: c, within: -1m}}, {geo: {key: a, member: b, to: c, within: 30001km}}]`, []string{
			`[0].geo.within: "500cm" is not a distance of at most 30000km such as 500m, 1.5km, 300ft or 2mi`,
			`[1].geo.within: "-1m" is not a distance of at most 30000km such as 500m, 1.5km, 300ft or 2mi`,
			`[2].geo.within: "30001km" is not a distance of at most 30000km such as 500m, 1.5km, 300ft or 2mi`,
		}},
		{"wrong times", `[{time: {from: "24:00", to: "8:00", days: [monday, fri..], zone: Berlin}}]`, []string{
			`[0].time.from: "24:00" is not a time from 00:00 to 23:59`, `[0].time.to: "8:00" is not a time from 00:00 to 24:00`,
			`[0].time.days[0]: "monday" is not a day or a range of them: mon, tue, wed, thu, fri, sat, sun, or mon..fri`,
			`[0].time.days[1]: "fri.." is not a day or a range of them: mon, tue, wed, thu, fri, sat, sun, or mon..fri`,
			`[0].time.zone: "Berlin" is not a time zone, such as UTC or Europe/Berlin`,
		}},
		{"no time", `[{time: {from: "08:00", to: "08:00"}}]`, []string{`[0].time.to: is the same as from: leave both out for whole days`}},
		{"no days", `[{time: {days: []}}]`, []string{`[0].time.days: is empty: give a day, such as mon, or leave it out for all`}},
		{"the machine's zone", `[{time: {zone: Local}}, {time: {zone: ""}}, {time: {zone: ../etc/passwd}}]`, []string{
			`[0].time.zone: "Local" is not a time zone, such as UTC or Europe/Berlin`,
			`[1].time.zone: "" is not a time zone, such as UTC or Europe/Berlin`,
			`[2].time.zone: "../etc/passwd" is not a time zone, such as UTC or Europe/Berlin`,
		}},
		{"the key of the lock", `[{latch: "order:lock:{id}"}, {missing: "order:lock:{header:x-order}"}, {value: {key: "order:lock:1", is: a}}, {exists: "order:lock:{id}:x"}, {exists: "order:locks:{id}"}]`, []string{
			`[0].latch: "order:lock:{id}"` + sharesLock, `[1].missing: "order:lock:{header:x-order}"` + sharesLock, `[2].value.key: "order:lock:1"` + sharesLock,
		}},
		{"answers", `[{latch: a, otherwise: {status: 199, retry_after: 25h}}]`, []string{
			`[0].otherwise.status: 199 is out of range: 200 to 599 are allowed`, `[0].otherwise.retry_after: 25h is out of range: 0s to 24h are allowed`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var full []string
			for _, line := range tt.want {
				full = append(full, "rules[0].settle.require"+line)
			}
			expect(t, requireIn(tt.require), full)
		})
	}
}

func TestDefaultsOfConditions(t *testing.T) {
	c := mustParse(t, requireIn(`[{latch: a}, {value: {key: a, is: b}, otherwise: {status: 423}}, {time: {}}, {geo: {key: a, member: b, to: c, within: 1mi}, otherwise: {retry_after: 0s}}]`), nil)
	const body = `{"error":"order is not ready to be settled, try again later"}`
	want := []Condition{
		{Latch: "a", Otherwise: Reply{Status: 425, Body: body, RetryAfter: time.Second}},
		{Value: &ValueCondition{Key: "a", Is: "b", Codec: "string"}, Otherwise: Reply{Status: 423, Body: body, RetryAfter: time.Second}},
		{Time: &TimeCondition{From: "00:00", To: "24:00", Days: weekdays, Zone: "UTC"}, Otherwise: Reply{Status: 425, Body: body, RetryAfter: time.Second}},
		{Geo: &GeoCondition{Key: "a", Member: "b", To: "c", Within: "1mi", Codec: "string"}, Otherwise: Reply{Status: 425, Body: body, RetryAfter: 0}},
	}
	if diff := cmp.Diff(want, c.Rules[0].Settle.Require); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d := c.Rules[0].Settle.Require[3].Geo.Meters(); d != 1609.34 {
		t.Errorf("a mile has %v meters", d)
	}
}

func TestConditionNames(t *testing.T) {
	names := ConditionNames([]Condition{{Latch: "a"}, {Exists: "b"}, {Latch: "c"}, {Time: &TimeCondition{}}, {Latch: "d"}})
	if diff := cmp.Diff([]string{"latch", "exists", "latch-2", "time", "latch-3"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTemplate(t *testing.T) {
	parts, problem := Template("a:{{id}}:{tenant}:{header:X-Store}", []string{"tenant"})
	want := []TemplatePart{{Text: "a:{"}, {ID: true}, {Text: "}:"}, {Part: "tenant"}, {Text: ":"}, {Header: "x-store"}}
	if diff := cmp.Diff(want, parts); diff != "" || problem != "" {
		t.Errorf("%s (-want +got):\n%s", problem, diff)
	}
}

// TestConditionsNeedRedis has a quorum, which has servers of its own.
func TestConditionsNeedRedis(t *testing.T) {
	file := func(require string) string {
		return bedtest.Replace(requireIn(require), "{orders: {}}", "{orders: {kind: quorum, "+servers+"}}")
	}
	if c := mustParse(t, file(`[{time: {}}]`), nil); c.Redis != nil {
		t.Error("a time needs no Redis")
	}
	if c := mustParse(t, file(`[{latch: a}]`), nil); c.Redis == nil {
		t.Error("a latch needs Redis")
	}
}

// TestConditionsWithParts has orders of tenants.
func TestConditionsWithParts(t *testing.T) {
	const settle = "rules[0].settle.require"
	for _, tt := range []struct {
		name, require string
		want          []string
	}{
		{"both", `[{latch: "loaders:{tenant}/{id}"}, {missing: "frozen:{id}@{tenant}"}, {exists: "{{tenant}}:{id}"}]`, nil},
		{"a part alone", `[{value: {key: "day:{tenant}:{header:x-day}", is: closed}}, {exists: "open:{tenant}"}, {exists: open}]`, nil},
		{"in a set of the tenant", `[{geo: {key: "couriers:{tenant}", member: "{id}", to: "{header:x-store}", within: 1km}}]`, nil},
		{"without its part", `[{latch: "loaders:{id}"}]`, []string{settle + `[0]: has {id} without {tenant}, so two orders would share the condition: write {tenant} in it`}},
		{"a member without its part", `[{geo: {key: couriers, member: "{id}", to: a, within: 1km}}]`, []string{settle + `[0]: has {id} without {tenant}, so two orders would share the condition: write {tenant} in it`}},
		{"the end of a part is not clear", `[{exists: "open:{tenant}:{id}"}, {exists: "open:{tenant}{id}"}]`, []string{
			settle + `[0]: "open:{tenant}:{id}" makes the same text for two orders: write a character behind {tenant} that it cannot have, such as /`,
			settle + `[1]: "open:{tenant}{id}" makes the same text for two orders: write a character behind {tenant} that it cannot have, such as /`,
		}},
		{"the lock of a tenant's order", `[{missing: "order:lock:{tenant}/{id}"}, {missing: "order:lock:{tenant}/{id}/x"}]`, []string{
			settle + `[0].missing: "order:lock:{tenant}/{id}" can make the same key as "order:lock:{tenant}/{id}" of locks.orders, the lock that a settlement has during the check: give the condition a key of its own`,
		}},
		{"another part", `[{exists: "{shop}/{tenant}/{id}"}]`, []string{settle + `[0].exists: has {shop}: known are {id}, {tenant} and {header:NAME}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := strings.NewReplacer("{orders: {}}", `{orders: {key: "order:lock:{tenant}/{id}"}}`,
				"id: {path: id}", `id: {path: id, format: pattern, pattern: "[a-z0-9:]+"}, parts: {tenant: {header: x-tenant, format: pattern, pattern: "[a-z:]+"}}`).Replace(requireIn(tt.require))
			expect(t, file, tt.want)
		})
	}
}
