package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed"
)

// At most 10,000 calls wait for the locks of one name, so there are several.
const (
	lockNames  = 4
	mostCalls  = lockNames * 10_000
	mostOrders = 50
)

// patience is how long a call would wait for its lock.
const patience = 10 * time.Minute

// rig is what every attachment needs.
type rig struct {
	bed    *testbed.Bed
	set    settings
	server *testbed.Redis
	redis  *redis.Client
}

func newRig(ctx context.Context, bed *testbed.Bed, s settings) (*rig, error) {
	r := &rig{bed: bed, set: s}
	var err error
	if r.server, err = bed.Redis(ctx); err != nil {
		return nil, err
	}
	r.redis = redis.NewClient(&redis.Options{Addr: r.server.Addr()})
	return r, r.hold(ctx)
}

func (r *rig) close() { _ = r.redis.Close() }

// orders are those of a call, in sorted order. The last one is nobody's.
func (r *rig) orders(call int) (ids []int) {
	for i := range r.set.orders {
		ids = append(ids, 1_000_000+call*r.set.orders+i)
	}
	return ids
}

// name is the lock that a call waits for, by its number.
func name(call int) string { return fmt.Sprintf("lock%d", call%lockNames) }

func key(call, id int) string { return fmt.Sprintf("%s:%d", name(call), id) }

// hold takes all the locks, in Redisson's format.
func (r *rig) hold(ctx context.Context) error {
	for first := 0; first < r.set.calls; first += 1000 {
		_, err := r.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for call := first; call < min(first+1000, r.set.calls); call++ {
				for _, id := range r.orders(call) {
					p.HSet(ctx, key(call, id), "another:1", 1)
					p.PExpire(ctx, key(call, id), patience)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("taking the locks: %w", err)
		}
	}
	return nil
}

// config is that of an ordergate with rules for one order in the path and for several
// in the body.
func (r *rig) config() string {
	var locks, rules strings.Builder
	for i := range lockNames {
		fmt.Fprintf(&locks, "  lock%d: {key: \"lock%[1]d:{id}\", wait: {up_to: %v}, max_waiters_per_key: 100000, on_unknown_outcome: {hold: 10m}}\n", i, patience)
		fmt.Fprintf(&rules, "  - {name: one%d, match: {methods: [POST], path: \"/lock%[1]d/{id}\"}, id: {path: id, format: digits}, settle: {lock: lock%[1]d}}\n", i)
		fmt.Fprintf(&rules, "  - {name: some%d, match: {methods: [POST], path: /lock%[1]d}, id: {json: ids, list: true, format: digits}, settle: {lock: lock%[1]d}}\n", i)
	}
	return "listen: {proc: 127.0.0.1:0, admin: 127.0.0.1:0}\nredis: {addresses: [" + r.server.Addr() + "]}\nlocks:\n" + locks.String() + "rules:\n" + rules.String()
}

// request is that of a call: the path, and the body if it has one.
func (r *rig) request(call int) (path string, body []byte, err error) {
	ids := r.orders(call)
	if len(ids) == 1 {
		return "/" + name(call) + "/" + strconv.Itoa(ids[0]), nil, nil
	}
	body, err = json.Marshal(map[string][]int{"ids": ids})
	return "/" + name(call), body, err
}

// attachment is one way to make calls.
type attachment interface {
	// warmUp makes one call, which waits for nothing.
	warmUp(ctx context.Context) error
	// begin makes all calls, which end with ctx. The channel is closed when they have.
	begin(ctx context.Context) (done <-chan struct{})
	waiting(ctx context.Context) (int, error)
	memory(ctx context.Context) (memory, error)
	close()
}

// each runs something for every call, and closes the channel when all are over.
func each(calls int, do func(call int)) <-chan struct{} {
	var all sync.WaitGroup
	for call := range calls {
		all.Go(func() { do(call) })
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	return done
}

// inProcess is the lock package alone, in this process, with a goroutine for each call.
type inProcess struct {
	rig    *rig
	client *redis.Client
	locker *redislock.Locker
}

func startLocker(_ context.Context, r *rig) (attachment, error) {
	client := redis.NewClient(&redis.Options{Addr: r.server.Addr(), ContextTimeoutEnabled: true})
	locker, err := redislock.New(client, redislock.Options{
		Wait: redislock.Wait{UpTo: patience}, MaxWaitersPerKey: mostCalls, MaxWaiters: mostCalls,
	})
	return &inProcess{r, client, locker}, err
}

func (p *inProcess) warmUp(ctx context.Context) error { return p.call(ctx, p.rig.set.calls) }

func (p *inProcess) call(ctx context.Context, call int) error {
	var keys []string
	for _, id := range p.rig.orders(call) {
		keys = append(keys, key(call, id))
	}
	lease, err := p.locker.AcquireAll(ctx, keys)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

func (p *inProcess) begin(ctx context.Context) <-chan struct{} {
	return each(p.rig.set.calls, func(call int) { _ = p.call(ctx, call) }) // it is canceled
}

func (p *inProcess) waiting(context.Context) (int, error)   { return p.locker.Waiting(), nil }
func (p *inProcess) memory(context.Context) (memory, error) { return ownMemory() }

func (p *inProcess) close() {
	p.locker.Close()
	_ = p.client.Close()
}

// process is an ordergate in another process.
type process struct {
	rig   *rig
	pid   int
	admin string
}

func (p process) waiting(ctx context.Context) (int, error) {
	all, err := scrape(ctx, p.admin)
	return int(all["ordergate_lock_waiters"]), err
}

func (p process) memory(ctx context.Context) (memory, error) { return memoryOf(ctx, p.pid, p.admin) }

// sidecar is asked by ext_proc, as an Envoy with two workers would.
type sidecar struct {
	process
	conns [2]*grpc.ClientConn
}

func startSidecar(ctx context.Context, r *rig) (attachment, error) {
	binary, err := r.bed.Build(ctx, "./cmd/sidecar", false)
	if err != nil {
		return nil, err
	}
	gate, err := r.bed.Gate(ctx, binary, r.config())
	if err != nil {
		return nil, err
	}
	s := &sidecar{process: process{rig: r, pid: gate.PID()}}
	if s.admin, err = gate.Addr(ctx, "admin"); err != nil {
		return nil, err
	}
	addr, err := gate.Addr(ctx, "proc")
	if err != nil {
		return nil, err
	}
	for i := range s.conns {
		if s.conns[i], err = grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *sidecar) close() {
	for _, conn := range s.conns {
		_ = conn.Close()
	}
}

func (s *sidecar) warmUp(ctx context.Context) error {
	stream, err := s.send(ctx, s.rig.set.calls)
	if err != nil {
		return err
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return stream.CloseSend()
}

func (s *sidecar) begin(ctx context.Context) <-chan struct{} {
	return each(s.rig.set.calls, func(call int) {
		if stream, err := s.send(ctx, call); err == nil {
			_, _ = stream.Recv() // it is canceled
		}
	})
}

// send shows a request as Envoy does.
func (s *sidecar) send(ctx context.Context, call int) (extproc.ExternalProcessor_ProcessClient, error) {
	path, body, err := s.rig.request(call)
	if err != nil {
		return nil, err
	}
	stream, err := extproc.NewExternalProcessorClient(s.conns[call%len(s.conns)]).Process(ctx)
	if err != nil {
		return nil, err
	}
	headers := &corev3.HeaderMap{}
	for _, h := range [][2]string{
		{":authority", "orders.example"}, {":path", path}, {":method", http.MethodPost}, {":scheme", "http"},
		{"user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"},
		{"accept", "application/json"}, {"accept-encoding", "gzip, deflate, br"}, {"content-type", "application/json"},
		{"authorization", "Bearer 4f1c2a6e0b9d4c1f8a7e5d3b2c1a0f9e"}, {"x-forwarded-for", "10.0.0.1"},
		{"x-forwarded-proto", "http"}, {"x-request-id", fmt.Sprintf("26d83ae2-0f7a-4b9e-8d5c-%012d", call)},
	} {
		headers.Headers = append(headers.Headers, &corev3.HeaderValue{Key: h[0], RawValue: []byte(h[1])})
	}
	err = stream.Send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extproc.HttpHeaders{Headers: headers, EndOfStream: body == nil},
	}})
	if err != nil || body == nil {
		return stream, err
	}
	if _, err := stream.Recv(); err != nil { // it asks for the body
		return nil, err
	}
	return stream, stream.Send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{
		RequestBody: &extproc.HttpBody{Body: body, EndOfStream: true},
	}})
}

