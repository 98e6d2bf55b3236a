package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
)

// profile starts the profiles that were asked for. The returned function writes
// them.
func (s settings) profile() (stop func() error, err error) {
	var cpu *os.File
	if s.cpuProfile != "" {
		if cpu, err = os.Create(s.cpuProfile); err != nil {
			return nil, fmt.Errorf("making a CPU profile: %w", err)
		}
		if err := pprof.StartCPUProfile(cpu); err != nil {
			return nil, fmt.Errorf("making a CPU profile: %w", err)
		}
	}
	if s.memProfile != "" {
		runtime.MemProfileRate = 1 // every allocation, or there is no telling who makes the small ones
	}
	return func() error {
		if cpu != nil {
			pprof.StopCPUProfile()
			if err := cpu.Close(); err != nil {
				return fmt.Errorf("writing the CPU profile: %w", err)
			}
		}
		if s.memProfile == "" {
			return nil
		}
		return writeAllocations(s.memProfile)
	}, nil
}

func writeAllocations(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the allocation profile: %w", err)
	}
	defer file.Close()
	if err := pprof.Lookup("allocs").WriteTo(file, 0); err != nil {
		return fmt.Errorf("writing the allocation profile: %w", err)
	}
	return nil
}
