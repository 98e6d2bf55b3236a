package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// What the acts send.
	madeUpLookups   = 2000
	existingLookups = 400
	lookupClients   = 32
	creates         = 50
	createClients   = 8
	settlements     = 500 // all at the same time
	repeats         = 100 // of one settlement
	// payMillis is how long the services take to pay. With the 50 of their own a
	// busy machine may have paid before the other settlements have arrived.
	payMillis = 200
	// warmUp is how many lookups go before the acts, uncounted: a JVM that has
	// just started would be compared with one that is warm.
	warmUp = 400
	// actLimit bounds one act, many times what it takes on two cores.
	actLimit = 2 * time.Minute
	// falsePositives is how many of the made-up IDs may reach a service: the
	// filter of examples/envoy/ordergate.yaml promises one in a thousand when it
	// is full. It is nearly empty here, so none should.
	falsePositives = madeUpLookups / 1000
)

// result is what came of the acts in front of one service.
type result struct {
	service       string
	without, with acts
}

// acts is what came of one round of acts.
type acts struct {
	madeUp, existing tally
	creates          tally
	found            int // created orders that a lookup found at once
	settle           tally
	payments         int // made for the one order that was settled
	repeats          tally
	same             int // repeats with the answer of the first
	twice            tally
	orders           int     // made by creates, each of which was sent twice
	created          []int64 // every order made in the round
}

// tally is what came of the requests of one kind.
type tally struct {
	requests int
	reached  int    // lines in the service's own access log
	byGate   int    // answers with a verdict of ordergate
	bad      int    // not answered as they should be
	firstBad string // one of them
	p50, p99 time.Duration
}

// performActs runs the acts against one URL in front of a service. It returns an
// error only if nothing can be said: an answer that should not be is counted.
func performActs(ctx context.Context, s *side, url string, progress *screen) (acts, error) {
	var a acts
	steps := []struct {
		what string
		act  func(context.Context, *side, string) error
	}{
		{fmt.Sprintf("%s lookups", thousands(madeUpLookups+existingLookups)), a.lookUp},
		{fmt.Sprintf("%d creates", creates), a.create},
		{fmt.Sprintf("%d settlements", settlements), a.settleOne},
		{fmt.Sprintf("%d repeats", repeats+2*creates), a.repeat},
	}
	if err := warm(ctx, url); err != nil {
		return a, err
	}
	for _, step := range steps {
		err := progress.step(s.name+": "+step.what, func() (string, error) {
			ctx, cancel := context.WithTimeout(ctx, actLimit)
			defer cancel()
			return "", step.act(ctx, s, url)
		})
		if err != nil {
			return a, fmt.Errorf("%s, %s: %w", s.name, step.what, err)
		}
	}
	return a, nil
}

func warm(ctx context.Context, url string) error {
	c := newClient(url, lookupClients)
	defer c.close()
	exchanges := make([]*exchange, warmUp)
	for i := range exchanges {
		exchanges[i] = lookup(int64(1 + i%seeded))
	}
	return c.sendAll(ctx, lookupClients, exchanges)
}

// lookUp is the first act: made-up IDs, and among them some that exist.
func (a *acts) lookUp(ctx context.Context, s *side, url string) error {
	var madeUp, existing []*exchange
	for _, id := range madeUpIDs(madeUpLookups) {
		madeUp = append(madeUp, lookup(id))
	}
	for i := range existingLookups {
		existing = append(existing, lookup(int64(1+i%seeded)))
	}
	all := append(append([]*exchange(nil), madeUp...), existing...)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	c := newClient(url, lookupClients)
	defer c.close()
	log, err := reached(s, func() error { return c.sendAll(ctx, lookupClients, all) })
	a.madeUp = count(madeUp, log, func(x *exchange) bool { return x.status == 404 })
	a.existing = count(existing, log, func(x *exchange) bool { return x.status == 200 })
	return err
}

// create is the second act: new orders, each looked up as soon as its number is
// known.
func (a *acts) create(ctx context.Context, s *side, url string) error {
	c := newClient(url, createClients)
	defer c.close()
	var mu sync.Mutex // guards the two below
	var exchanges []*exchange
	var ids []int64
	log, err := reached(s, func() error {
		atOnce(createClients, creates, func(int) {
			made := newOrder()
			c.send(ctx, made)
			id, ok := orderID(made)
			var looked *exchange
			if ok {
				looked = lookup(id)
				c.send(ctx, looked)
			}
			mu.Lock()
			defer mu.Unlock()
			exchanges = append(exchanges, made)
			if ok {
				exchanges = append(exchanges, looked)
				ids = append(ids, id)
				if looked.status == 200 {
					a.found++
				}
			}
		})
		return context.Cause(ctx)
	})
	a.created = append(a.created, ids...)
	a.creates = count(exchanges, log, func(x *exchange) bool { return x.status == 200 || x.status == 201 })
	return err
}

