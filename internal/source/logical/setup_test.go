package logical

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ordergate/ordergate/internal/source/follow"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// dsnOf returns the DSN of another user, whose password is geheim.
func (b *bed) dsnOf(user string) string {
	b.t.Helper()
	u, err := url.Parse(b.DSN())
	if err != nil {
		b.t.Fatal(err)
	}
	u.User = url.UserPassword(user, "geheim")
	return u.String()
}

// TestRefused covers permanent errors: one line describes each.
func TestRefused(t *testing.T) {
	b := startServer(t)
	b.exec(
		"CREATE TABLE odd (id INT PRIMARY KEY, bin BYTEA, f FLOAT8, d TIMESTAMPTZ, a INT[], j JSONB)",
		"CREATE UNLOGGED TABLE unlogged (id INT)",
		"CREATE VIEW seen AS SELECT id FROM orders",
		"CREATE TABLE parted (id INT, n INT) PARTITION BY RANGE (id)",
		"CREATE TABLE parent (id INT PRIMARY KEY)",
		"CREATE TABLE child (more INT) INHERITS (parent)",
		"CREATE TABLE split (id INT) PARTITION BY RANGE (id)",
		"CREATE TABLE split_1 PARTITION OF split FOR VALUES FROM (1) TO (10) PARTITION BY RANGE (id)",
		"CREATE UNLOGGED TABLE split_11 PARTITION OF split_1 FOR VALUES FROM (1) TO (5)",
		"CREATE TABLE remote (id INT) PARTITION BY RANGE (id)",
		"CREATE FOREIGN DATA WRAPPER elsewhere", "CREATE SERVER away FOREIGN DATA WRAPPER elsewhere",
		"CREATE FOREIGN TABLE remote_1 PARTITION OF remote FOR VALUES FROM (1) TO (10) SERVER away",
		"CREATE TABLE parts (id INT) PARTITION BY RANGE (id)",
		"CREATE TABLE part PARTITION OF parts FOR VALUES FROM (1) TO (10)",
		"CREATE PUBLICATION for_root FOR TABLE parts, part WITH (publish = 'insert', publish_via_partition_root = true)",
		"CREATE TABLE made (n INT PRIMARY KEY, id INT GENERATED ALWAYS AS (n + 1) STORED)",
		"CREATE PUBLICATION for_odd FOR TABLE odd",
		"CREATE PUBLICATION for_deletes FOR TABLE orders WITH (publish = 'delete')",
		"CREATE PUBLICATION for_some FOR TABLE orders WHERE (id > 'm') WITH (publish = 'insert')",
		"CREATE PUBLICATION for_notes FOR TABLE orders (n, note) WITH (publish = 'insert')",
		"CREATE PUBLICATION for_parts FOR TABLE parted",
		"CREATE ROLE nobody LOGIN PASSWORD 'geheim'",
		"CREATE ROLE owner LOGIN PASSWORD 'geheim'",
		"GRANT CREATE ON DATABASE postgres TO owner",
		"CREATE SCHEMA private",
		"CREATE TABLE private.orders (id INT)",
		"CREATE TABLE owned (id INT)",
		"ALTER TABLE owned OWNER TO owner",
		"SELECT pg_create_logical_replication_slot('foreign_slot', 'test_decoding')",
		"SELECT pg_create_physical_replication_slot('physical_slot')",
	)
	column := func(name string) func(*Options) {
		return func(o *Options) { o.Table, o.IDColumn = "odd", name }
	}
	published := func(name string) func(*Options) { return func(o *Options) { o.Publication = name } }
	for name, test := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"table":      {func(o *Options) { o.Table = "ordres" }, "there is no such table"},
		"schema":     {func(o *Options) { o.Table = "shop.orders" }, "there is no such table"},
		"case":       {func(o *Options) { o.Table = "Orders" }, "there is no such table"},
		"column":     {func(o *Options) { o.IDColumn = "ID" }, "the table has no column ID"},
		"view":       {func(o *Options) { o.Table = "seen" }, "it is no table"},
		"unlogged":   {func(o *Options) { o.Table = "unlogged" }, "unlogged"},
		"bytea":      {column("bin"), "IDs of type bytea cannot be followed"},
		"float":      {column("f"), "IDs of type double precision cannot be followed"},
		"time":       {column("d"), "IDs of type timestamp with time zone cannot be followed"},
		"array":      {column("a"), "IDs of type integer[] cannot be followed"},
		"json":       {column("j"), "IDs of type jsonb cannot be followed"},
		"database":   {func(o *Options) { o.DSN = strings.Replace(o.DSN, "/postgres?", "/shop?", 1) }, `database "shop" does not exist`},
		"password":   {func(o *Options) { o.DSN = strings.Replace(o.DSN, "@", "x@", 1) }, "password authentication failed"},
		"not in it":  {published("for_odd"), `run: ALTER PUBLICATION "for_odd" ADD TABLE orders`},
		"no inserts": {published("for_deletes"), "SET (publish = 'insert')"},
		"some rows":  {published("for_some"), "leaves out rows"},
		"no IDs":     {published("for_notes"), "leaves out rows, or the column id"},
		"partitions": {func(o *Options) { o.Publication, o.Table = "for_parts", "parted" }, "SET (publish_via_partition_root = true)"},
		"inherited":  {func(o *Options) { o.Table = "parent" }, "the rows of child belong to the table, but the log does not have them under its name"},
		"a part":     {func(o *Options) { o.Table = "split" }, "the rows of split_11 belong to the table"},
		"away":       {func(o *Options) { o.Table = "remote" }, "the rows of remote_1 belong to the table"},
		"of a root":  {func(o *Options) { o.Table, o.Publication = "part", "for_root" }, "publish_via_partition_root = false"},
		"generated":  {func(o *Options) { o.Table = "made" }, "column id is generated"},
		"plugin":     {func(o *Options) { o.Slot = "foreign_slot" }, "is not ours"},
		"physical":   {func(o *Options) { o.Slot = "physical_slot" }, "is not ours"},
		"no owner":   {func(o *Options) { o.DSN, o.Publication = b.dsnOf("nobody"), "mine" }, `run: CREATE PUBLICATION "mine" FOR TABLE orders WITH (publish = 'insert, update')`},
		"no schema":  {func(o *Options) { o.DSN, o.Table = b.dsnOf("nobody"), "private.orders" }, "permission denied for schema private; the user needs: GRANT USAGE"},
		"no stream":  {func(o *Options) { o.DSN, o.Table, o.Publication = b.dsnOf("owner"), "owned", "owners" }, `run: ALTER ROLE "owner" REPLICATION`},
	} {
		t.Run(name, func(t *testing.T) {
			opts := b.options()
			test.change(&opts)
			f := start(t, opts, "")
			f.WantError(nil, test.want, b.password(), "geheim")
			if f.Last() != "" {
				t.Errorf("it emitted checkpoint %s", f.Last())
			}
		})
	}
}

