package main

import (
	"fmt"
	"syscall"
	"time"
)

// processCPU returns the CPU time of this process, user and system.
func processCPU() (time.Duration, error) { return cpu(syscall.RUSAGE_SELF) }

// threadCPU returns that of the calling thread.
func threadCPU() (time.Duration, error) { return cpu(syscall.RUSAGE_THREAD) }

func cpu(who int) (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0, fmt.Errorf("reading our CPU time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
