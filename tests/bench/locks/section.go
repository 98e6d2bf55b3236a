package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// The columns of the tables.
var (
	rate      = benchmark.Metric{Name: "ops/s", Format: "%.0f"} // an operation is a lock and its release
	p50Micros = benchmark.Metric{Name: "p50 µs", Format: "%.0f"}
	p99Micros = benchmark.Metric{Name: "p99 µs", Format: "%.0f"}
	p99Millis = benchmark.Metric{Name: "p99 ms", Format: "%.2f"}
	allocs    = benchmark.Metric{Name: "allocations", Format: "%.1f"}
	memory    = benchmark.Metric{Name: "bytes", Format: "%.0f"}
	clientCPU = benchmark.Metric{Name: "client CPU", Format: "%.1f"} // µs per operation
	redisCPU  = benchmark.Metric{Name: "Redis CPU", Format: "%.1f"}  // µs per operation
	requests  = benchmark.Metric{Name: "requests", Format: "%.2f"}   // to Redis, per operation
	grants    = benchmark.Metric{Name: "grants/s", Format: "%.0f"}
	inUse     = benchmark.Metric{Name: "in use", Format: "%.0f%%"} // the part of the time in which somebody has the lock
	hold      = benchmark.Metric{Name: "hold ms", Format: "%.2f"}  // mean
	gap       = benchmark.Metric{Name: "gap ms", Format: "%.2f"}   // median from the call of unlock to the next grant
	fewest    = benchmark.Metric{Name: "fewest turns", Format: "%.0f"}
	most      = benchmark.Metric{Name: "most turns", Format: "%.0f"}
	granted   = benchmark.Metric{Name: "granted", Format: "%.0f"}
	waitP50   = benchmark.Metric{Name: "p50 wait ms", Format: "%.0f"}
	waitP99   = benchmark.Metric{Name: "p99 wait ms", Format: "%.0f"}
	overIdeal = benchmark.Metric{Name: "p99 : ideal", Format: "%.2f"}
)

// section is a scenario, and a table to be.
type section struct {
	name    string // for -scenarios
	title   string
	note    string
	metrics []benchmark.Metric
	versus  benchmark.Metric // which our share of is taken against each row; zero for none
	round   func(ctx context.Context, t turn) (benchmark.Sample, error)
}

// turn is one candidate's turn in a round.
type turn struct {
	candidate candidate
	addr      string // of Redis, or of the proxy before it
	length    time.Duration
	meter     meter // runs while the scenario does, warming up excluded
}

// sections returns all scenarios.
func sections() []section {
	return []section{uncontended(), distinct(), relay(), storm(), tries()}
}

// arena is the Redis that all share, and what is needed around it.
type arena struct {
	addr    string
	control *redis.Client
	proxy   *proxy
}

func newArena(addr string) (*arena, error) {
	p, err := newProxy(addr)
	if err != nil {
		return nil, err
	}
	return &arena{addr, redis.NewClient(&redis.Options{Addr: addr}), p}, nil
}

func (a *arena) close() {
	a.proxy.close()
	a.control.Close()
}

// spareTime bounds a round beyond its length: a storm that somebody sits out to
// the end of his patience, twice.
const spareTime = 30 * time.Second

// take gives one candidate its turn, on an empty Redis.
func (a *arena) take(ctx context.Context, s section, t turn) (benchmark.Sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.length+spareTime, errors.New("the round took too long"))
	defer cancel()
	if err := a.control.FlushAll(ctx).Err(); err != nil {
		return nil, fmt.Errorf("emptying Redis: %w", err)
	}
	got, err := s.round(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("measuring %s, %s: %w", t.candidate.name, s.name, err)
	}
	return got, nil
}

// results is what a section's candidates showed.
type results struct {
	benchmark.Results
	section section
}

// measure runs the rounds: the first through the proxy, untimed, to count
// requests, the others to Redis itself.
func (s section) measure(ctx context.Context, a *arena, who []candidate, set settings, progress io.Writer) (results, error) {
	r := results{section: s}
	r.Rounds = make([][]benchmark.Sample, len(who))
	counted := make([]float64, len(who))
	for i, c := range who {
		r.Names = append(r.Names, c.name)
		got, err := a.take(ctx, s, turn{c, a.proxy.addr(), min(set.length, time.Second), a.proxy})
		if err != nil {
			return r, err
		}
		counted[i] = got[requests]
	}
	for number := 1; number <= set.Rounds; number++ {
		for _, i := range benchmark.Turns(number, len(who)) {
			got, err := a.take(ctx, s, turn{who[i], a.addr, set.length, &usage{control: a.control}})
			if err != nil {
				return r, err
			}
			got[requests] = counted[i]
			fmt.Fprintf(progress, "%s: round %d of %d: %s: %s %s\n", s.name, number, set.Rounds, who[i].name,
				s.metrics[0].Text(got[s.metrics[0]]), s.metrics[0].Name)
			r.Rounds[i] = append(r.Rounds[i], got)
		}
	}
	return r, nil
}
