package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed"
)

// connections is how many lookups are under way.
const connections = 64

// servers is everything between a client and Redis.
type servers struct {
	proxy   *toxiproxy.Proxy
	gate    *testbed.Gate
	backend *http.Server
	client  *http.Client
	url     string // of Envoy

	orders atomic.Int64
}

const gateConfig = `
listen: {authz: 127.0.0.1:0, proc: 127.0.0.1:0, admin: 127.0.0.1:0}
redis: {addresses: [%s]}
filters:
  orders: {capacity: 1_000_000, freshness: {window: %v}}
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

// start starts them; what close does not end does with the bed.
func start(ctx context.Context, bed *testbed.Bed, window time.Duration) (_ *servers, err error) {
	s := &servers{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * connections}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	redis, err := bed.Redis(ctx)
	if err != nil {
		return nil, err
	}
	s.proxy = toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "redis", "127.0.0.1:0", redis.Addr())
	if err := s.proxy.Start(); err != nil {
		return nil, err
	}
	binary, err := bed.Build(ctx, "./cmd/sidecar", false)
	if err != nil {
		return nil, err
	}
	s.gate, err = bed.Gate(ctx, binary, fmt.Sprintf(gateConfig, s.proxy.Listen, window))
	if err != nil {
		return nil, err
	}
	var addrs [2]string
	for i, name := range []string{"authz", "proc"} {
		if addrs[i], err = s.gate.Addr(ctx, name); err != nil {
			return nil, err
		}
	}
	backend, err := s.serveOrders()
	if err != nil {
		return nil, err
	}
	config, err := bed.EnvoyExample(addrs[0], addrs[1], backend)
	if err != nil {
		return nil, err
	}
	envoy, err := bed.Envoy(ctx, config)
	if err != nil {
		return nil, err
	}
	addr, err := envoy.ListenerAddr(ctx, "orders")
	s.url = "http://" + addr
	return s, err
}

func (s *servers) close() (err error) {
	s.client.CloseIdleConnections()
	if s.gate != nil { // it takes its leave, which needs Redis
		err = s.gate.Stop()
	}
	if s.proxy != nil {
		s.proxy.Stop()
	}
	if s.backend != nil {
		err = errors.Join(err, s.backend.Close())
	}
	return err
}

// serveOrders starts the order service, which makes an order of each create, and returns its address.
func (s *servers) serveOrders() (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.backend = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "{\"orderId\":%d}\n", 1e9+s.orders.Add(1)) // a client that has gone is its own affair
	})}
	go func() { _ = s.backend.Serve(l) }() // until it is closed
	return l.Addr().String(), nil
}

// setDistance has a round trip between ordergate and Redis take so much longer.
func (s *servers) setDistance(ctx context.Context, d time.Duration) error {
	s.proxy.Toxics.ResetToxics(ctx)
	there := d.Milliseconds() / 2
	for stream, ms := range map[string]int64{"upstream": there, "downstream": d.Milliseconds() - there} {
		text, err := json.Marshal(map[string]any{"type": "latency", "stream": stream, "attributes": map[string]any{"latency": ms}})
		if err == nil {
			_, err = s.proxy.Toxics.AddToxicJson(bytes.NewReader(text))
		}
		if err != nil {
			return fmt.Errorf("adding latency: %w", err)
		}
	}
	return nil
}

// seen is what clients saw.
type seen struct {
	mu       sync.Mutex
	lookups  int
	refusals []time.Duration
	creates  []time.Duration
}

// settled is how long nothing is measured after the distance was changed.
const settled = 3 * time.Second

func (s *servers) measure(ctx context.Context, c settings, d time.Duration) (benchmark.Sample, error) {
	if err := s.setDistance(ctx, d); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(settled):
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all seen
	var working sync.WaitGroup
	began := time.Now()
	ends := began.Add(c.length)
	fail := func(err error) {
		if err != nil {
			cancel(err)
		}
	}
	for worker := range connections {
		working.Go(func() {
			for n := worker; time.Now().Before(ends) && ctx.Err() == nil; n += connections {
				fail(s.lookUp(ctx, &all, n))
			}
		})
	}
	for n := range int(c.length.Seconds() * float64(c.creates)) {
		working.Go(func() {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(n) * time.Second / time.Duration(c.creates)):
				fail(s.create(ctx, &all))
			}
		})
	}
	working.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return benchmark.Sample{
		refusals:  float64(len(all.refusals)) / c.length.Seconds(),
		refused:   100 * float64(len(all.refusals)) / float64(max(1, all.lookups)),
		lookupP50: quantile(all.refusals, 0.5),
		lookupP99: quantile(all.refusals, 0.99),
		createP50: quantile(all.creates, 0.5),
		createP99: quantile(all.creates, 0.99),
	}, nil
}

// lookUp asks for an order that does not exist.
func (s *servers) lookUp(ctx context.Context, all *seen, n int) error {
	began := time.Now()
	verdict, status, err := s.ask(ctx, http.MethodGet, fmt.Sprintf("/orders/%d", n+1))
	took := time.Since(began)
	if err != nil || status != http.StatusOK && verdict != "absent" {
		return errors.Join(err, fmt.Errorf("a lookup got %d %s", status, verdict))
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.lookups++
	if verdict == "absent" {
		all.refusals = append(all.refusals, took)
	}
	return nil
}

func (s *servers) create(ctx context.Context, all *seen) error {
	began := time.Now()
	_, status, err := s.ask(ctx, http.MethodPost, "/orders")
	took := time.Since(began)
	if err != nil || status != http.StatusOK {
		return errors.Join(err, fmt.Errorf("a create got %d", status))
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.creates = append(all.creates, took)
	return nil
}

func (s *servers) ask(ctx context.Context, method, path string) (verdict string, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(""))
	if err != nil {
		return "", 0, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Header.Get("x-ordergate-verdict"), resp.StatusCode, err
}

// quantile returns one in ms, 0 of nothing.
func quantile(of []time.Duration, share float64) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return benchmark.Micros(of[min(len(of)-1, int(share*float64(len(of))))]) / 1000
}
