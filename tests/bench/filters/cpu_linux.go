package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// processCPU returns the CPU time of this process, user and system.
func processCPU() (time.Duration, error) { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

// threadCPU returns that of the calling thread.
func threadCPU() (time.Duration, error) { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

// clock reads a clock of the kernel's, which is exact where getrusage counts ticks
// of four milliseconds.
func clock(id int32) (time.Duration, error) {
	var at unix.Timespec
	if err := unix.ClockGettime(id, &at); err != nil {
		return 0, fmt.Errorf("reading our CPU time: %w", err)
	}
	return time.Duration(at.Nano()), nil
}
