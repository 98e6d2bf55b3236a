package lockreport

import (
	"cmp"
	"fmt"
	"slices"
)

// quorumVotes holds the reports of the servers of a quorum by key. Each holder has one
// report, with the servers that name this holder.
type quorumVotes map[string][]Lock

func (v quorumVotes) add(r Lock) {
	key := r.state.Key
	for i := range v[key] {
		if known := &v[key][i]; known.owner() == r.owner() {
			if !known.recorded() && r.recorded() { // a server may lack the holder's record
				r.Servers, *known = append(known.Servers, r.Servers...), r
				return
			}
			known.Servers = append(known.Servers, r.Servers...)
			return
		}
	}
	v[key] = append(v[key], r)
}

// owner returns the whole owner of the first holder, or "" without a holder.
func (r *Lock) owner() string {
	if len(r.state.Holders) == 0 {
		return ""
	}
	return r.state.Holders[0].Owner
}

// recorded reports whether the first holder left a record.
func (r *Lock) recorded() bool { return len(r.Holders) > 0 && r.Holders[0].Recorded }

// majority returns the report with the most servers, or nil without reports. That may be
// less than half of the servers.
func majority(reports []Lock) *Lock {
	if len(reports) == 0 {
		return nil
	}
	best := slices.MaxFunc(reports, func(a, b Lock) int { return cmp.Compare(len(a.Servers), len(b.Servers)) })
	return &best
}

// quorumState describes the holder of a lock from the reports of all of its servers. A holder
// needs more than half of them.
func quorumState(reports []Lock) string {
	votes, away := make(quorumVotes), 0
	for _, r := range reports {
		switch r.State {
		case StateHeld:
			votes.add(r)
		case StateUnreachable:
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
