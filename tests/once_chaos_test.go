package tests

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

var (
	chaosFor  = flag.Duration("chaos", 0, "how long TestOnceChaos lasts with each kind of Redis; 0: seconds, with one kind")
	chaosSeed = flag.Uint64("seed", 0, "of the random calls of TestOnceChaos; 0: another each time")
)

// chaosOrders are called for at a time, of each kind of lock.
const chaosOrders = 8

// chaos is clients, instances and a Redis, of which each may fail.
type chaos struct {
	*chaosRedis
	t       *testing.T
	bed     *bedtest.Bed
	cashier *cashier
	begun   time.Time
	first   *chaosSite // behind a proxy to the backend
	second  atomic.Pointer[chaosSite]
	counts  sync.Map // of answers and faults: *atomic.Int64

	mu      sync.Mutex
	clients map[string]*redis.Client // of single servers, by address
}

// TestOnceChaos settles, repeats and undoes a few orders at once, alone, in batches and within calls,
// through two Envoys, with answers of every kind, while clients leave, Redis hangs, connections are cut,
// and instances are killed and reloaded. With SOAK, which takes an hour, it does so on a cluster whose
// slots move, and with failovers. No order is paid twice unless that was undone, and none is reported as
// paid after it was undone.
func TestOnceChaos(t *testing.T) {
	t.Parallel()
	length := *chaosFor
	if length == 0 && os.Getenv("SOAK") != "" {
		length = 20 * time.Minute
	}
	for _, tt := range []struct {
		name  string
		redis func(*bedtest.Bed) *chaosRedis
	}{{"single", chaosSingle}, {"cluster", chaosCluster}, {"sentinel", chaosSentinel}} {
		if length == 0 && tt.name != "single" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) { newChaos(t, tt.redis).run(length) })
	}
}

func newChaos(t *testing.T, start func(*bedtest.Bed) *chaosRedis) *chaos {
	t.Helper()
	c := &chaos{t: t, bed: bedtest.New(t), cashier: newCashier(t), clients: make(map[string]*redis.Client)}
	c.chaosRedis = start(c.bed)
	t.Cleanup(func() { _ = c.client.Close() })
	c.first = newChaosSite(t, c.bed, c.chaosRedis, c.cashier.behind(t))
	c.second.Store(newChaosSite(t, c.bed, c.chaosRedis, c.cashier.addr()))
	c.cashier.within = func(kind, order, lease string) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, _ = c.either().send(ctx, "POST", "/"+kind+"/orders/"+order+"/settle", "", leaseHeader, lease, "Host", "orders.example", "x-chaos", "effect&status=200")
	}
	return c
}

func (c *chaos) run(length time.Duration) {
	seed, every := *chaosSeed, 2*time.Second
	if seed == 0 {
		seed = rand.Uint64()
	}
	if length == 0 {
		length, every = 6*time.Second, 500*time.Millisecond
	}
	c.t.Logf("random choices: -seed=%d", seed)
	ctx, cancel := context.WithTimeout(c.t.Context(), length)
	defer cancel()
	c.begun = time.Now()
	var all sync.WaitGroup
	for i := range 8 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for ctx.Err() == nil {
				c.visit(ctx, r)
			}
		})
	}
	c.breakThings(ctx, rand.New(rand.NewPCG(seed, 100)), every)
	all.Wait()
	c.judge()
}

func (c *chaos) judge() {
	found := make(map[string]int64)
	c.counts.Range(func(key, n any) bool {
		found[key.(string)] = n.(*atomic.Int64).Load()
		return true
	})
	for _, what := range slices.Sorted(maps.Keys(found)) {
		c.t.Logf("%8d %s", found[what], what)
	}
	c.cashier.mu.Lock()
	defer c.cashier.mu.Unlock()
	c.t.Logf("%d payments, %d undos", c.cashier.serial, c.cashier.undos)
	for wrong := range c.cashier.wrong {
		c.t.Error(wrong)
		if at := strings.Fields(wrong); len(at) > 2 {
			c.t.Log(strings.Join(c.cashier.history[at[0]+at[2]], "\n"))
		}
	}
	if found["settle 200 replayed"] == 0 || found["undo 200 "] == 0 || c.cashier.serial == 0 {
		c.t.Error("nothing was repeated, undone or paid")
	}
}

