package faults

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const (
	campaignSites   = 3
	campaignClients = 2 // of each kind, at each site
	campaignOrders  = 3 // of each kind
	campaignLease   = time.Second
	campaignHold    = 2 * time.Second
	// freeAgain is how soon an order can be settled again, whatever was done to it: one
	// that was held just now, and a call that came late out of a buffer and has a lease
	// that nobody knows of. The rest is for a busy machine.
	freeAgain = campaignHold + campaignLease + 5*time.Second
)

// campaignConfig has a lock of every kind that one settlement has alone. The batches take
// those of the exclusive one.
const campaignConfig = `
listen: {authz: "unix:AUTHZ", proc: "unix:PROC", admin: "127.0.0.1:0"}
redis: {mode: cluster, addresses: [NODES]}
locks:
  exclusive: {key: "exclusive:{id}", LOCK}
  string: {format: string, key: "string:{id}", LOCK}
  fair: {kind: fair, key: "fair:{id}", LOCK}
  write: {kind: write, key: "write:{id}", replicas: {confirm: 1, timeout: 300ms}, LOCK}
  quorum: {kind: quorum, quorum: {addresses: [SERVERS]}, key: "quorum:{id}", LOCK}
rules:
  - {name: exclusive, match: {methods: [POST], path: "/exclusive/{id}"}, id: {path: id}, settle: {lock: exclusive}}
  - {name: batch, match: {methods: [POST], path: /batch}, id: {json: ids, list: true}, settle: {lock: exclusive}}
  - {name: string, match: {methods: [POST], path: "/string/{id}"}, id: {path: id}, settle: {lock: string}}
  - {name: fair, match: {methods: [POST], path: "/fair/{id}"}, id: {path: id}, settle: {lock: fair}}
  - {name: write, match: {methods: [POST], path: "/write/{id}"}, id: {path: id}, settle: {lock: write}}
  - {name: quorum, match: {methods: [POST], path: "/quorum/{id}"}, id: {path: id}, settle: {lock: quorum}}
`

var campaignKinds = []string{"exclusive", "batch", "string", "fair", "write", "quorum"}

// TestCampaign settles orders with locks of all kinds, in batches and in calls within
// calls, through three ordergates behind Envoy, while everything breaks at once: answers
// of Redis get lost and calls of scripts come late, slots of the cluster move and stand half
// way, memory is full, and ordergates are stopped, killed, restarted and given other locks.
// What the backend sees of it must be right, and in the end every order is free again.
func TestCampaign(t *testing.T) {
	t.Parallel()
	long := 5 * time.Second
	if soak {
		long = 10 * time.Minute
	}
	c := newCampaign(t)
	c.run(long)
}

// campaign is the ordergates, what they stand on, and what is done to both.
type campaign struct {
	t       *testing.T
	bed     *bedtest.Bed
	nodes   []*redisNode // of the cluster
	servers []*redisNode // of the quorum
	sites   []*site
	ledger  *ledger
	calls   sync.Map // settlements by their numbers
	serial  atomic.Int64
	client  *http.Client

	losing  atomic.Bool
	tally   chaos // counts what was done
	mu      sync.Mutex
	done    map[string]int // settlements by kind
	answers map[int]int    // to clients, by status; 0: none
}

// redisNode is a Redis, and the wire by which the ordergates reach it.
type redisNode struct {
	addr  string // its own
	wire  *wire
	admin *redis.Client
	id    string // in the cluster
}

// site is an ordergate and its Envoy.
type site struct {
	gate   *testbed.Gate
	config string // WAITERS stands for a number of waiters
	url    string

	mu        sync.Mutex
	disturbed [][2]time.Time // times in which it may have lost leases without a word
}

