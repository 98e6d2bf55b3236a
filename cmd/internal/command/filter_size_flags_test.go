package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/admin"
)

// TestFilterSizeOfTheConfiguration takes numbers of filters in a file.
func TestFilterSizeOfTheConfiguration(t *testing.T) {
	one := writeConfig(t, `
filters: {orders: {capacity: 50_000_000, false_positive_rate: 0.01, segments: {keep: 30, from: arrival, older: absent}, sources: [db]}}
sources: {db: {kind: mysql, dsn_env: NOT_SET, table: t, id_column: id}}
`)
	several := writeConfig(t, `
redis: {addresses: [127.0.0.1:6379]}
filters:
  local: {capacity: 2_000_000, freshness: none}
  many: {kind: redis-bitmap, capacity: 3_000_000, shards: 12}
`)
	for _, tc := range []struct {
		name   string
		args   []string
		ids    uint64
		rate   float64
		shards int
		trips  roundTrips
	}{
		{"the only one", []string{"--config", one}, 50_000_000, 0.01, 1, roundTrips{}},
		{"its rate", []string{"--config", one, "--ids", "7"}, 7, 0.01, 1, roundTrips{}},
		{"its number", []string{"--config", one, "--rate", "0.1"}, 50_000_000, 0.1, 1, roundTrips{}},
		{"without a window", []string{"--config", several, "--filter", "local"}, 2_000_000, 0.001, 1, roundTrips{}},
		{"with shards", []string{"--config", several, "--filter", "many"}, 3_000_000, 0.001, 12, roundTrips{}},
		{"other shards", []string{"--config", several, "--filter", "many", "--shards", "2"}, 3_000_000, 0.001, 2, roundTrips{}},
		{"none", []string{"--ids", "5"}, 5, 0.001, 1, roundTrips{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := sized(t, tc.args...)
			if k := s.kind(t, "redis-bitmap"); s.IDs != tc.ids || s.FalsePositiveRate != tc.rate || *k.Shards != tc.shards {
				t.Errorf("%d IDs at %g in %d shards", s.IDs, s.FalsePositiveRate, *k.Shards)
			}
			if k := s.kind(t, "local, blocked"); k.RoundTrips != tc.trips {
				t.Errorf("a local one makes %v round trips", k.RoundTrips)
			}
		})
	}
	_, stdout, _ := command(t.Context(), "filter", "size", "--config", one)
	if want := "50,000,000 IDs, of absent ones 1% may pass, without segments; 1 process, Redis with no replicas\n"; !strings.HasPrefix(stdout, want) {
		t.Errorf("it begins otherwise than with %q:\n%s", want, stdout)
	}
	for _, tc := range []struct{ name, file, filter, want string }{
		{"which one", several, "", "several filters, say which with --filter: local, many"},
		{"an unknown one", several, "orders", `--filter "orders" is not in`},
		{"none there", writeConfig(t, "{}"), "", "has no filter: give --ids"},
	} {
		args := []string{"filter", "size", "--config", tc.file}
		if tc.filter != "" {
			args = append(args, "--filter", tc.filter)
		}
		if code, _, stderr := command(t.Context(), args...); code != exitUsage || !strings.Contains(stderr, tc.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %s", tc.name, code, stderr)
		}
	}
}

