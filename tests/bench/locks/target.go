package main

import "github.com/ordergate/ordergate/tests/bench/benchmark"

// target is what we want to reach in one scenario.
type target struct {
	scenario string
	what     string
	metric   benchmark.Metric
	over     string // the peer that ours is divided by; "" for the figure itself
	target   benchmark.Target
}

var targets = []target{
	{"uncontended", "ops/s : bare go-redis", rate, nameGoRedis, benchmark.AtLeast(0.9)},
	{"uncontended", "allocations : redsync", allocs, nameRedsync, benchmark.AtMost(0.5)},
	{"distinct", "ops/s : bsm/redislock", rate, nameBSM, benchmark.AtLeast(2)},
	{"distinct", "ops/s : rueidislock", rate, nameRueidislock, benchmark.AtLeast(1.15)},
	{"distinct", "Redis CPU µs", redisCPU, "", benchmark.AtMost(12)},
	{"relay", "grants/s", grants, "", benchmark.AtLeast(440)},
	// A sleep of 2 ms takes longer, so the grants that are possible depend on the
	// machine; this is the same bound, 440 of 500, of the time that there is.
	{"relay", "% of the time in use", inUse, "", benchmark.AtLeast(88)},
	{"relay", "requests per grant", requests, "", benchmark.AtMost(5)},
	{"storm", "p99 wait : ideal", overIdeal, "", benchmark.AtMost(1.2)},
	{"storm", "granted", granted, "", benchmark.AtLeast(stormCallers)},
	{"tries", "granted", granted, "", benchmark.AtLeast(150)},
}

// targetTable says how far we are. Those that were not measured have no row.
func targetTable(all []results) benchmark.Table {
	t := benchmark.NewTargets(nameOurs)
	for _, r := range all {
		for _, want := range targets {
			if want.scenario != r.section.name {
				continue
			}
			values := r.Values(nameOurs, want.metric)
			if want.over != "" {
				values = r.Ratios(want.metric, nameOurs, want.over)
			}
			t.Add(r.section.title, want.what, want.target, values)
		}
	}
	return t.Table
}
