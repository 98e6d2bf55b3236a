package tests

import (
	"fmt"
	"io"
	"log"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// The lock of a killed instance ends after two thirds of the lease, and its call may be repeated then. So
// an order is left before that. What is held stays for longer than the lease.
const (
	chaosLease   = 15 * time.Second
	chaosHold    = 60 * time.Second
	chaosOrder   = 5 * time.Second // how long clients call for one
	chaosMaxHold = 2 * time.Second
	chaosLate    = 15 * time.Second // on a busy machine
)

// chaosLocks are the kinds and formats of locks that store answers.
var chaosLocks = map[string]string{"exclusive": "", "string": "format: string, ", "fair": "kind: fair, ", "write": "kind: write, "}

const chaosLock = `
  KIND: {OPTIONSkey: "KIND:lock:{id}", lease: LEASE, wait: {tries: 3, every: 50ms}, on_unknown_outcome: {hold: HOLD}}`

const chaosRules = `
  - name: KIND-settle
    match: {methods: [POST], path: "/KIND/orders/{id}/settle"}
    id: {path: id}
    settle: {lock: KIND, max_hold: MAX, max_in_flight: 10000, max_in_flight_per_client: 10000, once: {keep: 1h, name: settle}}
  - name: KIND-batch
    match: {methods: [POST], path: /KIND/batch/settle}
    id: {json: ids, list: true}
    settle: {lock: KIND, max_hold: MAX, max_in_flight: 10000, max_in_flight_per_client: 10000, once: {keep: 1h, name: settle}}
  - name: KIND-both
    match: {methods: [POST], path: "/KIND/orders/{id}/both"}
    id: {path: id}
    settle: {lock: KIND, max_hold: MAX, max_in_flight: 10000, max_in_flight_per_client: 10000, once: {keep: 1h}}
    once: {by: idempotency-key, scope: [], lease: LEASE, hold: HOLD}
  - name: KIND-undo
    match: {methods: [POST], path: "/KIND/orders/{id}/undo"}
    id: {path: id}
    settle: {lock: KIND, max_hold: MAX, max_in_flight: 10000, max_in_flight_per_client: 10000, once: {forget: true, statuses: [2xx, 303]}}
  - name: KIND-undo-batch
    match: {methods: [POST], path: /KIND/batch/undo}
    id: {json: ids, list: true}
    settle: {lock: KIND, max_hold: MAX, max_in_flight: 10000, max_in_flight_per_client: 10000, once: {forget: true}}
  - name: KIND-refund
    match: {methods: [POST], path: "/KIND/orders/{id}/refund"}
    id: {path: id}
    settle: {lock: KIND, max_hold: MAX, max_in_flight: 10000, max_in_flight_per_client: 10000, once: {forget: true}}
    once: {by: idempotency-key, scope: [], lease: LEASE, hold: HOLD}
`

// chaosConfig returns a configuration with the listeners of the example.
func chaosConfig(example, redis, replicas string) string {
	listen, _, _ := strings.Cut(example, "\nredis:\n")
	text := listen + "\nredis:\n  " + redis + "\nlocks:"
	values := func(kind string) *strings.Replacer {
		return strings.NewReplacer("OPTIONS", chaosLocks[kind]+replicas, "KIND", kind,
			"LEASE", chaosLease.String(), "HOLD", chaosHold.String(), "MAX", chaosMaxHold.String())
	}
	for kind := range chaosLocks {
		text += values(kind).Replace(chaosLock)
	}
	text += "\nrules:"
	for kind := range chaosLocks {
		text += values(kind).Replace(chaosRules)
	}
	return text
}

// observed returns a configuration of which no rule is enforced.
func observed(config string) string {
	return regexp.MustCompile(`(?m)^  - name: .*$`).ReplaceAllString(config, "$0\n    mode: observe")
}

// chaosRedis is the Redis under a chaos.
type chaosRedis struct {
	nodes    []*testbed.Redis
	client   redis.UniversalClient
	section  string // of the configuration; "": a single server, behind a cable
	replicas string // options of each lock
	cluster  *testbed.Cluster
	sentinel *testbed.Sentinel
}

func chaosSingle(bed *bedtest.Bed) *chaosRedis {
	r := bed.Redis()
	return &chaosRedis{nodes: []*testbed.Redis{r}, client: redis.NewClient(&redis.Options{Addr: r.Addr()})}
}

// Every replica confirms a grant and a stored answer, so whichever is promoted has both.
func chaosCluster(bed *bedtest.Bed) *chaosRedis {
	c := bed.Cluster()
	return &chaosRedis{
		nodes: c.Nodes(), cluster: c, section: onClusterSection(c), replicas: "replicas: {confirm: 1, timeout: 500ms}, ",
		client: redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}),
	}
}

