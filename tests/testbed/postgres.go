package testbed

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Postgres is a running PostgreSQL with its own database, postgres, and no other.
type Postgres struct {
	*Process
	addr     string
	password string
}

// Postgres starts a PostgreSQL with a fresh data directory on a free port. The
// arguments, such as "-c", "wal_level=logical", come after ours and win. When we
// are root, which PostgreSQL refuses to be, it runs as the user postgres, or else
// nobody. What it has committed survives Kill, not a crash of the machine. It
// returns a [*MissingError] if postgresql is not installed. The context bounds the
// start.
func (b *Bed) Postgres(ctx context.Context, args ...string) (*Postgres, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	as, err := lesserAccount("postgres", "nobody")
	if err != nil {
		return nil, fmt.Errorf("starting postgres: %w", err)
	}
	dir, err := os.MkdirTemp(b.dir, "postgres-")
	if err != nil {
		return nil, fmt.Errorf("starting postgres: %w", err)
	}
	pg := &Postgres{}
	data := filepath.Join(dir, "data")
	pg.password, err = b.installed(ctx, "postgresql", filepath.Join(bin, "postgres"), data, as, func(ctx context.Context, dir, password string) error {
		return initPostgres(ctx, as, bin, dir, password)
	})
	if err == nil {
		err = as.own(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("installing postgres: %w", err)
	}

	p := &Process{
		path: filepath.Join(bin, "postgres"), as: as,
		env:  []string{"LC_ALL=C"},
		stop: syscall.SIGINT, // SIGTERM waits until the last client has left
	}
	pick := func() error {
		port, err := freePort(65535)
		if err != nil {
			return err
		}
		pg.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		p.args = append([]string{
			"-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1",
			"-c", "unix_socket_directories=", "-c", "fsync=off",
		}, args...)
		return nil
	}
	if err := pick(); err != nil {
		return nil, fmt.Errorf("starting postgres: %w", err)
	}
	p.ready = func(ctx context.Context, r *run) error {
		return r.until(ctx, func() error { return pg.serves(ctx, data) })
	}
	if err := b.launchOnFreePort(ctx, "postgres", p, pick); err != nil {
		return nil, err
	}
	pg.Process = p
	return pg, nil
}

// Addr returns the server's "host:port". It stays the same over a restart.
func (p *Postgres) Addr() string { return p.addr }

// DSN returns how to connect with github.com/jackc/pgx, as the superuser.
func (p *Postgres) DSN() string {
	dsn := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", p.password),
		Host: p.addr, Path: "/postgres", RawQuery: "sslmode=disable",
	}
	return dsn.String()
}

// serves connects, and makes sure that it is not somebody else's server that has
// the port.
func (p *Postgres) serves(ctx context.Context, data string) error {
	conn, err := pgx.Connect(ctx, p.DSN())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // it has answered, or it has gone
	var got string
	if err := conn.QueryRow(ctx, "SHOW data_directory").Scan(&got); err != nil {
		return err
	}
	if got != data {
		return fmt.Errorf("%s is the PostgreSQL of %s", p.addr, got)
	}
	return nil
}

// initPostgres makes the data directory below dir. The superuser postgres, with the
// password, is its only user. It drops the templates of databases: every server copies
// what is left, and each template has as many files as the database.
func initPostgres(ctx context.Context, as *account, bin, dir, password string) error {
	secret := filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte(password), 0o600); err != nil {
		return err
	}
	if err := as.own(secret); err != nil {
		return err
	}
	data := filepath.Join(dir, "data")
	run := func(input, program string, args ...string) error {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, program), args...)
		cmd.Dir = dir
		cmd.Stdin = strings.NewReader(input)
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		cmd.WaitDelay = time.Second // its own child has our pipe too
		as.apply(cmd)
		return oneLine(cmd)
	}
	if err := run("", "initdb", "-D", data, "-U", "postgres", "-A", "scram-sha-256", "--pwfile", secret,
		"-E", "UTF8", "--locale=C", "--no-sync"); err != nil {
		return err
	}
	// In single-user mode, a line is a statement.
	return run("UPDATE pg_database SET datistemplate = false\nDROP DATABASE template0\nDROP DATABASE template1\n",
		"postgres", "--single", "-F", "-D", data, "postgres")
}

// postgresBin finds the directory of initdb and postgres: Debian's newest, which
// is not on the PATH, or else that of the PATH.
func postgresBin() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is good
	best, newest := "", 0
	for _, initdb := range found {
		bin := filepath.Dir(initdb)
		version, err := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
		if err != nil || version <= newest {
			continue
		}
		if _, err := exec.LookPath(filepath.Join(bin, "postgres")); err == nil {
			best, newest = bin, version
		}
	}
	if best != "" {
		return best, nil
	}
	initdb, err := lookPath("initdb", "postgres")
	if err != nil {
		return "", err
	}
	// What stands on the PATH may be a link to it: postgres lies beside the program.
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil {
		return "", fmt.Errorf("finding postgres: %w", err)
	}
	bin := filepath.Dir(initdb)
	if _, err := exec.LookPath(filepath.Join(bin, "postgres")); err != nil {
		return "", &MissingError{Program: "postgres", Fetch: "postgres"}
	}
	return bin, nil
}