// module is an Envoy with ordergate inside, and a backend that answers at once.
type module struct {
	process
	url     string
	backend *http.Server
	client  *http.Client
}

func startModule(ctx context.Context, r *rig) (attachment, error) {
	library, err := r.bed.Module(ctx)
	if err != nil {
		return nil, err
	}
	backend, addr, err := serveOrders()
	if err != nil {
		return nil, err
	}
	envoy, gate, err := r.bed.EnvoyWithModule(ctx, library, r.config(), func(file string) (string, error) {
		config, err := r.bed.ModuleExample(file, addr)
		return strings.NewReplacer(
			" timeout: 30s", " timeout: 0s", "stream_idle_timeout: 60s", "stream_idle_timeout: 0s", "request_timeout: 20s", "request_timeout: 0s",
		).Replace(config), err
	})
	if err != nil {
		return nil, err
	}
	m := &module{process: process{rig: r, pid: envoy.PID()}, backend: backend}
	if err := gate.WaitReady(ctx); err != nil {
		return nil, err
	}
	if m.admin, err = gate.Addr(ctx, "admin"); err != nil {
		return nil, err
	}
	listener, err := envoy.ListenerAddr(ctx, "orders")
	if err != nil {
		return nil, err
	}
	m.url = "http://" + listener
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	m.client = &http.Client{Transport: transport}
	return m, nil
}

func (m *module) close() {
	m.client.CloseIdleConnections()
	_ = m.backend.Close()
}

func (m *module) warmUp(ctx context.Context) error { return m.call(ctx, m.rig.set.calls) }

func (m *module) call(ctx context.Context, call int) error {
	path, body, err := m.rig.request(call)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := m.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func (m *module) begin(ctx context.Context) <-chan struct{} {
	return each(m.rig.set.calls, func(call int) { _ = m.call(ctx, call) }) // it is canceled
}
