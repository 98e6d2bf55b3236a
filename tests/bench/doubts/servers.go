package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver mysql

	"github.com/ordergate/ordergate/tests/testbed"
)

// existing is how many orders there are at first: those with the even numbers from 2 on.
const existing = 50_000

// connections are those of the backend to the database.
const connections = 4

// servers is everything between a client and the table.
type servers struct {
	db      *sql.DB
	backend *http.Server
	client  *http.Client
	how     string
	url     string // of Envoy
	admin   string // of ordergate

	inserts atomic.Int64 // queries of the backend
}

const gateConfig = `
listen: {authz: 127.0.0.1:0, proc: 127.0.0.1:0, admin: 127.0.0.1:0}
redis: {addresses: [%s]}
filters:
  orders: {capacity: 1_000_000, sources: [orders-db]}
sources:
  orders-db: {kind: mysql, dsn_env: ORDERS_DSN, table: orders, id_column: id, overlap: 5s}
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
func start(ctx context.Context, bed *testbed.Bed, how string) (_ *servers, err error) {
	s := &servers{how: how, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	m, err := bed.MariaDB(ctx)
	if err != nil {
		return nil, err
	}
	if s.db, err = sql.Open("mysql", m.DSN()); err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(connections) // which stay: to connect takes queries of its own
	s.db.SetMaxIdleConns(connections)
	for _, q := range []string{
		"CREATE TABLE orders (id BIGINT PRIMARY KEY AUTO_INCREMENT)",
		fmt.Sprintf("INSERT INTO orders SELECT 2*seq FROM seq_1_to_%d", existing),
	} {
		if _, err := s.db.ExecContext(ctx, q); err != nil {
			return nil, err
		}
	}
	redis, err := bed.Redis(ctx)
	if err != nil {
		return nil, err
	}
	binary, err := bed.Build(ctx, "./cmd/sidecar", false)
	if err != nil {
		return nil, err
	}
	gate, err := bed.Gate(ctx, binary, fmt.Sprintf(gateConfig, redis.Addr()), "ORDERS_DSN="+m.DSN())
	if err != nil {
		return nil, err
	}
	var addrs [3]string
	for i, name := range []string{"authz", "proc", "admin"} {
		if addrs[i], err = gate.Addr(ctx, name); err != nil {
			return nil, err
		}
	}
	s.admin = "http://" + addrs[2]
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
	if s.backend != nil {
		err = s.backend.Close()
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	return err
}

// thinking is how long the backend takes to answer a create, once the order is there, of
// which a client who leaves sees thinking/leaves.
const (
	thinking = 60 * time.Millisecond
	leaves   = 2
)

// serveOrders starts the order service, and returns its address. It commits each order, and
// says nothing of it, or nothing in time.
func (s *servers) serveOrders() (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.backend = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodPost {
			fmt.Fprintln(w, `{"amount":"101"}`) // a client that has gone is its own affair
			return
		}
		// A client that leaves keeps no order from being made.
		done, err := s.db.ExecContext(context.WithoutCancel(r.Context()), "INSERT INTO orders () VALUES ()")
		s.inserts.Add(1)
		if err != nil {
			http.Error(w, "no order was made", http.StatusServiceUnavailable)
			return
		}
		id, _ := done.LastInsertId() // MariaDB has it
		if s.how == aborted {
			time.Sleep(thinking)
			fmt.Fprintf(w, "{\"orderId\":%d}\n", id)
			return
		}
		fmt.Fprintf(w, "{\"number\":%d}\n", id)
	})}
	go func() { _ = s.backend.Serve(l) }() // until it is closed
	return l.Addr().String(), nil
}

// create makes an order that nobody learns. One in ten is looked up, if its client knows of
// it.
func (s *servers) create(ctx context.Context, n int64) error {
	call := ctx
	if s.how == aborted {
		var cancel context.CancelFunc
		call, cancel = context.WithTimeout(ctx, thinking/leaves)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(call, http.MethodPost, s.url+"/orders", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		if call.Err() != nil {
			return nil // as was meant
		}
		return err
	}
	defer resp.Body.Close()
	var order struct{ Number int64 }
	if err := json.NewDecoder(resp.Body).Decode(&order); err != nil || order.Number == 0 || n%10 > 0 {
		return err
	}
	return s.mustExist(ctx, order.Number)
}

// lookUp asks for an order that does not exist, and reports whether it was refused.
func (s *servers) lookUp(ctx context.Context, id int64) (absent bool, err error) {
	_, verdict, err := s.get(ctx, id)
	return verdict == "absent", err
}

// mustExist asks for an order that exists.
func (s *servers) mustExist(ctx context.Context, id int64) error {
	status, verdict, err := s.get(ctx, id)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("order %d exists, and got %d %s", id, status, verdict)
	}
	return err
}

// counts are counters of the servers.
type counts struct{ doubts, queries int64 }

func (s *servers) counts(ctx context.Context) (c counts, err error) {
	var name string
	if err := s.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &c.queries); err != nil {
		return c, err
	}
	c.queries -= s.inserts.Add(1) // and that of this question
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.admin+"/filters/orders", nil)
	if err != nil {
		return c, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	var info struct {
		Log struct{ Doubts map[string]int64 }
	}
	err = json.NewDecoder(resp.Body).Decode(&info)
	for _, n := range info.Log.Doubts {
		c.doubts += n
	}
	return c, err
}
