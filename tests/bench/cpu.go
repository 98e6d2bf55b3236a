package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// tick is the unit of times in /proc/PID/stat: the kernel keeps USER_HZ at 100
// for all programs, whatever its own is.
const tick = time.Second / 100

// cpuTime returns the CPU time that a process has used, in user and kernel mode,
// by all its threads, ended ones included. It needs Linux's /proc.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading a process's CPU time: %w", err)
	}
	used, err := parseStat(string(text))
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	return used, nil
}

// parseStat adds fields 14 and 15 of proc_pid_stat(5). The second is the
// program's name in brackets, and may hold anything.
func parseStat(text string) (time.Duration, error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const user, system = 14 - 3, 15 - 3 // the first here is the third there
	if len(fields) <= system {
		return 0, fmt.Errorf("%q has too few fields", text)
	}
	var ticks int64
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// meter reads a count that grows: a CPU time in µs, or commands.
type meter func(context.Context) (float64, error)

func cpuMeter(pid int) meter {
	return func(context.Context) (float64, error) {
		used, err := cpuTime(pid)
		return float64(used) / float64(time.Microsecond), err
	}
}

// metered adds to a sample what the meters moved by during do, per request.
func metered(ctx context.Context, s benchmark.Sample, requests int, meters map[benchmark.Metric]meter, do func() error) error {
	before := make(map[benchmark.Metric]float64, len(meters))
	for m, read := range meters {
		n, err := read(ctx)
		if err != nil {
			return err
		}
		before[m] = n
	}
	if err := do(); err != nil {
		return err
	}
	for m, read := range meters {
		n, err := read(ctx)
		if err != nil {
			return err
		}
		s[m] = (n - before[m]) / float64(requests)
	}
	return nil
}
