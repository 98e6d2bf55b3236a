package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// chunkIDs is how many IDs a candidate gets at a time.
const chunkIDs = 500_000

const buildNote = `The IDs come in pieces, and each piece goes to one after the other. Two goroutines
add, each half of a piece, where the candidate is safe for that, and one where it is
not. "a core" is how many a second of CPU time adds: what others take of the machine
is not in it.`

func buildSection(n int) section {
	return section{
		name: "build", title: fmt.Sprintf("Building, %s IDs", count(n)), note: buildNote, n: n,
		metrics: []benchmark.Metric{buildRate, buildCPU}, versus: []benchmark.Metric{buildRate, buildCPU},
	}
}

// build fills the sets. A round is a part of the pieces, so that rounds cost no
// time of their own.
func build(ctx context.Context, n int, sets []entrant, rounds int, progress io.Writer) (results, error) {
	r := newResults(buildSection(n), names(sets))
	chunk := min(chunkIDs, max(n/rounds, 1))
	for round := range rounds {
		wall := make([]time.Duration, len(sets))
		cpu := make([]time.Duration, len(sets))
		from, to := n*round/rounds, n*(round+1)/rounds
		for at := from; at < to; at += chunk {
			ids := texts(min(chunk, to-at), func(i int) uint64 { return idOf(at + i) })
			for _, i := range benchmark.Turns(at/chunk, len(sets)) {
				if ctx.Err() != nil {
					return r, context.Cause(ctx)
				}
				w, c, err := addTimed(sets[i], ids)
				if err != nil {
					return r, fmt.Errorf("building %s: %w", sets[i].name, err)
				}
				wall[i] += w
				cpu[i] += c
			}
		}
		for i := range sets {
			millions := float64(to-from) / 1e6
			s := benchmark.Sample{buildRate: millions / wall[i].Seconds()}
			if cpu[i] > 0 { // it has steps, and there is little to measure in a test
				s[buildCPU] = millions / cpu[i].Seconds()
			}
			r.Rounds[i] = append(r.Rounds[i], s)
		}
		fmt.Fprintf(progress, "%d IDs: build: part %d of %d\n", n, round+1, rounds)
	}
	return r, nil
}

func addTimed(e entrant, ids []string) (wall, cpu time.Duration, err error) {
	halves := [][]string{ids}
	if e.safe {
		halves = [][]string{ids[:len(ids)/2], ids[len(ids)/2:]}
	}
	before, err := processCPU()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	var adding errgroup.Group
	for _, half := range halves {
		adding.Go(func() error { return e.set.add(half) })
	}
	err = adding.Wait()
	wall = time.Since(start)
	after, err2 := processCPU()
	return wall, after - before, errors.Join(err, err2)
}
