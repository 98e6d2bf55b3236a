package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	lookupID = lookup + `, id: `
	createID = create + `, id: `
)

// TestIDs has a case for each rule on where an ID is.
func TestIDs(t *testing.T) {
	deep := strings.Repeat("a.", 31) + "a"
	for _, tt := range []struct {
		name, rule, id string
		want           []string // without "rules[0].id"
	}{
		{"no place", lookupID, `{}`, []string{`: does not name the ID's location: give exactly one of path, query, header, json, form, cookie`}},
		{"a place that is unknown", lookupID, `{body: id}`, []string{`.body: unknown key: known here are case, cookie, form, format, header, json, json_type, list, max, max_body, max_length, max_list, min_length, optional, path, pattern, query, separator, time`}},
		{"no list", lookupID, `[]`, []string{`: is empty: name the ID's location, or remove it in a rule with create`}},
		{"no list in a create", createID, `[]`, []string{`: is empty: name the ID's location, or remove it in a rule with create`}},
		{"two places for the ID", lookupID, `{path: id, header: x-id}`, []string{`: has path and header: give exactly one of path, query, header, json, form, cookie`}},
		{"two places in a create", createID, `{query: id, header: x-id}`, []string{`: has query and header: give exactly one of path, query, header, json, form, cookie`}},
		{"optional in a lookup", lookupID, `{query: id, optional: true}`, nil},
		{"optional in a lookup by half", lookupID, `[{query: id, optional: true}, {cookie: id}]`, []string{`[1].optional: differs from that of rules[0].id[0]: give all entries of a rule the same`}},
		{"optional in a settlement", lookup + `, settle: {lock: settlement}, id: `, `{query: id, optional: true}`, []string{`.optional: is for lookup and create only: settle needs an ID`}},
		{"ID of another segment", lookupID, `{path: order}`, []string{`.path: "order" is not a {name} in match.path "/o/{id}"`}},
		{"ID of a literal segment", lookupID, `{path: o}`, []string{`.path: "o" is not a {name} in match.path "/o/{id}"`}},
		{"ID of an empty name", lookupID, `{path: ""}`, []string{`.path: "" is not a {name} in match.path "/o/{id}"`}},
		{"bad parameter", lookupID, `{query: order.id}`, []string{`.query: "order.id" is not the name of a parameter: names are 1 to 128 letters, digits, _ and -`}},
		{"upper case header", lookupID, `{header: X-Id}`, nil},
		{"header of a letter that none has", lookupID, `{header: "\u212A"}`, []string{`.header: "K" is not the name of a header`}},
		{"one header twice", lookupID, `[{header: X-Id}, {header: x-ID}]`, []string{`[1].header: "x-id" is also that of rules[0].id[0]: name a location once`}},
		{"pseudo header", lookupID, `{header: ":path"}`, []string{`.header: ":path" is not the name of a header`}},
		{"create with no place", createID, `{}`, nil},
		{"create with a format", createID, `{format: uuid}`, nil},
		{"create with optional only", createID, `{optional: true}`, nil},

		{"list of one", lookupID, `[{path: id}]`, nil},
		{"every place", lookupID, `[{path: id}, {query: id}, {header: id}, {json: id}, {form: id}, {cookie: id}]`, nil},
		{"too many", lookupID, `[{path: id}, {query: a}, {query: b}, {query: c}, {query: d}, {query: e}, {query: f}, {query: g}, {query: h}]`, []string{`: has 9 entries: at most 8 are allowed`}},
		{"most", lookupID, `[{path: id}, {query: a}, {query: b}, {query: c}, {query: d}, {query: e}, {query: f}, {query: g}]`, nil},
		{"wrong in a list of one", lookupID, `[{path: nr}]`, []string{`[0].path: "nr" is not a {name} in match.path "/o/{id}"`}},
		{"wrong in a list", lookupID, `[{path: id}, {query: a.b}]`, []string{`[1].query: "a.b" is not the name of a parameter: names are 1 to 128 letters, digits, _ and -`}},
		{"no place in a list", lookupID, `[{path: id}, {}]`, []string{`[1]: does not name the ID's location: give exactly one of path, query, header, json, form, cookie`}},
		{"no place in a create's list", createID, `[{json: id}, {format: uuid}]`, []string{`[1]: does not name the ID's location: give exactly one of path, query, header, json, form, cookie`}},
		{"headers that CGI takes for one", lookupID, `[{header: X-Order-Id}, {header: x_order_id}]`, []string{`[1].header: "x_order_id" may be taken for "x-order-id" of rules[0].id[0], so that a request with either is refused: name the one that clients send`}},
		{"a format that the path cannot have", lookupID, `[{path: id}, {query: id, format: uuid}]`, []string{`[1]: no ID fits both this format and that of rules[0].id[0], which each request has: a request with both is refused; give both one format, or remove this`}},
		{"a length that the path cannot have", lookupID, `[{query: id, min_length: 6}, {path: id, max_length: 5}]`, []string{`[0]: no ID fits both this format and that of rules[0].id[1], which each request has: a request with both is refused; give both one format, or remove this`}},
		{"formats that the path may have", lookupID, `[{path: id, min_length: 5}, {query: id, max_length: 5}, {cookie: id, format: pattern, pattern: "x+"}]`, nil},
		{"formats apart, without the path", lookupID, `[{query: id}, {json: uuid, format: uuid}]`, nil},
		{"one place twice", lookupID, `[{query: id}, {path: id}, {query: id, max_length: 5}]`, []string{`[2].query: "id" is also that of rules[0].id[0]: name a location once`}},
		{"one name in two places", lookupID, `[{query: id}, {form: id}, {cookie: ID}, {cookie: id}]`, nil},
		{"a text in a list", lookupID, `[path]`, []string{`[0]: is text: it has to be a mapping`}},
		{"a list in a list", lookupID, `[[{path: id}]]`, []string{`[0]: is a list: it has to be a mapping`}},
		{"no value in a list", lookupID, `[{path: id}, ~]`, []string{`[1]: has no value: give it one or remove the key`}},

		{"optional in a create", createID, `[{json: id, optional: true}, {query: id, optional: true}]`, nil},
		{"optional by half", createID, `[{json: id, optional: true}, {query: id}, {path: id, optional: true}]`, []string{`[1].optional: differs from that of rules[0].id[0]: give all entries of a rule the same`}},

		{"JSON", lookupID, `{json: data.orderId, json_type: number, max_body: 1}`, nil},
		{"JSON, deep", lookupID, `{json: ` + deep + `}`, nil},
		{"JSON, too deep", lookupID, `{json: ` + deep + `.a}`, []string{`.json: "` + strings.Repeat("a.", 30) + `"... is not a path of 1 to 32 member names joined by dots, such as data.orderId`}},
		{"JSON, too long", lookupID, `{json: ` + strings.Repeat("a", 513) + `}`, []string{`.json: "` + strings.Repeat("a", 60) + `"... is not a path of 1 to 32 member names joined by dots, such as data.orderId`}},
		{"JSON without a name", lookupID, `{json: "", json_type: number}`, []string{`.json: "" is not a path of 1 to 32 member names joined by dots, such as data.orderId`}},
		{"JSON with an empty name", lookupID, `{json: a..b}`, []string{`.json: "a..b" is not a path of 1 to 32 member names joined by dots, such as data.orderId`}},
		{"JSON with an escape", lookupID, `{json: 'a\b'}`, []string{`.json: "a\\b" is not a path of 1 to 32 member names joined by dots, such as data.orderId`}},
		{"JSON of a wrong type", lookupID, `{json: 1, json_type: number}`, []string{`.json: is a number: it has to be text, in quotes`}},
		{"JSON under another spelling", lookupID, `[{json: data.orderId}, {json: data.order_id}]`, []string{`[1].json: "data.order_id" collides with "data.orderId" of rules[0].id[0]: give paths that differ in a name, and not by case, _ or - only`}},
		{"JSON through another spelling", lookupID, `[{json: data.id}, {json: Data.nr}]`, []string{`[1].json: "Data.nr" collides with "data.id" of rules[0].id[0]: give paths that differ in a name, and not by case, _ or - only`}},
		{"JSON through an ID", lookupID, `[{json: order.id}, {json: order}]`, []string{`[1].json: "order" collides with "order.id" of rules[0].id[0]: give paths that differ in a name, and not by case, _ or - only`}},
		{"JSON side by side", lookupID, `[{json: data.id}, {json: data.orderId}, {json: id}, {json: datum.id}]`, nil},
		{"unknown JSON type", lookupID, `{json: id, json_type: int}`, []string{`.json_type: "int" is not one of any, string, number`}},
		{"JSON type elsewhere", lookupID, `{form: id, json_type: any}`, []string{`.json_type: is for json only: set it, or remove this`}},
		{"list", lookupID, `{json: ids, list: true, max_list: 1}`, nil},
		{"list in a text", lookupID, `{json: ids, list: true, separator: ","}`, nil},
		{"separator of no list", lookupID, `{json: ids, separator: ","}`, []string{`.separator: is for list only: set it, or remove this`}},
		{"odd separator", lookupID, `{json: ids, list: true, separator: "-"}`, []string{`.separator: "-" is not one of ,, ;, |`}},
		{"list elsewhere", lookupID, `{form: ids, list: true}`, []string{`.list: is for json only: set it, or remove this`}},
		{"list in a create", createID, `{json: ids, list: true}`, []string{`.list: is for lookup and settle only: a create makes one order`}},
		{"no list in it", lookupID, `{json: ids, list: true, max_list: 0}`, []string{`.max_list: 0 is out of range: 1 to 1000 are allowed`}},
		{"long list", lookupID, `{json: ids, list: true, max_list: 1001}`, []string{`.max_list: 1001 is out of range: 1 to 1000 are allowed`}},
		{"longest list", lookupID, `{json: ids, list: true, max_list: 1000}`, nil},
		{"length of no list", lookupID, `{json: ids, list: false, max_list: 5}`, []string{`.max_list: is for list only: set it, or remove this`}},
		{"list of a wrong type", lookupID, `{json: ids, list: yes, max_list: 5}`, []string{`.list: "yes" is not true or false`}},
		{"no body", lookupID, `{form: id, max_body: 0}`, []string{`.max_body: 0 is out of range: 1 to 1048576 are allowed`}},
		{"largest body", lookupID, `{form: id, max_body: 1_048_576}`, nil},
		{"larger body", lookupID, `{json: id, max_body: 1_048_577}`, []string{`.max_body: 1048577 is out of range: 1 to 1048576 are allowed`}},
		{"body elsewhere", lookupID, `{path: id, max_body: 1}`, []string{`.max_body: is for json and form only: set one of them, or remove this`}},
		{"bad field", lookupID, `{form: "order[id]"}`, []string{`.form: "order[id]" is not the name of a field: names are 1 to 128 letters, digits, _ and -`}},
		{"bad cookie", lookupID, `{cookie: ""}`, []string{`.cookie: "" is not the name of a cookie: names are 1 to 128 letters, digits, _ and -`}},
	} {
		t.Run(tt.name, func(t *testing.T) { expectOfID(t, tt.rule, tt.id, tt.want) })
	}

	t.Run("two segments", func(t *testing.T) {
		got := violations(t, ruleWith(`{name: a, match: {methods: [GET], path: "/m/{merchant}/o/{id}"}, lookup: {filter: orders}, id: [{path: merchant}, {path: id}]}`), nil)
		want := []string{`rules[0].id[1].path: "id" is a second segment beside that of rules[0].id[0]: each request has both, and is refused unless they are equal: name the one that is the order`}
		if len(got) != 1 || !strings.HasSuffix(got[0], want[0]) {
			t.Errorf("%q, want %q", got, want)
		}
	})
	t.Run("more are not looked at", func(t *testing.T) {
		many := "[" + strings.Repeat("{query: a}, ", 1_000) + "{}]"
		if got := violations(t, ruleWith("{"+lookupID+many+"}"), nil); len(got) > 10 {
			t.Errorf("%d violations", len(got))
		}
	})
}

