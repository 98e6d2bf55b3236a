package faults

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const (
	followStale  = time.Second
	followMargin = 2 * time.Second  // for the window, and a busy machine
	followLong   = 15 * time.Minute // for each database and kind of table
)

// followGate is an ordergate whose filter has the table.
type followGate struct {
	n        int
	gate     *testbed.Gate
	door     *faces
	dsn      string       // a file
	snapshot string       // a file
	alt      atomic.Bool  // its IDs are in the column alt_id
	certain  atomic.Int64 // when it called something absent last, in Unix ns
	longest  time.Duration
}

// followCampaign breaks what the followers of a table stand on, and looks up rows that others write.
type followCampaign struct {
	*followBed
	fleet *fleet // its Redis
	r     *rand.Rand
	gates []*followGate
	host  string // of the data source name
	dsn   string // of a user with all rights

	generation int // of the configuration, each of which has a slot of its own

	partitioned bool  // the table
	next, low   int64 // the next order, and the next one of the partition low
	front       int64 // the next row in front of all others, downwards

	mu       sync.Mutex
	orders   map[int64]*followedOrder // by id
	list     []*followedOrder         // in the order of their coming
	refusals int

	lookups, nowhere, absent atomic.Int64
}

const followConfig = `
listen: {authz: "unix:AUTHZ", proc: "", admin: "127.0.0.1:0"}
redis: {mode: sentinel, master: MASTER, addresses: [SENTINELS], member: "gate-N", username: ` + sidecarUser + `, password_env: REDIS_PASSWORD}
filters:
  orders:
    kind: local
    capacity: 5_000_000
    stale_after: 1s
    sources: [orders-db]
    snapshot: {path: "SNAPSHOT", every: 2s}
    change_log: {keep: 10_000}
sources:
  orders-db: {kind: KIND, dsn_file: "DSN", table: TABLE, id_column: COLUMN, cursor_column: id, overlap: 3s, follow: FOLLOWSLOT}
rules:
  - name: order-lookup
    match: {methods: [GET, HEAD], path: "/orders/{id}"}
    id: {path: id, format: digits}
    lookup: {filter: orders}
`

// TestFollowCampaign has others write rows of a followed table while everything that the followers
// stand on breaks. No order may be called absent that has been visible for longer than stale_after
// and a margin.
func TestFollowCampaign(t *testing.T) {
	if !soak {
		t.Skip("it takes random steps, and long: make soak runs it")
	}
	t.Run("mariadb", func(t *testing.T) { runFollowCampaign(t, mariaDialect, false) })
	t.Run("mariadb, partitioned", func(t *testing.T) { runFollowCampaign(t, mariaDialect, true) })
	t.Run("postgres", func(t *testing.T) { runFollowCampaign(t, postgresDialect, false) })
	t.Run("postgres, partitioned", func(t *testing.T) { runFollowCampaign(t, postgresDialect, true) })
}

func runFollowCampaign(t *testing.T, d dialect, partitioned bool) {
	bed := bedtest.New(t)
	s := bed.Sentinel(onlySidecars...)
	f := &fleet{t: t, bed: bed}
	for _, node := range s.Nodes() {
		f.admin = append(f.admin, f.connect(node.Addr()))
	}
	c := &followCampaign{followBed: newFollowBed(t, d, partitioned), fleet: f, r: newRand(t), host: "127.0.0.1",
		partitioned: partitioned, next: restIDs, low: 1, front: 100_000_000, orders: make(map[int64]*followedOrder)}
	c.must("INSERT INTO orders VALUES (100000001, 0, 5000000000000)")
	c.insert(3000, false)
	dir, err := os.MkdirTemp("", "follow-") // a socket's path is short
	bedtest.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c.dsn = strings.Replace(c.primary.DSN(), c.primary.Addr(), c.proxy.addr(), 1)
	binary := bed.Build("./cmd/sidecar", bedtest.Race)
	for n := range 2 {
		g := &followGate{n: n, dsn: filepath.Join(dir, fmt.Sprintf("%d.dsn", n)), snapshot: filepath.Join(dir, fmt.Sprintf("%d.snap", n))}
		c.gates = append(c.gates, g)
		g.gate = bed.Gate(binary, c.config(g, s, dir), "REDIS_PASSWORD="+sidecarUser)
		g.door = newFaces(t, "unix:"+c.socket(dir, g), "unix:"+c.socket(dir, g), nil)
	}
	c.campaign(s, dir)
}

func (c *followCampaign) socket(dir string, g *followGate) string {
	return filepath.Join(dir, fmt.Sprintf("%d.authz", g.n))
}

