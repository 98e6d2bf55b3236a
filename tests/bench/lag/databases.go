package main

import (
	"context"
	"database/sql"

	_ "github.com/go-sql-driver/mysql" // the driver mysql
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/ordergate/ordergate/internal/source/binlog"
	"github.com/ordergate/ordergate/internal/source/follow"
	"github.com/ordergate/ordergate/internal/source/logical"
	"github.com/ordergate/ordergate/tests/testbed"
)

// database is one that is measured.
type database struct {
	name  string
	start func(ctx context.Context, bed *testbed.Bed) (*server, error)
}

var databases = []database{{"mariadb", startMariaDB}, {"postgres", startPostgres}}

// server is a running database with a table of orders.
type server struct {
	db       *sql.DB
	put      string // a statement with one parameter
	follower interface {
		Follow(ctx context.Context, from string, emit follow.Emit, caughtUp follow.CaughtUp) error
	}
}

func (s *server) close() { _ = s.db.Close() } // what it was for is done

// insert commits one row.
func (s *server) insert(ctx context.Context, id string) error {
	_, err := s.db.ExecContext(ctx, s.put, id)
	return err
}

// options are those of the followers.
func options(dsn string) follow.Options {
	return follow.Options{DSN: dsn, Table: "orders", IDColumn: "id"}
}

func startMariaDB(ctx context.Context, bed *testbed.Bed) (*server, error) {
	m, err := bed.MariaDB(ctx, "--log-bin", "--binlog-format=ROW", "--server-id=1")
	if err != nil {
		return nil, err
	}
	follower, err := binlog.New(binlog.Options{Options: options(m.DSN())})
	if err != nil {
		return nil, err
	}
	return open(ctx, &server{put: "INSERT INTO orders (id) VALUES (?)", follower: follower}, "mysql", m.DSN())
}

func startPostgres(ctx context.Context, bed *testbed.Bed) (*server, error) {
	p, err := bed.Postgres(ctx, "-c", "wal_level=logical")
	if err != nil {
		return nil, err
	}
	follower, err := logical.New(logical.Options{Options: options(p.DSN()), Publication: "orders", Slot: "orders"})
	if err != nil {
		return nil, err
	}
	return open(ctx, &server{put: "INSERT INTO orders (id) VALUES ($1)", follower: follower}, "pgx", p.DSN())
}

// open connects, and makes the table.
func open(ctx context.Context, s *server, driver, dsn string) (_ *server, err error) {
	if s.db, err = sql.Open(driver, dsn); err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(1)
	if _, err := s.db.ExecContext(ctx, "CREATE TABLE orders (id VARCHAR(40) PRIMARY KEY)"); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}
