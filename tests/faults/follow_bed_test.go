package faults

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// databaseServer is a MariaDB or a PostgreSQL.
type databaseServer interface {
	Addr() string
	DSN() string
	Kill()
	Restart(context.Context) error
}

// dialect is the difference between the databases.
type dialect struct {
	kind, driver, follow string
	start                func(bed *bedtest.Bed, n int) databaseServer
	number               string   // the type of the primary key
	series               string   // a table of the numbers n from %d to %d
	prepare              []string // of a transaction in two phases called NAME, around its rows
	commit               string
	identity             []string // has changed IDs in the log
	folder               string   // selects the data folder
	promote              []string
	// replicate makes a standby of a copied data folder, before and after its start.
	replicate func(b *followBed, r *rand.Rand, data string) error
	replicas  func(b *followBed) []string
	// partitions are those of orders whose IDs are lower than restIDs, and of the rest.
	partitions     []string
	detach, attach string        // the partition low of %s
	ways           []followedWay // to find a row
	// cut keeps the user NAME away, heal ends that.
	users, cut, heal []string
	slot             string // a setting
	schema           string // of the table, with a dot: without it, it is the user's
}

// restIDs begin the IDs of most orders.
const restIDs = 1_000_000_000

// followedWay makes a database find a row in one way: what the data source name and the table end with.
type followedWay struct{ name, dsn, table string }

