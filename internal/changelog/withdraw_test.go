package changelog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// mutant is an ordergate with a fault, which a test must find.
type mutant struct {
	name string
	// answersEarly sends the reply to a create without waiting for the end of the lease.
	answersEarly bool
	// lateRenewal lets a lease begin when its renewal is applied, not at an earlier reply.
	lateRenewal bool
}

func (m mutant) change(t *testing.T, l *Log) {
	t.Helper()
	if !m.lateRenewal {
		return
	}
	const grant = "base + tonumber(ARGV[8])"
	if strings.Count(pageSource, grant) != 1 {
		t.Fatalf("page.lua does not have %q once", grant)
	}
	l.page = redis.NewScript(withoutComments(enterSource + strings.Replace(pageSource, grant, "now + tonumber(ARGV[8])", 1)))
}

// TestRenewalThatIsLate holds a renewal back until its lease is over.
func TestRenewalThatIsLate(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		for _, m := range []mutant{{name: "none"}, {name: "counted from when it comes", lateRenewal: true}} {
			t.Run(m.name, func(t *testing.T) {
				b := runInstance(t, s, patient("b"))
				if err := b.client.FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				quick := brisk("a")
				quick.Lease = time.Second // the mutant's has to last until it is looked at
				a := newInstance(t, s, quick)
				m.change(t, a.Log)
				w := wired(t, s, a)
				a.start(t)
				waitSure(t, a, b)
				sent := make(chan redis.Cmder, 1)
				w.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					const firstArg, base = 10, 6
					if runs(cmd, a.page) && cmd.Args()[firstArg+base-1] != int64(0) { // it renews
						select {
						case sent <- cmd:
						default:
						}
						return errCut
					}
					if runs(cmd, a.append) {
						return errCut
					}
					return next(ctx, cmd)
				})
				late := <-sent
				if err := a.Append(t.Context(), "1001"); !errors.Is(err, ErrUnavailable) {
					t.Fatalf("Append = %v", err)
				}
				if err := a.Withdraw(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := w.again(late); err != nil {
					t.Fatal(err)
				}
				// Not b.Wait, which may return the result of an earlier read.
				p, err := b.requestPage(t.Context(), nil, time.Time{}, entry{seq: 0}, 1, "", "", "")
				if err != nil {
					t.Fatal(err)
				}
				if granted := p.away == ""; granted != m.lateRenewal {
					t.Errorf("the late renewal granted a lease: %v", granted)
				}
				w.set(nil)
				a.mustAppend(t, "1001")
				waitSure(t, a, b)
				if !b.has("1001") {
					t.Error("the ID is missing")
				}
			})
		}
	})
}

// storm is a wire on which some commands are slow, lost, answered in vain, or arrive long after
// their sender has given up.
type storm struct {
	w    *wire
	mu   sync.Mutex
	rand *rand.Rand
	late sync.WaitGroup
}

func (s *storm) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n)
}

func (s *storm) some(most int) time.Duration { return time.Duration(s.draw(most)) * time.Millisecond }

func pause(ctx context.Context, d time.Duration) error {
	return waitUntil(ctx, time.Now().Add(d))
}

func (s *storm) strike(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return next(ctx, cmd)
	}
	switch s.draw(10) {
	case 0: // slow on its way
		if err := pause(ctx, s.some(120)); err != nil {
			return err
		}
		return next(ctx, cmd)
	case 1: // and on its way back
		if err := next(ctx, cmd); err != nil {
			return err
		}
		return pause(ctx, s.some(120))
	case 2:
		return errCut
	case 3: // it arrived, without a reply
		if err := next(ctx, cmd); err != nil {
			return err
		}
		return errCut
	case 4, 5, 6:
		wait, patient := s.some(400), s.draw(2) == 0
		s.late.Go(func() {
			_ = pause(context.Background(), wait)
			_ = s.w.again(cmd)
		})
		if patient {
			<-ctx.Done()
			return ctx.Err()
		}
		return errCut
	}
	return next(ctx, cmd)
}

// pairTest is an ordergate that creates orders, and one that looks up each as soon as the client of
// the create has its answer.
type pairTest struct {
	a, b  *instance
	storm *storm

	sent, withdrawn, found, denied atomic.Int64
	mu                             sync.Mutex
	owed                           []string
}

