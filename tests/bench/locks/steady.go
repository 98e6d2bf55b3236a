package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

const (
	distinctCallers = 64
	// keysEach is how many keys a caller goes through in turns: orders come and
	// go, so no key is locked twice in a row.
	keysEach = 256
	// warmUp is the part of a round that is spent before what counts:
	// connections, scripts and heaps come to what they will be.
	warmUp = 10
	// roomEach is for how many operations a second a caller has room to note their
	// times. A slice that grows would be charged to the candidate.
	roomEach = 40_000
)

const uncontendedNote = `One caller, a free lock: take it and give it back. Where the scheduler puts client
and Redis decides much here, so the figures come in two kinds; allocations and
requests do not vary.`

func uncontended() section {
	return section{
		name: "uncontended", title: "Uncontended", note: uncontendedNote,
		metrics: []benchmark.Metric{rate, p50Micros, p99Micros, allocs, memory, requests},
		versus:  rate,
		round:   func(ctx context.Context, t turn) (benchmark.Sample, error) { return steady(ctx, t, 1) },
	}
}

const distinctNote = `%d callers, each with keys of its own. CPU is in µs per operation.`

func distinct() section {
	return section{
		name: "distinct", title: "Distinct keys", note: fmt.Sprintf(distinctNote, distinctCallers),
		metrics: []benchmark.Metric{rate, p99Millis, clientCPU, redisCPU, allocs, requests},
		versus:  rate,
		round:   func(ctx context.Context, t turn) (benchmark.Sample, error) { return steady(ctx, t, distinctCallers) },
	}
}

// steady has callers lock and unlock keys of their own for the length of the
// turn.
func steady(ctx context.Context, t turn, callers int) (benchmark.Sample, error) {
	in, err := t.candidate.open(t.addr, patience{})
	if err != nil {
		return nil, err
	}
	defer in.close()
	var all []*worker
	for i := range callers {
		w := &worker{caller: in.caller()}
		for k := range keysEach {
			w.keys = append(w.keys, fmt.Sprintf("order:lock:%d", 1_000_000+i*keysEach+k))
		}
		all = append(all, w)
	}
	if _, err := work(ctx, all, t.length/warmUp); err != nil {
		return nil, err
	}
	for _, w := range all {
		w.times = make([]time.Duration, 0, 1+int(roomEach*t.length.Seconds())/min(callers, 8))
	}
	if err := t.meter.start(ctx); err != nil {
		return nil, err
	}
	took, err := work(ctx, all, t.length)
	if err != nil {
		return nil, err
	}
	var times []time.Duration
	ops := 0
	for _, w := range all {
		ops += len(w.times)
	}
	got := benchmark.Sample{rate: float64(ops) / took.Seconds()}
	if err := t.meter.stop(ctx, ops, got); err != nil {
		return nil, err
	}
	for _, w := range all {
		times = append(times, w.times...)
	}
	slices.Sort(times)
	got[p50Micros], got[p99Micros] = benchmark.Micros(benchmark.Percentile(times, 50)), benchmark.Micros(benchmark.Percentile(times, 99))
	got[p99Millis] = got[p99Micros] / 1000
	return got, nil
}

// worker is a caller with keys of its own.
type worker struct {
	caller caller
	keys   []string
	times  []time.Duration // of each operation
}

// work has all of them work for so long, at least one operation each, and
// returns how long it took.
func work(ctx context.Context, all []*worker, length time.Duration) (time.Duration, error) {
	start := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for _, w := range all {
		group.Go(func() error { return w.work(ctx, start.Add(length)) })
	}
	err := group.Wait()
	return time.Since(start), err
}

func (w *worker) work(ctx context.Context, end time.Time) error {
	// A context of its own, as every request has: one of all callers would have
	// them queue for its mutex.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for n := 0; ; n++ {
		began := time.Now()
		if err := w.caller.lock(ctx, w.keys[n%len(w.keys)]); err != nil {
			return fmt.Errorf("taking a free lock: %w", err)
		}
		if err := w.caller.unlock(ctx); err != nil {
			return fmt.Errorf("releasing a lock: %w", err)
		}
		now := time.Now()
		w.times = append(w.times, now.Sub(began))
		if !now.Before(end) {
			return nil
		}
	}
}
