package command

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// about100 matches what the bits of a filter in Redis tell of its 100 IDs. The standard
// deviation is half an ID: of a hundred filters one tells 98 or 102.
const about100 = `(9[5-9]|10[0-5])`

// served is a configuration with a filter of each sort that the commands tell apart.
func served(redis, source, admin string) string {
	return fmt.Sprintf(`
listen: {authz: 127.0.0.1:0, proc: "", admin: "%s"}
redis: {addresses: [%s]}
filters:
  orders: {kind: redis-bitmap, shards: 2, capacity: 1000, sources: [seed]}
  near: {capacity: 1000, sources: [seed], expand: {by: 2, how: layers}}
  days: {capacity: 1000, segments: {keep: 1, from: arrival, older: absent}}
  java: {kind: redisson, codec: string}
  ruled: {capacity: 1000}
sources:
  seed: {kind: csv, path: %s}
rules:
  - {name: lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, max_length: 6}, lookup: {filter: ruled}}
`, admin, redis, source)
}

// serveFilters runs an ordergate of that configuration until the test ends, and returns
// the file with it.
func serveFilters(t *testing.T) (file, redis, source string) {
	t.Helper()
	redis = bedtest.New(t).Redis().Addr()
	source = filepath.Join(t.TempDir(), "ids.csv")
	var ids strings.Builder
	for n := range 100 {
		fmt.Fprintln(&ids, n)
	}
	if err := os.WriteFile(source, []byte(ids.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	// A socket's path has to be short.
	dir, err := os.MkdirTemp("", "og")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file = writeConfig(t, served(redis, source, "unix:"+dir+"/a"))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if code, _, log := command(ctx, "serve", "--config", file, "--drain-delay", "0"); code != exitDone {
			t.Errorf("serve ended with %d: %s", code, log)
		}
	}()
	t.Cleanup(func() { stop(); <-done })
	bedtest.Eventually(t, "its filters are known", func() bool {
		_, out, _ := command(t.Context(), "filter", "info", "--config", file)
		return strings.Count(out, "state         ready\n") == 4 && regexp.MustCompile(`ids +`+about100+` of 1000\n.*\n.*\n.*\nin redis`).MatchString(out)
	})
	return file, redis, source
}

func TestFilterCommands(t *testing.T) {
	file, redis, source := serveFilters(t)
	other := httptest.NewServer(nil)
	t.Cleanup(other.Close)
	long := strings.Repeat("9", 257)
	for _, tc := range []struct {
		name, config   string // the one that is served, if it is ""
		stdin          string
		args           []string
		code           int
		stdout, stderr string // patterns for all of it
	}{
		{"info of one in Redis", "", "", []string{"info", "orders"}, exitDone, `filter        orders \(redis-bitmap\)
state         ready
ids           ` + about100 + ` of 1000
fill          \d\.\d% of the bits
passes        .*% of the absent IDs, estimated
memory        .* kB
in redis      2\.\d kB
change log    following, at 0 of 0, read [0-9.]+m?s ago in [0-9]+\.[0-9] ms
generation    1

PART +IDS +CAPACITY +FILL +PASSES +BYTES
orders +(0|100) +65536 .* kB
order:bloom:orders in Redis +` + about100 + ` +1000 .* kB
`, ""},
		{"info of one in memory", "", "", []string{"info", "near"}, exitDone, `filter        near \(local\)
state         ready
ids           (99|100) of 1000
fill          \d\.\d% of the bits
passes        .*% of the absent IDs, estimated
memory        2\.\d kB
change log    following, at 0 of 0, read [0-9.]+m?s ago in [0-9]+\.[0-9] ms
generation    1
`, ""},
		{"add to one by days", "", "", []string{"add", "days", "1"}, exitDone, "added 1\n", ""},
		{"info of one by days", "", "", []string{"info", "days"}, exitDone,
			`(?s)filter        days \(local\)\n.*\nids           1 of 1000\n.*`, ""},
		{"info of one that others fill", "", "", []string{"info", "java"}, exitDone,
			`(?s)filter        java \(redisson\)\nstate         unknown: .*order:bloom:java.*`, ""},
		{"info of all", "", "", []string{"info"}, exitDone,
			`(?s)filter        days .*\n\nfilter        java .*\n\nfilter        near .*\n\nfilter        orders .*\n\nfilter        ruled .*`, ""},
		{"contains what is there", "", "", []string{"contains", "orders", "7"}, exitDone, "maybe\n", ""},
		{"contains, by the flag", "", "", []string{"contains", "--filter", "orders", "7"}, exitDone, "maybe\n", ""},
		{"contains without an ID, by the flag", "", "", []string{"contains", "--filter", "orders"}, exitUsage, "", "want a filter and an order ID, got 1 arguments\n"},
		{"contains what is not", "", "", []string{"contains", "orders", "A/ B&c=d"}, exitDone, "absent\n", ""},
		{"contains nobody knows what", "", "", []string{"contains", "java", "7"}, exitDone, "unknown: .*order:bloom:java.*\n", ""},
		{"add", "", "", []string{"add", "orders", "5001", "A/ B&c=d"}, exitDone, "added 2\n", ""},
		{"contains what was added", "", "", []string{"contains", "orders", "A/ B&c=d"}, exitDone, "maybe\n", ""},
		{"add in memory", "", "", []string{"add", "near", "5001"}, exitDone, "added 1\n", ""},
		{"add from a file", "", "6001\n\n 6002 \r\n6003", []string{"add", "orders", "-"}, exitDone, "added 3\n", ""},
		{"add what no rule takes", "", "", []string{"add", "ruled", "1", "abc", "01", "2"}, exitFailed, "added 2\n", `filter add: no rule takes 2 of the IDs, which were not added; the first is "abc"` + "\n"},
		{"add a file with what no rule takes", "", "3\n1234567\n4\n", []string{"add", "ruled", "-"}, exitFailed, "added 2\n", `filter add: no rule takes 1 of the IDs, which were not added; the first is "1234567"` + "\n"},
		{"contains what was added", "", "", []string{"contains", "ruled", "4"}, exitDone, "maybe\n", ""},
		{"contains what no rule takes", "", "", []string{"contains", "ruled", "abc"}, exitDone, "absent: no rule takes such an ID, so a request with it is refused\n", ""},
		{"add nothing", "", "", []string{"add", "orders", "-"}, exitDone, "added 0\n", ""},
		{"contains what was in the file", "", "", []string{"contains", "orders", "6003"}, exitDone, "maybe\n", ""},
		{"expand", "", "", []string{"expand", "near"}, exitDone, `grown: \d+ IDs of 2000` + "\n", ""},

		{"info of none", "", "", []string{"info", "nobody"}, exitUsage, "", `filter info: .* has no filter "nobody"` + "\n"},
		{"contains without an ID", "", "", []string{"contains", "orders"}, exitUsage, "", "want a filter and an order ID, got 1 arguments\n"},
		{"contains of two IDs", "", "", []string{"contains", "orders", "7", "8"}, exitUsage, "", "want a filter and an order ID, got 3 arguments\n"},
		{"contains of an empty ID", "", "", []string{"contains", "orders", ""}, exitUsage, "", "want a filter and an order ID, .*\n"},
		{"contains of none", "", "", []string{"contains", "nobody", "7"}, exitUsage, "", `has no filter "nobody"` + "\n"},
		{"add without an ID", "", "", []string{"add", "orders"}, exitUsage, "", "want a filter and an order ID, or -, got 1 arguments\n"},
		{"add what is too long", "", "", []string{"add", "orders", "1", long}, exitFailed, "added 1\n", "filter add: no rule takes 1 of the IDs, .*\n"},
		{"add a line that is too long", "", "1\n" + long, []string{"add", "orders", "-"}, exitFailed, "added 1\n", "filter add: no rule takes 1 of the IDs, .*\n"},
		{"expand what does not grow", "", "", []string{"expand", "days"}, exitFailed, "", "filter expand: .*expand is not configured\n"},
		{"expand what others fill", "", "", []string{"expand", "java"}, exitFailed, "", "filter expand: .*expand is not configured\n"},
		{"expand two", "", "", []string{"expand", "near", "orders"}, exitUsage, "", "want one filter, got 2 arguments\n"},
		{"trust blindly", "", "", []string{"trust", "java"}, exitUsage, "", "filter trust: add --yes .*\n"},
		{"trust what is in memory", "", "", []string{"trust", "near", "--yes"}, exitFailed, "", "filter trust: only a filter in Redis .*\n"},
		{"trust what ordergate fills", "", "", []string{"trust", "orders", "--yes"}, exitFailed, "", "filter trust: ordergate fills this filter .*\n"},
		{"trust what is not there", "", "", []string{"trust", "java", "--yes", "--known", "1"}, exitFailed, "", "filter trust: .*order:bloom:java.*\n"},
		{"nobody there", served(redis, source, "unix:/nowhere"), "", []string{"info"}, exitFailed, "", "filter info: asking the ordergate at unix:/nowhere: .*\n"},
		{"somebody else there", served(redis, source, other.Listener.Addr().String()), "", []string{"contains", "orders", "7"}, exitFailed, "", "it answered 404 .*\n"},
		{"no address", served(redis, source, ""), "", []string{"expand", "near"}, exitUsage, "", "has no listen.admin, .*\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := file
			if tc.config != "" {
				config = writeConfig(t, tc.config)
			}
			feed(t, tc.stdin)
			code, stdout, stderr := command(t.Context(), append([]string{"filter", "--config", config}, tc.args...)...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if !regexp.MustCompile(`^` + tc.stdout + `$`).MatchString(stdout) {
				t.Errorf("stdout:\n%swant:\n%s", stdout, tc.stdout)
			}
			if !regexp.MustCompile(tc.stderr+`$`).MatchString(stderr) || tc.stderr == "" && stderr != "" || strings.Count(stderr, "\n") > 1 {
				t.Errorf("stderr %q, want one line of %q", stderr, tc.stderr)
			}
		})
	}
	t.Run("for scripts", func(t *testing.T) { testFilterJSON(t, file) })
}

// feed puts a text into standard input.
func feed(t *testing.T, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stdin")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdin
	os.Stdin = in
	t.Cleanup(func() { os.Stdin = before; _ = in.Close() })
}

// testFilterJSON wants the same keys of every filter.
func testFilterJSON(t *testing.T, file string) {
	ask := func(args ...string) (object map[string]any) {
		t.Helper()
		code, stdout, stderr := command(t.Context(), append([]string{"filter", "--json", "--config", file}, args...)...)
		if err := json.Unmarshal([]byte(stdout), &object); err != nil || code != exitDone || stderr != "" {
			t.Fatalf("%v: exit code %d, %v, %s%s", args, code, err, stdout, stderr)
		}
		return object
	}
	keys := func(what string, object any, want ...string) {
		t.Helper()
		m, _ := object.(map[string]any)
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(m))); diff != "" {
			t.Errorf("%s has the keys (-want +got):\n%s", what, diff)
		}
	}
	info := []string{
		"capacity", "estimated_false_positive_rate", "expansion", "fill_ratio", "filter", "ids", "kind", "log",
		"measured_false_positive_rate", "memory_bytes", "pending", "reason", "redis", "redis_bytes", "segments", "state",
	}
	filters, _ := ask("info")["filters"].([]any)
	if len(filters) != 5 {
		t.Fatalf("%d filters", len(filters))
	}
	for _, f := range filters {
		keys("a filter", f, info...)
		of := f.(map[string]any)
		keys("its expansion", of["expansion"], "began", "error", "from", "generation", "read", "running", "to", "took_seconds")
		keys("its log", of["log"], "doubts", "lag", "last_read", "members", "owed", "phase", "position", "read_took_seconds", "reason", "repaired", "tail")
		for _, s := range of["segments"].([]any) {
			keys("a segment", s, "bytes", "capacity", "estimated_false_positive_rate", "fill_ratio", "ids", "layers", "name")
		}
		sets, _ := of["redis"].([]any)
		if want := map[any]int{"redis-bitmap": 1}[of["kind"]]; len(sets) != want {
			t.Errorf("%d sets in Redis of kind %v", len(sets), of["kind"])
		}
		for _, s := range sets {
			keys("a set", s, "bytes", "capacity", "estimated_false_positive_rate", "fill_ratio", "ids", "key", "shards", "whole")
		}
	}
	keys("expand", ask("expand", "near"), info...)
	for answer, args := range map[string][]string{"maybe": {"orders", "7"}, "absent": {"orders", "nobody"}, "unknown": {"java", "7"}} {
		r := ask(append([]string{"contains"}, args...)...)
		keys("contains", r, "answer", "filter", "id", "reason")
		if r["answer"] != answer || r["filter"] != args[0] || r["id"] != args[1] || (r["reason"] != "") != (answer == "unknown") {
			t.Errorf("contains %v: %v", args, r)
		}
	}
	r := ask("add", "near", "7001", "7002")
	keys("add", r, "added", "filter", "first_refused", "refused")
	if r["added"] != 2.0 {
		t.Errorf("add: %v", r)
	}
}

