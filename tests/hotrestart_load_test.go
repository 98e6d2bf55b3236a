package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// clerksOrders is how many orders there are from the start: 1..clerksOrders.
const clerksOrders = 50

// clerk is an order service that notices two settlements of an order at the same time,
// and one that is older than what it has seen. It keeps those that it was told to keep.
type clerk struct {
	*httptest.Server

	mu      sync.Mutex
	last    int                      // order that was created
	running map[string]int           // settlements, by order
	came    map[string]int           // all of them so far
	fences  map[string]int64         // the highest
	kept    map[string]chan struct{} // closed: go on
	wrong   []string
}

func newClerk(t testing.TB) *clerk {
	c := &clerk{
		last: 1_000_000, running: make(map[string]int), came: make(map[string]int),
		fences: make(map[string]int64), kept: make(map[string]chan struct{}),
	}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(func() {
		for id := range c.kept {
			c.goOn(id)
		}
		c.CloseClientConnections()
		c.Close()
	})
	return c
}

// keep has settlements of an order last until goOn.
func (c *clerk) keep(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept[id] = make(chan struct{})
}

// goOn may be called more than once.
func (c *clerk) goOn(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.kept[id]:
	default:
		close(c.kept[id])
	}
}

// arrived counts the settlements of an order that have come so far.
func (c *clerk) arrived(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.came[id]
}

func (c *clerk) faults() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrong
}

func (c *clerk) serve(w http.ResponseWriter, r *http.Request) {
	id, settles := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/orders/"), "/settle")
	switch {
	case settles:
		c.settle(id, r)
		fmt.Fprintln(w, "settled")
	case r.Method == http.MethodPost:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]int{"orderId": c.create()})
	default:
		fmt.Fprintln(w, "order", id)
	}
}

func (c *clerk) create() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return c.last
}

func (c *clerk) settle(id string, r *http.Request) {
	fence, err := strconv.ParseInt(r.Header.Get("x-ordergate-fence"), 10, 64)
	c.mu.Lock()
	c.came[id]++
	c.running[id]++
	if c.running[id] > 1 || err != nil || fence <= c.fences[id] {
		c.wrong = append(c.wrong, fmt.Sprintf("order %s: %d settlements at once, fence %d after %d (%v)", id, c.running[id], fence, c.fences[id], err))
	}
	c.fences[id] = max(c.fences[id], fence)
	kept := c.kept[id]
	c.mu.Unlock()
	if kept != nil {
		<-kept
	}
	c.mu.Lock()
	c.running[id]--
	c.mu.Unlock()
}

// visitor is a client that keeps its connection. One goroutine uses it.
type visitor struct {
	http  *http.Client
	url   string
	calls int
	tries atomic.Int64 // connections that requests were sent on
}

func newVisitor(t testing.TB, url string) *visitor {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &visitor{http: &http.Client{Transport: transport}, url: url}
}

// do makes one request, again where HTTP allows that, and tells which Envoy answered.
func (v *visitor) do(ctx context.Context, method, path string) (a answer, by string, err error) {
	v.calls++
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { v.tries.Add(1) }})
	req, err := http.NewRequestWithContext(ctx, method, v.url+path, http.NoBody)
	if err != nil {
		return answer{}, "", err
	}
	resp, err := v.http.Do(req)
	if err != nil {
		return answer{}, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	a = answerOf(resp, text)
	return a, resp.Header.Get("Server"), err
}

// create makes an order, and returns its ID.
func (v *visitor) create(ctx context.Context) (id, by string, err error) {
	a, by, err := v.do(ctx, http.MethodPost, "/orders")
	if err != nil {
		return "", "", fmt.Errorf("creating: %w", err)
	}
	var order struct {
		ID int `json:"orderId"`
	}
	if err := json.Unmarshal([]byte(a.body), &order); err != nil || a.status != http.StatusCreated {
		return "", "", fmt.Errorf("creating by the %s: %d %q (%w)", by, a.status, a.body, err)
	}
	return strconv.Itoa(order.ID), by, nil
}

// find looks up an order that exists.
func (v *visitor) find(ctx context.Context, id string) (by string, err error) {
	a, by, err := v.do(ctx, http.MethodGet, "/orders/"+id)
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("%d %q by the %s", a.status, a.verdict, by)
	}
	if err != nil {
		return by, fmt.Errorf("looking up order %s: %w", id, err)
	}
	return by, nil
}

