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

// TestRun measures as little as possible: every row is told, and the table is whole.
func TestRun(t *testing.T) {
	bedtest.NeedProcesses(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	bedtest.Check(t, run(ctx, []string{"-rate", "200", "-for", "500ms"}, &stdout, &stderr))
	const figure = ` +\d+\.\d\d`
	const row = ` +100` + figure + figure + figure + figure + figure + figure + figure + figure
	benchtest.Rows(t, stdout.String(), `mariadb`+row, `postgres`+row, `mariadb +lag from sending`, `postgres +lag from sending`)
}

func TestFlags(t *testing.T) {
	benchtest.Flags(t, parseFlags, []benchtest.FlagTest[settings]{
		{Name: "defaults", Want: settings{100, 20 * time.Second, "", false}},
		{Name: "all", Args: []string{"-rate", "7", "-for", "1s", "-only", "postgres", "-markdown"}, Want: settings{7, time.Second, "postgres", true}},
		{Name: "no rate", Args: []string{"-rate", "0"}, Err: "-rate 0: use 1 to 100000"},
		{Name: "no time", Args: []string{"-for", "0s"}, Err: "-for 0s: use more than 0s"},
		{Name: "an argument", Args: []string{"all"}, Err: `argument "all": there are only flags, see -help`},
		{Name: "help", Args: []string{"-help"}, Err: "flag: help requested"},
	})
}
