package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/ordergate/ordergate/tests/testbed"
)

// overlap is what the sidecars are told to be the longest transaction that creates an
// order.
const overlap = time.Second

// store is the order service: an order exists once it is committed, and only then is
// anybody told of it.
type store struct {
	db     *sql.DB
	insert *sql.Stmt
	ask    *sql.Stmt
	last   atomic.Int64 // the greatest ID so far

	mu   sync.Mutex
	slow map[int64]time.Duration // orders that took longer than overlap: about them nothing is promised
}

// newStore makes a table on the server.
func newStore(t *testing.T, server *testbed.MariaDB, table string) *store {
	t.Helper()
	config := server.Config()
	config.Logger = &mysql.NopLogger{} // a request that is given up closes its connection
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &store{db: sql.OpenDB(connector), slow: make(map[int64]time.Duration)}
	s.db.SetMaxOpenConns(40)
	s.db.SetMaxIdleConns(40)
	t.Cleanup(func() { _ = s.db.Close() })
	_, err = s.db.ExecContext(t.Context(), "CREATE TABLE "+table+" (id BIGINT AUTO_INCREMENT PRIMARY KEY, note VARCHAR(20) NOT NULL)")
	if err == nil {
		s.insert, err = s.db.PrepareContext(t.Context(), "INSERT INTO "+table+" (note) VALUES ('new')")
	}
	if err == nil {
		s.ask, err = s.db.PrepareContext(t.Context(), "SELECT 1 FROM "+table+" WHERE id = ?")
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// create makes an order and returns its ID once it is committed.
func (s *store) create(ctx context.Context) (int64, error) {
	began := time.Now()
	result, err := s.insert.ExecContext(ctx)
	if err != nil {
		return 0, fmt.Errorf("creating an order: %w", err)
	}
	id, err := result.LastInsertId()
	if took := time.Since(began); err == nil && took >= overlap {
		s.mu.Lock()
		s.slow[id] = took
		s.mu.Unlock()
	}
	for {
		last := s.last.Load()
		if id <= last || s.last.CompareAndSwap(last, id) {
			return id, err
		}
	}
}

// tookLong reports whether an order's transaction was longer than the sidecars were
// told.
func (s *store) tookLong(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slow[id] > 0
}

func (s *store) exists(ctx context.Context, id int64) (bool, error) {
	var one int
	err := s.ask.QueryRowContext(ctx, id).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// ServeHTTP is the service as an Envoy sees it.
func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost {
		id, err := s.create(context.WithoutCancel(r.Context()))
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(created(id))
		return
	}
	id, err := strconv.ParseInt(strings.TrimPrefix(r.URL.Path, "/orders/"), 10, 64)
	var there bool
	if err == nil {
		there, err = s.exists(r.Context(), id)
	}
	switch {
	case err != nil:
		w.WriteHeader(http.StatusInternalServerError)
	case !there:
		w.WriteHeader(http.StatusNotFound)
	}
}

// created is the body of the answer to a create.
func created(id int64) []byte { return fmt.Appendf(nil, `{"orderId":%d}`, id) }
