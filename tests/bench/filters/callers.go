package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

const (
	// callers ask at once, each for one ID after the other, as requests do.
	callers = 50
	// warmUp is the part of a round that is spent before what counts.
	warmUp = 10
	// startLimit bounds the start of Redis.
	startLimit = time.Minute
)

const storedNote = `%d callers, each of whom asks for one ID at a time, at random, and waits. The
yardstick asks by a command of its own each time and believes a no; ordergate's
callers share round trips, and each no comes with the proof that the set is whole. CPU
is per question, that of our process for all that it does, and decides where there is
no core to spare. Memory is Redis's own figure for the keys, beside the classic Bloom
filter's formula.`

func storedSection(n int) section {
	return section{
		name: "redis", title: fmt.Sprintf("Asking Redis, %s IDs", count(n)), note: fmt.Sprintf(storedNote, callers), n: n,
		metrics:   []benchmark.Metric{hitRate, missRate, clientCPU, redisCPU, bothCPU, bytesPerID, overFormula, falsePositives},
		versus:    []benchmark.Metric{hitRate, missRate, bothCPU},
		yardstick: nameEach,
	}
}

// subject is a set in Redis that is filled.
type subject struct {
	name     string
	set      stored
	constant benchmark.Sample // what every round shows
}

// askStored runs the rounds.
func askStored(ctx context.Context, control *redis.Client, r results, sets []subject, s settings, progress io.Writer) (results, error) {
	n := r.section.n
	asked := min(askedIDs, n)
	random := func(round, i int) int { return int(scatter(uint64(round)<<32+uint64(i)) % uint64(n)) }
	for round := range s.Rounds {
		hits := texts(asked, func(i int) uint64 { return idOf(random(2*round, i)) })
		misses := texts(asked, func(i int) uint64 { return absentOf(random(2*round+1, i)) })
		for _, i := range benchmark.Turns(round, len(sets)) {
			got, err := sets[i].round(ctx, control, hits, misses, s.length)
			if err != nil {
				return r, fmt.Errorf("asking %s: %w", sets[i].name, err)
			}
			r.Rounds[i] = append(r.Rounds[i], got)
			fmt.Fprintf(progress, "%d IDs in Redis: round %d of %d: %s: %.0f hits/s, %.0f misses/s\n",
				n, round+1, s.Rounds, sets[i].name, got[hitRate], got[missRate])
		}
	}
	return r, nil
}

// round gives one set its turn.
func (s subject) round(ctx context.Context, control *redis.Client, hits, misses []string, length time.Duration) (benchmark.Sample, error) {
	if _, err := askAll(ctx, s.set, hits, length/warmUp); err != nil {
		return nil, err
	}
	before, err := readCPU(ctx, control)
	if err != nil {
		return nil, err
	}
	forHits, err := askAll(ctx, s.set, hits, length)
	if err != nil {
		return nil, err
	}
	if lost := forHits.asked - forHits.found; lost > 0 {
		return nil, fmt.Errorf("of %d IDs that are there, %d are gone", forHits.asked, lost)
	}
	forMisses, err := askAll(ctx, s.set, misses, length)
	if err != nil {
		return nil, err
	}
	after, err := readCPU(ctx, control)
	if err != nil {
		return nil, err
	}
	asked := float64(forHits.asked + forMisses.asked)
	got := benchmark.Sample{
		hitRate: forHits.rate(), missRate: forMisses.rate(),
		clientCPU:      benchmark.Micros(after.client-before.client) / asked,
		redisCPU:       benchmark.Micros(after.server-before.server) / asked,
		falsePositives: 100 * float64(forMisses.found) / float64(forMisses.asked),
	}
	got[bothCPU] = got[clientCPU] + got[redisCPU]
	for m, v := range s.constant {
		got[m] = v
	}
	return got, nil
}

// cpuTimes are those of this process and of Redis.
type cpuTimes struct{ client, server time.Duration }

func readCPU(ctx context.Context, control *redis.Client) (t cpuTimes, err error) {
	if t.client, err = processCPU(); err != nil {
		return t, err
	}
	t.server, err = benchmark.RedisCPU(ctx, control)
	return t, err
}

// tally is what callers asked together, and how many of it was found.
type tally struct {
	asked, found int64
	took         time.Duration
}

func (t tally) rate() float64 { return float64(t.asked) / t.took.Seconds() }

// askAll has all callers ask for so long, at least once each. Each begins at another
// place of the IDs.
func askAll(ctx context.Context, set stored, ids []string, length time.Duration) (tally, error) {
	var asked, found atomic.Int64
	start := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for i := range callers {
		group.Go(func() error {
			// A context of its own, as every request has: one of all callers would have
			// them queue for its mutex.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			var mine, hits int64
			for at := i * len(ids) / callers; ; at++ {
				has, err := set.has(ctx, ids[at%len(ids)])
				if err != nil {
					return err
				}
				mine++
				if has {
					hits++
				}
				if time.Since(start) >= length {
					break
				}
			}
			asked.Add(mine)
			found.Add(hits)
			return nil
		})
	}
	err := group.Wait()
	return tally{asked.Load(), found.Load(), time.Since(start)}, err
}
