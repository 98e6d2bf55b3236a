package config

import (
	"encoding/json"
	"fmt"
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
			"filters.orders.layout: is for kinds local and layered only: set one of them, or remove this"}},
		{"in Redis", "{kind: redis-bitmap, key_prefix: ids, shards: 300, secret_env: FILTER_SECRET}", "{path: id}", nil},
		{"layered", "{kind: layered, redis_kind: redisson, codec: string, expand: {}}", "{path: id}", []string{
			"filters.orders.expand: Java services would go on using the old filter of kind redisson: remove this"}},
		{"layered, of nothing", "{kind: layered, redis_kind: local}", "{path: id}", []string{
			`filters.orders.redis_kind: "local" is not one of redis-bloom, redis-bitmap, redisson`}},
		{"redisson with shards", "{kind: redisson, shards: 2}", "{path: id}", []string{
			"filters.orders.shards: a filter of kind redisson has no shards: remove this"}},
		{"a codec of another kind", "{kind: redis-bloom, codec: string}", "{path: id}", []string{
			"filters.orders.codec: is for kind redisson and redis_kind redisson only: set one of them, or remove this"}},
		{"keys in Redis of what is not there", "{key_prefix: a, shards: 3, redis_kind: redisson}", "{path: id}", []string{
			"filters.orders.redis_kind: is for kind layered only: set it, or remove this",
			"filters.orders.shards: is for kinds in Redis only: remove it"}},
		{"a prefix in braces", "{kind: redis-bitmap, key_prefix: '{a}'}", "{path: id}", []string{
			"filters.orders.key_prefix: has braces, which would put all shards in one slot: remove them"}},
		{"layers in Redis", "{kind: redis-bitmap, expand: {how: layers}}", "{path: id}", []string{
			"filters.orders.expand.how: a filter in Redis is rebuilt, from its sources and the change log: remove this, or write rebuild"}},
		{"growing days in Redis", "{kind: redis-bitmap, segments: {keep: 3}, expand: {}}", dated, nil},
		{"growing days of arrival in Redis", "{kind: redis-bitmap, segments: {keep: 3, from: arrival, older: absent}, expand: {}}", "{path: id}", []string{
			"filters.orders.expand: all IDs that are read again would belong to the day of reading: remove this, or take the day from the ID (from: id)"}},
		{"a snapshot", "{snapshot: {path: /tmp/orders.snap}}", "{path: id}", nil},
		{"a snapshot of Redis", "{kind: redis-bitmap, snapshot: {path: a}}", "{path: id}", []string{
			"filters.orders.snapshot: is for kinds local, exact and layered only: set one of them, or remove this"}},
		{"a snapshot nowhere", "{snapshot: {every: 1ms}}", "{path: id}", []string{
			"filters.orders.snapshot: path is missing: give the path of the file to write",
			"filters.orders.snapshot.every: 1ms is out of range: 1s to 24h are allowed"}},
		{"stale and alerts", "{stale_after: 1ms, alert_false_positive_rate: 0.6}", "{path: id}", []string{
			"filters.orders.stale_after: 1ms is out of range: 1s to 1h are allowed",
			"filters.orders.alert_false_positive_rate: 0.6 is out of range: 0 to 0.5 are allowed"}},
		{"elements of Long", "{kind: redisson, elements: long}", "{path: id}", nil},
		{"elements of Long by StringCodec", "{kind: redisson, elements: long, codec: string}", "{path: id}", []string{
			"filters.orders.elements: StringCodec writes a Long as its text: remove this"}},
		{"elements in memory", "{elements: long}", "{path: id}", []string{
			"filters.orders.elements: is for kind redisson and redis_kind redisson only: set one of them, or remove this"}},
		{"verify never", "{verify: off}", "{path: id}", nil},
		{"verify all", "{verify: 1/1}", "{path: id}", nil},
		{"verify a percentage", "{verify: 1%}", "{path: id}", []string{
			`filters.orders.verify: "1%" is not a share: write one in n, such as 1/10000, or off`}},
		{"verify one in too many", "{verify: 1/1000000000}", "{path: id}", []string{
			`filters.orders.verify: "1/1000000000" is not a share: write one in n, such as 1/10000, or off`}},
		{"verify with days that are absent", "{verify: 1/100, segments: {keep: 30, older: absent}}", dated, []string{
			"filters.orders.verify: the filter refuses orders of dropped days (segments.older: absent), which would be found: remove this, or write off"}},
		{"a secret twice", "{secret_file: a, secret_env: B}", "{path: id}", []string{
			"filters.orders.secret_env: excludes secret_file: give one of the two"}},
		{"a short secret", "{secret_env: SHORT}", "{path: id}", []string{
			"filters.orders.secret_env: the secret there is too short: give at least 16 bytes"}},
		{"a missing secret", "{secret_env: NONE}", "{path: id}", []string{
			"filters.orders.secret_env: the variable of this name is not set or is empty: put the secret there"}},
		{"days", "{segments: {keep: 30}}", dated, nil},
		{"days of IDs without one", "{segments: {keep: 30}}", "{path: id, format: digits}", []string{
			`filters.orders.segments.from: the IDs of rule "look" have format digits, which has no date: ` +
				"give them format timestamped or snowflake, or write from: arrival"}},
		{"days of arrival", "{segments: {keep: 30, from: arrival, older: absent}}", "{path: id}", nil},
		{"days of arrival without a word on old ones", "{segments: {keep: 30, from: arrival}}", "{path: id}", []string{
			"filters.orders.segments.older: a dropped order cannot be distinguished from an order that never existed: " +
				"accept that by older: absent, or take the day from the ID (from: id)"}},
		{"no days", "{segments: {by: day}}", dated, []string{"filters.orders.segments: keep is missing: give the number of days to keep"}},
		{"wrong in each", "{segments: {by: week, keep: 4000, from: now, older: gone}}", dated, []string{
			`filters.orders.segments.by: "week" is not day`,
			`filters.orders.segments.keep: 4000 is out of range: 1 to 3660 are allowed`,
			`filters.orders.segments.from: "now" is not one of id, arrival`,
			`filters.orders.segments.older: "gone" is not one of unknown, absent`,
		}},
		{"expand", "{expand: {}}", "{path: id}", nil},
		{"expand, wrong in each", "{expand: {at_fill: 0, by: 17, how: magic}}", "{path: id}", []string{
			"filters.orders.expand.at_fill: 0 is out of range: 0.1 to 1 are allowed",
			"filters.orders.expand.by: 17 is out of range: 1.1 to 16 are allowed",
			`filters.orders.expand.how: "magic" is not one of rebuild, layers`,
		}},
		{"expand exact", "{kind: exact, expand: {}}", "{path: id}", []string{
			"filters.orders.expand: is for kinds local, redis-bloom, redis-bitmap and layered only: set one of them, or remove this"}},
		{"rebuild segments", "{segments: {keep: 3}, expand: {how: rebuild}}", dated, []string{
			"filters.orders.expand.how: segments grow by layers, each for itself: remove this, or write layers"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := "filters: {orders: " + tt.filter + "}\n" +
				`rules: [{name: look, match: {methods: [GET], path: "/orders/{id}"}, id: ` + tt.id + ", lookup: {filter: orders}}]\n"
			var got []string
			if _, err := Parse("f.yaml", []byte(file), env{"FILTER_SECRET": strings.Repeat("s", 16), "SHORT": "too short"}.get); err != nil {
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

func TestFiltersDiffer(t *testing.T) {
	const file = `filters:
  a: {kind: redis-bitmap, key_prefix: same}
  b: {kind: redis-bloom, key_prefix: same}
  c: {snapshot: {path: same}}
  d: {snapshot: {path: same}}
`
	_, err := Parse("f.yaml", []byte(file), env{}.get)
	want := `f.yaml:3: filters.b.key_prefix: filter "a" has the same: choose another` + "\n" +
		`f.yaml:5: filters.d.snapshot.path: filter "c" has the same: choose another`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestFilterSecretIsHidden sees a secret in nothing that is printed.
func TestFilterSecretIsHidden(t *testing.T) {
	secret := strings.Repeat("hush", 4)
	c, err := Parse("f.yaml", []byte("filters: {a: {secret_env: S}}\n"), env{"S": secret}.get)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(c.Filters["a"].Secret); got != secret {
		t.Fatalf("secret %q", got)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{string(text), fmt.Sprintf("%v %+v %#v %s %q %x", *c, *c, *c, c.Filters["a"].Secret, c.Filters["a"].Secret, c.Filters["a"].Secret)} {
		if strings.Contains(shown, "hush") || strings.Contains(shown, "68757368") {
			t.Errorf("the secret is in %s", shown)
		}
	}
}