func TestUnsuitableServers(t *testing.T) {
	b := startServer(t, "wal_level=replica")
	start(t, b.options(), "").WantError(nil, "wal_level is replica; set it to logical", b.password())
	b = startServer(t, "max_replication_slots=0")
	start(t, b.options(), "").WantError(nil, "max_replication_slots", b.password())
}

// TestEnoughRights follows as a user with few rights, once an owner has created the publication as
// the error says.
func TestEnoughRights(t *testing.T) {
	b := startServer(t)
	b.exec(
		"CREATE ROLE gate LOGIN REPLICATION PASSWORD 'geheim'",
		`CREATE PUBLICATION "Orders Gate" FOR TABLE orders WITH (publish = 'insert, update')`,
	)
	opts := b.options()
	opts.DSN, opts.Publication = b.dsnOf("gate"), "Orders Gate"
	f := start(t, opts, "")
	f.WaitCaughtUp()
	b.insert("a")
	f.Want("a")
}

// TestOwnPublication checks the follower's own publication: a table without a replica identity must
// stay updatable.
func TestOwnPublication(t *testing.T) {
	b := startServer(t)
	b.exec("CREATE TABLE keyless (id TEXT, note TEXT)", "CREATE TABLE elsewhere (n INT PRIMARY KEY, id TEXT, note TEXT)",
		"CREATE TABLE full_rows (id TEXT, note TEXT)", "ALTER TABLE full_rows REPLICA IDENTITY FULL",
		"CREATE TABLE parts (id TEXT PRIMARY KEY, note TEXT) PARTITION BY HASH (id)",
		"CREATE TABLE parts0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
		"CREATE TABLE parts1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
	)
	for table, want := range map[string][]string{
		"orders":    {"a", "b", "c"},
		"keyless":   {"a", "b"},
		"elsewhere": {"a", "b"},
		"full_rows": {"a", "b", "c"},
		"parts":     {"a", "b", "c"},
	} {
		t.Run(table, func(t *testing.T) {
			opts := b.options()
			opts.Table, opts.Publication, opts.Slot = "public."+table, table+"_p", table+"_s"
			f := start(t, opts, "")
			f.WaitCaughtUp()
			n := ""
			if table == "elsewhere" {
				n = ", n"
			}
			value := func(i int) string {
				if n == "" {
					return ""
				}
				return fmt.Sprint(", ", i)
			}
			b.exec(
				fmt.Sprintf("INSERT INTO %s (id%s) VALUES ('a'%s)", table, n, value(1)),
				fmt.Sprintf("INSERT INTO %s (id%s) VALUES ('b'%s)", table, n, value(2)),
				fmt.Sprintf("UPDATE %s SET note = 'x'", table),
				fmt.Sprintf("UPDATE %s SET id = 'c' WHERE id = 'a'", table),
				fmt.Sprintf("DELETE FROM %s", table),
			)
			f.Want(want...)
		})
	}
}

