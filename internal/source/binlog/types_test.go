package binlog

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed/followtest"
)

// types are columns of IDs, with values, in SQL.
var types = []struct {
	column string
	values []string
}{
	{"TINYINT", []string{"-128", "0", "127"}},
	{"TINYINT UNSIGNED", []string{"0", "127", "128", "255"}},
	{"SMALLINT", []string{"-32768", "32767"}},
	{"SMALLINT UNSIGNED", []string{"32768", "65535"}},
	{"MEDIUMINT", []string{"-8388608", "8388607"}},
	{"MEDIUMINT UNSIGNED", []string{"8388608", "16777215"}},
	{"INT", []string{"-2147483648", "2147483647"}},
	{"INT UNSIGNED", []string{"2147483648", "4294967295"}},
	{"BIGINT", []string{"-9223372036854775808", "-1", "9223372036854775807"}},
	{"BIGINT UNSIGNED", []string{"0", "1", "9223372036854775807", "9223372036854775808", "18446744073709551615"}},
	{"INT(8) ZEROFILL", []string{"42", "4294967295"}},
	{"BIGINT(20) UNSIGNED ZEROFILL", []string{"1001", "18446744073709551615"}},
	{"DECIMAL(20,0)", []string{"0", "-7", "12345678901234567890", "1000000000", "99999999999999999999"}},
	{"DECIMAL(9,0) UNSIGNED", []string{"1", "999999999"}},
	{"CHAR(20) CHARACTER SET utf8mb4", []string{"'a'", "'a b'", "'trailing '", "'ordnung-ä'"}},
	{"CHAR(255)", []string{"'x'", "REPEAT('y', 255)"}},
	{"VARCHAR(40) CHARACTER SET utf8mb4", []string{"'trailing '", "'Ωμέγα'", "'0042'", "'a''b'"}},
	{"VARCHAR(300)", []string{"'a'", "REPEAT('z', 256)"}},
	{"VARCHAR(40) CHARACTER SET utf8mb3", []string{"'é'"}},
	{"VARCHAR(40) CHARACTER SET latin1", []string{"'plain'"}},
	{"VARCHAR(40) CHARACTER SET ascii", []string{"'plain'"}},
}

// TestTypes compares the emitted IDs with the text that SELECT returns.
func TestTypes(t *testing.T) {
	server := startServer(t)
	for n, settings := range [][]string{
		nil,
		{"binlog_row_metadata = MINIMAL"},
		{"binlog_row_metadata = FULL"},
		{"binlog_row_image = MINIMAL", "binlog_checksum = NONE"},
		{"log_bin_compress = ON", "log_bin_compress_min_len = 10", "binlog_checksum = CRC32"},
	} {
		t.Run(strings.Join(settings, ", "), func(t *testing.T) {
			b := *server
			for _, s := range settings {
				b.exec("SET GLOBAL " + s)
			}
			var err error
			if b.db, err = sql.Open("mysql", b.DSN()); err != nil { // with these settings
				t.Fatal(err)
			}
			defer func() { _ = b.db.Close() }()
			name := func(i int) string { return fmt.Sprintf("t%d_%d", n, i) }
			for i, typ := range types {
				b.exec(fmt.Sprintf("CREATE TABLE %s (a INT, id %s, z VARCHAR(10) DEFAULT 'z')", name(i), typ.column))
			}
			var runs []*followtest.Run
			var bad []*[]string
			for i := range types {
				opts := b.options()
				opts.Table = "orders." + name(i)
				bad = append(bad, collect(&opts))
				runs = append(runs, start(t, opts, ""))
				runs[i].WaitCaughtUp()
			}
			for i, typ := range types {
				b.exec(fmt.Sprintf("INSERT INTO %s (id) VALUES (%s)", name(i), strings.Join(typ.values, "), (")))
				b.exec(fmt.Sprintf("UPDATE %s SET z = REPEAT('y', 10)", name(i)))
			}
			for i, typ := range types {
				var want []string
				rows, err := b.db.QueryContext(t.Context(), "SELECT id FROM "+name(i))
				if err != nil {
					t.Fatal(err)
				}
				for rows.Next() {
					var id string
					if err := rows.Scan(&id); err != nil {
						t.Fatal(err)
					}
					want = append(want, id)
				}
				if err := rows.Err(); err != nil || len(want) != len(typ.values) {
					t.Fatalf("%d rows, %v", len(want), err)
				}
				runs[i].WaitCaughtUp()
				if diff := cmp.Diff(want, runs[i].IDs()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", typ.column, diff)
				}
				runs[i].Stop()
				if len(*bad[i]) > 0 {
					t.Errorf("%s: %q", typ.column, *bad[i])
				}
			}
		})
	}
}

func TestBadIDs(t *testing.T) {
	b := startServer(t)
	b.exec("CREATE TABLE t (id VARCHAR(400))")
	b.exec("CREATE TABLE l (id VARCHAR(40) CHARACTER SET latin1)")
	opts := b.options()
	opts.Table = "t"
	bad := collect(&opts)
	f := start(t, opts, "")
	f.WaitCaughtUp()
	b.exec("INSERT INTO t VALUES (NULL), (''), ('good'), (REPEAT('x', 257)), ('a\\nb'), ('tail')")
	b.exec("UPDATE t SET id = 'mended' WHERE id = ''")
	f.Want("good", "tail", "mended")
	f.Stop()
	want := []string{"NULL", "empty", "more than 256", "control"}
	if len(*bad) != len(want) {
		t.Fatalf("bad: %q", *bad)
	}
	for i := range want {
		if !strings.Contains((*bad)[i], want[i]) || !strings.Contains((*bad)[i], "orders.t") {
			t.Errorf("bad: %q, want %q", (*bad)[i], want[i])
		}
	}

	opts.Table = "l"
	bad = collect(&opts)
	f = start(t, opts, "")
	f.WaitCaughtUp()
	b.exec("INSERT INTO l VALUES ('ä'), ('a')")
	f.Want("a")
	f.Stop()
	if len(*bad) != 1 || !strings.Contains((*bad)[0], "neither ASCII nor UTF-8") {
		t.Errorf("bad: %q", *bad)
	}
}
