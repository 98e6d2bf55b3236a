package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const onceConfig = `
listen: {authz: "unix:AUTHZ", proc: "unix:PROC", admin: "127.0.0.1:0"}
redis: {addresses: [REDIS]}
locks: {settlement: {key: "order:lock:{id}", lease: 3s, wait: {up_to: 1s}, max_waiters_per_key: 100, on_unknown_outcome: {hold: 1s}}}
rules:
  - {name: settle, match: {methods: [POST], path: "/orders/{id}/settle"}, id: {path: id}, settle: {lock: settlement, once: {keep: 1h}}}
  - {name: payment, match: {methods: [POST], path: /payments}, once: {by: idempotency-key, required: true, keep: 1h, lease: 3s, hold: 1s}}
`

// effectText is in every answer of payments, and in nothing else that crosses a wire.
const effectText = `"effect":`

// paid is an answer of payments: whose effect it reports, and which of all.
type paid struct {
	Of     string `json:"of"`
	Effect int    `json:"effect"`
}

// payments is a backend that pays again whenever it is called. It can be held up before and
// after the effect, and be killed. It is safe for concurrent use.
type payments struct {
	t    *testing.T
	addr string

	mu      sync.Mutex
	server  *httptest.Server
	effects []string // whose, in the order in which they happened
	before  *stop
	after   *stop
}

// stop is a place at which the next call is held up.
type stop struct {
	reached, goOn chan struct{}
	abort         bool   // the call breaks off there; set before let
	let           func() // has the call go on
}

// newStop returns one that ends with the test at the latest.
func newStop(t *testing.T) *stop {
	s := &stop{reached: make(chan struct{}), goOn: make(chan struct{})}
	s.let = sync.OnceFunc(func() { close(s.goOn) })
	t.Cleanup(s.let)
	return s
}

func newPayments(t *testing.T) *payments {
	p := &payments{t: t}
	p.start("127.0.0.1:0")
	return p
}

func (p *payments) start(addr string) {
	p.t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	bedtest.Eventually(p.t, "the backend's port is free", func() bool {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return false
		}
		_ = server.Listener.Close()
		server.Listener = l
		return true
	})
	server.Start()
	p.t.Cleanup(server.Close)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server, p.addr = server, server.Listener.Addr().String()
}

// kill breaks all connections and takes no more. A call that is held up stays so.
func (p *payments) kill() {
	_ = p.server.Listener.Close()
	p.server.CloseClientConnections()
}

// revive starts a backend that was killed, with what it has paid.
func (p *payments) revive() { p.start(p.addr) }

// hold has the next call be held up before or after its effect.
func (p *payments) hold(after bool) *stop {
	s := newStop(p.t)
	p.mu.Lock()
	defer p.mu.Unlock()
	if after {
		p.after = s
	} else {
		p.before = s
	}
	return s
}

// wait holds a call up where it is to be.
func (p *payments) wait(at **stop) {
	p.mu.Lock()
	s := *at
	*at = nil
	p.mu.Unlock()
	if s == nil {
		return
	}
	close(s.reached)
	<-s.goOn
	if s.abort {
		panic(http.ErrAbortHandler)
	}
}

