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

// TestRun measures as little as is trimmed: no order is absent, and the table is whole.
func TestRun(t *testing.T) {
	bedtest.NeedProcesses(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	bedtest.Check(t, run(ctx, []string{"-ids", "150000"}, &stdout, &stderr))
	const figure = ` +\d+\.\d\d`
	benchtest.Rows(t, stdout.String(), `150000`+figure+figure+` +\d{5}`+figure+figure+figure, `100000000`+figure+figure+figure+figure+figure)
}

func TestFlags(t *testing.T) {
	benchtest.Flags(t, parseFlags, []benchtest.FlagTest[settings]{
		{Name: "defaults", Want: settings{10_000_000, 10_000_000, false}},
		{Name: "all", Args: []string{"-ids", "2000", "-capacity", "7000", "-markdown"}, Want: settings{2000, 7000, true}},
		{Name: "too few", Args: []string{"-ids", "1"}, Err: "-ids 1: use 1000 to 1000000000"},
		{Name: "no capacity", Args: []string{"-capacity", "-1"}, Err: "-capacity -1: use 1 or more"},
		{Name: "an argument", Args: []string{"all"}, Err: `argument "all": there are only flags, see -help`},
		{Name: "help", Args: []string{"-help"}, Err: "flag: help requested"},
	})
}
