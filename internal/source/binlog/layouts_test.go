package binlog

import (
	"database/sql"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// neighbors are the column types of MariaDB 10.11, each with values at the ends of its range.
var neighbors = []struct {
	typ    string
	values []string
}{
	{"TINYINT", []string{"-128", "127"}},
	{"TINYINT UNSIGNED ZEROFILL", []string{"0", "255"}},
	{"BOOLEAN", []string{"FALSE", "TRUE"}},
	{"SMALLINT", []string{"-32768", "32767"}},
	{"MEDIUMINT UNSIGNED", []string{"0", "16777215"}},
	{"INT", []string{"-2147483648", "2147483647"}},
	{"BIGINT UNSIGNED", []string{"0", "18446744073709551615"}},
	{"DECIMAL(65,30)", []string{"-99999999999999999999999999999999999.999999999999999999999999999999", "0", "99999999999999999999999999999999999.999999999999999999999999999999"}},
	{"DECIMAL(1,0)", []string{"-9", "9"}},
	{"FLOAT", []string{"-3.402823466E+38", "3.402823466E+38"}},
	{"DOUBLE", []string{"-1.7976931348623157E+308", "2.2250738585072014E-308"}},
	{"BIT(1)", []string{"b'0'", "b'1'"}},
	{"BIT(64)", []string{"b'0'", "~0"}},
	{"DATE", []string{"'0000-00-00'", "'1000-01-01'", "'9999-12-31'"}},
	{"YEAR", []string{"0", "1901", "2155"}},
	{"TIME", []string{"'-838:59:59'", "'838:59:59'"}},
	{"TIME(1)", []string{"'-838:59:59.9'", "'00:00:00'"}},
	{"TIME(3)", []string{"'-00:00:00.001'", "'838:59:59.999'"}},
	{"TIME(6)", []string{"'-838:59:59.999999'", "'838:59:59.999999'"}},
	{"DATETIME", []string{"'0000-00-00 00:00:00'", "'9999-12-31 23:59:59'"}},
	{"DATETIME(3)", []string{"'1000-01-01'", "'9999-12-31 23:59:59.999'"}},
	{"DATETIME(6)", []string{"'1000-01-01'", "'9999-12-31 23:59:59.999999'"}},
	{"TIMESTAMP DEFAULT '2000-01-01'", []string{"'0000-00-00 00:00:00'", "'1970-01-02'", "'2038-01-01'"}},
	{"TIMESTAMP(6) DEFAULT '2000-01-01'", []string{"'1970-01-02 00:00:00.000001'", "'2038-01-01 00:00:00.999999'"}},
	{"CHAR(0)", []string{"''"}},
	{"CHAR(1)", []string{"''", "'x'"}},
	{"CHAR(255) CHARACTER SET utf8mb4", []string{"''", "REPEAT('ä', 255)", "REPEAT('😀', 255)"}},
	{"CHAR(255) CHARACTER SET latin1", []string{"''", "REPEAT('y', 255)"}},
	{"CHAR(100) CHARACTER SET ucs2", []string{"''", "REPEAT('y', 100)"}},
	{"VARCHAR(0)", []string{"''"}},
	{"VARCHAR(255) CHARACTER SET latin1", []string{"''", "REPEAT('y', 255)"}},
	{"VARCHAR(256) CHARACTER SET latin1", []string{"''", "REPEAT('y', 256)"}},
	{"VARCHAR(16000) CHARACTER SET utf8mb4", []string{"''", "REPEAT('y', 16000)"}},
	{"BINARY(0)", []string{"''"}},
	{"BINARY(16)", []string{"0x00", "REPEAT(0xff, 16)"}},
	{"BINARY(255)", []string{"0x00", "REPEAT(0xff, 255)"}},
	{"VARBINARY(255)", []string{"''", "REPEAT(0xff, 255)"}},
	{"VARBINARY(60000)", []string{"''", "REPEAT(0xff, 60000)"}},
	{"TINYTEXT", []string{"''", "REPEAT('x', 255)"}},
	{"TEXT", []string{"''", "REPEAT('x', 65535)"}},
	{"MEDIUMTEXT", []string{"''", "REPEAT('x', 70000)"}},
	{"LONGTEXT", []string{"''", "REPEAT('x', 70000)"}},
	{"TINYBLOB", []string{"''", "REPEAT(0xff, 255)"}},
	{"BLOB", []string{"''", "REPEAT(0xff, 65535)"}},
	{"MEDIUMBLOB", []string{"''", "REPEAT(0xff, 70000)"}},
	{"LONGBLOB", []string{"''", "REPEAT(0xff, 70000)"}},
	{"JSON", []string{"'{}'", "'{\"a\": [1, null, \"x\"]}'"}},
	{"ENUM('a','b')", []string{"'a'", "'b'"}},
	{"ENUM(" + members(256) + ")", []string{"'m1'", "'m256'"}},
	{"SET('a','b')", []string{"''", "'a,b'"}},
	{"SET(" + members(64) + ")", []string{"''", "'m1,m64'"}},
	{"UUID", []string{"'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"}},
	{"INET4", []string{"'0.0.0.0'", "'255.255.255.255'"}},
	{"INET6", []string{"'::'", "'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'"}},
	{"POINT", []string{"POINT(0, 0)", "POINT(-1e308, 1e308)"}},
	{"LINESTRING", []string{"LineString(POINT(0, 0), POINT(1, 1))"}},
	{"POLYGON", []string{"Polygon(LineString(POINT(0, 0), POINT(1, 0), POINT(1, 1), POINT(0, 0)))"}},
	{"MULTIPOINT", []string{"MultiPoint(POINT(0, 0), POINT(1, 1))"}},
	{"MULTILINESTRING", []string{"ST_MLineFromText('MULTILINESTRING((0 0,1 1),(2 2,3 3))')"}},
	{"MULTIPOLYGON", []string{"ST_MPolyFromText('MULTIPOLYGON(((0 0,1 0,1 1,0 0)))')"}},
	{"GEOMETRYCOLLECTION", []string{"ST_GeomCollFromText('GEOMETRYCOLLECTION(POINT(0 0))')"}},
	{"GEOMETRY", []string{"POINT(0, 0)"}},
	{"INT INVISIBLE DEFAULT 1", []string{"-1", "2147483647"}},
	{"TEXT COMPRESSED", []string{"''", "REPEAT('x', 65535)"}},
	{"BLOB COMPRESSED", []string{"''", "REPEAT('x', 65535)"}},
	{"VARCHAR(500) COMPRESSED", []string{"''", "REPEAT('x', 500)"}},
	{"VARBINARY(500) COMPRESSED", []string{"''", "REPEAT('x', 500)"}},
	{"TEXT UNIQUE", []string{"''", "REPEAT('x', 65535)"}},
	{"INT AS (n + 1) VIRTUAL", nil},
	{"VARCHAR(20) AS (CONCAT('x', n)) STORED", nil},
	{"TEXT AS (REPEAT('x', n)) VIRTUAL INVISIBLE", nil},
	{"TIME /* old */", []string{"'-838:59:59'", "'838:59:59'"}},
	{"TIME(3) /* old */", []string{"'-838:59:59.999'", "'838:59:59.999'"}},
	{"DATETIME /* old */", []string{"'1000-01-01'", "'9999-12-31 23:59:59'"}},
	{"DATETIME(6) /* old */", []string{"'1000-01-01'", "'9999-12-31 23:59:59.999999'"}},
	{"TIMESTAMP /* old */ DEFAULT '2000-01-01'", []string{"'1970-01-02'", "'2038-01-01'"}},
	{"TIMESTAMP(3) /* old */ DEFAULT '2000-01-01'", []string{"'1970-01-02'", "'2038-01-01'"}},
}

func members(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("'m%d'", i+1))
	}
	return strings.Join(all, ",")
}

