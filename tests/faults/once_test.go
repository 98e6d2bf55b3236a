package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// moment is a step of a call whose answer is stored.
type moment int

const (
	beforeGrant moment = iota // the script that acquires the lock was sent
	afterGrant                // Redis has granted it, and its reply is on the way
	atWork                    // the backend has the call
	afterEffect               // the backend has paid, and not answered
	beforeStore               // the script that stores the answer was sent
	afterStore                // Redis has stored it, and its reply is on the way
	inReplay                  // the call is a repeat, and Redis's reply with the answer is on the way
	moments
)

func (m moment) String() string {
	return [...]string{"before the grant", "after the grant", "at work", "after the effect", "before it is stored",
		"after it is stored", "in a replay"}[m]
}

// onceFault is what dies, and what docs/once.md says of it.
type onceFault struct {
	name string
	// do is called at the moment, while the call is held up, and over when it goes on again.
	do, over func(*onceRun)
	// drops says that what is held up at the wire is lost.
	drops bool
	want  [moments]onceWant
}

// onceWant is what the client may get, and how often the backend has paid once a repeat was
// answered. A client that got its answer gets that again if the backend has paid once.
type onceWant struct {
	statuses []int
	effects  int
	unknown  int // effects, if the client got no answer and the outcome is unknown
}

func once(statuses []int) onceWant  { return onceWant{statuses, 1, 1} }
func twice(statuses []int) onceWant { return onceWant{statuses, 2, 2} }

// onceRun is one call, and the fault in it.
type onceRun struct {
	*onceSite
	primary *primary
	at      moment
	what    purchase
	held    *stop
	leave   context.CancelFunc // of the client
}

var (
	noAnswer = []int{0}
	whole    = []int{http.StatusOK}
	refused  = []int{http.StatusServiceUnavailable}
	either   = []int{http.StatusOK, http.StatusServiceUnavailable}
	broken   = []int{0, http.StatusServiceUnavailable}
)

// onceFaults are the rows of the table in docs/once.md. Two effects are an unknown outcome, or
// a Redis that has lost what it had.
var onceFaults = []onceFault{
	{
		name: "client", do: func(r *onceRun) {
			r.leave()
			bedtest.Eventually(r.t, "Envoy has no request any more", func() bool {
				const active = "http.orders.downstream_rq_active"
				stats, err := r.envoy.Stats(r.t.Context(), active)
				return err == nil && stats[active] == 0
			})
		},
		want: [...]onceWant{once(noAnswer), once(noAnswer), twice(noAnswer), twice(noAnswer), once(noAnswer), once(noAnswer), once(noAnswer)},
	},
	{
		name: "backend", do: func(r *onceRun) {
			r.held.abort = true
			r.backend.kill()
		},
		over: func(r *onceRun) { r.backend.revive() },
		want: [...]onceWant{once(refused), once(refused), once(refused), twice(refused), once(whole), once(whole), once(whole)},
	},
	{
		name: "ordergate", drops: true,
		do:   func(r *onceRun) { r.gate.Kill() },
		over: func(r *onceRun) { r.restart() },
		want: [...]onceWant{once(broken), once(broken), twice(broken), twice(broken), twice(broken), once(broken), once(broken)},
	},
	{
		name: "connection to Redis", drops: true,
		do:   func(r *onceRun) { r.wire.cut() },
		want: [...]onceWant{once(whole), once(whole), once(whole), once(whole), once(whole), once(whole), once(whole)},
	},
	{
		name: "primary of Redis", drops: true,
		do: func(r *onceRun) {
			r.primary.detach()
			r.primary.failOver()
		},
		over: func(r *onceRun) { r.primary.replicate() },
		want: [...]onceWant{once(either), once(either), once(whole), once(whole), once(whole), once(whole), once(either)},
	},
	{
		name: "primary of Redis, without its last writes",
		do:   func(r *onceRun) { r.primary.detach() },
		over: func(r *onceRun) {
			r.primary.failOver()
			r.primary.replicate()
		},
		want: [...]onceWant{twice(whole), twice(whole), twice(whole), twice(whole), twice(whole), once(whole), once(whole)},
	},
	{
		name: "Redis with its data", drops: true,
		do: func(r *onceRun) { r.primary.empty() },
		over: func(r *onceRun) {
			if r.at == beforeStore { // there is no lock, so a repeat pays until the answer is there
				bedtest.Eventually(r.t, "the answer is stored", func() bool { return r.primary.has(r.what) })
			}
		},
		want: [...]onceWant{
			once(either), once(either),
			{either, 1, 2}, {either, 1, 2}, // the loss of the lease may be noticed
			once(whole), once(whole), twice(either),
		},
	},
}