// config writes the file with the data source name, and returns the configuration.
func (c *followCampaign) config(g *followGate, s *testbed.Sentinel, dir string) string {
	_, port, _ := strings.Cut(c.proxy.addr(), ":")
	dsn := c.primary.DSN()
	dsn = strings.Replace(dsn, c.primary.Addr(), c.host+":"+port, 1)
	before, rest, _ := strings.Cut(dsn, "@")
	scheme, _, ok := strings.Cut(before, "://")
	if before = fmt.Sprintf("gate%d:secret", g.n); ok {
		before = scheme + "://" + before
	}
	dsn = before + "@" + rest
	bedtest.Check(c.t, os.WriteFile(g.dsn, []byte(dsn), 0o600))
	column := "order_id"
	if g.alt.Load() {
		column = "alt_id"
	}
	return strings.NewReplacer("AUTHZ", c.socket(dir, g), "MASTER", s.Master(), "SENTINELS", strings.Join(s.Addrs(), ", "),
		"gate-N", fmt.Sprintf("gate-%d", g.n), "SNAPSHOT", g.snapshot, "KIND", c.kind, "DSN", g.dsn, "TABLE", c.schema+c.table,
		"COLUMN", column, "FOLLOW", c.follow, "SLOT", strings.Replace(c.slot, "N", fmt.Sprint(c.generation), 1)).Replace(followConfig)
}

// look looks orders up at an instance until ctx ends.
func (c *followCampaign) look(ctx context.Context, g *followGate, r *rand.Rand) {
	g.certain.Store(time.Now().UnixNano())
	for i := 0; ctx.Err() == nil; wait(ctx, 4*time.Millisecond) {
		if i++; i%10 == 0 {
			c.nowhere.Add(1)
			if d := g.door.check(ctx, "GET", orderPath(nowhere*9+int64(i))); d != nil && saysAbsent(d) {
				c.absent.Add(1)
				now := time.Now().UnixNano()
				g.longest = max(g.longest, time.Duration(now-g.certain.Swap(now)))
			}
			continue
		}
		o := c.pick(r)
		if o == nil {
			continue
		}
		alt, id := g.alt.Load(), o.id
		if alt {
			id = o.alt
		}
		asked := time.Now()
		d := g.door.check(ctx, "GET", orderPath(id))
		c.lookups.Add(1)
		if d != nil && g.alt.Load() == alt {
			c.refused(g, o, id, asked, d.GetBody())
		}
	}
}

// refused reports a refusal of an order that exists.
func (c *followCampaign) refused(g *followGate, o *followedOrder, id int64, asked time.Time, body string) {
	c.mu.Lock()
	if o.gone {
		c.mu.Unlock()
		return
	}
	c.refusals++
	n, table := c.refusals, c.table
	c.mu.Unlock()
	if n >= 20 {
		return
	}
	found, whole := c.find(table, o)
	if !whole {
		c.t.Errorf("the test is at fault, the database has order %d in part:\n%s", id, found)
	}
	c.t.Errorf("gate %d refused order %d at %s, visible since %s: %s\n%s%s", g.n, id, clockTime(asked), clockTime(o.since), body, found, c.fleet.diary.around(asked))
	if n == 1 {
		c.t.Logf("%s logs: %s", c.states(), c.keep())
	}
}

func (c *followCampaign) states() string {
	var b strings.Builder
	for _, g := range c.gates {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		fmt.Fprintf(&b, "  gate %d: %s\n", g.n, (&place{gate: g.gate}).state(ctx))
		cancel()
	}
	return b.String() + c.fleet.states()
}

// keep copies the logs to where they stay.
func (c *followCampaign) keep() string {
	c.fleet.places = nil
	for _, g := range c.gates {
		c.fleet.places = append(c.fleet.places, &place{n: g.n, gate: g.gate})
	}
	defer func() { c.fleet.places = nil }()
	return c.fleet.keepLogs()
}

// recovered waits until every instance has called something absent again.
func (c *followCampaign) recovered(after string) {
	began := time.Now()
	for _, g := range c.gates {
		for g.certain.Load() < began.UnixNano() {
			if time.Since(began) > time.Minute {
				c.t.Errorf("a minute after %s, gate %d calls nothing absent\n%s%s logs: %s", after, g.n, c.fleet.diary.around(time.Now()), c.states(), c.keep())
				return
			}
			wait(c.t.Context(), 20*time.Millisecond)
		}
	}
}

func (c *followCampaign) campaign(s *testbed.Sentinel, dir string) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, g := range c.gates {
		r := rand.New(rand.NewPCG(c.r.Uint64(), 0))
		all.Go(func() { c.look(ctx, g, r) })
	}
	steps, chosen := c.steps(s, dir), regexp.MustCompile(*followStep)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(steps)), func(name string) bool { return !chosen.MatchString(name) })
	c.recovered("the start")
	for until := time.Now().Add(*followFor); time.Now().Before(until) && !c.t.Failed(); {
		name := names[c.r.IntN(len(names))]
		over := func() {}
		if !strings.HasPrefix(name, redisServers) { // they have their own notes
			over = c.fleet.diary.note("%s", name)
		}
		steps[name]()
		over()
		if c.r.IntN(2) == 0 {
			c.recovered(name)
		}
		wait(ctx, between(c.r, 0, 2*time.Second))
	}
	c.recovered("the end")
	wait(ctx, 2*time.Second)
	cancel()
	all.Wait()
	c.t.Logf("%d lookups of %d orders, %d refusals; of %d made-up IDs %d were absent; the longest time without one: %v, %v\n%s",
		c.lookups.Load(), len(c.list), c.refusals, c.nowhere.Load(), c.absent.Load(), c.gates[0].longest, c.gates[1].longest, c.fleet.diary.counts())
}