func newPairTest(t *testing.T, s server, m mutant, seed uint64) *pairTest {
	t.Helper()
	d := &pairTest{a: newInstance(t, s, brisk("a"))}
	d.a.opts.Timeout = 300 * time.Millisecond
	m.change(t, d.a.Log)
	d.storm = &storm{w: wired(t, s, d.a), rand: rand.New(rand.NewPCG(seed, 1))}
	t.Cleanup(d.storm.late.Wait)
	d.a.start(t)
	opts := patient("b")
	opts.PollEvery = 5 * time.Millisecond
	d.b = runInstance(t, s, opts)
	waitSure(t, d.a, d.b)
	return d
}

// create creates an order, and reports whether b answered Absent.
func (d *pairTest) create(t *testing.T, m mutant, id string) bool {
	limit, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond+d.storm.some(100))
	err := d.a.Append(limit, id)
	cancel()
	if err != nil {
		d.mu.Lock()
		d.owed = append(d.owed, id)
		d.mu.Unlock()
		if !m.answersEarly {
			if err := d.a.Withdraw(t.Context()); err != nil {
				t.Error("Withdraw:", err)
				return false
			}
		}
		d.withdrawn.Add(1)
	}
	d.sent.Add(1)
	for range 3 { // the first may return the result of an earlier read
		doubts := len(d.b.doubted())
		if err := d.b.Wait(t.Context()); err == nil && len(d.b.doubted()) == doubts {
			if !d.b.has(id) {
				d.denied.Add(1)
				return true
			}
			d.found.Add(1)
			return false
		}
		_ = pause(t.Context(), d.storm.some(30))
	}
	return false
}

// retryPending appends pending writes.
func (d *pairTest) retryPending(t *testing.T) {
	d.mu.Lock()
	owed := d.owed
	d.owed = nil
	d.mu.Unlock()
	for _, id := range owed {
		eventually(t, id+" is appended", func() bool { return d.a.Append(t.Context(), id) == nil })
	}
}

// run creates orders in storms until a pair finds one Absent, or there were enough.
func (d *pairTest) run(t *testing.T, m mutant, rounds int, over *atomic.Bool) {
	const clients, each = 4, 3
	for round := range rounds {
		if over.Load() {
			return
		}
		d.storm.w.set(d.storm.strike)
		var wg sync.WaitGroup
		for client := range clients {
			wg.Go(func() {
				for n := range each {
					if d.create(t, m, fmt.Sprintf("%d-%d-%d", round, client, n)) {
						over.Store(true)
						return
					}
				}
			})
		}
		wg.Wait()
		d.storm.w.set(nil)
		d.retryPending(t)
		waitSure(t, d.a, d.b) // it recovers after every storm
	}
	if n, want := d.b.count(), rounds*clients*each; d.denied.Load() == 0 && n != want {
		t.Errorf("%d IDs are known in the end, want %d", n, want)
	}
}

// TestNothingThatWasToldIsDenied tries many schedules. A client receives an order once its Append
// or its Withdraw has returned nil. From then on, no window may hold without it.
func TestAcknowledgedOrdersAreNeverDenied(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	// A mutant runs until an order is Absent: on a busy machine few storms hit the right moment.
	const duels, enough, many = 5, 8, 100
	for i, m := range []mutant{
		{name: "as it is"},
		{name: "without waiting for the end of the lease", answersEarly: true},
		{name: "with leases from when a renewal comes", lateRenewal: true},
	} {
		t.Run(m.name, func(t *testing.T) {
			var sent, withdrawn, found, denied int64
			all := make([]*pairTest, duels)
			for n := range all {
				in := database{s, i*duels + n}
				all[n] = newPairTest(t, in, m, uint64(i*duels+n))
			}
			rounds, wrong := enough, m.answersEarly || m.lateRenewal
			if wrong {
				rounds = many
			}
			var over atomic.Bool
			var wg sync.WaitGroup
			for _, d := range all {
				wg.Go(func() { d.run(t, m, rounds, &over) })
			}
			wg.Wait()
			for _, d := range all {
				sent, withdrawn, found, denied = sent+d.sent.Load(), withdrawn+d.withdrawn.Load(), found+d.found.Load(), denied+d.denied.Load()
			}
			t.Logf("%d told of, %d of them withdrawn, %d found, %d denied", sent, withdrawn, found, denied)
			if wrong != (denied > 0) {
				t.Errorf("%d of %d were denied", denied, sent)
			}
			if !wrong && (withdrawn == 0 || found == 0) {
				t.Error("the storms did nothing, or everything")
			}
		})
	}
}
