package main

import "fmt"

// target is what we want to reach: a figure of ours, or a ratio to a peer.
type target struct {
	section string
	metric  metric
	peer    string // "" for the figure itself
	atLeast bool   // else at most
	limit   float64
	from    int // IDs; below it nothing is asked for
}

var targets = []target{
	{"lookup", hitApart, nameBlobloomSync, true, 1, largeSize},
	{"lookup", hitTime, nameBlobloomSync, true, 1, largeSize},
	{"lookup", missTime, nameBlobloomSync, true, 1, largeSize},
	{"lookup", hitTime, nameBlobloomKey, true, 1, largeSize},
	{"lookup", missTime, nameBlobloomKey, true, 1, largeSize},
	{"lookup", hitTime, nameUnkeyed, true, 1.4, largeSize},
	{"lookup", missTime, nameUnkeyed, true, 1.4, largeSize},
	{"lookup", allocs, "", false, 0, 0},
	{"lookup", overFormula, "", false, 2, 0},
	{"build", buildRate, "", true, 3, 0},
	{"files", readTime, "", false, 1, largeSize},
}

// targetTable says how far we are. Those that were not measured have no row.
func targetTable(all []results) table {
	t := table{
		title: "Targets", note: "What ordergate's blocked layout is to reach, and whether it did in this run.",
		header: []string{"", "", "target", "here", "reached"},
	}
	for _, r := range all {
		for _, want := range targets {
			if want.section != r.section.name || r.section.n < want.from {
				continue
			}
			what, values := string(want.metric), r.values(nameBlocked, want.metric)
			if want.peer != "" {
				what, values = want.peer+"'s "+what+" : ours", r.ratios(want.metric, nameBlocked, want.peer)
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
				r.section.title, what, fmt.Sprintf("%s %.4g", bound, want.limit), fmt.Sprintf("%.2f", here), reached,
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