var mariaDialect = dialect{
	kind: "mysql", driver: "mysql", follow: "binlog", number: "BIGINT AUTO_INCREMENT",
	start: func(bed *bedtest.Bed, n int) databaseServer {
		return bed.MariaDB("--log-bin=binlog", "--binlog-format=ROW", fmt.Sprintf("--server-id=%d", n+1), "--log-slave-updates", "--relay-log=relay", "--skip-slave-start", "--innodb-buffer-pool-size=64M")
	},
	series:  "(SELECT seq AS n FROM seq_%d_to_%d) s",
	prepare: []string{"XA START 'NAME'", "XA END 'NAME'", "XA PREPARE 'NAME'"}, commit: "XA COMMIT 'NAME'",
	users: []string{"CREATE USER NAME@'%' IDENTIFIED BY 'secret'", "GRANT ALL ON *.* TO NAME@'%'"},
	cut:   []string{"ALTER USER NAME@'%' ACCOUNT LOCK", "KILL USER NAME"}, heal: []string{"ALTER USER NAME@'%' ACCOUNT UNLOCK"},
	partitions: []string{" PARTITION BY LIST (order_id DIV 1000000000) (PARTITION low VALUES IN (0), PARTITION rest DEFAULT)"},
	detach:     "ALTER TABLE %s CONVERT PARTITION low TO TABLE low", attach: "ALTER TABLE %s CONVERT TABLE low TO PARTITION low VALUES IN (0)",
	ways:   []followedWay{{"without an index", "", " IGNORE INDEX (PRIMARY, order_id, alt_id)"}, {"by index", "", " FORCE INDEX (PRIMARY, order_id, alt_id)"}},
	folder: "SELECT @@datadir", promote: []string{"STOP SLAVE", "RESET SLAVE ALL"},
	replicate: func(*followBed, *rand.Rand, string) error { return nil },
	replicas: func(b *followBed) []string {
		c, err := mysql.ParseDSN(b.primary.DSN())
		bedtest.Check(b.t, err)
		_, port, _ := strings.Cut(c.Addr, ":")
		return []string{"STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL gtid_slave_pos = @@gtid_binlog_pos", fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%s, MASTER_USER='%s', MASTER_PASSWORD='%s', MASTER_USE_GTID=slave_pos", port, c.User, c.Passwd), "START SLAVE"}
	},
}

var postgresDialect = dialect{
	kind: "postgres", driver: "pgx", follow: "logical", number: "BIGSERIAL",
	start: func(bed *bedtest.Bed, _ int) databaseServer {
		return bed.Postgres("-c", "wal_level=logical", "-c", "max_prepared_transactions=10", "-c", "wal_keep_size=512MB")
	},
	series:   "generate_series(%d, %d) n",
	identity: []string{"CREATE UNIQUE INDEX ids ON orders (order_id, alt_id)", "ALTER TABLE orders REPLICA IDENTITY USING INDEX ids"},
	prepare:  []string{"BEGIN", "PREPARE TRANSACTION 'NAME'"}, commit: "COMMIT PREPARED 'NAME'",
	users: []string{"CREATE ROLE NAME SUPERUSER LOGIN PASSWORD 'secret'"},
	cut:   []string{"ALTER ROLE NAME NOLOGIN", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'NAME'"}, heal: []string{"ALTER ROLE NAME LOGIN"},
	slot: ", slot: ordergate_N", schema: "public.",
	partitions: []string{" PARTITION BY RANGE (order_id)", "CREATE TABLE low PARTITION OF orders FOR VALUES FROM (MINVALUE) TO (1000000000)", "CREATE TABLE rest PARTITION OF orders DEFAULT"},
	detach:     "ALTER TABLE %s DETACH PARTITION low", attach: "ALTER TABLE %s ATTACH PARTITION low FOR VALUES FROM (MINVALUE) TO (1000000000)",
	ways:   []followedWay{{"without an index", "&enable_indexscan=off&enable_indexonlyscan=off&enable_bitmapscan=off", ""}, {"by index", "&enable_seqscan=off", ""}},
	folder: "SHOW data_directory", promote: []string{"SELECT pg_promote()"},
	replicate: func(b *followBed, r *rand.Rand, data string) error {
		script := `cp -a "$1/PG_VERSION" "$1/standby.signal" && printf '%s\n' "$2" >>"$1/postgresql.auto.conf"`
		if r.IntN(2) == 0 { // as a standby has them whose slots are not copied
			script += ` && rm -rf "$1"/pg_replslot/*`
		}
		host, port, _ := strings.Cut(b.primary.Addr(), ":")
		_, rest, _ := strings.Cut(b.primary.DSN(), "postgres:")
		_, rest, _ = strings.Cut(rest, "postgres:")
		password, _, _ := strings.Cut(rest, "@")
		return exec.Command("sh", "-c", script, "sh", data, fmt.Sprintf("primary_conninfo = 'host=%s port=%s user=postgres password=%s'", host, port, password)).Run()
	},
	replicas: func(*followBed) []string { return nil },
}

// followBed is a table, the database server that has it, its standby and older copies of its folder.
type followBed struct {
	dialect
	t                *testing.T
	bed              *bedtest.Bed
	primary, standby databaseServer
	replicated       bool                      // standby is a standby
	data             map[databaseServer]string // their folders
	backup           string                    // an older copy of one
	prepared         string                    // the transaction that is prepared now
	preparedThen     string                    // the one in backup
	db               *sql.DB
	table            string
	proxy            *proxy // of all instances, which leads to the primary
}

func newFollowBed(t *testing.T, d dialect, partitioned bool) *followBed {
	bed := bedtest.New(t)
	b := &followBed{dialect: d, t: t, bed: bed, table: "orders"}
	b.primary, b.standby = d.start(bed, 0), d.start(bed, 1)
	b.data = map[databaseServer]string{b.primary: b.dataOf(b.primary), b.standby: b.dataOf(b.standby)}
	b.end(b.standby)
	b.connect()
	t.Cleanup(func() { _ = b.db.Close() })
	if partitioned {
		b.must("CREATE TABLE orders (id " + d.number + ", order_id BIGINT NOT NULL, alt_id BIGINT NOT NULL, PRIMARY KEY (id, order_id, alt_id))" + d.partitions[0])
		b.must(d.partitions[1:]...)
		b.must("CREATE INDEX order_id ON orders (order_id)", "CREATE INDEX alt_id ON orders (alt_id)")
	} else {
		b.must("CREATE TABLE orders (id " + d.number + " PRIMARY KEY, order_id BIGINT NOT NULL UNIQUE, alt_id BIGINT NOT NULL UNIQUE)")
		b.must(d.identity...)
	}
	for n := range 2 {
		b.as(n, d.users)
	}
	b.proxy = newProxy(t, b.primary.Addr())
	return b
}

func (b *followBed) connect() {
	b.t.Helper()
	if b.db != nil {
		_ = b.db.Close()
	}
	db, err := sql.Open(b.driver, b.primary.DSN())
	bedtest.Check(b.t, err)
	b.db = db
	if b.proxy == nil || b.proxy.p.Upstream == b.primary.Addr() {
		return
	}
	b.proxy.p.Stop()
	b.proxy.p.Upstream = b.primary.Addr()
	bedtest.Check(b.t, b.proxy.p.Start())
}

// as runs statements for the user of an instance.
func (b *followBed) as(n int, statements []string) {
	b.t.Helper()
	for _, s := range statements {
		b.must(strings.ReplaceAll(s, "NAME", fmt.Sprintf("gate%d", n)))
	}
}

func (b *followBed) must(statements ...string) {
	b.t.Helper()
	for _, s := range statements {
		if _, err := b.db.ExecContext(context.Background(), s); err != nil {
			b.t.Fatalf("%s: %v", s, err)
		}
	}
}

// dataOf returns a server's data folder.
func (b *followBed) dataOf(s databaseServer) string {
	b.t.Helper()
	db, err := sql.Open(b.driver, s.DSN())
	bedtest.Check(b.t, err)
	defer func() { _ = db.Close() }()
	var folder string
	bedtest.Check(b.t, db.QueryRow(b.folder).Scan(&folder))
	return filepath.Clean(folder)
}

func (b *followBed) restart(s databaseServer) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	bedtest.Check(b.t, s.Restart(ctx))
}

// copyFolder replaces one folder by another.
func (b *followBed) copyFolder(from, to string) {
	b.t.Helper()
	bedtest.Check(b.t, os.RemoveAll(to))
	out, err := exec.Command("cp", "-a", from, to).CombinedOutput()
	if err != nil {
		b.t.Fatalf("copying %s: %v: %s", from, err, out)
	}
	_ = os.Remove(filepath.Join(to, "postmaster.pid"))
}

// end kills a server and waits for the children of a postmaster, which outlive it and still write.
func (b *followBed) end(s databaseServer) {
	b.t.Helper()
	s.Kill()
	bedtest.Eventually(b.t, "the server's children have ended", func() bool {
		folders, err := filepath.Glob("/proc/[0-9]*/cwd")
		bedtest.Check(b.t, err)
		return !slices.ContainsFunc(folders, func(link string) bool {
			folder, _ := os.Readlink(link)
			return folder == b.data[s]
		})
	})
}

// kill ends the server, keeps a copy of its folder if there is none or by chance, and starts it again.
func (b *followBed) kill(r *rand.Rand) {
	data := b.data[b.primary]
	b.end(b.primary)
	if b.backup == "" || r.IntN(2) == 0 {
		if b.backup == "" {
			b.backup = data + ".old"
		}
		b.copyFolder(data, b.backup)
		b.preparedThen = b.prepared
	}
	b.restart(b.primary)
	b.connect()
}

// restore brings the server back with an older folder, if there is one.
func (b *followBed) restore(r *rand.Rand) {
	if b.backup == "" {
		b.kill(r)
		return
	}
	b.end(b.primary)
	b.copyFolder(b.backup, b.data[b.primary])
	b.restart(b.primary)
	b.replicated = false
	b.connect()
	if b.preparedThen != "" {
		b.must(strings.ReplaceAll(b.commit, "NAME", b.preparedThen))
	}
}

// replica makes the standby one, from a copy of the primary's folder.
func (b *followBed) replica(r *rand.Rand) {
	data, other := b.data[b.primary], b.data[b.standby]
	b.end(b.primary)
	b.end(b.standby)
	b.copyFolder(data, other)
	bedtest.Check(b.t, b.replicate(b, r, other))
	b.restart(b.primary)
	b.restart(b.standby)
	b.connect()
	b.onStandby(b.replicas(b)...)
	b.replicated = true
}

func (b *followBed) onStandby(statements ...string) {
	b.t.Helper()
	db, err := sql.Open(b.driver, b.standby.DSN())
	bedtest.Check(b.t, err)
	defer func() { _ = db.Close() }()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			b.t.Fatalf("on the standby: %s: %v", s, err)
		}
	}
}

// caughtUp reports whether the standby has a row.
func (b *followBed) caughtUp(id int64) bool {
	db, err := sql.Open(b.driver, b.standby.DSN())
	bedtest.Check(b.t, err)
	defer func() { _ = db.Close() }()
	var n int
	err = db.QueryRow(fmt.Sprintf("SELECT count(*) FROM %s WHERE order_id = %d", b.table, id)).Scan(&n)
	return err == nil && n == 1
}

// failover promotes the standby, which lacks what lossy wrote.
func (b *followBed) failover(lossy func()) {
	if lossy != nil {
		b.end(b.standby)
		lossy()
		b.end(b.primary)
		b.restart(b.standby)
	} else {
		b.end(b.primary)
	}
	b.onStandby(b.promote...)
	b.primary, b.standby, b.replicated = b.standby, b.primary, false
	b.connect()
}