// traffic is a load on whatever serves an address. Its first error ends it.
type traffic struct {
	url  string
	stop context.CancelFunc
	wg   sync.WaitGroup

	failed  errorOnce
	retried atomic.Int64 // requests that were sent once more
	created atomic.Pointer[string]
	counts  sync.Map // string -> *atomic.Int64
}

// clients is how many take part.
const clients = 5

// newTraffic begins to look up, create and settle, with several clients each.
func newTraffic(t testing.TB, url string) *traffic {
	l := &traffic{url: url}
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	t.Cleanup(func() { l.stop(); l.wg.Wait() })
	for _, client := range [clients]func(context.Context, *visitor) error{l.look, l.look, l.create, l.settle, l.settle} {
		v := newVisitor(t, url)
		l.wg.Go(func() { l.run(ctx, v, client) })
	}
	return l
}

func (l *traffic) run(ctx context.Context, v *visitor, client func(context.Context, *visitor) error) {
	const pause = 10 * time.Millisecond // the machine has others to serve
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for ctx.Err() == nil {
		// What has begun ends: leaving is tested elsewhere.
		if err := client(context.WithoutCancel(ctx), v); err != nil {
			l.failed.set(err)
			return
		}
		<-ticker.C
	}
	l.retried.Add(v.tries.Load() - int64(v.calls))
}

func (l *traffic) count(what string) {
	n, _ := l.counts.LoadOrStore(what, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

func (l *traffic) number(what string) int64 {
	n, ok := l.counts.Load(what)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// look looks up an order that exists, the one that was created last, and one that does not
// exist, which may pass where nothing is certain.
func (l *traffic) look(ctx context.Context, v *visitor) error {
	id := strconv.Itoa(1 + rand.IntN(clerksOrders))
	by, err := v.find(ctx, id)
	if err != nil {
		return err
	}
	l.count("looked up by the " + by)
	if id := l.created.Load(); id != nil {
		if _, err := v.find(ctx, *id); err != nil {
			return err
		}
	}
	a, by, err := v.do(ctx, http.MethodGet, "/orders/"+strconv.Itoa(1_000_000_000+rand.IntN(1_000_000_000)))
	switch {
	case err != nil:
		return fmt.Errorf("looking up an absent order: %w", err)
	case a.status == http.StatusNotFound && a.verdict == "absent":
		l.count("absent by the " + by)
	case a.status != http.StatusOK:
		return fmt.Errorf("looking up an absent order by the %s: %d %q", by, a.status, a.verdict)
	}
	return nil
}

func (l *traffic) create(ctx context.Context, v *visitor) error {
	id, by, err := v.create(ctx)
	if err != nil {
		return err
	}
	l.count("created by the " + by)
	l.created.Store(&id)
	return nil
}

// settle settles the one order that all clients settle.
func (l *traffic) settle(ctx context.Context, v *visitor) error {
	a, by, err := v.do(ctx, http.MethodPost, "/orders/"+busiest+"/settle")
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("%d %q by the %s", a.status, a.verdict, by)
	}
	if err != nil {
		return fmt.Errorf("settling: %w", err)
	}
	l.count("settled by the " + by)
	return nil
}

const busiest = "10"

// served reports whether an Envoy has had its part of everything, or something failed.
func (l *traffic) served(by string) bool {
	for _, what := range []string{"looked up", "absent", "created", "settled"} {
		if l.number(what+" by the "+by) == 0 {
			return l.failed.get() != nil
		}
	}
	return true
}

// end ends it, and checks that nothing has failed.
func (l *traffic) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.wg.Wait()
	if err := l.failed.get(); err != nil {
		t.Error(err)
	}
	for _, what := range []string{"looked up", "absent", "created", "settled"} {
		t.Logf("%s: %d and %d", what, l.number(what+" by the "+first), l.number(what+" by the "+second))
	}
	t.Logf("%d requests were sent once more", l.retried.Load())
	if n := l.retried.Load(); n > clients { // one for each client's connection to the first
		t.Errorf("%d requests were sent once more", n)
	}
}