func chaosSentinel(bed *bedtest.Bed) *chaosRedis {
	s := bed.Sentinel()
	return &chaosRedis{
		nodes: s.Nodes(), sentinel: s, section: onSentinelSection(s), replicas: "replicas: {confirm: 2, timeout: 500ms}, ",
		client: redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Master(), SentinelAddrs: s.Addrs()}),
	}
}

// chaosSite is an Envoy with its ordergate, and what connects them.
type chaosSite struct {
	*stack
	redis, proc []*cable
	config      string
	killed      atomic.Bool
}

func newChaosSite(t *testing.T, bed *bedtest.Bed, r *chaosRedis, backend string) *chaosSite {
	t.Helper()
	s := &chaosSite{stack: &stack{Bed: bed, t: t, server: r.nodes[0]}}
	section := r.section
	if section == "" {
		s.redis = append(s.redis, newCable(t, r.nodes[0].Addr()))
		section = "addresses: [" + s.redis[0].addr() + "]"
	}
	s.start(settings{
		backend: backend, orders: 1,
		gate: func(example string) string {
			s.config = chaosConfig(example, section, r.replicas)
			return s.config
		},
		envoy: func(config string) string {
			return toOrdergate.ReplaceAllStringFunc(config, func(text string) string {
				at := strings.LastIndex(text, " ") + 1
				c := newCable(t, "127.0.0.1:"+text[at:])
				s.proc = append(s.proc, c)
				return text[:at] + c.addr()[strings.LastIndex(c.addr(), ":")+1:]
			})
		},
	})
	t.Cleanup(func() { // before the cables end: without Redis it goes on releasing locks for as long as --drain
		if err := s.gate.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// toOrdergate is the address of ordergate in Envoy's configuration, up to the port.
var toOrdergate = regexp.MustCompile(`cluster_name: ordergate-\w+\n\s+endpoints:\n\s+- lb_endpoints:\n\s+- endpoint: \{ address: \{ socket_address: \{ address: 127.0.0.1, port_value: \d+`)

// cable carries bytes between two programs, and can be cut.
type cable struct {
	to       string
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	ends  map[net.Conn]struct{}
	ended bool
}

func newCable(t testing.TB, to string) *cable {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	c := &cable{to: to, listener: l, ends: make(map[net.Conn]struct{})}
	c.wg.Go(c.accept)
	t.Cleanup(func() {
		c.mu.Lock()
		c.ended = true
		c.mu.Unlock()
		_ = l.Close()
		c.cut()
		c.wg.Wait()
	})
	return c
}

func (c *cable) addr() string { return c.listener.Addr().String() }

func (c *cable) accept() {
	for {
		from, err := c.listener.Accept()
		if err != nil {
			return // it ends
		}
		to, err := net.Dial("tcp", c.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		c.mu.Lock()
		c.ends[from], c.ends[to] = struct{}{}, struct{}{}
		ended := c.ended
		c.mu.Unlock()
		c.wg.Go(func() { c.carry(from, to) })
		c.wg.Go(func() { c.carry(to, from) })
		if ended {
			c.cut()
		}
	}
}

func (c *cable) carry(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = from.Close(), to.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ends, from)
}

// cut breaks all connections. What was sent may have arrived, or not.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for end := range c.ends {
		_ = end.Close()
	}
}

var silent = log.New(io.Discard, "", 0)

func onClusterSection(c *testbed.Cluster) string {
	return fmt.Sprintf("mode: cluster\n  addresses: [%s]", strings.Join(c.Addrs(), ", "))
}

func onSentinelSection(s *testbed.Sentinel) string {
	return fmt.Sprintf("mode: sentinel\n  addresses: [%s]", strings.Join(s.Addrs(), ", "))
}
