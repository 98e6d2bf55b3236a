package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/bench/benchmark/benchtest"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun measures as little as possible: no create fails, and the tables are whole.
func TestRun(t *testing.T) {
	bedtest.NeedProcesses(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	bedtest.Check(t, run(ctx, []string{"-cases", "4x20,5x30", "-rounds", "1", "-for", "500ms", "-commands"}, &stdout, &stderr))
	const figure = ` +\d+\.\d+`
	row := figure + figure + figure + figure + figure + figure + figure + figure + ` +\d+`
	benchtest.Rows(t, stdout.String(), `4 x 20/s`+row, `5 x 30/s`+row, `4 x 20/s +p99, ms +at most 20`, `4 x 20/s +round trips`)
	benchtest.Rows(t, stderr.String(), ` +evalsha +\d+/s`)
}

func TestFlags(t *testing.T) {
	cases := []load{{4, 50}, {4, 500}, {50, 1000}}
	const window, length = 500 * time.Millisecond, 5 * time.Second
	profiles := benchmark.Profiles{CPU: "p"}
	benchtest.Flags(t, parseFlags, []benchtest.FlagTest[settings]{
		{Name: "defaults", Want: settings{cases: cases, window: window, length: length, rounds: 5}},
		{Name: "all", Args: []string{"-cases", "1x2", "-window", "1s", "-for", "2s", "-rounds", "3", "-commands", "-cpuprofile", "p", "-markdown"},
			Want: settings{[]load{{1, 2}}, time.Second, 2 * time.Second, 3, true, profiles, true}},
		{Name: "no case", Args: []string{"-cases", "4"}, Err: `-cases "4": use 1 to 200 readers and 1 to 10000 creates, such as 4x50`},
		{Name: "no readers", Args: []string{"-cases", "4x50,0x1"}, Err: `-cases "0x1": use 1 to 200 readers and 1 to 10000 creates, such as 4x50`},
		{Name: "a short window", Args: []string{"-window", "99ms"}, Err: "-window 99ms: use 100ms to 10s"},
		{Name: "no time", Args: []string{"-for", "0s"}, Err: "-for 0s: use more than 0s"},
		{Name: "no rounds", Args: []string{"-rounds", "0"}, Err: "-rounds 0: use 1 or more"},
		{Name: "an argument", Args: []string{"all"}, Err: `argument "all": there are only flags, see -help`},
		{Name: "help", Args: []string{"-help"}, Err: "flag: help requested"},
	})
}