// TestOnceFaults kills each part at each step of calls whose answers are stored, by the order
// and by an Idempotency-Key, and repeats them until they are answered.
func TestOnceFaults(t *testing.T) {
	t.Parallel()
	for _, module := range []bool{false, true} {
		t.Run(attached(module), func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			redis := bed.Redis()
			site := newOnceSite(t, bed, module, redis.Addr(), newPayments(t))
			primary := newPrimary(site, redis)
			faults := onceFaults
			if soak {
				faults = slices.Repeat(onceFaults, 5)
			}
			for i, f := range faults {
				var later []func()
				for m := range moments {
					for _, byKey := range []bool{false, true} {
						if odd := (i+int(m))%2 == 1; !soak && byKey != (odd != module) {
							continue // the other attachment has it
						}
						if repeat := site.fault(primary, f, m, byKey); repeat != nil {
							later = append(later, repeat)
						}
					}
				}
				var all sync.WaitGroup
				for _, repeat := range later {
					all.Go(repeat)
				}
				all.Wait()
				if t.Failed() {
					t.Fatalf("with the fault of: %s", f.name)
				}
			}
		})
	}
}

func attached(module bool) string {
	if module {
		return "module"
	}
	return "sidecar"
}

// fault has one call with a fault in it, and then repeats it. For a call that stays locked for a
// while, it returns what repeats it.
func (s *onceSite) fault(p *primary, f onceFault, m moment, byKey bool) (later func()) {
	s.t.Helper()
	for _, warm := range []bool{false, true} { // all have started, and Redis knows the scripts
		s.insist(s.next(warm))
	}
	r := &onceRun{onceSite: s, primary: p, at: m, what: s.next(byKey)}
	if m == inReplay {
		s.insist(r.what)
	}
	switch m {
	case atWork, afterEffect:
		r.held = s.backend.hold(m == afterEffect)
	default:
		r.held = s.holdUp(m, f.drops)
	}
	ctx, leave := context.WithCancel(s.t.Context())
	defer leave()
	r.leave = leave
	first := make(chan result, 1)
	go func() { first <- s.post(ctx, r.what) }()
	bedtest.Receive(s.t, fmt.Sprint("a call is ", m), r.held.reached)
	f.do(r)
	r.held.let()
	got := bedtest.Receive(s.t, "the first call ends", first)
	s.wire.set(nil)
	if f.over != nil {
		f.over(r)
	}
	want := f.want[m]
	name := fmt.Sprintf("%s dies %s, %s", f.name, m, r.what.name())
	if !slices.Contains(want.statuses, got.status) {
		s.t.Errorf("%s: the client got %d %s, want %v", name, got.status, got.verdict, want.statuses)
	}
	check := func(again result) {
		effects := s.backend.of(r.what.name())
		pays := want.effects
		if got.status != http.StatusOK {
			pays = want.unknown
		}
		if effects != pays {
			s.t.Errorf("%s: paid %d times, want %d", name, effects, pays)
		}
		if got.status == http.StatusOK && effects == 1 && (again.verdict != "replayed" || again.body != got.body) {
			s.t.Errorf("%s: the client got %s, and then %s %s", name, got.body, again.verdict, again.body)
		}
		s.t.Logf("%s: the client got %d, and later %q; paid %d times", name, got.status, again.verdict, effects)
	}
	again := s.post(s.t.Context(), r.what)
	switch again.status {
	case http.StatusOK:
		check(again)
	case http.StatusConflict:
		return func() { check(s.insist(r.what)) }
	default:
		check(s.insist(r.what))
	}
	return nil
}

// TestOnceCrowd has 500 callers of one order and of one key at once, at an ordergate beside
// Envoy and at one inside, while answers of Redis get lost.
func TestOnceCrowd(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis, backend := bed.Redis(), newPayments(t)
	sites := []*onceSite{newOnceSite(t, bed, false, redis.Addr(), backend), newOnceSite(t, bed, true, redis.Addr(), backend)}
	random := newRand(t)
	for _, s := range sites {
		s.insist(s.next(false))
	}
	for i, what := range []purchase{{path: "/orders/1000/settle"}, {"/payments", "crowd"}, {path: "/orders/1001/settle"}, {"/payments", "crowd-2"}} {
		if i >= 2 {
			l := &loser{about: "ordergate_once:", lose: 1 + random.IntN(20)}
			for _, s := range sites {
				s.wire.set(l.plan)
			}
		}
		const callers = 500
		answers := make(chan result, callers)
		begin := make(chan struct{})
		for n := range callers {
			go func() {
				<-begin
				answers <- sites[n%2].post(t.Context(), what)
			}()
		}
		working := backend.hold(true)
		close(begin)
		bedtest.Receive(t, "one is let in", working.reached)
		wait(t.Context(), 50*time.Millisecond) // most of the others ask meanwhile
		working.let()
		count := make(map[string]int)
		for range callers {
			a := <-answers
			count[fmt.Sprint(a.status, " ", a.verdict)]++
			if a.status == http.StatusOK {
				if wrong := backend.check(what.name(), a.body); wrong != "" {
					t.Error(wrong)
				}
			}
		}
		t.Logf("%s: %v", what.name(), count)
		others := callers - count["200 "] - count["200 replayed"] - count["409 busy"] - count["409 in_use"]
		if n := backend.of(what.name()); n != 1 || count["200 "] != 1 || others != 0 {
			t.Errorf("%s: paid %d times, answers %v", what.name(), n, count)
		}
	}
}
