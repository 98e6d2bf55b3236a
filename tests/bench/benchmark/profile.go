package benchmark

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
)

// Profiles are the files that profiles are written to, "" for none.
type Profiles struct {
	CPU         string
	Allocations string // every one, so the figures suffer
}

// Start starts the profiles. The returned function writes them.
func (p Profiles) Start() (stop func() error, err error) {
	var cpu *os.File
	if p.CPU != "" {
		if cpu, err = os.Create(p.CPU); err != nil {
			return nil, fmt.Errorf("making a CPU profile: %w", err)
		}
		if err := pprof.StartCPUProfile(cpu); err != nil {
			return nil, errors.Join(fmt.Errorf("making a CPU profile: %w", err), cpu.Close())
		}
	}
	if p.Allocations != "" {
		runtime.MemProfileRate = 1 // every allocation, or there is no telling who makes the small ones
	}
	return func() error {
		if cpu != nil {
			pprof.StopCPUProfile()
			if err := cpu.Close(); err != nil {
				return fmt.Errorf("writing the CPU profile: %w", err)
			}
		}
		if p.Allocations == "" {
			return nil
		}
		return writeAllocations(p.Allocations)
	}, nil
}

func writeAllocations(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the allocation profile: %w", err)
	}
	if err := errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close()); err != nil {
		return fmt.Errorf("writing the allocation profile: %w", err)
	}
	return nil
}