func (c *chaos) count(what string) {
	n, _ := c.counts.LoadOrStore(what, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// order returns the ID of one of the orders that are called for now.
func (c *chaos) order(n int) string {
	return strconv.Itoa(10*int(time.Since(c.begun)/chaosOrder) + 10 + n)
}

// After a 4xx, nothing was done. After 302, 500, 503, a hang and the death of the backend, the outcome
// is unknown.
var (
	settleChaos = append(slices.Repeat([]string{"effect&status=200"}, 12),
		"status=422", "effect&status=503", "effect&die", "die", "effect&hang", "hang", "effect&stream&status=200")
	undoChaos = append(slices.Clone(settleChaos), "effect&status=500", "status=500", "effect&status=302", "status=302",
		"effect&within&status=200", "effect&within&status=200", "effect&within&hang")
)

// visit has a client settle an order, or some, or undo that.
func (c *chaos) visit(ctx context.Context, r *rand.Rand) {
	kind := slices.Sorted(maps.Keys(chaosLocks))[r.IntN(len(chaosLocks))]
	call := chaosCall{kind: kind, what: []string{"settle", "settle", "settle", "both", "both", "undo", "undo", "refund"}[r.IntN(8)]}
	number := r.IntN(chaosOrders)
	call.orders = []string{c.order(1 + number)}
	path, body := "/orders/"+call.orders[0]+"/", ""
	if (call.what == "settle" || call.what == "undo") && number >= chaosOrders/2 && r.IntN(8) > 0 { // a batch
		other := number ^ 1
		if r.IntN(8) == 0 {
			other = (number + 1) % chaosOrders
		}
		call.orders = append(call.orders, c.order(1+other))
		path, body = "/batch/", `{"ids":[`+strings.Join(call.orders, ",")+`]}`
	}
	choices := settleChaos
	if !slices.Contains(names, call.what) {
		choices = undoChaos
	}
	query := choices[r.IntN(len(choices))]
	leaves := strings.Contains(query, "hang")
	if (leaves || strings.Contains(query, "stream")) && r.IntN(4) > 0 {
		query, leaves = choices[0], false // an order that hangs is locked from then on
	}
	patience := chaosMaxHold + 2*chaosLate
	if leaves || r.IntN(20) == 0 {
		patience = time.Duration(r.IntN(40)) * time.Millisecond
	}
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := c.either()
	call.sent = time.Now()
	query += fmt.Sprintf("&for=%dms&sent=%d", r.IntN(10), call.sent.UnixNano())
	key := fmt.Sprint(call.orders[0], "-", r.IntN(2))
	a, err := s.send(short, "POST", "/"+kind+path+call.what, body, "Idempotency-Key", key, "Content-Type", jsonBody, "Host", "orders.example", "x-chaos", query)
	c.cashier.mu.Lock()
	c.cashier.note(call, "%s at %s: %d %s %s %v", query, call.sent.Format("05.000"), a.status, a.verdict, a.body, err)
	c.cashier.mu.Unlock()
	switch {
	case err == nil:
		c.count(fmt.Sprintf("%s %d %s", call.what, a.status, a.verdict))
	case strings.Contains(query, "stream") && a.header.Get("x-enforced") != "" && short.Err() == nil:
		c.count(call.what + " streamed until max_hold")
		c.held(ctx, s, call)
	default:
		c.count(call.what + " left")
	}
	if a.verdict == "replayed" && a.status == 200 && slices.Contains(names, call.what) && err == nil {
		c.cashier.replayed(call, a.body)
	}
}

// logOf returns what an ordergate has logged of the locks of a call, and its errors.
func (s *chaosSite) logOf(call chaosCall) (found string) {
	log, _ := os.ReadFile(s.gate.Output())
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "level=ERROR") || slices.ContainsFunc(call.orders, func(order string) bool {
			return strings.Contains(line, call.kind+":lock:"+order) || strings.Contains(line, "order="+order)
		}) {
			found += line
		}
	}
	return found
}

// held waits until the orders of a call are locked for the hold.
func (c *chaos) held(ctx context.Context, s *chaosSite, call chaosCall) {
	for _, order := range call.orders {
		key, begun := call.kind+":lock:"+order, time.Now()
		for ctx.Err() == nil && !s.killed.Load() {
			left, err := c.client.PTTL(ctx, key).Result()
			if err == nil && left > chaosLease {
				break
			}
			if time.Since(begun) > chaosLate {
				c.cashier.mu.Lock()
				defer c.cashier.mu.Unlock()
				c.cashier.fault("%s order %s is not held after its answer was ended: %v left", call.kind, order, left)
				c.cashier.note(call, "the log of its ordergate:\n%s", s.logOf(call))
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}
