package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

const filesNote = `Written to a file and on the disk, and read into a new set with the file in the
kernel's cache. Ours has checksums, and reads with all CPUs. Seconds on the clock.`

func filesSection(n int) section {
	return section{
		name: "files", title: fmt.Sprintf("Snapshots, %s IDs", count(n)), note: filesNote, n: n,
		metrics: []benchmark.Metric{fileSize, writeTime, readTime}, versus: []benchmark.Metric{readTime},
	}
}

func files(ctx context.Context, n int, sets []entrant, rounds int, progress io.Writer) (r results, err error) {
	// Those that cannot be written have no row.
	sets = slices.DeleteFunc(slices.Clone(sets), func(e entrant) bool {
		_, is := e.set.(filed)
		return !is
	})
	r = newResults(filesSection(n), names(sets))
	dir, err := os.MkdirTemp("", "ordergate-bench-filters-")
	if err != nil {
		return r, fmt.Errorf("making a directory for snapshots: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for round := range rounds {
		for _, i := range benchmark.Turns(round, len(sets)) {
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			s, err := throughFile(ctx, sets[i].set.(filed), filepath.Join(dir, "snapshot"))
			if err != nil {
				return r, fmt.Errorf("a snapshot of %s: %w", sets[i].name, err)
			}
			r.Rounds[i] = append(r.Rounds[i], s)
		}
		fmt.Fprintf(progress, "%d IDs: snapshots: round %d of %d\n", n, round+1, rounds)
	}
	return r, nil
}

func throughFile(ctx context.Context, e filed, path string) (benchmark.Sample, error) {
	start := time.Now()
	if err := e.write(ctx, path); err != nil {
		return nil, err
	}
	s := benchmark.Sample{writeTime: time.Since(start).Seconds()}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	s[fileSize] = float64(info.Size()) / 1e6
	start = time.Now()
	again, err := e.read(ctx, path)
	if err != nil {
		return nil, err
	}
	s[readTime] = time.Since(start).Seconds()
	for i := range leastSize {
		if id := texts(1, func(int) uint64 { return idOf(i) })[0]; !again.has(id) {
			return nil, fmt.Errorf("ID %s is gone", id)
		}
	}
	return s, os.Remove(path)
}