func newCampaign(t *testing.T) *campaign {
	t.Helper()
	c := &campaign{
		t: t, bed: bedtest.New(t), ledger: newLedger(), done: make(map[string]int), answers: make(map[int]int),
		tally: chaos{t: t, count: make(map[string]int)},
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	c.client = &http.Client{Transport: transport, Timeout: eventually}
	for _, r := range c.bed.Cluster("--maxmemory-policy", "noeviction").Nodes() {
		c.nodes = append(c.nodes, c.node(r.Addr()))
	}
	c.announce()
	for range 3 {
		c.servers = append(c.servers, c.node(c.bed.Redis("--maxmemory-policy", "noeviction").Addr()))
	}
	addrs := func(nodes []*redisNode) string {
		var list []string
		for _, n := range nodes {
			list = append(list, n.wire.addr())
		}
		return strings.Join(list, ", ")
	}
	// A socket's path is short: the directory of a test may be too long for it.
	dir, err := os.MkdirTemp("", "camp-")
	bedtest.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	// Without the race detector: go-redis v9.23 may send a command to two nodes of a cluster
	// at once, and writes both answers into it.
	binary := c.bed.Build("./cmd/sidecar", false)
	for i := range campaignSites {
		authz, proc := filepath.Join(dir, fmt.Sprint(i, ".authz")), filepath.Join(dir, fmt.Sprint(i, ".proc"))
		backend := httptest.NewServer(c.backend(i))
		t.Cleanup(backend.Close)
		s := &site{config: strings.NewReplacer("AUTHZ", authz, "PROC", proc, "NODES", addrs(c.nodes), "SERVERS", addrs(c.servers),
			"LOCK", fmt.Sprintf("lease: %v, wait: {up_to: 1s}, max_waiters_per_key: WAITERS, on_unknown_outcome: {hold: %v}",
				campaignLease, campaignHold)).Replace(campaignConfig)}
		s.gate = c.bed.Gate(binary, s.with(10))
		s.url = "http://" + envoyBefore(t, c.bed, authz, proc, backend.Listener.Addr().String())
		c.sites = append(c.sites, s)
	}
	return c
}

func (s *site) with(waiters int) string {
	return strings.ReplaceAll(s.config, "WAITERS", strconv.Itoa(waiters))
}

// run lets everything happen for so long, and until all of it has.
func (c *campaign) run(long time.Duration) {
	t := c.t
	t.Helper()
	random := newRand(t)
	ctx, cancel := context.WithTimeout(t.Context(), long+2*eventually)
	defer cancel()
	var hands sync.WaitGroup
	forks := func(do func(*rand.Rand)) {
		r := rand.New(rand.NewPCG(random.Uint64(), 0))
		hands.Go(func() { do(r) })
	}
	for i := range c.sites {
		for _, kind := range campaignKinds {
			for range campaignClients {
				forks(func(r *rand.Rand) {
					for ctx.Err() == nil {
						c.settle(i, kind, r)
					}
				})
			}
		}
		forks(func(r *rand.Rand) { c.breakSite(ctx, c.sites[i], r) })
	}
	for _, n := range slices.Concat(c.nodes, c.servers) {
		n.wire.set(c.losses(rand.New(rand.NewPCG(random.Uint64(), 0))))
	}
	c.losing.Store(true)
	forks(func(r *rand.Rand) { c.moveSlots(ctx, r) })
	forks(func(r *rand.Rand) { c.fillMemory(ctx, r) })
	for start := time.Now(); ctx.Err() == nil && (time.Since(start) < long || len(c.missing()) > 0); {
		wait(ctx, 10*time.Millisecond)
	}
	cancel()
	hands.Wait()
	c.losing.Store(false)
	c.mustBeFree()
	for _, s := range c.sites {
		c.end(s)
	}
	c.mustLeaveNothing()
	c.judge()
}

// judge says what the backend saw.
func (c *campaign) judge() {
	wrong, excused := c.ledger.verdict(c.lost)
	for i, what := range wrong {
		if i == 20 {
			c.t.Errorf("and %d more", len(wrong)-i)
			break
		}
		c.t.Error(what)
	}
	c.t.Logf("settled: %v; answers: %v; %d effects, %d writes refused, %d calls late or not alone after a lost lease; faults: %s",
		c.done, c.answers, c.ledger.effects, c.ledger.refused, excused, c.tally.faults())
	if missing := c.missing(); len(missing) > 0 {
		c.t.Errorf("it never happened: %v", missing)
	}
}

// missing returns what has not happened yet.
func (c *campaign) missing() (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range slices.Concat(campaignKinds, []string{"within"}) {
		if c.done[kind] == 0 {
			list = append(list, kind)
		}
	}
	c.tally.mu.Lock()
	defer c.tally.mu.Unlock()
	for _, what := range []string{"lost answer", "lost call", "late call", "slot moved", "full memory", "stop", "kill", "end", "reload"} {
		if c.tally.count[what] == 0 {
			list = append(list, what)
		}
	}
	return list
}

// settle has a client settle something, and now and then leave before the answer.
func (c *campaign) settle(at int, kind string, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	defer cancel()
	if r.IntN(100) == 0 {
		ctx, cancel = context.WithTimeout(ctx, between(r, time.Millisecond, 100*time.Millisecond))
		defer cancel()
	}
	path, body := "/"+kind+"/"+strconv.Itoa(1+r.IntN(campaignOrders)), ""
	if kind == "batch" {
		first := 1 + r.IntN(campaignOrders-1)
		path, body = "/batch", fmt.Sprintf(`{"ids": ["%d", "%d"]}`, first, first+1)
	}
	call := strconv.FormatInt(c.serial.Add(1), 10)
	c.calls.Store(call, &settlement{asked: time.Now(), places: map[int]bool{at: true}})
	defer c.calls.Delete(call)
	status := c.post(ctx, at, path, body, call, "")
	c.mu.Lock()
	c.answers[status]++
	c.mu.Unlock()
	if status == http.StatusOK {
		c.count(kind)
		return
	}
	wait(ctx, between(r, 0, 30*time.Millisecond))
}

func (c *campaign) count(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[kind]++
}

// post returns the status, 0 where there was no answer.
func (c *campaign) post(ctx context.Context, at int, path, body, call, lease string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.sites[at].url+path, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return 0
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Call", call)
	if lease != "" {
		request.Header.Set("X-Ordergate-Lease", lease)
		request.Header.Set("X-Within", "1")
	}
	response, err := c.client.Do(request)
	if err != nil {
		return 0 // the client left, or Envoy has lost its ordergate
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// backend is the order service at a site. It takes its time, longer than a lease at
// times, whether its client waits or not, and calls itself through any site.
func (c *campaign) backend(at int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		known, ok := c.calls.Load(q.Header.Get("X-Call"))
		if !ok {
			return // of a client that left before its call came
		}
		v := &visit{of: known.(*settlement), keys: strings.Split(q.Header.Get("X-Ordergate-Key"), ",")}
		for text := range strings.SplitSeq(q.Header.Get("X-Ordergate-Fence"), ",") {
			fence, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				c.t.Errorf("a settlement came with the fences %q", q.Header["X-Ordergate-Fence"])
				return
			}
			v.fences = append(v.fences, fence)
		}
		defer c.ledger.leave(v)
		if !c.ledger.enter(v, at) {
			w.WriteHeader(http.StatusConflict)
			return
		}
		if within := q.Header.Get("X-Within") != ""; !within && rand.IntN(4) == 0 {
			there := rand.IntN(len(c.sites))
			c.through(v.of, there)
			if c.post(context.WithoutCancel(q.Context()), there, q.URL.Path, string(body), q.Header.Get("X-Call"),
				q.Header.Get("X-Ordergate-Lease")) == http.StatusOK {
				c.count("within")
			}
		}
		work := time.Duration(rand.Int64N(int64(10 * time.Millisecond)))
		if rand.IntN(100) == 0 {
			work = campaignLease + time.Duration(rand.Int64N(int64(campaignLease/2)))
		}
		wait(context.Background(), work)
		c.ledger.write(v)
	})
}