// TestIDFormats has a case for each rule on what an ID looks like.
func TestIDFormats(t *testing.T) {
	for _, tt := range []struct {
		name, rule, id string
		want           []string // without "rules[0].id"
	}{
		{"unknown format", lookupID, `{path: id, format: digit}`, []string{`.format: "digit" is not one of digits, uuid, timestamped, snowflake, pattern`}},
		{"most digits", lookupID, `{path: id, max_length: 64, min_length: 64}`, nil},
		{"too many digits", lookupID, `{path: id, max_length: 65}`, []string{`.max_length: 65 is out of range: 1 to 64 are allowed`}},
		{"longest pattern", lookupID, `{path: id, format: pattern, pattern: "a+", max_length: 256}`, nil},
		{"too long a pattern", lookupID, `{path: id, format: pattern, pattern: "a+", max_length: 257}`, []string{`.max_length: 257 is out of range: 1 to 256 are allowed`}},
		{"no length", lookupID, `{path: id, min_length: 0}`, []string{`.min_length: 0 is out of range: 1 to 64 are allowed`}},
		{"lengths the wrong way round", lookupID, `{path: id, min_length: 5, max_length: 4}`, []string{`.min_length: min_length 5 is more than max_length 4`}},
		{"min past the default max", lookupID, `{path: id, min_length: 20}`, []string{`.min_length: min_length 20 is more than max_length 19`}},
		{"uuid", lookupID, `{path: id, format: uuid}`, nil},
		{"uuid with lengths", lookupID, `{path: id, format: uuid, min_length: 0, max_length: 36}`, []string{
			`.min_length: is for formats digits, timestamped, snowflake and pattern only: set one of them, or remove this`,
			`.max_length: is for formats digits, timestamped, snowflake and pattern only: set one of them, or remove this`,
		}},
		{"uuid in upper case", lookupID, `{path: id, format: uuid, case: upper}`, nil},
		{"uuid as it is", lookupID, `{path: id, format: uuid, case: as_is}`, nil},
		{"pattern in one case", lookupID, `{path: id, format: pattern, pattern: "[A-Z]+", case: lower}`, nil},
		{"case by an earlier word", lookupID, `{path: id, format: pattern, pattern: "[A-Z]+", case: fold}`, []string{`.case: "fold" is called lower now: write lower`}},
		{"no such case", lookupID, `{path: id, format: pattern, pattern: "[A-Z]+", case: small}`, []string{`.case: "small" is not one of lower, upper, as_is`}},
		{"case of digits", lookupID, `{path: id, case: lower}`, []string{`.case: is for formats uuid and pattern only: set one of them, or remove this`}},
		{"pattern missing", lookupID, `{path: id, format: pattern}`, []string{`: pattern is missing: give an RE2 expression for the whole ID`}},
		{"pattern empty", lookupID, `{path: id, format: pattern, pattern: ""}`, []string{`.pattern: is empty: give an RE2 expression for the whole ID`}},
		{"pattern with digits", lookupID, `{path: id, pattern: a}`, []string{`.pattern: is for format pattern only: set it, or remove this`}},
		{"pattern that is none", lookupID, `{path: id, format: pattern, pattern: "a\n("}`, []string{".pattern: is not an RE2 expression: missing closing ): `a (`"}},
		{"pattern out of its group", lookupID, `{path: id, format: pattern, pattern: "a)|(b"}`, []string{".pattern: is not an RE2 expression: unexpected ): `a)|(b`"}},
		{"pattern with a brace", lookupID, `{path: id, format: pattern, pattern: 'x(a|\{b\})'}`, []string{".pattern: requires a brace, and no ID has any: braces choose the slot of a key in Redis"}},
		{"pattern with a class of braces", lookupID, `{path: id, format: pattern, pattern: 'x[{}]?'}`, []string{".pattern: requires a brace, and no ID has any: braces choose the slot of a key in Redis"}},
		{"pattern that admits braces", lookupID, `{path: id, format: pattern, pattern: '[^x]+.|[{-~]{2}'}`, nil},
		{"lookaround", lookupID, `{path: id, format: pattern, pattern: "(?=a)"}`, []string{".pattern: is not an RE2 expression: invalid or unsupported Perl syntax: `(?=`"}},

		{"timestamped", lookupID, `{path: id, format: timestamped, max_length: 24, time: {layout: "20060102150405", at: 10}}`, nil},
		{"timestamped by default", lookupID, `{path: id, format: timestamped}`, nil},
		{"timestamped, two digits of a year", lookupID, `{path: id, format: timestamped, time: {layout: "060102"}}`, nil},
		{"timestamped, day of the year", lookupID, `{path: id, format: timestamped, time: {layout: "06002"}}`, nil},
		{"timestamped, day first", lookupID, `{path: id, format: timestamped, time: {layout: "02012006"}}`, nil},
		{"no layout", lookupID, `{path: id, format: timestamped, time: {layout: ""}}`, []string{`.time.layout: "" is not a layout of digits for a whole date, such as 20060102150405, 20060102 or 060102`}},
		{"layout with more than digits", lookupID, `{path: id, format: timestamped, time: {layout: "2006-01-02"}}`, []string{`.time.layout: "2006-01-02" is not a layout of digits for a whole date, such as 20060102150405, 20060102 or 060102`}},
		{"layout of another date", lookupID, `{path: id, format: timestamped, time: {layout: "20240131"}}`, []string{`.time.layout: "20240131" is not a layout of digits for a whole date, such as 20060102150405, 20060102 or 060102`}},
		{"layout without a day", lookupID, `{path: id, format: timestamped, time: {layout: "200601"}}`, []string{`.time.layout: "200601" is not a layout of digits for a whole date, such as 20060102150405, 20060102 or 060102`}},
		{"layout without a year", lookupID, `{path: id, format: timestamped, time: {layout: "0102150405"}}`, []string{`.time.layout: "0102150405" is not a layout of digits for a whole date, such as 20060102150405, 20060102 or 060102`}},
		{"layout with two years", lookupID, `{path: id, format: timestamped, time: {layout: "2006010206"}}`, []string{`.time.layout: "2006010206" is not a layout of digits for a whole date, such as 20060102150405, 20060102 or 060102`}},
		{"layout of half the hours", lookupID, `{path: id, format: timestamped, time: {layout: "2006010203"}}`, []string{`.time.layout: "2006010203" is not a layout of digits for a whole date, such as 20060102150405, 20060102 or 060102`}},
		{"layout that is a number", lookupID, `{path: id, format: timestamped, time: {layout: 20060102}}`, []string{`.time.layout: is a number: it has to be text, in quotes`}},
		{"layout past the end", lookupID, `{path: id, format: timestamped, max_length: 13}`, []string{`.time.layout: "20060102150405" is longer than max_length 13`}},
		{"date at the end", lookupID, `{path: id, format: timestamped, max_length: 20, time: {at: 6}}`, nil},
		{"date past the end", lookupID, `{path: id, format: timestamped, max_length: 20, time: {at: 7}}`, []string{`.time.at: 7 is out of range: 0 to 6 are allowed, or the date goes past max_length`}},
		{"date before the beginning", lookupID, `{path: id, format: timestamped, time: {at: -1}}`, []string{`.time.at: -1 is out of range: 0 to 5 are allowed, or the date goes past max_length`}},
		{"timestamped with bits", lookupID, `{path: id, format: timestamped, time: {epoch: "2010-11-04T01:42:54.657Z", shift: 22}}`, []string{
			`.time.shift: is for format snowflake only: set it, or remove this`,
			`.time.epoch: "2010-11-04T01:42:54.657Z" is neither ms nor s: with format timestamped, it is the unit of a count since 1970 (13 digits of ms, 10 of s)`,
		}},
		{"timestamped by milliseconds", lookupID, `{path: id, format: timestamped, min_length: 17, max_length: 17, time: {epoch: ms}}`, nil},
		{"timestamped by seconds at the end", lookupID, `{path: id, format: timestamped, time: {epoch: s, at: 9}}`, nil},
		{"milliseconds past the end", lookupID, `{path: id, format: timestamped, time: {epoch: ms, at: 7}}`, []string{`.time.at: 7 is out of range: 0 to 6 are allowed, or the date goes past max_length`}},
		{"milliseconds in a short ID", lookupID, `{path: id, format: timestamped, max_length: 12, time: {epoch: ms}}`, []string{`.time.epoch: "ms" is longer than max_length 12`}},
		{"milliseconds and a layout", lookupID, `{path: id, format: timestamped, time: {epoch: ms, layout: "20060102"}}`, []string{`.time.epoch: excludes layout: give one of them`}},
		{"epoch of nothing", lookupID, `{path: id, format: timestamped, time: {epoch: ""}}`, []string{`.time.epoch: "" is neither ms nor s: with format timestamped, it is the unit of a count since 1970 (13 digits of ms, 10 of s)`}},
		{"max by a word", lookupID, `{path: id, max: int32}`, nil},
		{"max by a number", lookupID, `{path: id, max: 4_294_967_295}`, nil},
		{"max of a longer number", lookupID, `{path: id, max_length: 30, max: 123456789012345678901234567890}`, nil},
		{"max of an unknown word", lookupID, `{path: id, max: int16}`, []string{`.max: "int16" is neither a number of 1 to 64 digits nor one of int32, uint32, double, int64`}},
		{"max with a sign", lookupID, `{path: id, max: -1}`, []string{`.max: "-1" is neither a number of 1 to 64 digits nor one of int32, uint32, double, int64`}},
		{"max in hexadecimal", lookupID, `{path: id, max: 0xff}`, []string{`.max: "0xff" is neither a number of 1 to 64 digits nor one of int32, uint32, double, int64`}},
		{"max that no ID fits", lookupID, `{path: id, min_length: 12, max: int32}`, []string{`.max: "int32" has fewer digits than min_length 12, so no ID would fit`}},
		{"max of a UUID", lookupID, `{path: id, format: uuid, max: int32}`, []string{`.max: is for formats digits, timestamped and snowflake only: set one of them, or remove this`}},
		{"max of nothing", lookupID, `{path: id, max: ""}`, []string{`.max: "" is neither a number of 1 to 64 digits nor one of int32, uint32, double, int64`}},

		{"snowflake", lookupID, `{path: id, format: snowflake, time: {epoch: "2010-11-04T01:42:54.657Z"}}`, nil},
		{"snowflake of other bits", lookupID, `{path: id, format: snowflake, time: {epoch: "2020-01-01T00:00:00+08:00", shift: 0}}`, nil},
		{"snowflake without a time", lookupID, `{path: id, format: snowflake}`, []string{`: time.epoch is missing: give the instant from which milliseconds are counted, such as 2010-11-04T01:42:54.657Z`}},
		{"snowflake without an epoch", lookupID, `{path: id, format: snowflake, time: {shift: 33}}`, []string{
			`.time.shift: 33 is out of range: 0 to 32 are allowed`,
			`.time: epoch is missing: give the instant from which milliseconds are counted, such as 2010-11-04T01:42:54.657Z`,
		}},
		{"snowflake of no time", lookupID, `{path: id, format: snowflake, time: {epoch: "2010-11-04"}}`, []string{`.time.epoch: "2010-11-04" is not a time of RFC 3339: give the instant from which milliseconds are counted, such as 2010-11-04T01:42:54.657Z`}},
		{"snowflake with a layout", lookupID, `{path: id, format: snowflake, time: {epoch: "2010-11-04T01:42:54Z", layout: "2006", at: 0}}`, []string{
			`.time.layout: is for format timestamped only: set it, or remove this`, `.time.at: is for format timestamped only: set it, or remove this`,
		}},
		{"time of digits", lookupID, `{path: id, time: {at: 0}}`, []string{`.time: is for formats timestamped and snowflake only: set one of them, or remove this`}},
		{"time of an unknown format", lookupID, `{path: id, format: 1, time: {at: 0}}`, []string{`.format: is a number: it has to be text, in quotes`}},
	} {
		t.Run(tt.name, func(t *testing.T) { expectOfID(t, tt.rule, tt.id, tt.want) })
	}
}

