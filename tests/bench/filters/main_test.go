package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/bench/benchmark/benchtest"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun measures everything in memory, as little of it as possible.
func TestRun(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "plot.svg")
	var stdout, stderr bytes.Buffer
	args := []string{"-n", "3000,20000", "-redis", "", "-rounds", "2", "-plot", plot}
	if err := run(t.Context(), args, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	benchtest.Rows(t, stdout.String(),
		`LOOKUPS, 3,000 IDS$`,
		`LOOKUPS, 20,000 IDS$`,
		`ordergate +[0-9.]+ +[0-9.]+ +-?[0-9.]+ +0 +[12]\.\d\d +[01]\.\d% +0\.\d{3}% +1\.00 \(1\.00-1\.00\) `,
		`ordergate exact +[0-9.]+ +[0-9.]+ +-?[0-9.]+ +0 +\d\.\d\d +0\.000% +`,
		`map +[0-9.]+ +[0-9.]+ +-?[0-9.]+ +0 +\d+\.\d\d +0\.000% +`,
		`blobloom keyed +[0-9.]+ +[0-9.]+ +[0-9.]+ \([0-9.]+-[0-9.]+\) +[0-9.]+ \(`,
		`bits-and-blooms +0 +\d\.\d\d +\d\.\d\d +[0-9.]+ \(`,
		`Lookups, 20,000 IDs +allocations +at most 0 +0\.00 +yes$`,
	)
	const inMemory = 4 // panels
	if text, err := os.ReadFile(plot); err != nil || strings.Count(string(text), ">ordergate<") != 2*inMemory {
		t.Errorf("the plot has not a bar of ours in each panel (%v):\n%s", err, text)
	}
}

