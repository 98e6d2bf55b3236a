package main

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// meter adds to a sample what something used of, per operation, from start to
// stop.
type meter interface {
	start(context.Context) error
	stop(ctx context.Context, ops int, s benchmark.Sample) error
}

// usage is the meter of memory and CPU. The client's CPU is all of this
// process's, loops that call and count included: the same for all.
type usage struct {
	control *redis.Client
	heap    runtime.MemStats
	client  time.Duration
	server  time.Duration
}

// start collects garbage first, so that nobody pays for another's.
func (u *usage) start(ctx context.Context) (err error) {
	if u.server, err = benchmark.RedisCPU(ctx, u.control); err != nil {
		return err
	}
	runtime.GC()
	runtime.ReadMemStats(&u.heap)
	u.client, err = ownCPUTime()
	return err
}

func (u *usage) stop(ctx context.Context, ops int, s benchmark.Sample) error {
	client, err := ownCPUTime()
	if err != nil {
		return err
	}
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	server, err := benchmark.RedisCPU(ctx, u.control)
	if err != nil {
		return err
	}
	per := func(n float64) float64 { return n / float64(ops) }
	s[allocs] = per(float64(heap.Mallocs - u.heap.Mallocs))
	s[memory] = per(float64(heap.TotalAlloc - u.heap.TotalAlloc))
	s[clientCPU] = per(benchmark.Micros(client - u.client))
	s[redisCPU] = per(benchmark.Micros(server - u.server))
	return nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ownCPUTime returns the CPU time of this process, user and system.
func ownCPUTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("reading our CPU time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
