package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

// sidecars is how many there are. The last one is behind a real Envoy.
const sidecars = 4

// place is where one sidecar runs, and the way through it.
type place struct {
	n         int
	gate      *testbed.Gate
	door      door
	redis     []*proxy   // between it and each Redis
	sentinels []*proxy   // and each Sentinel
	snapshot  string     // the path of its file
	older     []byte     // what that held a while ago; nil: nothing yet
	turn      sync.Mutex // held by who does something to it
	busy      [2]chan struct{}
	certain   atomic.Int64 // when it was asked last what it called absent, in Unix ns
	longest   atomic.Int64 // the longest time in which it called nothing absent, in ns

	interrupted atomic.Int64 // how often it was stopped or ended, and how often it went on: odd while it is
}

// What clients do at a place.
const (
	creating = iota
	looking
)

func (p *place) String() string { return fmt.Sprintf("sidecar %d", p.n) }

func (p *place) leave(what int) { <-p.busy[what] }

// fleet is the sidecars of one order service, and the Redis that they share.
type fleet struct {
	t      *testing.T
	bed    *bedtest.Bed
	store  *store
	places []*place
	admin  []*redis.Client // of each Redis, past all proxies
	diary  diary
}

// fleetOptions says what a fleet is on.
type fleetOptions struct {
	database  *testbed.MariaDB
	table     string
	freshness string
	nodes     []*testbed.Redis
	sentinel  *testbed.Sentinel // nil: a single Redis
}

// newFleet starts the sidecars and waits until all are ready.
func newFleet(t *testing.T, bed *bedtest.Bed, o fleetOptions) *fleet {
	t.Helper()
	f := &fleet{t: t, bed: bed, store: newStore(t, o.database, o.table)}
	for _, node := range o.nodes {
		f.admin = append(f.admin, f.connect(node.Addr()))
	}
	backend := httptest.NewServer(f.store)
	t.Cleanup(backend.Close)
	// A socket's path is short: the directory of a test may be too long for it.
	dir, err := os.MkdirTemp("", "fresh-")
	bedtest.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary := bed.Build("./cmd/sidecar", bedtest.Race)
	for n := range sidecars {
		p := &place{n: n, snapshot: filepath.Join(dir, fmt.Sprintf("%d.snap", n))}
		for i := range p.busy {
			p.busy[i] = make(chan struct{}, slots)
		}
		authz, proc := filepath.Join(dir, fmt.Sprintf("%d.authz", n)), filepath.Join(dir, fmt.Sprintf("%d.proc", n))
		config := strings.NewReplacer(
			"AUTHZ", "unix:"+authz, "PROC", "unix:"+proc, "SERVERS", p.reach(t, o), "SNAPSHOT", p.snapshot,
			"MEMBER", fmt.Sprintf("place-%d", n), "TABLE", o.table, "OVERLAP", overlap.String(), "FRESHNESS", o.freshness,
			"CAPACITY", fmt.Sprint(capacity()),
		).Replace(fleetConfig)
		p.gate = bed.Gate(binary, config, "ORDERS_DSN="+o.database.DSN(), "REDIS_PASSWORD="+sidecarUser)
		if n < sidecars-1 {
			p.door = newFaces(t, "unix:"+authz, "unix:"+proc, f.store)
		} else {
			p.door = newEnvoyDoor(t, envoyBefore(t, bed, authz, proc, backend.Listener.Addr().String()))
		}
		f.places = append(f.places, p)
	}
	return f
}

// sidecarUser is the user of Redis that the sidecars are, and nobody else.
const sidecarUser = "sidecar"

// onlySidecars are the arguments by which a Redis knows that user.
var onlySidecars = []string{"--user", sidecarUser, "on", ">" + sidecarUser, "~*", "&*", "+@all"}

func (f *fleet) connect(addr string) *redis.Client {
	f.t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, Username: sidecarUser, Password: sidecarUser, ContextTimeoutEnabled: true,
		DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second,
	})
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

// capacity is how many orders a filter is made for: a little more than there will be.
func capacity() int {
	if soak {
		return 1_000_000
	}
	return 50_000
}

const fleetConfig = `
listen: {authz: "AUTHZ", proc: "PROC", admin: "127.0.0.1:0"}
redis: {SERVERS, member: MEMBER, username: ` + sidecarUser + `, password_env: REDIS_PASSWORD}
filters:
  orders:
    kind: local
    freshness: FRESHNESS
    capacity: CAPACITY
    sources: [orders-db]
    snapshot: {path: "SNAPSHOT", every: 2s}
sources:
  orders-db: {kind: mysql, dsn_env: ORDERS_DSN, table: TABLE, id_column: id, cursor_column: id, overlap: OVERLAP}
rules:
  - name: order-lookup
    match: {methods: [GET, HEAD], path: "/orders/{id}"}
    id: {path: id, format: digits}
    lookup: {filter: orders}
  - name: order-create
    match: {methods: [POST], path: /orders}
    id: {format: digits}
    create: {filter: orders, learn: {response_json: orderId}}
`

