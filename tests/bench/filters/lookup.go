package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

const (
	// askedIDs is how many different IDs a round asks for, at random: with their
	// memory read in order, and that of the set not.
	askedIDs = 1 << 17
	// rateAsks is for 2,000 false positives, 2.2% of which are chance.
	rateAsks = 2_000_000
)

// requestWork is what stands for the rest of a request: 300 multiplications, each
// of which needs the one before, take about 300 ns, and as instructions they are
// more than any CPU looks ahead.
const requestWork = 300

const lookupNote = `CPU time per question, one goroutine, IDs as decimal strings at random. Hits and
misses are asked in a row: while the memory answers one the CPU goes on to the next,
the further the cheaper the hash. "apart" is how a sidecar asks: there is other work
between two questions, whose time is subtracted. False positives are of %s
absent IDs, memory beside the candidate's own formula.`

func lookupSection(n int) section {
	return section{
		name: "lookup", title: fmt.Sprintf("Lookups, %s IDs", count(n)), note: fmt.Sprintf(lookupNote, count(rateAsks)), n: n,
		metrics: []benchmark.Metric{hitTime, missTime, hitApart, allocs, bytesPerID, overFormula, falsePositives},
		versus:  []benchmark.Metric{hitTime, missTime, hitApart},
	}
}

func lookups(ctx context.Context, n int, sets []entrant, rounds int, progress io.Writer) (results, error) {
	r := newResults(lookupSection(n), names(sets))
	asked := min(askedIDs, n)
	random := func(round, i int) int { return int(scatter(uint64(round)<<32+uint64(i)) % uint64(n)) }
	constant := make([]benchmark.Sample, len(sets))
	for i, e := range sets {
		takes, formula := e.set.bytes(n)
		constant[i] = benchmark.Sample{bytesPerID: float64(takes) / float64(n)}
		if formula > 0 {
			constant[i][overFormula] = 100 * (float64(takes)/float64(formula) - 1)
		}
	}
	passed := make([]int, len(sets))
	total := min(rateAsks, 20*n)
	for at := 0; at < total; at += askedIDs {
		// Numbers beyond all orders': the same number asked for twice counts once.
		ids := texts(min(askedIDs, total-at), func(i int) uint64 { return 10_000_000_000_000 + uint64(at+i) })
		for i, e := range sets {
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			for _, id := range ids {
				if e.set.has(id) {
					passed[i]++
				}
			}
		}
	}
	for round := range rounds {
		hits := texts(asked, func(i int) uint64 { return idOf(random(3*round, i)) })
		misses := texts(asked, func(i int) uint64 { return absentOf(random(3*round+1, i)) })
		// Others, or a large set's answers would be in the cache already.
		warm := texts(asked, func(i int) uint64 { return idOf(random(3*round+2, i)) })
		for _, i := range benchmark.Turns(round, len(sets)) {
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			s, err := ask(sets[i], warm, hits, misses)
			if err != nil {
				return r, err
			}
			for m, v := range constant[i] {
				s[m] = v
			}
			s[falsePositives] = 100 * float64(passed[i]) / float64(total)
			r.Rounds[i] = append(r.Rounds[i], s)
		}
		fmt.Fprintf(progress, "%d IDs: lookups: round %d of %d\n", n, round+1, rounds)
	}
	return r, nil
}

// ask has one candidate answer in its turn.
func ask(e entrant, warm, hits, misses []string) (benchmark.Sample, error) {
	// A thread of our own, whose CPU time is nobody else's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set := e.set
	found := 0
	inARow := func(ids []string) func() {
		return func() {
			found = 0
			for _, id := range ids {
				if set.has(id) {
					found++
				}
			}
		}
	}
	s := benchmark.Sample{}
	var before, after runtime.MemStats
	runtime.GC()
	inARow(warm)() // a small set is all in the cache then
	runtime.ReadMemStats(&before)
	for _, part := range []struct {
		metric benchmark.Metric
		ids    []string
		do     func()
		gone   bool // an ID that is not found is lost
	}{
		{hitTime, hits, inARow(hits), true},
		{missTime, misses, inARow(misses), false},
		{hitApart, hits, func() { found = apart(set, hits) }, true},
	} {
		took, err := timed(part.do)
		if err != nil {
			return nil, err
		}
		if part.gone && found != len(part.ids) {
			return nil, fmt.Errorf("asking %s: %d of %d IDs are gone", e.name, len(part.ids)-found, len(part.ids))
		}
		s[part.metric] = float64(took.Nanoseconds()) / float64(len(part.ids))
	}
	runtime.ReadMemStats(&after)
	idle, err := timed(func() { apart(all{}, hits) })
	if err != nil {
		return nil, err
	}
	s[hitApart] -= float64(idle.Nanoseconds()) / float64(len(hits))
	s[allocs] = float64((after.Mallocs-before.Mallocs)/uint64(len(hits))) / 3 // whole ones: the runtime has some of its own
	return s, nil
}

// apart asks with work between the questions.
func apart(set set, ids []string) (found int) {
	x := uint64(found)
	for _, id := range ids {
		x = work(x)
		if set.has(id) {
			found++
		}
	}
	runtime.KeepAlive(x)
	return found
}

// all is a set that knows everything at no cost.
type all struct{}

func (all) add([]string) error         { return nil }
func (all) has(string) bool            { return true }
func (all) bytes(int) (uint64, uint64) { return 0, 0 }

//go:noinline
func work(x uint64) uint64 {
	for range requestWork {
		x = x*0x9e3779b97f4a7c15 + 1
	}
	return x
}

func timed(do func()) (time.Duration, error) {
	before, err := threadCPU()
	if err != nil {
		return 0, err
	}
	do()
	after, err := threadCPU()
	return after - before, err
}
