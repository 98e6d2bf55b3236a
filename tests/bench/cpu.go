package main

import (
	"context"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// meter reads a count that grows: a CPU time in µs, or commands.
type meter func(context.Context) (float64, error)

func cpuMeter(pid int) meter {
	return func(context.Context) (float64, error) {
		used, err := benchmark.ProcessCPU(pid)
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