// TestWiderPublication follows a publication of all tables, with updates of rows whose ID is in no
// replica identity. Rows that may have changed are emitted.
func TestWiderPublication(t *testing.T) {
	b := startServer(t)
	b.exec("CREATE TABLE elsewhere (n INT PRIMARY KEY, id TEXT, note TEXT)", "CREATE TABLE other (id TEXT)", "CREATE PUBLICATION everything FOR ALL TABLES")
	opts := b.options()
	opts.Table, opts.Publication = "elsewhere", "everything"
	f := start(t, opts, "")
	f.WaitCaughtUp()
	b.exec("INSERT INTO other VALUES ('z')", "INSERT INTO elsewhere VALUES (1, 'a', '')", "UPDATE elsewhere SET note = 'x'",
		"UPDATE elsewhere SET id = 'b', n = 2", "INSERT INTO orders (id) VALUES ('y')", "TRUNCATE other, elsewhere")
	f.Want("a", "a", "b")
}

// TestPublicationOfASchema follows a publication that contains the table without naming it.
func TestPublicationOfASchema(t *testing.T) {
	b := startServer(t)
	if b.query("SHOW server_version_num") < "150000" {
		t.Skip("PostgreSQL 15 or newer has such publications")
	}
	b.exec("CREATE PUBLICATION ours FOR TABLES IN SCHEMA public")
	opts := b.options()
	opts.Publication = "ours"
	f := start(t, opts, "")
	f.WaitCaughtUp()
	b.insert("a")
	f.Want("a")
	b.exec("ALTER PUBLICATION ours DROP TABLES IN SCHEMA public")
	f.WantError(follow.ErrUnsure, "publication ours")
}