func TestFilterSizeRefuses(t *testing.T) {
	few := filepath.Join(t.TempDir(), "few.csv")
	odd := filepath.Join(t.TempDir(), "odd.csv")
	for path, text := range map[string]string{few: "1\n2\n2\n", odd: "1\n\xff\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"filter"}, "which command?"},
		{[]string{"filter", "sise"}, `unknown argument "sise"`},
		{[]string{"filter", "size"}, "how many IDs? (--ids, or a configuration)"},
		{[]string{"filter", "size", "5"}, `unknown argument "5"`},
		{[]string{"filter", "size", "--filter", "orders", "--config", "nowhere.yaml"}, "nowhere.yaml"},
		{[]string{"filter", "size", "--ids", ""}, "is not a whole number"},
		{[]string{"filter", "size", "--ids", "many"}, `--ids "many" is not a whole number`},
		{[]string{"filter", "size", "--ids", "0"}, "from 1 to 1e11"},
		{[]string{"filter", "size", "--ids", "-5"}, "from 1 to 1e11"},
		{[]string{"filter", "size", "--ids", "1.5"}, "is not a whole number"},
		{[]string{"filter", "size", "--ids", "1e-3"}, "is not a whole number"},
		{[]string{"filter", "size", "--ids", "1e999"}, "is not a whole number"},
		{[]string{"filter", "size", "--ids", "100000000001"}, "from 1 to 1e11"},
		{[]string{"filter", "size", "--ids", "1,000"}, "is not a whole number"},
		{[]string{"filter", "size", "--ids", "1__000"}, "is not a whole number"},
		{[]string{"filter", "size", "--ids", "0x10"}, "is not a whole number"},
		{[]string{"filter", "size", "--ids", "Inf"}, "is not a whole number"},
		{[]string{"filter", "size", "--ids", "5", "--rate", "NaN"}, `--rate "NaN" is not a share`},
		{[]string{"filter", "size", "--ids", "5", "--rate", "0"}, "from 1e-9 to 0.5"},
		{[]string{"filter", "size", "--ids", "5", "--rate", "0.6"}, "from 1e-9 to 0.5"},
		{[]string{"filter", "size", "--ids", "5", "--rate", "1%"}, "such as 0.001"},
		{[]string{"filter", "size", "--ids", "5", "--shards", "0"}, "--shards 0: want 1 to 16384"},
		{[]string{"filter", "size", "--ids", "5", "--shards", "16385"}, "want 1 to 16384"},
		{[]string{"filter", "size", "--ids", "5", "--shards", "two"}, "--shards"},
		{[]string{"filter", "size", "--ids", "3e10", "--shards", "1"}, "no kind fits: local, blocked: 58.3 GB in a process are past --memory-limit"},
		{[]string{"filter", "size", "--ids", "5", "--memory-limit", "1"}, "is not a size such as 512MB"},
		{[]string{"filter", "size", "--ids", "5", "--memory-limit", "0GB"}, "is not a size such as 512MB"},
		{[]string{"filter", "size", "--ids", "5", "--memory-limit", "1e300TB"}, "is not a size such as 512MB"},
		{[]string{"filter", "size", "--ids", "5", "--processes", "0"}, "--processes 0"},
		{[]string{"filter", "size", "--ids", "5", "--replicas", "-1"}, "--replicas -1"},
		{[]string{"filter", "size", "--ids", "5", "--sample", "nowhere.csv"}, "--sample reading order IDs from nowhere.csv: no such file"},
		{[]string{"filter", "size", "--ids", "5", "--sample", few}, "8 distinct IDs or fewer"},
		{[]string{"filter", "size", "--ids", "5", "--sample", odd}, "1 lines are no order IDs, the first is line 2: not UTF-8"},
	} {
		code, stdout, stderr := command(t.Context(), tc.args...)
		if code != exitUsage || !strings.Contains(stderr, tc.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit code %d, %q; want %q", tc.args, code, stderr, tc.want)
		}
		if stdout != "" && len(tc.args) > 1 { // help, where a command is missing
			t.Errorf("%q: prints %q", tc.args, stdout)
		}
	}
}

func TestSizesAsText(t *testing.T) {
	for text, want := range map[string]uint64{"1GB": 1e9, "1.5GiB": 3 << 29, "512 MB": 512e6, "1_000kB": 1e6, "7B": 7, "2TB": 2e12, "1e3MiB": 1000 << 20} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for bytes, want := range map[uint64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 999_949_999: "999.9 MB", 999_990_000: "1.0 GB", 53_916e6: "53.9 GB", 2e15: "2000.0 TB"} {
		if got := admin.SizeText(bytes); got != want {
			t.Errorf("%d is %q, want %q", bytes, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 30_000_000_000: "30,000,000,000"} {
		if got := admin.Grouped(n); got != want {
			t.Errorf("%d is %q", n, got)
		}
	}
}