// serve pays, whether its client waits or not.
func (p *payments) serve(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	of := r.URL.Path + strings.Trim(r.Header.Get("Idempotency-Key"), `"`)
	p.wait(&p.before)
	p.mu.Lock()
	p.effects = append(p.effects, of)
	n := len(p.effects)
	p.mu.Unlock()
	p.wait(&p.after)
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"of":%q,%s%d}`, of, effectText, n)
}

// of returns how often an order or a key was paid.
func (p *payments) of(what string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range p.effects {
		if of == what {
			n++
		}
	}
	return n
}

// check returns what is wrong with an answer to a call for something, or "".
func (p *payments) check(what, body string) string {
	var a paid
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		return fmt.Sprintf("%s: the answer is not whole: %q", what, body)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.Of != what || a.Effect < 1 || a.Effect > len(p.effects) || p.effects[a.Effect-1] != what {
		return fmt.Sprintf("%s got the answer of another: %s", what, body)
	}
	return ""
}

// onceSite is an Envoy with ordergate beside it or inside.
type onceSite struct {
	t       *testing.T
	bed     *bedtest.Bed
	module  bool
	backend *payments
	wire    *wire // to Redis
	envoy   *testbed.Envoy
	gate    *testbed.Gate
	client  *http.Client
	url     string
	serial  int
}

func newOnceSite(t *testing.T, bed *bedtest.Bed, module bool, redis string, backend *payments) *onceSite {
	t.Helper()
	s := &onceSite{t: t, bed: bed, module: module, backend: backend, wire: newWire(t, redis)}
	// No connection outlives its call: an Envoy that was killed leaves none.
	s.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: eventually}
	dir, err := os.MkdirTemp("", "once-") // a socket's path is short
	bedtest.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	authz, proc := filepath.Join(dir, "authz"), filepath.Join(dir, "proc")
	config := strings.NewReplacer("AUTHZ", authz, "PROC", proc, "REDIS", s.wire.addr()).Replace(onceConfig)
	if module {
		s.envoy, s.gate = bed.EnvoyWithModule(bed.Module(), config, func(file string) (string, error) {
			return bed.ModuleExample(file, backend.addr)
		})
		bedtest.Check(t, s.gate.WaitReady(t.Context()))
	} else {
		s.gate = bed.Gate(bed.Build("./cmd/sidecar", true), config)
		example, err := bed.EnvoyExample("unix:"+authz, "unix:"+proc, backend.addr)
		bedtest.Check(t, err)
		s.envoy = bed.Envoy(example)
	}
	s.url = "http://" + bed.ListenerAddr(s.envoy, "orders")
	return s
}

// restart starts an ordergate that was killed.
func (s *onceSite) restart() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), eventually)
	defer cancel()
	bedtest.Check(s.t, s.gate.Restart(ctx))
	if s.module {
		bedtest.Check(s.t, s.gate.WaitReady(ctx))
		s.url = "http://" + s.bed.ListenerAddr(s.envoy, "orders")
	}
}

// purchase is an order, or a key, with a path of its own.
type purchase struct {
	path, key string
}

// name is what payments calls it.
func (p purchase) name() string { return p.path + p.key }

func (s *onceSite) next(byKey bool) purchase {
	s.serial++
	if byKey {
		return purchase{"/payments", fmt.Sprint("k", s.serial)}
	}
	return purchase{path: fmt.Sprintf("/orders/%d/settle", s.serial)}
}

// result is what a client gets. The status is 0 without a whole answer.
type result struct {
	status        int
	verdict, body string
}

func (s *onceSite) post(ctx context.Context, what purchase) result {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+what.path, strings.NewReader("1"))
	if err != nil {
		s.t.Error(err)
		return result{}
	}
	request.Host = "orders.example" // of all sites: a key belongs to its host
	if what.key != "" {
		request.Header.Set("Idempotency-Key", what.key)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return result{}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return result{}
	}
	return result{response.StatusCode, response.Header.Get("X-Ordergate-Verdict"), string(body)}
}

// refusals are the answers without an effect that docs/once.md has for a repeat.
var refusals = []result{{status: 409, verdict: "busy"}, {status: 409, verdict: "in_use"}, {status: 503, verdict: "unavailable"}}

// insist repeats a call until it gets an answer of the backend.
func (s *onceSite) insist(what purchase) (r result) {
	s.t.Helper()
	bedtest.Eventually(s.t, what.name()+" is answered", func() bool {
		r = s.post(s.t.Context(), what)
		if r.status == http.StatusOK {
			return true
		}
		// Without a verdict it is Envoy's own: ordergate, or the backend, is not there yet.
		known := r.status == 0 || r.verdict == "" && r.status == 503 || slices.Contains(refusals, result{status: r.status, verdict: r.verdict})
		if !known {
			s.t.Errorf("a repeat of %s got %d %s %s", what.name(), r.status, r.verdict, r.body)
		}
		return false
	})
	if wrong := s.backend.check(what.name(), r.body); wrong != "" {
		s.t.Error(wrong)
	}
	return r
}

// holdUp holds up the next call of a script that acquires or stores, or the answer to it.
func (s *onceSite) holdUp(m moment, drop bool) *stop {
	st := newStop(s.t)
	var link net.Conn // whose next answer is held up
	done := false
	s.wire.set(func(p packet) fate {
		stores := p.says(effectText)
		called := p.script() && p.says("ordergate_once:")
		here := false
		switch m {
		case beforeGrant:
			here = called && !stores
		case afterGrant:
			here = link != nil && !p.ask && p.link == link
			if called && !stores && !done {
				link = p.link
			}
		case beforeStore:
			here = called && stores
		case afterStore:
			here = link != nil && !p.ask && p.link == link
			if called && stores && !done {
				link = p.link
			}
		case inReplay:
			here = !p.ask && stores
		}
		if !here || done {
			return fate{}
		}
		done, link = true, nil
		close(st.reached)
		return fate{till: st.goOn, drop: drop, cut: drop}
	})
	return st
}

// primary is a Redis with a replica, at the wire of a site.
type primary struct {
	site          *onceSite
	redis         *testbed.Redis
	replica       *testbed.Redis
	admin, second *redis.Client
}

func newPrimary(s *onceSite, r *testbed.Redis) *primary {
	p := &primary{site: s, redis: r, admin: connect(s.t, r.Addr())}
	p.replicate()
	return p
}

// replicate starts a replica.
func (p *primary) replicate() {
	p.site.t.Helper()
	bedtest.Check(p.site.t, p.admin.ConfigSet(p.site.t.Context(), "repl-diskless-sync-delay", "0").Err()) // no wait for more replicas
	p.replica = p.site.bed.Replica(p.redis)
	p.second = connect(p.site.t, p.replica.Addr())
	bedtest.Eventually(p.site.t, "the replica has all", func() bool {
		text, err := p.second.Info(p.site.t.Context(), "replication").Result()
		return err == nil && strings.Contains(text, "master_link_status:up")
	})
}

// detach has the replica get no more writes. Those before it has.
func (p *primary) detach() {
	p.site.t.Helper()
	ctx := p.site.t.Context()
	bedtest.Check(p.site.t, p.admin.Set(ctx, "mark", "1", time.Minute).Err())
	bedtest.Eventually(p.site.t, "the replica has all", func() bool {
		n, err := p.admin.Wait(ctx, 1, time.Second).Result()
		return err == nil && n == 1
	})
	bedtest.Check(p.site.t, p.second.ReplicaOf(ctx, "NO", "ONE").Err())
}

// failOver kills the primary and has the detached replica take its place.
func (p *primary) failOver() {
	p.redis.Kill()
	p.redis, p.admin = p.replica, p.second
	p.site.wire.move(p.redis.Addr())
}

// empty kills the primary and starts it again with nothing. It may have been a replica before.
func (p *primary) empty() {
	p.site.t.Helper()
	ctx := p.site.t.Context()
	p.redis.Kill()
	bedtest.Check(p.site.t, p.redis.Restart(ctx))
	bedtest.Check(p.site.t, p.admin.ReplicaOf(ctx, "NO", "ONE").Err())
	p.site.wire.cut()
}

// has reports whether an answer is stored.
func (p *primary) has(what purchase) bool {
	ctx := p.site.t.Context()
	keys, err := p.admin.Keys(ctx, "*:ordergate_once:*").Result()
	if err != nil {
		return false
	}
	for _, key := range keys {
		if strings.Contains(p.admin.Get(ctx, key).Val(), fmt.Sprintf(`"of":%q`, what.name())) {
			return true
		}
	}
	return false
}