// settleOne is the third act: one new order, settled by many at the same time.
// Without ordergate everybody should be answered 200, with it some are told that
// the order is being settled already.
func (a *acts) settleOne(ctx context.Context, s *side, url string) error {
	c := newClient(url, settlements)
	defer c.close()
	made := newOrder()
	c.send(ctx, made)
	id, ok := orderID(made)
	if !ok {
		return fmt.Errorf("creating the order to settle: %s", made.describe())
	}
	a.created = append(a.created, id)
	// Connecting takes Envoy longer than the service takes to pay. With all
	// connections there already, the settlements really arrive together.
	exchanges := make([]*exchange, settlements)
	for i := range exchanges {
		exchanges[i] = lookup(id)
	}
	if err := c.sendAll(ctx, settlements, exchanges); err != nil {
		return err
	}
	for i := range exchanges {
		exchanges[i] = &exchange{method: "POST", path: fmt.Sprintf("/orders/%d/settle?slow=%d", id, payMillis)}
	}
	log, err := reached(s, func() error { return c.sendAll(ctx, settlements, exchanges) })
	if err != nil {
		return err
	}
	a.settle = count(exchanges, log, func(x *exchange) bool {
		return x.status == 200 || x.status == 409 && x.verdict == "busy"
	})
	a.payments, err = s.orders.PaymentsOf(id)
	return err
}

// repeat is the fourth act, of clients that lost an answer: a settlement is sent again and
// again, and creates are sent twice at the same time.
func (a *acts) repeat(ctx context.Context, s *side, url string) error {
	c := newClient(url, createClients)
	defer c.close()
	made := newOrder()
	c.send(ctx, made)
	id, ok := orderID(made)
	if !ok {
		return fmt.Errorf("creating the order to settle: %s", made.describe())
	}
	a.created = append(a.created, id)
	settle := func() *exchange { return &exchange{method: "POST", path: fmt.Sprintf("/orders/%d/settle", id)} }
	first := settle()
	c.send(ctx, first)
	again := make([]*exchange, repeats)
	for i := range again {
		again[i] = settle()
	}
	log, err := reached(s, func() error { return c.sendAll(ctx, createClients, again) })
	if err != nil {
		return err
	}
	a.repeats = count(again, log, func(x *exchange) bool { return x.status == 200 })
	for _, x := range again {
		if x.err == nil && x.status == first.status && x.answer == first.answer {
			a.same++
		}
	}

	twice := make([]*exchange, 2*creates)
	for i := range twice {
		twice[i] = newOrder()
		twice[i].key = fmt.Sprintf("create-%d", i/2)
	}
	if log, err = reached(s, func() error { return c.sendAll(ctx, createClients, twice) }); err != nil {
		return err
	}
	a.twice = count(twice, log, func(x *exchange) bool { return x.status == 201 })
	ids := make(map[int64]bool)
	for _, x := range twice {
		if id, ok := orderID(x); ok {
			ids[id] = true
		}
	}
	a.orders = len(ids)
	a.created = slices.AppendSeq(a.created, maps.Keys(ids))
	return nil
}

// reached runs f and returns how often each "METHOD target" arrived at the
// service meanwhile. The service writes its line before it answers.
func reached(s *side, f func() error) (map[string]int, error) {
	before, err := s.orders.AccessLog()
	if err != nil {
		return nil, err
	}
	if err := f(); err != nil {
		return nil, err
	}
	after, err := s.orders.AccessLog()
	if err != nil {
		return nil, err
	}
	log := make(map[string]int)
	for _, line := range after[len(before):] {
		log[line[:max(0, strings.LastIndexByte(line, ' '))]]++
	}
	return log, nil
}

// count makes the tally of exchanges, given what reached the service and what a
// good answer is.
func count(exchanges []*exchange, log map[string]int, good func(*exchange) bool) tally {
	t := tally{requests: len(exchanges)}
	latencies := make([]time.Duration, 0, len(exchanges))
	targets := make(map[string]bool)
	for _, x := range exchanges {
		latencies = append(latencies, x.took)
		targets[x.method+" "+x.path] = true
		if x.verdict != "" {
			t.byGate++
		}
		if x.err != nil || !good(x) {
			if t.bad++; t.bad == 1 {
				t.firstBad = x.describe()
			}
		}
	}
	for target := range targets {
		t.reached += log[target]
	}
	t.p50, t.p99 = percentile(latencies, 50), percentile(latencies, 99)
	return t
}

func lookup(id int64) *exchange {
	return &exchange{method: "GET", path: fmt.Sprintf("/orders/%d", id)}
}

func newOrder() *exchange {
	return &exchange{method: "POST", path: "/orders", body: `{"amount": 100}`}
}

// orderID reads the number that the service gave to a new order.
func orderID(x *exchange) (int64, bool) {
	var order struct {
		ID int64 `json:"orderId"`
	}
	if x.err != nil || x.status != 201 || json.Unmarshal([]byte(x.answer), &order) != nil {
		return 0, false
	}
	return order.ID, order.ID > 0
}

// madeUpIDs returns n different numbers of 12 to 18 digits, which no service has
// come to.
func madeUpIDs(n int) []int64 {
	seen := make(map[int64]bool, n)
	ids := make([]int64, 0, n)
	for len(ids) < n {
		low := int64(100_000_000_000) // 12 digits
		for range rand.IntN(7) {
			low *= 10
		}
		if id := low + rand.Int64N(9*low); !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}
