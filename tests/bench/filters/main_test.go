package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRun measures everything, as little of it as possible.
func TestRun(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "plot.svg")
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"-n", "3000,20000", "-rounds", "2", "-plot", plot}, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	for _, row := range []string{
		`LOOKUPS, 3,000 IDS$`,
		`LOOKUPS, 20,000 IDS$`,
		`ordergate +[0-9.]+ +[0-9.]+ +-?[0-9.]+ +0 +[12]\.\d\d +[01]\.\d% +0\.\d{3}% +1\.00 \(1\.00-1\.00\) `,
		`ordergate exact +[0-9.]+ +[0-9.]+ +-?[0-9.]+ +0 +\d\.\d\d +0\.000% +`,
		`map +[0-9.]+ +[0-9.]+ +-?[0-9.]+ +0 +\d+\.\d\d +0\.000% +`,
		`blobloom keyed +[0-9.]+ +[0-9.]+ +[0-9.]+ \([0-9.]+-[0-9.]+\) +[0-9.]+ \(`,
		`bits-and-blooms +0 +\d\.\d\d +\d\.\d\d +[0-9.]+ \(`,
		`Lookups, 20,000 IDs +allocations +at most 0 +0\.00 +yes$`,
	} {
		if !regexp.MustCompile(`(?m)^` + row).MatchString(stdout.String()) {
			t.Errorf("no row %q in:\n%s", row, &stdout)
		}
	}
	if text, err := os.ReadFile(plot); err != nil || strings.Count(string(text), ">ordergate<") != 2*len(panels) {
		t.Errorf("the plot has not a bar of ours in each panel (%v):\n%s", err, text)
	}
}

// TestLost has a candidate that forgets: that ends the run.
func TestLost(t *testing.T) {
	set, err := openMap(leastSize)
	if err != nil {
		t.Fatal(err)
	}
	who := []entrant{{candidate{name: "forgetful"}, set}}
	if _, err := lookups(t.Context(), leastSize, who, 1, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "asking forgetful: 1000 of 1000 IDs are gone") {
		t.Errorf("error %v", err)
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := run(ctx, []string{"-n", "1000"}, new(bytes.Buffer), new(bytes.Buffer))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestFlags(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want settings
		err  string // "" for none
	}{
		{"defaults", nil, settings{rounds: 5, sizes: []int{1e6, 1e7}}, ""},
		{"large", []string{"-large"}, settings{rounds: 5, sizes: []int{1e6, 1e7, 2e8}, large: true}, ""},
		{
			"all", []string{"-n", "5000", "-rounds", "2", "-only", "a,b", "-markdown", "-plot", "p", "-cpuprofile", "q"},
			settings{2, []int{5000}, false, "a,b", true, "p", "q"}, "",
		},
		{"no round", []string{"-rounds", "0"}, settings{}, "-rounds 0: use 1 or more"},
		{"too few", []string{"-n", "5000,999"}, settings{}, `-n "999": use numbers from 1000 to 2000000000`},
		{"no number", []string{"-n", "many"}, settings{}, `-n "many": use numbers from 1000 to 2000000000`},
		{"nothing", []string{"-n", ""}, settings{}, "nothing to measure: use -n or -large"},
		{"an argument", []string{"all"}, settings{}, `argument "all": there are only flags, see -help`},
		{"help", []string{"-help"}, settings{}, flag.ErrHelp.Error()},
	}
	for _, tt := range tests {
		got, err := parseFlags(tt.args, new(bytes.Buffer))
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != tt.err {
			t.Errorf("%s: error %q, want %q", tt.name, text, tt.err)
		}
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(settings{})); err == nil && diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestPick(t *testing.T) {
	got, err := pick("map,ordergate", candidates())
	if err != nil || len(got) != 2 || got[0].name != "ordergate" || got[1].name != "map" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := pick("map,cuckoo", candidates()); err == nil || !strings.HasPrefix(err.Error(), `-only "cuckoo": there are ordergate, `) {
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

func TestProfile(t *testing.T) {
	s := settings{cpuProfile: filepath.Join(t.TempDir(), "cpu")}
	stop, err := s.profile()
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(s.cpuProfile); err != nil || info.Size() == 0 {
		t.Errorf("%v, %v", info, err)
	}
	s.cpuProfile = filepath.Join(t.TempDir(), "nowhere", "cpu")
	if _, err := s.profile(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
