package logical

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// neighbors are the column types of PostgreSQL 15, each with values at the ends of its range.
var neighbors = []struct {
	typ    string
	values []string
}{
	{"boolean", []string{"false", "true"}},
	{"smallint", []string{"-32768", "32767"}},
	{"integer", []string{"-2147483648", "2147483647"}},
	{"bigint", []string{"-9223372036854775808", "9223372036854775807"}},
	{"numeric", []string{"'NaN'", "'-Infinity'", "10::numeric ^ 1000", "-1e-1000"}},
	{"numeric(1000,500)", []string{"0", "-1e499"}},
	{"real", []string{"'-Infinity'", "3.4e38", "'NaN'"}},
	{"double precision", []string{"'-Infinity'", "1e308", "5e-324"}},
	{"money", []string{"'-92233720368547758.08'", "'92233720368547758.07'"}},
	{"char(1)", []string{"''", "'x'"}},
	{"char(1000)", []string{"''", "repeat('ä', 1000)"}},
	{`"char"`, []string{"''", "'x'"}},
	{"varchar(10)", []string{"''", "repeat('ä', 10)"}},
	{"text", []string{"''", "repeat('x', 100000)"}},
	{"name", []string{"''", "repeat('x', 63)"}},
	{"bytea", []string{"''", `decode(repeat('ff', 100000), 'hex')`}},
	{"date", []string{"'-infinity'", "'4713-01-01 BC'", "'5874897-12-31'"}},
	{"time(6)", []string{"'00:00'", "'24:00:00'"}},
	{"time with time zone", []string{"'00:00+1559'", "'24:00:00-1559'"}},
	{"timestamp", []string{"'-infinity'", "'4713-01-01 BC'", "'294276-12-31 23:59:59.999999'"}},
	{"timestamp with time zone", []string{"'infinity'", "'4713-01-02 BC'"}},
	{"interval", []string{"'-178000000 years'", "'178000000 years'"}},
	{"bit(1)", []string{"B'0'", "B'1'"}},
	{"bit varying(1000)", []string{"B''", "repeat('1', 1000)::varbit"}},
	{"uuid", []string{"'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"}},
	{"json", []string{"'null'", `'{"a": [1, null, "x"]}'`}},
	{"jsonb", []string{"'null'", `'{"a": [1, null, "x"]}'`}},
	{"jsonpath", []string{"'$'"}},
	{"xml", []string{"'<a/>'"}},
	{"inet", []string{"'0.0.0.0'", "'ffff::/128'"}},
	{"cidr", []string{"'0.0.0.0/0'", "'ffff::/128'"}},
	{"macaddr", []string{"'00:00:00:00:00:00'"}},
	{"macaddr8", []string{"'ff:ff:ff:ff:ff:ff:ff:ff'"}},
	{"point", []string{"'(-1e308,1e308)'"}},
	{"line", []string{"'{1,2,3}'"}},
	{"lseg", []string{"'[(0,0),(1,1)]'"}},
	{"box", []string{"'(1,1),(0,0)'"}},
	{"path", []string{"'[(0,0),(1,1)]'"}},
	{"polygon", []string{"'((0,0),(1,0),(1,1))'"}},
	{"circle", []string{"'<(0,0),1>'"}},
	{"tsvector", []string{"''", "'a:1A b:2'"}},
	{"tsquery", []string{"'a & b'"}},
	{"pg_lsn", []string{"'0/0'", "'FFFFFFFF/FFFFFFFF'"}},
	{"oid", []string{"0", "4294967295"}},
	{"regclass", []string{"'pg_class'"}},
	{"xid8", []string{"'0'", "'18446744073709551615'"}},
	{"int4range", []string{"'empty'", "'(,)'"}},
	{"tstzrange", []string{"'empty'", "'[-infinity,infinity]'"}},
	{"nummultirange", []string{"'{}'", "'{[1,2],(3,)}'"}},
	{"integer[]", []string{"'{}'", "'{1,NULL,2147483647}'", "'[-2:0]={1,2,3}'"}},
	{"text[][]", []string{"'{}'", `'{{"a,b",NULL},{"\"","{}"}}'`}},
	{"mood", []string{"'sad'", "'happy'"}},
	{"small", []string{"1", "9"}},
	{"pair", []string{"ROW(1, 'a')", "ROW(NULL, NULL)"}},
}

// layoutIDs are the columns of IDs that are tried beside the neighbors.
var layoutIDs = []string{"integer", "bigint", "numeric", "varchar(30)", "text", "char(30)"}

// TestLayouts puts each column type of PostgreSQL in front of an ID and behind it. The IDs are
// followed exactly.
func TestLayouts(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("SOAK=1 runs it: it takes minutes")
	}
	server := startServer(t)
	server.exec("CREATE TYPE mood AS ENUM ('sad', 'happy')", "CREATE DOMAIN small AS integer CHECK (VALUE < 10)", "CREATE TYPE pair AS (a integer, b text)")
	layouts := 0
	for i, neighbor := range neighbors {
		for n, null := range []string{"", " NOT NULL"} {
			v, id := "v "+neighbor.typ+null, "id "+layoutIDs[i%len(layoutIDs)]
			for m, columns := range []string{
				"n integer, " + v + ", " + id + " PRIMARY KEY",
				id + " PRIMARY KEY, n integer, " + v,
				v + ", w integer GENERATED ALWAYS AS (n + 1) STORED, n integer, " + id,
			} {
				layouts++
				b := *server
				b.t, b.table = t, fmt.Sprintf("l_%d_%d_%d", i, n, m)
				b.exec("CREATE TABLE orders (" + columns + ")")
				if m == 2 {
					b.exec("ALTER TABLE orders REPLICA IDENTITY FULL")
				}
				values := slices.Clone(neighbor.values)
				if null == "" {
					values = append(values, "NULL")
				}
				b.tryLayout(columns, values)
			}
		}
	}
	t.Logf("%d layouts of %d column types: all followed", layouts, len(neighbors))
}

// tryLayout inserts rows with the values, and updates them.
func (b *bed) tryLayout(columns string, values []string) {
	b.t.Helper()
	opts := b.options()
	opts.Logger = nil
	f := start(b.t, opts, "")
	if err := f.CaughtUpOrEnded(); err != nil {
		b.t.Errorf("%s: %v", columns, err)
		return
	}
	var rows, want []string
	for n, value := range values {
		id := fmt.Sprint(70001 + n)
		rows = append(rows, fmt.Sprintf("(%d, '%s', %s)", n+1, id, value))
		want = append(want, id)
	}
	b.exec("INSERT INTO orders (n, id, v) VALUES "+strings.Join(rows, ", "),
		"UPDATE orders SET id = '71001' WHERE n = 1",
		"UPDATE orders SET v = "+values[0],
		"UPDATE orders SET n = n + 100",
		"DELETE FROM orders WHERE n = 101")
	if err := f.CaughtUpOrEnded(); err != nil {
		b.t.Errorf("%s: %v", columns, err)
	}
	if got := f.IDs(); !slices.Equal(append(want, "71001"), got) {
		b.t.Errorf("%s: followed %q, want %q", columns, got, want)
	}
	f.Stop()
	b.waitSlotFree()
	b.exec("SELECT pg_drop_replication_slot('orders_slot')", "DROP PUBLICATION orders_changes", "DROP TABLE orders")
}
