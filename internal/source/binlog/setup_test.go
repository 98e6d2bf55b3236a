package binlog

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestRefused covers permanent errors: one line describes each.
func TestRefused(t *testing.T) {
	b := startServer(t, "--binlog-ignore-db=hidden")
	b.exec("CREATE DATABASE hidden")
	b.exec("CREATE TABLE hidden.orders (id INT)")
	b.exec("CREATE TABLE odd (bin BINARY(16), vbin VARBINARY(40), u UUID, f DOUBLE, price DECIMAL(10,2), t TEXT, d DATETIME, e ENUM('a'), w VARCHAR(9) CHARACTER SET ucs2, z DECIMAL(9,0) ZEROFILL)")
	b.exec("CREATE VIEW seen AS SELECT * FROM orders")
	b.exec("CREATE TABLE part1 (id INT) ENGINE=MyISAM")
	b.exec("CREATE TABLE merged (id INT) ENGINE=MERGE UNION=(part1) INSERT_METHOD=LAST")
	grants := map[string]string{
		"nothing":   "",
		"unlogged":  "GRANT SELECT ON orders.orders TO unlogged@'127.0.0.1'",
		"stateless": "GRANT REPLICATION SLAVE ON *.* TO stateless@'127.0.0.1'; GRANT SELECT ON orders.orders TO stateless@'127.0.0.1'",
		"slaveless": "GRANT BINLOG MONITOR ON *.* TO slaveless@'127.0.0.1'; GRANT SELECT ON orders.orders TO slaveless@'127.0.0.1'",
		"blind":     "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO blind@'127.0.0.1'",
		"sightless": "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO sightless@'127.0.0.1'; GRANT SELECT (n) ON orders.orders TO sightless@'127.0.0.1'",
	}
	for user, grant := range grants {
		b.exec("CREATE USER " + user + "@'127.0.0.1' IDENTIFIED BY 'geheim'")
		for _, g := range strings.Split(grant, "; ") {
			if g != "" {
				b.exec(g)
			}
		}
	}
	column := func(name string) func(*Options, *mysql.Config) {
		return func(o *Options, _ *mysql.Config) { o.Table, o.IDColumn = "odd", name }
	}
	user := func(name string) func(*Options, *mysql.Config) {
		return func(_ *Options, c *mysql.Config) { c.User, c.Passwd, c.DBName = name, "geheim", "" }
	}
	for name, test := range map[string]struct {
		change func(*Options, *mysql.Config)
		want   string
	}{
		"table":      {func(o *Options, _ *mysql.Config) { o.Table = "ordres" }, "there is no table orders.ordres"},
		"view":       {func(o *Options, _ *mysql.Config) { o.Table = "seen" }, "orders.seen is a view, and the log names only the tables below it: name the table, or use follow: poll"},
		"merged":     {func(o *Options, _ *mysql.Config) { o.Table = "merged" }, "orders.merged is a table of MRG_MyISAM"},
		"column":     {func(o *Options, _ *mysql.Config) { o.IDColumn = "order_id" }, "table orders.orders has no column order_id"},
		"database":   {func(_ *Options, c *mysql.Config) { c.DBName = "shop" }, "Unknown database 'shop'"},
		"password":   {func(_ *Options, c *mysql.Config) { c.Passwd = "wrong" }, "Access denied for user 'root'"},
		"left out":   {func(o *Options, _ *mysql.Config) { o.Table, o.IDColumn = "hidden.orders", "id" }, "leaves database hidden out"},
		"binary":     {column("bin"), "type binary(16) cannot be read"},
		"varbinary":  {column("vbin"), "type varbinary(40) cannot be read"},
		"uuid":       {column("u"), "type uuid cannot be read"},
		"double":     {column("f"), "type double cannot be read"},
		"fraction":   {column("price"), "type decimal(10,2) cannot be read"},
		"text":       {column("t"), "type text cannot be read"},
		"time":       {column("d"), "type datetime cannot be read"},
		"enum":       {column("e"), "type enum('a') cannot be read"},
		"two bytes":  {column("w"), "character set ucs2 cannot be read"},
		"zeros":      {column("z"), "zerofill cannot be read"},
		"no rights":  {user("nothing"), "GRANT REPLICATION SLAVE, REPLICATION CLIENT"},
		"no log":     {user("unlogged"), "GRANT REPLICATION SLAVE, REPLICATION CLIENT"},
		"no status":  {user("stateless"), "GRANT REPLICATION SLAVE, REPLICATION CLIENT"},
		"no reading": {user("slaveless"), "GRANT REPLICATION SLAVE, REPLICATION CLIENT"},
		"no table":   {user("blind"), "GRANT SELECT"},
		"no column":  {user("sightless"), "GRANT SELECT"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := b.options()
			opts.Table = "orders.orders"
			config := b.Config()
			test.change(&opts, config)
			opts.DSN = config.FormatDSN()
			f := start(t, opts, "")
			f.WantError(nil, test.want, b.Config().Passwd, "geheim")
			if f.Last() != "" {
				t.Errorf("it emitted checkpoint %s", f.Last())
			}
		})
	}
}

