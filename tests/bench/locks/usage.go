package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// meter adds to a sample what something used of, per operation, from start to
// stop.
type meter interface {
	start(context.Context) error
	stop(ctx context.Context, ops int, s sample) error
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
	if u.server, err = redisCPUTime(ctx, u.control); err != nil {
		return err
	}
	runtime.GC()
	runtime.ReadMemStats(&u.heap)
	u.client, err = ownCPUTime()
	return err
}

func (u *usage) stop(ctx context.Context, ops int, s sample) error {
	client, err := ownCPUTime()
	if err != nil {
		return err
	}
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	server, err := redisCPUTime(ctx, u.control)
	if err != nil {
		return err
	}
	per := func(n float64) float64 { return n / float64(ops) }
	s[allocs] = per(float64(heap.Mallocs - u.heap.Mallocs))
	s[memory] = per(float64(heap.TotalAlloc - u.heap.TotalAlloc))
	s[clientCPU] = per(micros(client - u.client))
	s[redisCPU] = per(micros(server - u.server))
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ownCPUTime returns the CPU time of this process, user and system.
func ownCPUTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("reading our CPU time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// redisCPUTime returns that of Redis.
func redisCPUTime(ctx context.Context, control *redis.Client) (time.Duration, error) {
	text, err := control.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, fmt.Errorf("reading Redis's CPU time: %w", err)
	}
	return parseCPU(text)
}

// parseCPU adds the lines "used_cpu_sys:1.5" and "used_cpu_user:1.5", seconds.
func parseCPU(text string) (time.Duration, error) {
	total := 0.0
	for _, field := range []string{"used_cpu_sys", "used_cpu_user"} {
		value := infoField(text, field)
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("reading Redis's CPU time: %s is %q", field, value)
		}
		total += seconds
	}
	return time.Duration(total * float64(time.Second)), nil
}

// infoField returns a field of INFO's answer, "" if it is not there.
func infoField(text, field string) string {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
