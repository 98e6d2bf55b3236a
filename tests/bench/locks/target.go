package main

import "fmt"

// target is what we want to reach in one scenario.
type target struct {
	scenario string
	what     string
	metric   metric
	over     string // the peer that ours is divided by; "" for the figure itself
	atLeast  bool   // else at most
	limit    float64
}

var targets = []target{
	{"uncontended", "ops/s : bare go-redis", rate, nameGoRedis, true, 0.9},
	{"uncontended", "allocations : redsync", allocs, nameRedsync, false, 0.5},
	{"distinct", "ops/s : bsm/redislock", rate, nameBSM, true, 2},
	{"distinct", "ops/s : rueidislock", rate, nameRueidislock, true, 1.1},
	{"relay", "grants/s", grants, "", true, 440},
	// A sleep of 2 ms takes longer, so the grants that are possible depend on the
	// machine; this is the same bound, 440 of 500, of the time that there is.
	{"relay", "% of the time in use", inUse, "", true, 88},
	{"relay", "requests per grant", requests, "", false, 5},
	{"storm", "p99 wait : ideal", overIdeal, "", false, 1.2},
	{"storm", "granted", granted, "", true, stormCallers},
	{"tries", "granted", granted, "", true, 150},
}

// targetTable says how far we are. Those that were not measured have no row.
func targetTable(all []results) table {
	t := table{
		title: "Targets", note: "What ordergate is to reach, and whether it did in this run.",
		header: []string{"", "", "target", "here", "reached"},
	}
	for _, r := range all {
		for _, want := range targets {
			if want.scenario != r.section.name {
				continue
			}
			values := r.values(nameOurs, want.metric)
			if want.over != "" {
				values = r.ratios(want.metric, nameOurs, want.over)
			}
			if len(values) == 0 {
				continue
			}
			here, reached, bound := median(values), "no", "at most"
			if want.atLeast {
				bound = "at least"
			}
			if want.reached(here) {
				reached = "yes"
			}
			t.rows = append(t.rows, []string{
				r.section.title, want.what, fmt.Sprintf("%s %.4g", bound, want.limit), fmt.Sprintf("%.2f", here), reached,
			})
		}
	}
	return t
}

func (t target) reached(v float64) bool {
	if t.atLeast {
		return v >= t.limit
	}
	return v <= t.limit
}