// TestEnoughRights follows as users with the rights that the errors ask for, their own or a role's.
func TestEnoughRights(t *testing.T) {
	b := startServer(t)
	b.exec("CREATE ROLE reader")
	b.exec("GRANT SELECT (id) ON orders.orders TO reader")
	for user, grant := range map[string]string{
		"own":  "GRANT SELECT (id) ON orders.orders TO own@'127.0.0.1'",
		"role": "GRANT reader TO role@'127.0.0.1'; SET DEFAULT ROLE reader FOR role@'127.0.0.1'",
	} {
		t.Run(user, func(t *testing.T) {
			b.exec("CREATE USER " + user + "@'127.0.0.1' IDENTIFIED BY 'geheim'")
			b.exec("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO " + user + "@'127.0.0.1'")
			for statement := range strings.SplitSeq(grant, "; ") {
				b.exec(statement)
			}
			opts := b.options()
			opts.DSN = user + ":geheim@tcp(" + b.Addr() + ")/"
			opts.Table = "orders.orders"
			opts.ServerID = 4711
			f := start(t, opts, "")
			f.WaitCaughtUp()
			b.exec("INSERT INTO orders (id) VALUES ('" + user + "')")
			f.Want(user)
			var id string
			if err := b.db.QueryRowContext(t.Context(), "SHOW SLAVE HOSTS").Scan(&id, new(string), new(string), new(string)); err != nil || id != "4711" {
				t.Errorf("the server knows us as %s, %v", id, err)
			}
			f.Stop()
		})
	}
}

// TestUnsuitableServers starts servers whose log cannot be followed.
func TestUnsuitableServers(t *testing.T) {
	for want, args := range map[string][]string{
		"writes no binary log":       {"--skip-log-bin"},
		"binlog_format is MIXED":     {"--log-bin", "--binlog-format=MIXED"},
		"binlog_format is STATEMENT": {"--log-bin", "--binlog-format=STATEMENT"},
		"rows from others (Galera":   {"--log-bin", "--binlog-format=ROW", "--wsrep-on=ON", "--innodb-autoinc-lock-mode=2"},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			server := bedtest.New(t).MariaDB(args...)
			b := &bed{t: t, MariaDB: server, table: "orders"}
			f := start(t, b.options(), "")
			f.WantError(nil, want, b.Config().Passwd)
		})
	}
}

func TestNew(t *testing.T) {
	good := Options{}
	good.DSN, good.Table, good.IDColumn = "u:geheim@tcp(db:3306)/shop", "orders", "id"
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for dsn, want := range map[string][3]string{
		"u:p@tcp(db)/shop?timeout=9s":                 {"u", "p", "db:3306"},
		"mysql://u%40x:p%2F%3F@db:3307/shop?tls=true": {"u@x", "p/?", "db:3307"},
		"mysql://u@db/shop":                           {"u", "", "db:3306"},
	} {
		opts := good
		opts.DSN = dsn
		f, err := New(opts)
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		if got := [3]string{f.config.User, f.config.Passwd, f.config.Addr}; got != want || f.table.schema != "shop" {
			t.Errorf("%s: %q, %s", dsn, got, f.table)
		}
	}
	for want, change := range map[string]func(*Options){
		"no data source name":                func(o *Options) { o.DSN = "" },
		"no table":                           func(o *Options) { o.Table = "" },
		"no column":                          func(o *Options) { o.IDColumn = "" },
		"negative":                           func(o *Options) { o.PollEvery = -1 },
		"not of the form":                    func(o *Options) { o.DSN = "u:geheim@db:3306/shop" },
		"not of the form user:password@tcp(": func(o *Options) { o.DSN = "mysql://u:geheim@db:x/shop" },
		"in which database":                  func(o *Options) { o.DSN = "u:geheim@tcp(db:3306)/" },
		"schema.table":                       func(o *Options) { o.Table = "a.b.c" },
	} {
		opts := good
		change(&opts)
		_, err := New(opts)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestTLS follows by encrypted connections, on servers with and without a certificate.
func TestTLS(t *testing.T) {
	certs, err := testbed.NewCertificates(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{certs.CA, certs.ServerCert, certs.ServerKey} {
		if err := os.Chmod(name, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	secure := startServer(t, "--ssl-ca="+certs.CA, "--ssl-cert="+certs.ServerCert, "--ssl-key="+certs.ServerKey)
	plain := startServer(t)
	for _, b := range []*bed{secure, plain} {
		require := "REQUIRE SSL"
		if b == plain {
			require = ""
		}
		b.exec("CREATE USER gate@'127.0.0.1' IDENTIFIED BY 'geheim' " + require)
		b.exec("GRANT ALL ON *.* TO gate@'127.0.0.1'")
	}
	for _, test := range []struct {
		name, tls string
		b         *bed
		refused   string
	}{
		{"unchecked", "skip-verify", secure, ""},
		{"preferred", "preferred", secure, ""},
		{"preferred in vain", "preferred", plain, ""},
		{"none", "false", secure, "Access denied"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := test.b.Config()
			config.TLSConfig, config.User, config.Passwd = test.tls, "gate", "geheim"
			opts := test.b.options()
			opts.DSN = config.FormatDSN()
			f := start(t, opts, "")
			if test.refused != "" {
				f.WantError(nil, test.refused, test.b.Config().Passwd)
				return
			}
			f.WaitCaughtUp()
			test.b.exec(fmt.Sprintf("INSERT INTO orders (id) VALUES ('%s')", test.name))
			f.Want(test.name)
		})
	}
}
