package main

import (
	"cmp"
	"fmt"
	"slices"
)

// quorumVotes is what the servers of a quorum say, by key: one report for each
// holder, with the servers that name it.
type quorumVotes map[string][]lockReport

func (v quorumVotes) add(r lockReport) {
	key := r.state.Key
	for i := range v[key] {
		if known := &v[key][i]; known.owner() == r.owner() {
			if !known.recorded() && r.recorded() { // a server may have missed what the holder wrote
				r.Servers, *known = append(known.Servers, r.Servers...), r
				return
			}
			known.Servers = append(known.Servers, r.Servers...)
			return
		}
	}
	v[key] = append(v[key], r)
}

// owner returns the whole name of the first holder, "" if there is none.
func (r *lockReport) owner() string {
	if len(r.state.Holders) == 0 {
		return ""
	}
	return r.state.Holders[0].Owner
}

// recorded reports whether the first holder has said who it is.
func (r *lockReport) recorded() bool { return len(r.Holders) > 0 && r.Holders[0].Recorded }

// majority returns the report that most servers agree on, nil if there is none.
func majority(reports []lockReport) *lockReport {
	if len(reports) == 0 {
		return nil
	}
	best := slices.MaxFunc(reports, func(a, b lockReport) int { return cmp.Compare(len(a.Servers), len(b.Servers)) })
	return &best
}

// quorumState says who holds a lock, from what each of its servers said: whoever
// has most of them.
func quorumState(reports []lockReport) string {
	votes, away := make(quorumVotes), 0
	for _, r := range reports {
		switch r.State {
		case stateHeld:
			votes.add(r)
		case stateUnreachable:
			away++
		}
	}
	all, most := len(reports), 0
	best := majority(votes[reports[0].state.Key])
	if best != nil {
		most = len(best.Servers)
	}
	switch {
	case 2*most > all:
		return fmt.Sprintf("held by %s on %d of %d servers", best.Holders[0].Owner, most, all)
	case 2*(most+away) > all:
		return fmt.Sprintf("not known: %d of %d servers do not answer", away, all)
	case most > 0:
		return fmt.Sprintf("free: no holder has more than %d of %d servers", most, all)
	}
	return "free"
}