// through notes that a settlement goes through another site, too.
func (c *campaign) through(s *settlement, at int) {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	s.places[at] = true
}

// mustBeFree settles every order at every site.
func (c *campaign) mustBeFree() {
	c.t.Helper()
	start := time.Now()
	var all sync.WaitGroup
	for i := range c.sites {
		for _, kind := range campaignKinds {
			for order := 1; order <= campaignOrders; order++ {
				all.Go(func() { c.mustSettle(start, i, kind, order) })
			}
		}
	}
	all.Wait()
	c.t.Logf("every order was free again after %v", time.Since(start).Round(time.Millisecond))
}

func (c *campaign) mustSettle(start time.Time, at int, kind string, order int) {
	path, body := fmt.Sprintf("/%s/%d", kind, order), ""
	if kind == "batch" {
		path, body = "/batch", `{"ids": ["1", "2", "3"]}`
	}
	status := 0
	for time.Since(start) < freeAgain {
		call := strconv.FormatInt(c.serial.Add(1), 10)
		c.calls.Store(call, &settlement{asked: time.Now(), places: map[int]bool{at: true}})
		if status = c.post(context.Background(), at, path, body, call, ""); status == http.StatusOK {
			return
		}
		wait(context.Background(), 20*time.Millisecond)
	}
	c.t.Errorf("%v after the last fault, the answer to %s at site %d is %d", freeAgain, path, at, status)
}

// end has an ordergate end in order.
func (c *campaign) end(s *site) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*eventually)
	defer cancel()
	err := s.gate.Signal(syscall.SIGTERM)
	if err == nil {
		err = s.gate.Wait(ctx)
	}
	if err != nil {
		c.t.Errorf("an ordergate was asked to end, and: %v", err)
	}
}

// mustLeaveNothing looks for what is left in Redis: only the last fences may be, and the key of
// gate.Seal.
func (c *campaign) mustLeaveNothing() {
	c.t.Helper()
	start := time.Now()
	for {
		var left []string
		for _, n := range slices.Concat(c.nodes, c.servers) {
			keys, err := n.admin.Keys(c.t.Context(), "*").Result()
			bedtest.Check(c.t, err)
			for _, key := range keys {
				if !strings.HasPrefix(key, "redisson_lock_token:") && key != "ordergate:seal" {
					left = append(left, fmt.Sprintf("%s (ends in %v)", key, n.admin.PTTL(c.t.Context(), key).Val()))
				}
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Since(start) > freeAgain {
			c.t.Errorf("left in Redis: %v", left)
			return
		}
		wait(c.t.Context(), 20*time.Millisecond)
	}
}