// reach puts proxies between a place and what it asks, and returns its settings of
// Redis.
func (p *place) reach(t *testing.T, o fleetOptions) string {
	t.Helper()
	seenAs := make(map[string]string) // by the address of each server
	for _, node := range o.nodes {
		between := newProxy(t, node.Addr())
		p.redis = append(p.redis, between)
		seenAs[node.Addr()] = between.addr()
	}
	if o.sentinel == nil {
		return "mode: single, addresses: [" + p.redis[0].addr() + "]"
	}
	names := newTranslator(t)
	var addrs []string
	for _, addr := range o.sentinel.Addrs() {
		between := newProxy(t, names.listen(addr))
		p.sentinels = append(p.sentinels, between)
		seenAs[addr] = between.addr()
		addrs = append(addrs, between.addr())
	}
	names.set(seenAs)
	return fmt.Sprintf("mode: sentinel, master: %s, addresses: [%s]", o.sentinel.Master(), strings.Join(addrs, ", "))
}

// envoyBefore starts one with the configuration of examples/envoy, but for where the
// sidecar is: the sockets stay the same when that is started again. It returns the address
// for clients.
func envoyBefore(t *testing.T, bed *bedtest.Bed, authz, proc, backend string) string {
	t.Helper()
	config, err := bed.EnvoyExample("unix:"+authz, "unix:"+proc, backend)
	bedtest.Check(t, err)
	return bed.ListenerAddr(bed.Envoy(config), "orders")
}

// enter returns a place, other than one, where there is room to do something; nil when
// ctx ends.
func (f *fleet) enter(ctx context.Context, r *rand.Rand, other *place, what int) *place {
	for {
		for _, i := range r.Perm(len(f.places)) {
			p := f.places[i]
			if p == other {
				continue
			}
			select {
			case p.busy[what] <- struct{}{}:
				return p
			default:
			}
		}
		wait(ctx, time.Millisecond)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// close has all sidecars end, while they can still reach everything.
func (f *fleet) close() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), eventually)
	defer cancel()
	var all sync.WaitGroup
	for _, p := range f.places {
		all.Go(func() {
			if err := p.end(ctx); err != nil {
				f.t.Error(err)
			}
		})
	}
	all.Wait()
}

// end has a sidecar end in order.
func (p *place) end(ctx context.Context) error {
	if err := p.gate.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := p.gate.Wait(ctx); err != nil {
		return fmt.Errorf("%s was asked to end, and: %w; %s", p, err, p.gate.Tail())
	}
	return nil
}

// states tells what each sidecar thinks of its filter, and what is in Redis.
func (f *fleet) states() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var b strings.Builder
	for _, p := range f.places {
		fmt.Fprintf(&b, "  %s: %s\n", p, p.state(ctx))
	}
	for i, c := range f.admin {
		meta, err := c.HGetAll(ctx, logKey("meta")).Result()
		members, _ := c.ZRangeWithScores(ctx, logKey("members"), 0, -1).Result()
		last, _ := c.XRevRangeN(ctx, logKey("log"), "+", "-", 3).Result()
		fmt.Fprintf(&b, "  redis %d: meta %v (%v), members %v, log ends %v\n", i, meta, err, members, last)
	}
	return b.String()
}

// member reports whether a sidecar knows of itself that it is a member of the log.
func (p *place) member(ctx context.Context) bool {
	return strings.Contains(p.state(ctx), fmt.Sprintf(`"place-%d#`, p.n))
}

func logKey(part string) string { return "ordergate:{orders}:" + part }

func (p *place) state(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	addr, err := p.gate.Addr(ctx, "admin")
	if err != nil {
		return err.Error()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/filters/orders", nil)
	if err != nil {
		return err.Error()
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	var line bytes.Buffer
	if err == nil {
		err = json.Compact(&line, text)
	}
	if err != nil {
		return err.Error()
	}
	return line.String()
}

// keepLogs copies what the sidecars wrote to where the end of the test does not remove
// it, and returns the place.
func (f *fleet) keepLogs() string {
	dir, err := os.MkdirTemp("", "faults-freshness-")
	for _, p := range f.places {
		var text []byte
		if err == nil {
			text, err = os.ReadFile(p.gate.Output())
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(p.gate.Output())), text, 0o600)
		}
	}
	if err != nil {
		return err.Error()
	}
	return dir
}