// layoutIDs are the columns of IDs that are tried beside each neighbor.
var layoutIDs = []string{"INT UNSIGNED NOT NULL", "BIGINT", "DECIMAL(20,0) NOT NULL", "VARCHAR(30)", "CHAR(30) NOT NULL"}

// layoutCase is a table with an ID in front of a neighbor or behind it.
type layoutCase struct {
	columns string
	null    bool
}

// layoutCases returns the tables of a neighbor.
func layoutCases(typ, id string) (all []layoutCase) {
	for _, null := range []string{" NULL", " NOT NULL"} {
		generated := strings.Contains(typ, " AS (")
		if generated {
			null = ""
		}
		v, null := "v "+typ+null, null == " NULL"
		all = append(all,
			layoutCase{"n INT PRIMARY KEY, " + v + ", id " + id, null},
			layoutCase{"n INT PRIMARY KEY, id " + id + ", " + v, null},
			layoutCase{v + ", id " + id + ", n INT PRIMARY KEY, w TEXT", null},
		)
		if generated {
			break
		}
	}
	return all
}

// TestLayouts puts each column type of MariaDB beside an ID. Each layout is refused at the start, with
// the column's name, or its IDs are followed exactly.
func TestLayouts(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("SOAK=1 runs it: it takes minutes")
	}
	server := startServer(t, "--sql-mode=NO_ENGINE_SUBSTITUTION")
	server.exec("CREATE USER gate@'127.0.0.1' IDENTIFIED BY 'geheim'")
	server.exec("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO gate@'127.0.0.1'")
	var mu sync.Mutex
	followed, refused := 0, map[string]int{}
	for _, image := range []string{"FULL", "MINIMAL", "NOBLOB"} {
		for _, metadata := range []string{"NO_LOG", "MINIMAL", "FULL"} {
			server.exec("SET GLOBAL binlog_row_image = " + image)
			server.exec("SET GLOBAL binlog_row_metadata = " + metadata)
			t.Run(image+", "+metadata, func(t *testing.T) {
				for i, neighbor := range neighbors {
					old := strings.Contains(neighbor.typ, "old")
					t.Run(strings.ReplaceAll(neighbor.typ[:min(30, len(neighbor.typ))], "/", ""), func(t *testing.T) {
						if !old { // the setting is the server's
							t.Parallel()
						}
						for n, c := range layoutCases(neighbor.typ, layoutIDs[i%len(layoutIDs)]) {
							for _, user := range []string{"root", "gate"} {
								b := server.withSettings(t, fmt.Sprintf("l_%d_%d_%s", i, n, user))
								reason := b.tryLayout(c, neighbor.values, old, user == "gate")
								mu.Lock()
								if reason == "" {
									followed++
								} else {
									refused[neighbor.typ]++
								}
								mu.Unlock()
							}
						}
					})
				}
			})
		}
	}
	sum := 0
	for _, typ := range slices.Sorted(maps.Keys(refused)) {
		t.Logf("%d refused: %s", refused[typ], typ)
		sum += refused[typ]
	}
	t.Logf("%d layouts of %d column types: %d followed, %d refused", followed+sum, len(neighbors), followed, sum)
}