func TestNew(t *testing.T) {
	good := Options{Publication: "p", Slot: "s"}
	good.DSN, good.Table, good.IDColumn = "postgres://u:geheim@db:5432/shop", "orders", "id"
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Options){
		"no data source name": func(o *Options) { o.DSN = "" },
		"no table":            func(o *Options) { o.Table = "" },
		"no column":           func(o *Options) { o.IDColumn = "" },
		"neither a URL":       func(o *Options) { o.DSN = "postgres://u:geheim@db:x/shop" },
		"neither a URL post":  func(o *Options) { o.DSN = "host=db password=geheim port=geheim" },
		"schema.table":        func(o *Options) { o.Table = "a.b.c" },
		`slot "A"`:            func(o *Options) { o.Slot = "A" },
		`slot ""`:             func(o *Options) { o.Slot = "" },
		`slot "a b"`:          func(o *Options) { o.Slot = "a b" },
		`publication ""`:      func(o *Options) { o.Publication = "" },
		`publication "a'b"`:   func(o *Options) { o.Publication = "a'b" },
	} {
		opts := good
		change(&opts)
		_, err := New(opts)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// types are columns of IDs, with values, in SQL.
var types = []struct{ column, values string }{
	{"SMALLINT", "-32768, 0, 32767"},
	{"INT", "-2147483648, 2147483647"},
	{"BIGINT", "-9223372036854775808, 9223372036854775807"},
	{"NUMERIC(20,0)", "18446744073709551615, 0, 9223372036854775808"},
	{"NUMERIC", "12345678901234567890123456789"},
	{"TEXT", "'a', ' b ', 'Ωμέγα', '0042'"},
	{"VARCHAR(40)", "'a', 'b '"},
	{"CHAR(10)", "'a', 'b c '"},
	{"UUID", "'3E11FA47-71CA-11E1-9E33-C80AA9429562'"},
	{"number", "42"},
}

// TestTypes compares the emitted IDs with the text of the column.
func TestTypes(t *testing.T) {
	b := startServer(t)
	b.exec("CREATE DOMAIN number AS BIGINT CHECK (VALUE > 0)")
	for i, typ := range types {
		b.exec(fmt.Sprintf("CREATE TABLE t%d (a INT, id %s PRIMARY KEY)", i, typ.column))
		opts := b.options()
		opts.Table, opts.Publication, opts.Slot = fmt.Sprintf("t%d", i), fmt.Sprintf("p%d", i), fmt.Sprintf("s%d", i)
		f := start(t, opts, "")
		f.WaitCaughtUp()
		b.exec(fmt.Sprintf("INSERT INTO t%d (id) VALUES (%s)", i, strings.ReplaceAll(typ.values, ", ", "), (")))
		rows, err := b.connect().Query(t.Context(), fmt.Sprintf("SELECT id::text FROM t%d", i))
		if err != nil {
			t.Fatal(err)
		}
		want, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		f.Want(want...)
		f.Stop()
		b.exec(fmt.Sprintf("DROP PUBLICATION p%d", i))
		bedtest.Eventually(t, "the slot is free", func() bool {
			_, err := b.connect().Exec(t.Context(), fmt.Sprintf("SELECT pg_drop_replication_slot('s%d')", i))
			return err == nil
		})
	}
}

func TestBadIDs(t *testing.T) {
	b := startServer(t)
	b.exec("CREATE TABLE t (n INT PRIMARY KEY, id TEXT)", "ALTER TABLE t REPLICA IDENTITY FULL")
	opts := b.options()
	opts.Table = "t"
	var bad []string
	opts.OnBadRow = func(reason string) { bad = append(bad, reason) }
	f := start(t, opts, "")
	f.WaitCaughtUp()
	b.exec("INSERT INTO t VALUES (1, NULL), (2, ''), (3, 'good'), (4, repeat('x', 257)), (5, E'a\\nb'), (6, 'tail')",
		"UPDATE t SET id = 'mended' WHERE n = 2", "UPDATE t SET n = n + 100")
	f.Want("good", "tail", "mended")
	f.Stop()
	want := []string{"NULL", "empty", "more than 256", "control"}
	if len(bad) != len(want) {
		t.Fatalf("bad: %q", bad)
	}
	for i := range want {
		if !strings.Contains(bad[i], want[i]) || !strings.Contains(bad[i], "table t") {
			t.Errorf("bad: %q, want %q", bad[i], want[i])
		}
	}
}