// TestTooManyIDs has more IDs in Redis than the shards can have.
func TestTooManyIDs(t *testing.T) {
	for _, tc := range []struct{ settings, want string }{
		{"kind: redis-bitmap, capacity: 3_000_000_000", "at least 11 shards"},
		{"kind: redis-bloom, capacity: 30_000_000_000, shards: 5", "at least 28 shards"},
		{"kind: layered, capacity: 3_000_000_000, shards: 10", "at least 11 shards"},
		{"kind: redisson, capacity: 1_000_000_000, sources: [seed]", "lower the capacity or raise the rate"},
		{"kind: redis-bitmap, capacity: 3_000_000_000, shards: 11", ""},
		{"kind: redisson, capacity: 1_000_000_000", ""}, // which others make
	} {
		file := writeConfig(t, "sources: {seed: {kind: csv, path: a.csv}}\nfilters: {orders: {"+tc.settings+"}}\n")
		code, stdout, stderr := command(t.Context(), "check", "--config", file)
		if tc.want == "" {
			if code != exitDone || stdout+stderr != "" {
				t.Errorf("%s: exit code %d, %s", tc.settings, code, stderr)
			}
			continue
		}
		if code != exitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 ||
			!strings.Contains(stderr, "filters.orders: ") || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s: exit code %d, %q", tc.settings, code, stderr)
		}
	}
}
