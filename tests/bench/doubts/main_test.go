package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/bench/benchmark/benchtest"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun measures as little as possible: no order that exists is refused, creates leave
// doubts, and the tables are whole.
func TestRun(t *testing.T) {
	bedtest.NeedProcesses(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	bedtest.Check(t, run(ctx, []string{"-rate", "20", "-lookups", "50", "-for", "500ms"}, &stdout, &stderr))
	benchtest.Rows(t, stdout.String(),
		`no creates +0\.0 +\d+ +\d+\.\d\d% +\d+\.\d\d`, `creates that nobody learns +\d+\.\d +\d+ +\d+\.\d\d% +\d+\.\d\d`,
		`creates that nobody learns +made-up IDs refused`, `creates that nobody learns +queries/s more`)
}

func TestFlags(t *testing.T) {
	benchtest.Flags(t, parseFlags, []benchtest.FlagTest[settings]{
		{Name: "defaults", Want: settings{100, 200, 30 * time.Second, unreadable, false}},
		{Name: "all", Args: []string{"-rate", "7", "-lookups", "8", "-for", "1s", "-how", "aborted", "-markdown"}, Want: settings{7, 8, time.Second, aborted, true}},
		{Name: "no rate", Args: []string{"-rate", "0"}, Err: "-rate 0: use 1 to 10000"},
		{Name: "no lookups", Args: []string{"-lookups", "0"}, Err: "-lookups 0: use 1 to 10000"},
		{Name: "no time", Args: []string{"-for", "0s"}, Err: "-for 0s: use more than 0s"},
		{Name: "no way", Args: []string{"-how", "x"}, Err: "-how x: use unreadable or aborted"},
		{Name: "an argument", Args: []string{"all"}, Err: `argument "all": there are only flags, see -help`},
		{Name: "help", Args: []string{"-help"}, Err: "flag: help requested"},
	})
}
