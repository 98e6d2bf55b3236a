package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
)

// profile starts the CPU profile that is asked for, and returns what ends it.
func (s settings) profile() (stop func() error, err error) {
	if s.cpuProfile == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(s.cpuProfile)
	if err != nil {
		return nil, fmt.Errorf("writing the CPU profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the CPU profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			return fmt.Errorf("writing the CPU profile: %w", err)
		}
		return nil
	}, nil
}
