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
	relayCallers = 20
	relayHold    = 2 * time.Millisecond
	relayWait    = 10 * time.Second
	oneKey       = "order:lock:1001"
)

const relayNote = `%d callers of one process want one lock, again and again, and keep it for %v. The
releasing caller pauses until another caller has had the lock: most candidates would give
it back to the same caller, and the others starve. With nothing lost between a release and the
next grant there would be %d grants a second, less what a sleep takes too long; "in
use" is the share of the time in which a caller had the lock. A gap is from the call of the
release to the next grant, the median.`

func relay() section {
	return section{
		name: "relay", title: "Relay",
		note:    fmt.Sprintf(relayNote, relayCallers, relayHold, time.Second/relayHold),
		metrics: []benchmark.Metric{grants, inUse, hold, gap, requests, fewest, most},
		versus:  grants,
		round:   relayRound,
	}
}

func relayRound(ctx context.Context, t turn) (benchmark.Sample, error) {
	in, err := t.candidate.open(t.addr, patience{upTo: relayWait})
	if err != nil {
		return nil, err
	}
	defer in.close()
	var all []*runner
	for range relayCallers {
		all = append(all, &runner{caller: in.caller()})
	}
	// On another key: an attempt that is cut off by the end of the warm-up leaves
	// the lock taken with some candidates.
	if err := runRelay(ctx, all, &holdings{}, "order:lock:warm-up", t.length/warmUp); err != nil {
		return nil, err
	}
	for _, r := range all {
		r.turns = 0
	}
	if err := t.meter.start(ctx); err != nil {
		return nil, err
	}
	h, got := &holdings{}, benchmark.Sample{}
	if err := runRelay(ctx, all, h, oneKey, t.length); err != nil {
		return nil, err
	}
	if err := t.meter.stop(ctx, max(1, h.grants), got); err != nil {
		return nil, err
	}
	turns := func(a, b *runner) int { return a.turns - b.turns }
	got[fewest] = float64(slices.MinFunc(all, turns).turns)
	got[most] = float64(slices.MaxFunc(all, turns).turns)
	return got, h.add(got, t.length)
}

// runner is a caller of the relay.
type runner struct {
	caller caller
	turns  int
}

// runRelay has them run for so long, and waits until the last has stopped.
func runRelay(ctx context.Context, all []*runner, h *holdings, key string, length time.Duration) error {
	// The key's connection, where keys have one, is not to be made by who has no
	// time for it.
	if err := all[0].caller.lock(ctx, key); err != nil {
		return fmt.Errorf("taking a free lock: %w", err)
	}
	if err := all[0].caller.unlock(ctx); err != nil {
		return fmt.Errorf("releasing a lock: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	// The releases of the last moment are not to be cut off.
	running, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	for _, r := range all {
		group.Go(func() error { return r.run(running, ctx, h, key) })
	}
	return group.Wait()
}

func (r *runner) run(running, ctx context.Context, h *holdings, key string) error {
	for running.Err() == nil {
		err := r.caller.lock(running, key)
		switch {
		case err == nil:
		case gaveUp(running, err):
			continue
		default:
			return fmt.Errorf("waiting for a lock: %w", err)
		}
		if running.Err() != nil { // too late to count
			_ = r.caller.unlock(ctx)
			return nil
		}
		since, passed := time.Now(), h.enter()
		r.turns++
		time.Sleep(relayHold)
		h.leave(since)
		// A candidate whose lock ends with the context has released it by then.
		if err := r.caller.unlock(ctx); err != nil && running.Err() == nil {
			return fmt.Errorf("releasing a lock: %w", err)
		}
		select {
		case <-passed:
		case <-running.Done():
		}
	}
	return nil
}