func expectOfID(t *testing.T, rule, id string, want []string) {
	t.Helper()
	var full []string
	for _, line := range want {
		full = append(full, "rules[0].id"+line)
	}
	expect(t, ruleWith("{"+rule+id+"}"), full)
}

// TestDefaultsOfRules has what depends on the rest of the rule or file.
func TestDefaultsOfRules(t *testing.T) {
	const rules = `
  - {name: a, match: {methods: [GET], path: "/a/{id}"}, id: [{path: id}, {json: id, list: true}], lookup: {filter: orders}}
  - {name: b, match: {methods: [GET], path: "/b/{id}"}, id: {form: id}, settle: {lock: settlement}, backend: spring}
  - {name: c, match: {methods: [GET], path: /c}, create: {filter: orders, learn: {response_json: id}}}
  - {name: d, match: {methods: [GET], path: /d}, pass: true}`
	c := mustParse(t, "backend: php\n"+with("rules", rules), nil)
	digits := ID{Format: "digits", MinLength: 1, MaxLength: 19}
	path, list, form := digits, digits, digits
	path.Path = "id"
	list.JSON, list.JSONType, list.List, list.MaxList, list.MaxBody = "id", "any", true, 100, 65_536
	form.Form, form.MaxBody = "id", 65_536
	type summary struct {
		Backend, OtherMethods string
		IDs                   []ID
		Invalid               Reply
	}
	want := []summary{
		{"php", "pass", []ID{path, list}, Reply{Status: 400}},
		{"spring", "refuse", []ID{form}, Reply{Status: 400}},
		{"php", "pass", []ID{digits}, Reply{Status: 400}},
		{"php", "pass", nil, Reply{}},
	}
	var got []summary
	for _, r := range c.Rules {
		got = append(got, summary{r.Backend, r.Match.OtherMethods, r.IDs, r.Invalid})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unexpected defaults (-want +got):\n%s", diff)
	}
}
