package tests

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestPasswordsChange changes the passwords of Redis and of the database, and ends all connections.
// ordergate has the new ones in files, and goes on. A reload does not take them for a change.
func TestPasswordsChange(t *testing.T) {
	needsSidecar(t, "it sends no request through Envoy")
	t.Parallel()
	setters := map[string][3]string{ // makes the user, changes the password, ends all connections
		"mysql":    {"CREATE USER gate@'127.0.0.1' IDENTIFIED BY '%s'; GRANT ALL ON *.* TO gate@'127.0.0.1'", "ALTER USER gate@'127.0.0.1' IDENTIFIED BY '%s'", "KILL USER gate@'127.0.0.1'"},
		"postgres": {"CREATE ROLE gate LOGIN SUPERUSER PASSWORD '%s'", "ALTER ROLE gate PASSWORD '%s'", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'gate'"},
	}
	for _, n := range []int{0, 2, 3} { // both databases, each driver
		tc := follows[n]
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			const first, second = "the-first", "the-second"
			bed := bedtest.New(t)
			server := bed.Redis("--user", "gate", "on", ">"+first, "~*", "&*", "+@all")
			table := tc.table(t, bed, 1000, tc.args...)
			set := setters[table.kind]
			for statement := range strings.SplitSeq(fmt.Sprintf(set[0], first), "; ") {
				table.exec(statement)
			}
			dir := t.TempDir()
			write := func(name, text string) {
				must(t, os.WriteFile(filepath.Join(dir, name+".new"), []byte(text+"\n"), 0o600))
				must(t, os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)))
			}
			write("redis", first)
			write("dsn", withLogin(t, table, first))
			config := strings.NewReplacer(
				"redis: {", "redis: {username: gate, password_file: "+filepath.Join(dir, "redis")+", ",
				"dsn_env: ORDERS_DSN", "dsn_file: "+filepath.Join(dir, "dsn"),
			).Replace(table.config(server.Addr(), tableSettings{member: "one", source: tc.source}))
			process := bed.Gate(bed.Build("./cmd/sidecar", true), config)
			gate := asTableGate(t, bed, process)
			gate.becomes(5000, "absent")

			write("redis", second)
			write("dsn", withLogin(t, table, second))
			table.exec(fmt.Sprintf(set[1], second))
			admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer admin.Close()
			must(t, admin.Do(t.Context(), "ACL", "SETUSER", "gate", "resetpass", ">"+second).Err())
			must(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "gate").Err())
			table.exec(set[2])
			table.insert(5000)
			gate.becomes(5000, "maybe")
			gate.becomes(6000, "absent")
			if got := gate.answer(1000); got == "absent" {
				t.Error("a row that was there is absent")
			}

			must(t, process.WriteConfig(bedtest.Replace(config, "name: lookup", "name: other")))
			must(t, process.Signal(syscall.SIGHUP))
			bedtest.Eventually(t, "the reload is done", func() bool { return gate.said("changed=") })
			if gate.said("restart") {
				t.Error("a reload takes a password for a change")
			}
		})
	}
}

// withLogin returns the table's data source name for the user gate.
func withLogin(t *testing.T, table *orderTable, password string) string {
	t.Helper()
	if table.kind == "mysql" {
		_, rest, _ := strings.Cut(table.dsn, "@")
		return "gate:" + password + "@" + rest
	}
	u, err := url.Parse(table.dsn)
	must(t, err)
	u.User = url.UserPassword("gate", password)
	return u.String()
}
