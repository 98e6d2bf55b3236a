package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// metric is a column of a table.
type metric string

const (
	rate      metric = "ops/s" // an operation is a lock and its release
	p50Micros metric = "p50 µs"
	p99Micros metric = "p99 µs"
	p99Millis metric = "p99 ms"
	allocs    metric = "allocations"
	memory    metric = "bytes"
	clientCPU metric = "client CPU" // µs per operation
	redisCPU  metric = "Redis CPU"  // µs per operation
	requests  metric = "requests"   // to Redis, per operation
	grants    metric = "grants/s"
	inUse     metric = "in use"  // the part of the time in which somebody has the lock
	hold      metric = "hold ms" // mean
	gap       metric = "gap ms"  // median from the call of unlock to the next grant
	fewest    metric = "fewest turns"
	most      metric = "most turns"
	granted   metric = "granted"
	waitP50   metric = "p50 wait ms"
	waitP99   metric = "p99 wait ms"
	overIdeal metric = "p99 : ideal"
)

// sample is what one candidate showed in one round.
type sample map[metric]float64

// section is a scenario, and a table to be.
type section struct {
	name    string // for -scenarios
	title   string
	note    string
	metrics []metric
	versus  metric // which our share of is taken against each row; "" for none
	round   func(ctx context.Context, t turn) (sample, error)
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

// version returns that of Redis.
func (a *arena) version(ctx context.Context) string {
	text, _ := a.control.Info(ctx, "server").Result() // a Redis that is away fails the first round
	return infoField(text, "redis_version")
}

// spareTime bounds a round beyond its length: a storm that somebody sits out to
// the end of his patience, twice.
const spareTime = 30 * time.Second

// take gives one candidate its turn, on an empty Redis.
func (a *arena) take(ctx context.Context, s section, t turn) (sample, error) {
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

// results is what a section's candidates showed, by candidate and round.
type results struct {
	section section
	names   []string
	rounds  [][]sample
	broken  map[string]int // rounds in which a candidate let two in at a time
}

// mostBroken is how many rounds of another library are measured again since two
// callers held its lock at one time: that is its figure too.
const mostBroken = 20

// measure runs the rounds: the first through the proxy, untimed, to count
// requests, the others to Redis itself.
func (s section) measure(ctx context.Context, a *arena, who []candidate, set settings, progress io.Writer) (results, error) {
	r := results{section: s, rounds: make([][]sample, len(who)), broken: make(map[string]int)}
	counted := make([]float64, len(who))
	for i, c := range who {
		r.names = append(r.names, c.name)
		got, err := a.take(ctx, s, turn{c, a.proxy.addr(), min(set.length, time.Second), a.proxy})
		if err != nil {
			return r, err
		}
		counted[i] = got[requests]
	}
	for number := 1; number <= set.rounds; number++ {
		for i := range who {
			// Each begins a round in its turn, so that none is always right after the
			// same one.
			i = (i + number) % len(who)
			got, err := a.take(ctx, s, turn{who[i], a.addr, set.length, &usage{control: a.control}})
			for errors.Is(err, errTwoInside) && who[i].name != nameOurs && r.broken[who[i].name] < mostBroken {
				r.broken[who[i].name]++
				fmt.Fprintf(progress, "%v; again\n", err)
				got, err = a.take(ctx, s, turn{who[i], a.addr, set.length, &usage{control: a.control}})
			}
			if err != nil {
				return r, err
			}
			got[requests] = counted[i]
			fmt.Fprintf(progress, "%s: round %d of %d: %s: %s %s\n", s.name, number, set.rounds, who[i].name,
				s.metrics[0].text(got[s.metrics[0]]), s.metrics[0])
			r.rounds[i] = append(r.rounds[i], got)
		}
	}
	return r, nil
}

// values returns a metric in each round of a candidate, nil if there is none.
func (r results) values(name string, m metric) []float64 {
	i := slices.Index(r.names, name)
	if i < 0 {
		return nil
	}
	var values []float64
	for _, s := range r.rounds[i] {
		if v, ok := s[m]; ok {
			values = append(values, v)
		}
	}
	return values
}

// ratios returns in each round a metric of one candidate over that of another,
// nil if one of them is not there. The two were measured within seconds.
func (r results) ratios(m metric, over, under string) []float64 {
	a, b := r.values(over, m), r.values(under, m)
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return ratios
}

// median returns the middle of the values, which must not be empty, or the mean
// of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// percentile returns the smallest of the sorted durations that so many percent
// of them do not exceed, 0 if there are none.
func percentile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}
