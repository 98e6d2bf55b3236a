package changelog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// step is an event that happens once it can.
type step struct {
	name string
	can  func(*play) bool // nil: always
	do   func(*play)
}

// The parts of a scenario. The steps of each part run in order.
var (
	inFlight1 = func(p *play) bool { return !p.a1.done }
	owing1    = func(p *play) bool { return p.a1.failed }

	creates = []step{
		{"send", nil, func(p *play) { p.a1.send(p) }},
		{"serve", inFlight1, func(p *play) { p.a1.serve() }},
		{"reply", inFlight1, func(p *play) { p.a1.end(p, arrive) }},
		{"withdraw", owing1, func(p *play) { p.a1.withdraw(p) }},
	}
	isCutOff = []step{
		{"send", nil, func(p *play) { p.a1.send(p) }},
		{"give up", inFlight1, func(p *play) { p.a1.end(p, cut) }},
		{"withdraw", owing1, func(p *play) { p.a1.withdraw(p) }},
	}
	comesLate   = []step{{"serve late", func(p *play) bool { return p.a1.failed }, func(p *play) { p.a1.late(p) }}}
	others      = []step{{"another create", nil, func(p *play) { p.a2.send(p); p.a2.serve(); p.a2.end(p, arrive) }}}
	leaves      = []step{{"leave", func(p *play) bool { return slices.Contains(p.sentToClient, p.a1.order) && !p.a1.failed }, func(p *play) { p.must(p.a1.log.member.Leave(p.t.Context())) }}}
	readAtStart = []step{{"source read", func(p *play) bool { return p.reading }, (*play).endReading}}
	reads       = []step{
		{"A1 reads", nil, func(p *play) { p.must(unsure(p.a1.read(p))) }},
		{"A1 reads", nil, func(p *play) { p.must(unsure(p.a1.read(p))) }},
	}
	lookups = []step{{"lookup", nil, (*play).lookup}, {"lookup", nil, (*play).lookup}}
	source  = []step{
		{"source", func(p *play) bool { return p.doubted }, (*play).beginReading},
		{"source read", func(p *play) bool { return p.reading }, (*play).endReading},
	}
	leaseEnds     = []step{{"lease ends", nil, (*play).pass}}
	fails         = []step{{"replica lags", nil, (*play).freeze}, {"failover", nil, (*play).failover}}
	crashes       = []step{{"A1 starts again", nil, restart}}
	losesAll      = []step{{"all lost", nil, lose(0, 1, 2, 3)}}
	clockGoesBack = []step{{"clock back", nil, clockIsBack}}
)

type scenario struct {
	name  string
	parts [][]step
	cut   bool // A1 cannot read
}

func scenarios() []scenario {
	all := []scenario{
		{"create", [][]step{creates, others, lookups[:1], reads[:1]}, false},
		{"cut off", [][]step{isCutOff, leaseEnds, comesLate, lookups[:1]}, true},
		{"cut off, crash", [][]step{isCutOff, leaseEnds, crashes, lookups[:1], source}, true},
		{"crash while the source is read", [][]step{isCutOff, leaseEnds, crashes, lookups[:1], readAtStart}, true},
		{"cut off, all lost", [][]step{isCutOff, leaseEnds, losesAll, lookups[:1], source}, true},
		{"cut off, clock back", [][]step{isCutOff, leaseEnds, clockGoesBack, lookups[:1]}, true},
		{"cut off, failover", [][]step{isCutOff, fails, leaseEnds, lookups[:1]}, true},
		{"failover", [][]step{creates, fails, lookups[:1], reads[:1]}, false},
		{"failover, leave", [][]step{slices.Concat(creates[:3], leaves), fails, lookups[:1]}, true},
	}
	for i, key := range []string{"log", "meta", "members"} {
		gone := []step{{key + " lost", nil, lose(i)}}
		all = append(all,
			scenario{key + " lost", [][]step{creates, gone, lookups[:1], source}, false},
			scenario{"cut off, " + key + " lost", [][]step{isCutOff, leaseEnds, gone, lookups[:1], source}, true})
	}
	return all
}

// lose deletes keys, by their index in Log.keys.
func lose(keys ...int) func(*play) {
	return func(p *play) {
		for _, k := range keys {
			p.must(p.bed.plain.Del(p.t.Context(), p.a1.log.keys[k]).Err())
		}
	}
}

// clockIsBack sets the server's clock back by some seconds: all its former times were later.
func clockIsBack(p *play) {
	p.must(p.bed.plain.HSet(p.t.Context(), p.a1.log.keys[keyMeta], "now", time.Now().Add(10*time.Second).UnixMilli()).Err())
}

// restart ends A1 and starts it again with its instance ID.
func restart(p *play) {
	p.a1.stop()
	p.a1 = p.newSite("a1")
	p.a1.done = true // it has begun none
	p.cut = false
	p.must(unsure(p.a1.read(p)))
}

// search runs every schedule of a scenario until an order is Absent. It returns the number of
// schedules, and the failing one.
func (st *stage) search(t *testing.T, sc scenario) (plays int, absent string) {
	t.Helper()
	var path []int // the index of the part that continues, for each step
	for {
		p := newPlay(t, st)
		p.cut = sc.cut
		if slices.ContainsFunc(sc.parts, func(part []step) bool { return &part[0] == &readAtStart[0] }) {
			p.beginReading()
		}
		plays++
		at := make([]int, len(sc.parts))
		var widths []int
		var names []string
		for p.absent == nil {
			var can []int
			for i, part := range sc.parts {
				if at[i] < len(part) && (part[at[i]].can == nil || part[at[i]].can(p)) {
					can = append(can, i)
				}
			}
			if len(can) == 0 {
				break
			}
			depth := len(widths)
			if depth == len(path) {
				path = append(path, 0)
			}
			if path[depth] >= len(can) {
				t.Fatalf("%s: %v did not go as before", sc.name, names)
			}
			widths = append(widths, len(can))
			next := sc.parts[can[path[depth]]]
			s := next[at[can[path[depth]]]]
			names = append(names, s.name)
			at[can[path[depth]]]++
			s.do(p)
		}
		if p.absent == nil {
			p.finish()
		}
		p.cleanup()
		if p.absent != nil {
			return plays, fmt.Sprintf("%s; of %v", strings.Join(names, ", "), p.absent)
		}
		path = path[:len(widths)]
		for len(path) > 0 && path[len(path)-1]+1 == widths[len(path)-1] {
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			return plays, ""
		}
		path[len(path)-1]++
	}
}
