package testbed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// MariaDB is a running mariadbd with an empty database called orders.
type MariaDB struct {
	*Process
	config *mysql.Config
}

// mariadbSize keeps the data directory small. It goes to the installation too,
// so that the first start does not make the log anew.
const mariadbSize = "--innodb-log-file-size=4M"

// MariaDB starts a mariadbd with a fresh data directory on a free port. The
// arguments, such as "--log-bin", "--binlog-format=ROW", "--server-id=1", come
// after ours and win. What it has committed survives Kill, not a crash of the
// machine. It returns a [*MissingError] if mariadb-server is not installed. The
// context bounds the start.
func (b *Bed) MariaDB(ctx context.Context, args ...string) (*MariaDB, error) {
	path, err := lookPathSbin("mariadbd", "mariadb")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "mariadb-")
	if err != nil {
		return nil, fmt.Errorf("starting mariadb: %w", err)
	}
	data := filepath.Join(dir, "data")
	m := &MariaDB{config: mysql.NewConfig()}
	m.config.User, m.config.Net, m.config.DBName = "root", "tcp", "orders"
	if m.config.Passwd, err = b.installed(ctx, "mariadb", path, data, nil, installMariaDB); err != nil {
		return nil, fmt.Errorf("installing mariadb: %w", err)
	}

	p := &Process{path: path}
	pick := func() error {
		port, err := freePort(65535)
		if err != nil {
			return err
		}
		m.config.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		p.args = append([]string{
			"--no-defaults", "--datadir=" + data, "--port=" + strconv.Itoa(port), "--bind-address=127.0.0.1",
			// Below the data directory: a whole path may be longer than a socket's may.
			"--socket=mariadb.sock", "--pid-file=mariadb.pid",
			"--skip-name-resolve", "--innodb-flush-log-at-trx-commit=2", mariadbSize, mariadbTemp(dir),
		}, append(mariadbUser(), args...)...)
		return nil
	}
	if err := pick(); err != nil {
		return nil, fmt.Errorf("starting mariadb: %w", err)
	}
	p.ready = func(ctx context.Context, r *run) error {
		return r.until(ctx, func() error { return m.serves(ctx, data) })
	}
	if err := b.launchOnFreePort(ctx, "mariadb", p, pick); err != nil {
		return nil, err
	}
	m.Process = p
	return m, nil
}

// Addr returns the server's "host:port". It stays the same over a restart.
func (m *MariaDB) Addr() string { return m.config.Addr }

// Config returns a copy of how to connect with github.com/go-sql-driver/mysql, as
// a user with all rights, replication included.
func (m *MariaDB) Config() *mysql.Config { return m.config.Clone() }

// DSN returns the same as a data source name.
func (m *MariaDB) DSN() string { return m.config.FormatDSN() }

// serves connects, and makes sure that it is not somebody else's server that has
// the port.
func (m *MariaDB) serves(ctx context.Context, data string) error {
	config := m.Config()
	config.Logger = &mysql.NopLogger{} // a server that is not up yet is no news
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }() // it has answered, or it has gone
	var got string
	if err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&got); err != nil {
		return err
	}
	if filepath.Clean(got) != data {
		return fmt.Errorf("%s is the MariaDB of %s", config.Addr, got)
	}
	return nil
}

// installMariaDB makes the data directory below dir. Root, by TCP and with the password, is
// its only user.
func installMariaDB(ctx context.Context, dir, password string) error {
	path, err := lookPathSbin("mariadb-install-db", "mariadb")
	if err != nil {
		return err
	}
	accounts := filepath.Join(dir, "accounts.sql")
	err = os.WriteFile(accounts, []byte(`CREATE DATABASE orders;
DELETE FROM mysql.global_priv WHERE User = 'root' AND Host <> '127.0.0.1';
FLUSH PRIVILEGES;
ALTER USER root@'127.0.0.1' IDENTIFIED BY '`+password+`';
`), 0o600)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, append([]string{
		"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--extra-file=" + accounts,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
		mariadbSize, mariadbTemp(dir),
	}, mariadbUser()...)...)
	cmd.Dir = dir
	return oneLine(cmd)
}

// mariadbTemp is the argument that gives a mariadbd a place of its own for temporary
// tables. One that starts deletes all that it finds there, also those of others.
func mariadbTemp(dir string) string { return "--tmpdir=" + dir }

// mariadbUser is the argument that lets mariadbd run as root. Another user could
// not work below a directory of a test's.
func mariadbUser() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// complaint is a line that says what is wrong. An installation may go on with
// advice for longer than an error is.
var complaint = regexp.MustCompile(`(?i)error|fatal`)

// oneLine runs a command and puts what it complained of, when it fails, into an
// error of one line: if there is no complaint, the end of what it wrote.
func oneLine(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.FieldsFunc(string(out), func(c rune) bool { return c == '\n' })
	if complaints := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return !complaint.MatchString(line)
	}); len(complaints) > 0 {
		lines = complaints
	}
	return fmt.Errorf("%w: %s", err, strings.Join(lines[max(0, len(lines)-tailLines):], " | "))
}

// lookPathSbin is lookPath for a server, which Debian keeps where not every
// user's PATH leads.
func lookPathSbin(program, fetch string) (string, error) {
	path, err := lookPath(program, fetch)
	var missing *MissingError
	if errors.As(err, &missing) {
		if path, ok := exec.LookPath("/usr/sbin/" + program); ok == nil {
			return path, nil
		}
	}
	return path, err
}
