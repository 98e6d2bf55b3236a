package faults

import (
	"context"
	"flag"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const (
	perFault   = 10_000           // creates, in the long form
	stormLong  = 60 * time.Second // in the long form
	stormShort = 6 * time.Second
)

// onlyFault leaves out the others.
var onlyFault = flag.String("fault", "", "regular expression: which faults to try, of TestNoAcknowledgedOrderIsAbsent")

// chosen returns those that were asked for.
func chosen(faults []fault) []fault {
	want := regexp.MustCompile(*onlyFault)
	return slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return !want.MatchString(f.name) })
}

// TestNoAcknowledgedOrderIsAbsent has clients create orders through four sidecars and
// look them up through others, while everything that these stand on breaks in turn,
// and then at random together. Nobody may be told that an order is absent of which a
// client had been told before the question was sent. The sidecars must not get out of
// it by being certain of nothing: after each fault they have to be certain again soon.
func TestNoAcknowledgedOrderIsAbsent(t *testing.T) {
	clocks := newClocks(t)
	database := bedtest.New(t).MariaDB()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		bed := bedtest.New(t)
		server := bed.Redis(append(onlySidecars, "--appendonly", "yes")...)
		f := newFleet(t, bed, fleetOptions{database: database, table: "single", freshness: "window", nodes: []*testbed.Redis{server}})
		servers := f.singleFaults(server, clocks)
		f.endure(append(f.placeFaults(), servers...), servers)
	})
	t.Run("failover", func(t *testing.T) {
		t.Parallel()
		bed := bedtest.New(t)
		s := bed.Sentinel(onlySidecars...)
		f := newFleet(t, bed, fleetOptions{database: database, table: "failover", freshness: "window", nodes: s.Nodes(), sentinel: s})
		replacing := failovers{f, s}.faults()
		f.endure(replacing, append(f.redisFaults(clocks, failovers{f, s}.current), replacing...))
	})
	t.Run("freshness none", func(t *testing.T) {
		bed := bedtest.New(t)
		server := bed.Redis(onlySidecars...)
		f := newFleet(t, bed, fleetOptions{database: database, table: "none", freshness: "none", nodes: []*testbed.Redis{server}})
		l, stop := startLoad(t, f, func(acked, *place, time.Time, time.Time) {})
		bedtest.Eventually(t, "an order is called absent of which a client was told", func() bool { return l.wrong.Load() > 0 })
		stop()
		f.close()
		t.Log(l.figures())
	})
}

// endure does each of the faults, and then random ones together, of which the servers'
// are one at a time.
func (f *fleet) endure(faults, servers []fault) {
	t := f.t
	t.Helper()
	faults, servers = chosen(faults), chosen(servers)
	r := newRand(t)
	l, stop := startLoad(t, f, f.violated())
	f.mustRecover("the start")
	long := stormShort
	if soak {
		long = stormLong
		f.wear(l, r, faults)
	} else {
		for _, i := range r.Perm(len(faults)) {
			faults[i].do(t.Context(), r)
			t.Logf("certain again %v after %s", f.mustRecover(faults[i].name), faults[i].name)
		}
	}
	storm, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	f.storm(storm, rand.New(rand.NewPCG(r.Uint64(), 0)), servers)
	f.mustRecover("the storm")
	stop()
	f.close()
	t.Log(l.figures())
	t.Log(f.diary.counts())
}

// wear has each kind of fault happen again and again, until clients have created so
// many orders meanwhile.
func (f *fleet) wear(l *load, r *rand.Rand, faults []fault) {
	f.t.Helper()
	kinds := make(map[string][]fault)
	for _, what := range faults {
		kinds[what.kind()] = append(kinds[what.kind()], what)
	}
	ctx := f.t.Context()
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for until := l.created.Load() + perFault; l.created.Load() < until; wait(ctx, between(r, 0, time.Second)) {
			these := kinds[kind]
			these[r.IntN(len(these))].do(ctx, r)
			// The next one comes sometimes sooner than that, and sometimes to those who are
			// certain.
			if r.IntN(2) == 0 {
				f.mustRecover(kind)
			}
		}
		f.mustRecover(kind)
		f.t.Logf("%s: %s", kind, l.figures())
	}
}

// violated returns what to do about an order that was wrongly called absent.
func (f *fleet) violated() func(o acked, at *place, asked, answered time.Time) {
	var seen atomic.Int64
	const whole, told = 1, 20
	return func(o acked, at *place, asked, answered time.Time) {
		switch n := seen.Add(1); {
		case f.store.tookLong(o.id):
			f.t.Logf("order %d was called absent: its transaction took longer than %v", o.id, overlap)
		case n > told: // it is known by now
		case n > whole:
			f.t.Errorf("%s called order %d absent, asked at %s; %s had created it, and a client was told of it at %s",
				at, o.id, clockTime(asked), o.by, clockTime(o.told))
		default:
			f.t.Errorf("%s called order %d absent, asked at %s, answered at %s; %s had created it, and a client was told of it at %s\n%s%s  logs: %s",
				at, o.id, clockTime(asked), clockTime(answered), o.by, clockTime(o.told), f.diary.around(answered), f.states(), f.keepLogs())
		}
	}
}
