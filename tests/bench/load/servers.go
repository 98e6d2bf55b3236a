package main

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/go-sql-driver/mysql" // the driver mysql
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ordergate/ordergate/internal/source"
	"github.com/ordergate/ordergate/tests/testbed"
)

// database is one of the two servers.
type database struct {
	name  string
	kind  source.Kind
	start func(ctx context.Context, bed *testbed.Bed, rows int) (dsn string, server stopper, err error)
	// stream reads the rows of a SELECT, and returns how many.
	stream func(ctx context.Context, dsn, query string) (int64, error)
}

type stopper interface{ Stop() error }

var databases = []database{
	{"mariadb", source.MySQL, startMariaDB, streamMariaDB},
	{"postgres", source.Postgres, startPostgres, streamPostgres},
}

func startMariaDB(ctx context.Context, bed *testbed.Bed, rows int) (string, stopper, error) {
	server, err := bed.MariaDB(ctx, "--innodb-buffer-pool-size=1G")
	if err != nil {
		return "", nil, err
	}
	db, err := sql.Open("mysql", server.DSN())
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = db.Close() }() // done with
	for _, text := range []string{
		`CREATE TABLE orders (
			id BIGINT UNSIGNED PRIMARY KEY, order_id VARCHAR(40) NOT NULL, created_at DATETIME(6) NOT NULL, note VARCHAR(100) NOT NULL,
			UNIQUE KEY (order_id), KEY (created_at, order_id))`,
		fmt.Sprintf(`INSERT INTO orders
			SELECT seq, CONCAT('ord-', LPAD(seq, 12, '0')), '2026-01-01' + INTERVAL seq DIV 3 MICROSECOND, REPEAT('x', 100) FROM seq_1_to_%d`, rows),
		"ANALYZE TABLE orders",
	} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return "", nil, fmt.Errorf("making the table: %w", err)
		}
	}
	return server.DSN(), server, nil
}

func streamMariaDB(ctx context.Context, dsn, query string) (n int64, err error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }() // done with
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }() // Err says it
	names, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	columns, into := make([]sql.RawBytes, len(names)), make([]any, len(names))
	for i := range columns {
		into[i] = &columns[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return n, err
		}
		n++
	}
	return n, rows.Err()
}

func startPostgres(ctx context.Context, bed *testbed.Bed, rows int) (string, stopper, error) {
	server, err := bed.Postgres(ctx, "-c", "shared_buffers=1GB", "-c", "max_wal_size=4GB")
	if err != nil {
		return "", nil, err
	}
	conn, err := pgconn.Connect(ctx, server.DSN())
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = conn.Close(ctx) }() // done with
	for _, text := range []string{
		`CREATE TABLE orders (
			id bigint PRIMARY KEY, order_id varchar(40) NOT NULL UNIQUE, created_at timestamptz NOT NULL, note varchar(100) NOT NULL)`,
		fmt.Sprintf(`INSERT INTO orders
			SELECT n, 'ord-' || lpad(n::text, 12, '0'), timestamptz '2026-01-01Z' + n / 3 * interval '1 microsecond', repeat('x', 100)
			FROM generate_series(1, %d) n`, rows),
		"CREATE INDEX ON orders (created_at, order_id)",
		"VACUUM ANALYZE orders",
	} {
		if _, err := conn.Exec(ctx, text).ReadAll(); err != nil {
			return "", nil, fmt.Errorf("making the table: %w", err)
		}
	}
	return server.DSN(), server, nil
}

func streamPostgres(ctx context.Context, dsn, query string) (n int64, err error) {
	conn, err := pgconn.Connect(ctx, dsn)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }() // done with
	rows := conn.ExecParams(ctx, query, nil, nil, nil, nil)
	for rows.NextRow() {
		n++
	}
	_, err = rows.Close()
	return n, err
}
