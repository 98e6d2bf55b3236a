package tests

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// cashier is an order service that pays what it is asked to, as often as it is asked to, and writes down
// when. The query says how it answers: do=effect acts, and status is that of its answer.
type cashier struct {
	*httptest.Server
	within func(order, lease string) // has a call within a call settle

	mu     sync.Mutex
	serial int
	paid   map[string][]payment // by order and what it is paid for
	wrong  []string
}

// payment is one effect, and when it was undone.
type payment struct {
	serial int
	undone time.Time // zero: it is not
}

var cashierPath = regexp.MustCompile(`^/orders/(\d+)/(settle|both|undo)$`)

func newCashier(t testing.TB) *cashier {
	c := &cashier{paid: make(map[string][]payment)}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(func() { c.CloseClientConnections(); c.Close() })
	return c
}

func (c *cashier) serve(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	path, query := cashierPath.FindStringSubmatch(r.URL.Path), r.URL.Query()
	if path == nil {
		c.fault("the backend got " + r.URL.Path)
		return
	}
	pause, _ := time.ParseDuration(query.Get("for"))
	time.Sleep(pause)
	serial := 0
	if query.Has("effect") {
		serial = c.act(path[1], path[2])
	}
	if query.Has("within") {
		c.within(path[1], r.Header.Get(leaseHeader))
	}
	if query.Has("hang") {
		<-r.Context().Done()
		return
	}
	status, _ := strconv.Atoi(query.Get("status"))
	w.WriteHeader(status)
	fmt.Fprintf(w, "%d", serial)
}

func (c *cashier) fault(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, text)
}

// act pays or undoes, and notes a payment that was made before and not undone.
func (c *cashier) act(order, what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if what == "undo" {
		for _, what := range []string{"settle", "both"} {
			if all := c.paid[order+what]; len(all) > 0 && all[len(all)-1].undone.IsZero() {
				all[len(all)-1].undone = time.Now()
			}
		}
		return 0
	}
	all := c.paid[order+what]
	if len(all) > 0 && all[len(all)-1].undone.IsZero() {
		c.wrong = append(c.wrong, fmt.Sprintf("order %s was paid twice (%s)", order, what))
	}
	c.serial++
	c.paid[order+what] = append(all, payment{serial: c.serial})
	return c.serial
}

// replayed notes an answer that was given again although its payment was undone before it was asked for.
func (c *cashier) replayed(order, what, body string, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.paid[order+what] {
		if strconv.Itoa(p.serial) == body && !p.undone.IsZero() && p.undone.Before(asked) {
			c.wrong = append(c.wrong, fmt.Sprintf("order %s is reported as paid (%s), %v after that was undone", order, what, asked.Sub(p.undone)))
		}
	}
}

// TestOnceChaos settles, repeats and undoes a few orders at once, through two Envoys, while clients leave,
// Redis hangs and instances are killed, with answers of every kind. No order is paid twice unless that was
// undone, and none is reported as paid after it was undone. Orders are left before a lease ends by itself.
// With SOAK it lasts an hour.
func TestOnceChaos(t *testing.T) {
	t.Parallel()
	length, change := 6*time.Second, 3*time.Second
	if os.Getenv("SOAK") != "" {
		length, change = time.Hour, 20*time.Second
	}
	c := newCashier(t)
	with := settings{backend: strings.TrimPrefix(c.URL, "http://"), orders: 50_000, gate: onceRules}
	first := newStack(t, with)
	var second atomic.Pointer[stack]
	second.Store(first.second(with))
	c.within = func(order, lease string) {
		_, _ = second.Load().send(t.Context(), "POST", "/orders/"+order+"/settle?effect&status=200", "", leaseHeader, lease)
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var all sync.WaitGroup
	var counts sync.Map // of answers: *atomic.Int64
	begun := time.Now()
	for i := range 8 {
		random := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
		all.Go(func() {
			for ctx.Err() == nil {
				s := first
				if random.IntN(2) == 0 {
					s = second.Load()
				}
				// A lease of a killed instance ends after two thirds of 10 s, and its call may be repeated then.
				order := strconv.Itoa(1 + 30*int(time.Since(begun)/(5*time.Second)) + random.IntN(30))
				c.visit(ctx, s, random, order, &counts)
			}
		})
	}
	for tick := time.NewTicker(change); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			tick.Stop()
		case <-tick.C:
			must(t, first.server.Pause())
			time.Sleep(time.Duration(rand.IntN(700)) * time.Millisecond)
			must(t, first.server.Resume())
			old := second.Swap(first.second(with))
			if old.gate != nil {
				old.gate.Kill()
			}
			old.envoy.Kill()
		}
	}
	all.Wait()
	found := make(map[string]int64)
	counts.Range(func(key, n any) bool {
		found[key.(string)] = n.(*atomic.Int64).Load()
		return true
	})
	for _, answer := range slices.Sorted(maps.Keys(found)) {
		t.Logf("%8d %s", found[answer], answer)
	}
	t.Logf("%d payments", c.serial)
	for _, wrong := range c.wrong {
		t.Error(wrong)
	}
	if found["settle 200 replayed"] == 0 || found["undo 200 "] == 0 || c.serial == 0 {
		t.Error("nothing was repeated, undone or paid")
	}
}

// visit has a client settle an order, or undo that.
func (c *cashier) visit(ctx context.Context, s *stack, random *rand.Rand, order string, counts *sync.Map) {
	what := []string{"settle", "settle", "settle", "both", "undo"}[random.IntN(5)]
	// After a 4xx, nothing was done. After 302, 500, 503 and a hang, the outcome is unknown.
	queries := []string{"effect&status=200", "effect&status=200", "effect&status=200", "status=422", "effect&status=503", "effect&hang", "hang"}
	if what == "undo" {
		queries = append(queries, "effect&status=500", "status=500", "effect&status=302", "status=302", "effect&within&status=200", "effect&within&hang")
	}
	query := queries[random.IntN(len(queries))] + fmt.Sprintf("&for=%dms", random.IntN(10))
	if strings.Contains(query, "hang") && random.IntN(8) > 0 {
		query = queries[0] // an order that hangs is locked from then on
	}
	patience := 3 * time.Second
	if random.IntN(20) == 0 || strings.Contains(query, "hang") {
		patience = time.Duration(random.IntN(40)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	asked := time.Now()
	a, err := s.send(ctx, "POST", "/orders/"+order+"/"+what+"?"+query, "", "Idempotency-Key", strconv.Itoa(random.IntN(3)))
	text := fmt.Sprintf("%s %d %s", what, a.status, a.verdict)
	if err != nil {
		text = what + " left"
	}
	n, _ := counts.LoadOrStore(text, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
	if a.verdict == "replayed" && a.status == 200 {
		c.replayed(order, what, a.body, asked)
	}
}