// TestRunStored measures everything in Redis, at another rate of false positives.
func TestRunStored(t *testing.T) {
	bed := bedtest.New(t)
	bed.Redis(bed.RedisBloomArgs()...) // or one is missing, which is for bedtest to judge
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	args := []string{"-n", "", "-redis", "3000,20000", "-rate", "0.01", "-rounds", "2", "-time", "20ms"}
	if err := run(ctx, args, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	const figures, ratio = `\d+ +\d+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +\d\.\d\d +-?[0-9.]+% +\d\.\d{3}%`, ` +[0-9.]+ \([0-9.]+-[0-9.]+\)`
	benchtest.Rows(t, stdout.String(),
		`ASKING REDIS, 3,000 IDS$`,
		`ASKING REDIS, 20,000 IDS$`,
		`one BF.EXISTS each +`+figures+` +1\.00 \(1\.00-1\.00\) +1\.00 \(1\.00-1\.00\) +1\.00 \(1\.00-1\.00\)$`,
		`ordergate redis-bloom +`+figures+ratio+ratio+ratio+`$`,
		`ordergate redis-bitmap +`+figures+ratio+ratio+ratio+`$`,
		`ordergate redisson +`+figures+ratio+ratio+ratio+`$`,
		`Asking Redis, 20,000 IDs +ordergate redisson's misses/s : one BF.EXISTS each +at least 3 +[0-9.]+ +(yes|no)$`,
	)
}

// TestLost has a candidate that forgets: that ends the run.
func TestLost(t *testing.T) {
	set, err := openMap(leastSize, 0)
	if err != nil {
		t.Fatal(err)
	}
	who := []entrant{{candidate{name: "forgetful"}, set}}
	if _, err := lookups(t.Context(), leastSize, who, 1, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "asking forgetful: 1000 of 1000 IDs are gone") {
		t.Errorf("error %v", err)
	}
}

// forgetful is a set in Redis that says no, or nothing.
type forgetful struct{ err error }

func (f forgetful) add(context.Context, []string) error       { return f.err }
func (f forgetful) whole(context.Context) error               { return f.err }
func (f forgetful) has(context.Context, string) (bool, error) { return false, f.err }
func (f forgetful) close()                                    {}

// TestLostInRedis has sets that forget or fail: that ends the run, and says whose.
func TestLostInRedis(t *testing.T) {
	control := redis.NewClient(&redis.Options{Addr: bedtest.New(t).Redis().Addr()})
	defer control.Close()
	cause := errors.New("no answer")
	for _, tt := range []struct {
		set  forgetful
		want string
	}{{forgetful{}, "asking forgetful: of "}, {forgetful{cause}, "asking forgetful: no answer"}} {
		r := newResults(storedSection(leastSize), []string{"forgetful"})
		set := settings{Settings: benchmark.Settings{Rounds: 1}, length: leastLength}
		_, err := askStored(t.Context(), control, r, []subject{{"forgetful", tt.set, nil}}, set, io.Discard)
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := run(ctx, []string{"-n", "1000", "-redis", ""}, new(bytes.Buffer), new(bytes.Buffer))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestFlags(t *testing.T) {
	usual := settings{Settings: benchmark.Settings{Rounds: 5}, sizes: []int{1e6, 1e7}, stored: []int{1e6}, rate: 0.001, length: time.Second}
	large := usual
	large.sizes = []int{1e6, 1e7, 2e8}
	benchtest.Flags(t, parseFlags, []benchtest.FlagTest[settings]{
		{Name: "defaults", Want: usual},
		{Name: "large", Args: []string{"-large"}, Want: large},
		{
			Name: "all",
			Args: []string{"-n", "5000", "-redis", "6000,7000", "-rate", "0.01", "-time", "20ms", "-rounds", "2", "-only", "a,b", "-markdown", "-plot", "p", "-cpuprofile", "q"},
			Want: settings{
				benchmark.Settings{Rounds: 2, Markdown: true}, []int{5000}, []int{6000, 7000}, 0.01, 20 * time.Millisecond,
				"a,b", "p", benchmark.Profiles{CPU: "q"},
			},
		},
		{Name: "too few", Args: []string{"-n", "5000,999"}, Err: `-n "999": use numbers from 1000 to 2000000000`},
		{Name: "no number", Args: []string{"-redis", "many"}, Err: `-redis "many": use numbers from 1000 to 2000000000`},
		{Name: "nothing", Args: []string{"-n", "", "-redis", ""}, Err: "nothing to measure: use -n, -large or -redis"},
		{Name: "no rate", Args: []string{"-rate", "NaN"}, Err: "-rate NaN: use more than 0 and less than 1"},
		{Name: "too short", Args: []string{"-time", "1ms"}, Err: "-time 1ms: use 10ms or more"},
		{Name: "an argument", Args: []string{"all"}, Err: `argument "all": there are only flags, see -help`},
	})
}

func TestPick(t *testing.T) {
	chosen := []string{nameMap, nameBitmap, nameBlocked}
	var got []string
	for _, c := range pick(candidates(), chosen) {
		got = append(got, c.name)
	}
	for _, c := range pickStored(storedCandidates(), chosen) {
		got = append(got, c.name)
	}
	if diff := cmp.Diff([]string{nameBlocked, nameMap, nameBitmap}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	err := run(t.Context(), []string{"-only", "map,cuckoo"}, new(bytes.Buffer), new(bytes.Buffer))
	if err == nil || !strings.HasPrefix(err.Error(), `-only "cuckoo": there are ordergate, `) {
		t.Errorf("unknown: %v", err)
	}
}

func TestIDs(t *testing.T) {
	seen := map[uint64]bool{}
	for i := range 10_000 {
		if idOf(i) == absentOf(i) || seen[idOf(i)] || seen[absentOf(i)] {
			t.Fatalf("ID %d twice", idOf(i))
		}
		seen[idOf(i)], seen[absentOf(i)] = true, true
	}
	if diff := cmp.Diff([]string{"7", "70", "700"}, texts(3, func(i int) uint64 { return []uint64{7, 70, 700}[i] })); diff != "" {
		t.Error(diff)
	}
}
