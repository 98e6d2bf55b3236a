package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

const filesNote = `Written to a file and on the disk, and read into a new set with the file in the
kernel's cache. Ours has checksums, and reads with all CPUs. Seconds on the clock.`

func filesSection(n int) section {
	return section{
		name: "files", title: fmt.Sprintf("Snapshots, %s IDs", count(n)), note: filesNote, n: n,
		metrics: []metric{fileSize, writeTime, readTime}, versus: []metric{readTime},
	}
}

func files(ctx context.Context, n int, sets []entrant, rounds int, progress io.Writer) (r results, err error) {
	r = newResults(filesSection(n), sets)
	dir, err := os.MkdirTemp("", "ordergate-bench-filters-")
	if err != nil {
		return r, fmt.Errorf("making a directory for snapshots: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for round := range rounds {
		for turn := range sets {
			i := (turn + round) % len(sets)
			e, ok := sets[i].set.(filed)
			if !ok {
				continue
			}
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			s, err := throughFile(ctx, e, filepath.Join(dir, "snapshot"))
			if err != nil {
				return r, fmt.Errorf("a snapshot of %s: %w", sets[i].name, err)
			}
			r.rounds[i] = append(r.rounds[i], s)
		}
		fmt.Fprintf(progress, "%d IDs: snapshots: round %d of %d\n", n, round+1, rounds)
	}
	return r.keep(), nil
}

func throughFile(ctx context.Context, e filed, path string) (sample, error) {
	start := time.Now()
	if err := e.write(ctx, path); err != nil {
		return nil, err
	}
	s := sample{writeTime: time.Since(start).Seconds()}
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