// withSettings returns the bed with a new session, which has the server's present settings.
func (b *bed) withSettings(t *testing.T, table string) *bed {
	t.Helper()
	other := *b
	other.t, other.table = t, table
	var err error
	if other.db, err = sql.Open("mysql", b.DSN()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.db.Close() })
	other.db.SetMaxOpenConns(1)
	return &other
}

// tryLayout inserts rows with the values, several in one event, and updates them. It returns why the
// layout is refused, "" if its IDs are followed. A user who sees the column of IDs alone has a refusal
// with the first row.
func (b *bed) tryLayout(c layoutCase, values []string, oldTimes, blind bool) (refused string) {
	b.t.Helper()
	if oldTimes {
		b.exec("SET GLOBAL mysql56_temporal_format = OFF")
		defer b.exec("SET GLOBAL mysql56_temporal_format = ON")
	}
	b.exec("CREATE OR REPLACE TABLE orders (" + c.columns + ")")
	if oldTimes {
		b.exec("SET GLOBAL mysql56_temporal_format = ON")
	}
	defer b.exec("DROP TABLE orders")
	opts := b.options()
	opts.Logger = nil
	if blind {
		b.exec("GRANT SELECT (id) ON " + b.table + " TO gate@'127.0.0.1'")
		opts.DSN = "gate:geheim@tcp(" + b.Addr() + ")/orders"
	}
	run := start(b.t, opts, "")
	defer run.Stop()
	if err := run.CaughtUpOrEnded(); err != nil {
		if text := err.Error(); !strings.Contains(text, "column v ") && !strings.Contains(text, "index v ") {
			b.t.Errorf("%s: %v", c.columns, err)
		}
		return err.Error()
	}
	names := "n, id, v"
	if values == nil { // generated
		names, values = "n, id", []string{"", ""}
	} else if c.null {
		values = append(slices.Clone(values), "NULL")
	}
	var rows, want []string
	for n, value := range values {
		id := fmt.Sprint(70001 + n)
		rows = append(rows, "("+strings.TrimSuffix(fmt.Sprintf("%d, %s, %s", n+1, id, value), ", ")+")")
		want = append(want, id)
	}
	b.exec("INSERT INTO orders (" + names + ") VALUES " + strings.Join(rows, ", "))
	if err := run.CaughtUpOrEnded(); blind && err != nil && strings.Contains(err.Error(), "(not shown to the user) has type") {
		return err.Error()
	}
	b.exec("UPDATE orders SET id = id + 1000 WHERE n = 1")
	if names == "n, id, v" {
		b.exec("UPDATE IGNORE orders SET v = " + values[0])
	}
	b.exec("UPDATE orders SET n = n + 100")
	b.exec("DELETE FROM orders WHERE n = 101")
	want = append(want, "71001")
	if err := run.CaughtUpOrEnded(); err != nil {
		b.t.Errorf("%s: %v", c.columns, err)
	}
	if got := run.IDs(); !slices.Equal(want, got) {
		b.t.Errorf("%s: followed %q, want %q", c.columns, got, want)
	}
	return ""
}
