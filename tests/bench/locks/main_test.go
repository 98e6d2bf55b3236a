package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun measures everything, as little of it as possible. The full storm is
// left to ours: a peer may take ten seconds.
func TestRun(t *testing.T) {
	bedtest.New(t).Redis() // or it is missing, which is for bedtest to judge
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	plot := filepath.Join(t.TempDir(), "plot.svg")
	for _, tt := range []struct {
		name string
		args []string
		rows []string // of the output
	}{
		{
			"all but the storm", []string{"-scenarios", "uncontended,distinct,relay,tries", "-plot", plot},
			[]string{
				`ordergate +\d+ +\d+ +\d+ +[0-9.]+ +\d+ +2\.\d\d +1\.00 \(1\.00-1\.00\)$`,
				`redsync +\d+ +\d+ +\d+ +[0-9.]+ +\d+ +2\.\d\d +[0-9.]+ \(`,
				`bare rueidis +\d+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +2\.\d\d +[0-9.]+ \(`,
				`ordergate +\d+ +\d+% +[0-9.]+ +[0-9.]+ +[0-9.]+ +\d+ +\d+ +1\.00 \(`,
				`bsm/redislock +\d+ +\d+ +\d+ +[0-9.]+ +[0-9.]+$`,
				`Distinct keys +ops/s : rueidislock +at least 1\.1 +[0-9.]+ +(yes|no)$`,
			},
		},
		{
			"the storm", []string{"-scenarios", "storm", "-only", "ordergate"},
			[]string{
				`ordergate +500 +\d+ +\d+ +[0-9.]+ +[0-9.]+ +[0-9.]+$`,
				`Storm +granted +at least 500 +500\.00 +yes$`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if err := run(ctx, append(tt.args, "-rounds", "1", "-time", "50ms"), &stdout, &stderr); err != nil {
				t.Fatalf("%v\n%s", err, &stderr)
			}
			for _, row := range tt.rows {
				if !regexp.MustCompile(`(?m)^` + row).MatchString(stdout.String()) {
					t.Errorf("no row %q in:\n%s", row, &stdout)
				}
			}
		})
	}
	if text, err := os.ReadFile(plot); err != nil || strings.Count(string(text), ">ordergate<") != 5 {
		t.Errorf("the plot has not five bars of ours (%v):\n%s", err, text)
	}
}

func TestFlags(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want settings
		err  string // "" for none
	}{
		{"defaults", nil, settings{rounds: 5, length: 2 * time.Second}, ""},
		{
			"all", []string{"-rounds", "2", "-time", "1s", "-only", "a,b", "-scenarios", "c", "-markdown", "-plot", "p", "-cpuprofile", "q", "-memprofile", "r"},
			settings{2, time.Second, "a,b", "c", true, "p", "q", "r"}, "",
		},
		{"no round", []string{"-rounds", "0"}, settings{}, "-rounds 0: use 1 or more"},
		{"too short", []string{"-time", "1ms"}, settings{}, "-time 1ms: use 50ms or more"},
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
		if err == nil && got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestPick(t *testing.T) {
	same := func(s string) string { return s }
	tests := []struct{ name, list, want, err string }{
		{"none is all", "", "a b c", ""},
		{"in their own order", "c,a", "a c", ""},
		{"unknown", "a,d", "", `-only "d": there are a, b, c`},
	}
	for _, tt := range tests {
		got, err := pick("-only", tt.list, []string{"a", "b", "c"}, same)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if strings.Join(got, " ") != tt.want || text != tt.err {
			t.Errorf("%s: %v, %q; want %q, %q", tt.name, got, text, tt.want, tt.err)
		}
	}
}

func TestProfiles(t *testing.T) {
	dir := t.TempDir()
	s := settings{cpuProfile: filepath.Join(dir, "cpu"), memProfile: filepath.Join(dir, "mem")}
	stop, err := s.profile()
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{s.cpuProfile, s.memProfile} {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, %v", filepath.Base(path), info, err)
		}
	}
	s.cpuProfile = filepath.Join(dir, "nowhere", "cpu")
	if _, err := s.profile(); err == nil {
		t.Error("a profile was made where there is no directory")
	}
}
