package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/status"
)

const (
	clients = 32 // in the long form without a pause between their turns
	// few clients and a pause leave the processors to those who recover.
	fewClients   = 16
	betweenTurns = 50 * time.Millisecond
	// slots bounds how many clients create, and how many look up, through one sidecar:
	// most go on elsewhere while it is stopped.
	slots = 10
	// remembered is how many orders may be looked up again.
	remembered = 3000
	// nowhere is an ID that no order has, and those that follow it.
	nowhere = 1_000_000_000_000
	// probing is how often each sidecar is asked whether it is certain of anything.
	probing = 50 * time.Millisecond
)

// acked is an order that a client was told of.
type acked struct {
	id   int64
	by   *place
	told time.Time
}

// load is what clients do: each creates an order through one sidecar, and at once looks
// it up through others.
type load struct {
	fleet   *fleet
	violate func(o acked, at *place, asked, answered time.Time)
	none    atomic.Int64 // of the IDs that no order has

	created, failed    atomic.Int64 // creates
	lookups, wrong     atomic.Int64 // of orders that a client had been told of; and called absent
	asked, told, early atomic.Int64 // IDs that no order has: asked for, and called absent; the next order's, called absent

	mu      sync.Mutex
	orders  []acked // a ring of the latest
	next    int
	reasons map[string]int // why creates failed, as clients saw it
}

// startLoad has clients go on until the test, or the returned function, ends.
func startLoad(t *testing.T, f *fleet, violate func(o acked, at *place, asked, answered time.Time)) (l *load, stop func()) {
	t.Helper()
	l = &load{fleet: f, violate: violate, reasons: make(map[string]int)}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	random := newRand(t)
	many, pause := fewClients, betweenTurns
	if soak {
		many, pause = clients, 0
	}
	for range many {
		r := rand.New(rand.NewPCG(random.Uint64(), 0))
		wg.Go(func() {
			for ctx.Err() == nil {
				l.client(ctx, r)
				wait(ctx, pause)
			}
		})
	}
	for _, p := range f.places {
		p.certain.Store(time.Now().UnixNano())
		wg.Go(func() {
			tick := time.NewTicker(probing)
			defer tick.Stop()
			for ctx.Err() == nil {
				l.probe(ctx, p)
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return l, stop
}

// client is one turn of a client.
func (l *load) client(ctx context.Context, r *rand.Rand) {
	by := l.fleet.enter(ctx, r, nil, creating)
	if by == nil {
		return
	}
	began, interrupted := time.Now(), by.interrupted.Load()
	id, err := by.door.create(ctx)
	o := acked{id, by, time.Now()}
	by.leave(creating)
	if err != nil {
		l.failed.Add(1)
		if ctx.Err() == nil {
			l.note(o, err, began, interrupted%2 == 1 || interrupted != by.interrupted.Load())
		}
		// A sidecar that ends fails at once, and does so for as long as it keeps the answers of others
		// back: most of the clients are at those then, and few would fail often.
		wait(ctx, 25*time.Millisecond)
	} else {
		l.created.Add(1)
		l.remember(o)
		l.look(ctx, r, o)
		l.look(ctx, r, o)
	}
	if o, ok := l.recent(r); ok {
		l.look(ctx, r, o)
	}
	l.nobody(ctx, r)
}

// look looks an order up, through another sidecar than the one that created it.
func (l *load) look(ctx context.Context, r *rand.Rand, o acked) {
	at := l.fleet.enter(ctx, r, o.by, looking)
	if at == nil {
		return
	}
	defer at.leave(looking)
	asked := time.Now()
	switch seen, err := at.door.lookup(ctx, o.id); {
	case err != nil:
		return // no answer is no wrong answer
	case seen == absent:
		l.wrong.Add(1)
		l.violate(o, at, asked, time.Now())
	case seen == missing:
		l.fleet.t.Errorf("the order service does not have order %d, of which it told a client", o.id)
	}
	l.lookups.Add(1)
}

// nobody looks up what is not there: sometimes the next order, which may come to be
// meanwhile.
func (l *load) nobody(ctx context.Context, r *rand.Rand) {
	at := l.fleet.enter(ctx, r, nil, looking)
	if at == nil {
		return
	}
	defer at.leave(looking)
	if r.IntN(3) == 0 {
		if seen, err := at.door.lookup(ctx, l.fleet.store.last.Load()+1+r.Int64N(4)); err == nil && seen == absent {
			l.early.Add(1)
		}
		return
	}
	l.ask(ctx, at)
}

// ask looks up an ID that nobody asked for before and reports whether it was called
// absent.
func (l *load) ask(ctx context.Context, at *place) bool {
	seen, err := at.door.lookup(ctx, nowhere+l.none.Add(1))
	if ctx.Err() != nil {
		return false
	}
	l.asked.Add(1)
	switch {
	case err == nil && seen == absent:
		l.told.Add(1)
		return true
	case err == nil && seen == found: // a mistake of the filter's goes on to the order service
		l.fleet.t.Error("the order service has an order that was never created")
	}
	return false
}

// probe notes when a sidecar was certain of something last.
func (l *load) probe(ctx context.Context, p *place) {
	began := time.Now()
	if !l.ask(ctx, p) {
		return
	}
	before := p.certain.Swap(began.UnixNano())
	if gap := began.UnixNano() - before; gap > p.longest.Load() {
		p.longest.Store(gap)
	}
}

// note counts a create that failed, by what its client saw and for about how long it had waited. That is
// an error unless the sidecar was interrupted meanwhile: whatever Redis does, a create only takes longer.
func (l *load) note(o acked, err error, began time.Time, interrupted bool) {
	waited := o.told.Sub(began)
	if !interrupted {
		l.fleet.t.Errorf("a create through %s, begun at %s, failed after %v: %v\n%s", o.by, clockTime(began), waited, err, l.fleet.diary.around(o.told))
	}
	reason := err.Error()
	if s, ok := status.FromError(err); ok {
		reason = s.Code().String()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reasons[fmt.Sprintf("%s after %v", reason, waited.Round(time.Second))]++
}

func (l *load) remember(o acked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.orders) < remembered {
		l.orders = append(l.orders, o)
		return
	}
	l.orders[l.next] = o
	l.next = (l.next + 1) % remembered
}

func (l *load) recent(r *rand.Rand) (acked, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.orders) == 0 {
		return acked{}, false
	}
	return l.orders[r.IntN(len(l.orders))], true
}

// figures is one line of what was done.
func (l *load) figures() string {
	var longest int64
	for _, p := range l.fleet.places {
		longest = max(longest, p.longest.Load())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d creates told of, %d not; %d lookups of those orders, %d of them called absent; "+
		"%d of %d IDs that no order has were called absent, and %d times the next order's; a sidecar was certain of nothing for at most %v; creates failed with %v",
		l.created.Load(), l.failed.Load(), l.lookups.Load(), l.wrong.Load(), l.told.Load(), l.asked.Load(), l.early.Load(),
		time.Duration(longest).Round(10*time.Millisecond), l.reasons)
}
