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
	stormInstances = 10
	stormEach      = 50 // callers of an instance
	stormCallers   = stormInstances * stormEach
	stormHold      = time.Millisecond
	stormWait      = 10 * time.Second
	stormTries     = 3
	stormEvery     = 100 * time.Millisecond
)

const stormNote = `%d instances with %d callers each, all at once, want one lock once for %v, and
wait for it up to %v. The ideal is a hold for each, one right after the other; the
hold is what was measured, as a sleep of %[3]v takes longer than that. Waits are of
those who got the lock.`

func storm() section {
	return section{
		name: "storm", title: "Storm",
		note:    fmt.Sprintf(stormNote, stormInstances, stormEach, stormHold, stormWait),
		metrics: []benchmark.Metric{granted, waitP50, waitP99, hold, overIdeal, requests},
		round: func(ctx context.Context, t turn) (benchmark.Sample, error) {
			return stormRound(ctx, t, patience{upTo: stormWait}, stormWait)
		},
	}
}

const triesNote = `The same, but each caller tries %d times, %v apart, and gives up. ordergate's tries
are ended early by a release, and rueidislock has no tries but a wait, here of
%v: these two use the time between.`

func tries() section {
	wait := (stormTries - 1) * stormEvery
	return section{
		name: "tries", title: "Storm, few tries",
		note:    fmt.Sprintf(triesNote, stormTries, stormEvery, wait),
		metrics: []benchmark.Metric{granted, waitP50, waitP99, hold, requests},
		round: func(ctx context.Context, t turn) (benchmark.Sample, error) {
			return stormRound(ctx, t, patience{tries: stormTries, every: stormEvery}, stormWait)
		},
	}
}

// stormRound lets a storm loose. No caller waits longer than upTo.
func stormRound(ctx context.Context, t turn, p patience, upTo time.Duration) (benchmark.Sample, error) {
	var all []*stormer
	for range stormInstances {
		in, err := t.candidate.open(t.addr, p)
		if err != nil {
			return nil, err
		}
		defer in.close()
		for range stormEach {
			all = append(all, &stormer{caller: in.caller()})
		}
	}
	// One of each instance, on another key: so all have connected, and know how to
	// wait.
	var first []*stormer
	for i := range stormInstances {
		first = append(first, &stormer{caller: all[i*stormEach].caller})
	}
	if err := letLoose(ctx, first, &holdings{}, "order:lock:warm-up", upTo); err != nil {
		return nil, err
	}
	if err := t.meter.start(ctx); err != nil {
		return nil, err
	}
	h, got := &holdings{}, benchmark.Sample{}
	start := time.Now()
	if err := letLoose(ctx, all, h, oneKey, upTo); err != nil {
		return nil, err
	}
	took := time.Since(start)
	if err := t.meter.stop(ctx, max(1, h.grants), got); err != nil {
		return nil, err
	}
	var waits []time.Duration
	for _, s := range all {
		if s.granted {
			waits = append(waits, s.waited)
		}
	}
	slices.Sort(waits)
	got[waitP50], got[waitP99] = millis(benchmark.Percentile(waits, 50)), millis(benchmark.Percentile(waits, 99))
	if err := h.add(got, took); err != nil {
		return nil, err
	}
	if got[hold] > 0 {
		got[overIdeal] = got[waitP99] / (stormCallers * got[hold])
	}
	return got, nil
}

// stormer is a caller of a storm.
type stormer struct {
	caller  caller
	granted bool
	waited  time.Duration
}

// letLoose has all want the lock at the same moment, and waits for them.
func letLoose(ctx context.Context, all []*stormer, h *holdings, key string, upTo time.Duration) error {
	group, ctx := errgroup.WithContext(ctx)
	start := make(chan struct{})
	for _, s := range all {
		group.Go(func() error {
			<-start
			return s.want(ctx, h, key, upTo)
		})
	}
	close(start)
	return group.Wait()
}

func (s *stormer) want(ctx context.Context, h *holdings, key string, upTo time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, upTo)
	defer cancel()
	began := time.Now()
	if err := s.caller.lock(waiting, key); err != nil {
		if gaveUp(waiting, err) {
			return nil
		}
		return fmt.Errorf("waiting for a lock: %w", err)
	}
	since := time.Now()
	s.granted, s.waited = true, since.Sub(began)
	_ = h.enter()
	time.Sleep(stormHold)
	h.leave(since)
	if err := s.caller.unlock(ctx); err != nil && waiting.Err() == nil {
		return fmt.Errorf("releasing a lock: %w", err)
	}
	return nil
}
