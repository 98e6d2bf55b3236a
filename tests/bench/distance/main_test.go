package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark/benchtest"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestRun measures as little as possible: nothing fails, and the tables are whole.
func TestRun(t *testing.T) {
	bedtest.NeedProcesses(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	bedtest.Check(t, run(ctx, []string{"-distances", "0,20", "-rounds", "1", "-for", "500ms"}, &stdout, &stderr))
	const figure = ` +\d+\.\d+`
	row := ` +\d+` + figure + figure + figure + figure + figure + figure
	benchtest.Rows(t, stdout.String(), `0s`+row, `20ms`+row, `20ms +refusals/s : nearest`, `20ms +refused %`)
}

func TestFlags(t *testing.T) {
	ms := time.Millisecond
	benchtest.Flags(t, parseFlags, []benchtest.FlagTest[settings]{
		{Name: "defaults", Want: settings{[]time.Duration{0, ms, 5 * ms, 50 * ms, 200 * ms, 250 * ms, 300 * ms}, 500 * ms, 3 * time.Second, 20, 5, false}},
		{Name: "all", Args: []string{"-distances", "0,7", "-window", "1s", "-for", "2s", "-creates", "9", "-rounds", "3", "-markdown"},
			Want: settings{[]time.Duration{0, 7 * ms}, time.Second, 2 * time.Second, 9, 3, true}},
		{Name: "too far", Args: []string{"-distances", "501"}, Err: `-distances "501": use 0 to 500 ms`},
		{Name: "a short window", Args: []string{"-window", "99ms"}, Err: "-window 99ms: use 100ms to 10s"},
		{Name: "no time", Args: []string{"-for", "0s"}, Err: "-for 0s: use more than 0s"},
		{Name: "no creates", Args: []string{"-creates", "0"}, Err: "-creates 0: use 1 to 1000"},
		{Name: "no rounds", Args: []string{"-rounds", "0"}, Err: "-rounds 0: use 1 or more"},
		{Name: "an argument", Args: []string{"all"}, Err: `argument "all": there are only flags, see -help`},
		{Name: "help", Args: []string{"-help"}, Err: "flag: help requested"},
	})
}
