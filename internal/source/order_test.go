package source

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// orderCase is a table, and its order of reading.
type orderCase struct {
	name    string
	only    Kind     // "": both
	make    []string // statements; the table's name is orders
	columns [2]string
	parts   []string // columns
	view    string   // read instead of the table
	want    string   // a query of the IDs in order
	tie     string   // the column that orders rows with equal cursors, "" if there is none
	sorts   bool     // an index is missing
}

var (
	byID   = [2]string{"order_id", "id"}
	byTime = [2]string{"order_id", "made"}
)

var orderCases = []orderCase{
	{
		name:    "number by itself",
		make:    []string{"CREATE TABLE orders (id {key})", "INSERT INTO orders SELECT n FROM {1..50}"},
		columns: [2]string{"id", "id"}, want: "SELECT id FROM orders ORDER BY id",
	}, {
		name: "text by number",
		make: []string{
			"CREATE TABLE orders (id {key}, order_id {text} NOT NULL)",
			"INSERT INTO orders SELECT n * 7 - 200, CONCAT('ord-', n % 40) FROM {1..50}",
		},
		columns: byID, want: "SELECT order_id FROM orders ORDER BY id",
	}, {
		name: "time, five at a time",
		make: []string{
			"CREATE TABLE orders (id {key}, order_id {text} NOT NULL, made {time} NOT NULL)",
			"CREATE INDEX made_x ON orders (made, id)",
			"INSERT INTO orders SELECT n, CONCAT('ord-', 99 - n), '2026-01-01 10:00:00.123456' FROM {1..5}",
			"INSERT INTO orders SELECT n + 5, CONCAT('ord-', 49 - n), '2026-01-01 10:00:00.123457' FROM {1..45}",
		},
		columns: byTime, want: "SELECT order_id FROM orders ORDER BY made, id", tie: "id",
	}, {
		name: "time with the ID in the index",
		make: []string{
			"CREATE TABLE orders (id {key}, order_id {text} NOT NULL UNIQUE, made {time} NOT NULL)",
			"CREATE INDEX made_x ON orders (made, order_id)",
			"INSERT INTO orders SELECT n, CONCAT('ord-', 99 - n), '2026-01-01 10:00:00.000001' FROM {1..50}",
		},
		columns: byTime, want: "SELECT order_id FROM orders ORDER BY made, order_id", tie: "order_id",
	}, {
		name: "time and the primary key that InnoDB appends", only: MySQL,
		make: []string{
			"CREATE TABLE orders (id {key}, order_id {text} NOT NULL, made TIMESTAMP(3) NOT NULL, KEY (made))",
			"INSERT INTO orders SELECT n, CONCAT('ord-', 99 - n), '2026-03-29 02:30:00' + INTERVAL n DIV 9 MINUTE FROM {1..50}",
		},
		columns: byTime, want: "SELECT order_id FROM orders ORDER BY made, id", tie: "id",
	}, {
		name: "time with a zone", only: Postgres,
		make: []string{
			"CREATE TABLE orders (id {key}, order_id {text} NOT NULL, made timestamptz NOT NULL)",
			"CREATE INDEX made_x ON orders (made)",
			"INSERT INTO orders SELECT n, CONCAT('ord-', 99 - n), timestamptz '2026-10-25 01:00:00.654321+02' + n / 4 * interval '10 min' FROM {1..48}",
			"INSERT INTO orders VALUES (49, 'first', '-infinity'), (50, 'last', 'infinity'), (51, 'old', '0044-03-15 BC')",
		},
		columns: byTime, want: "SELECT order_id FROM orders ORDER BY made, order_id", tie: "order_id", sorts: true,
	}, {
		name: "day without an index",
		make: []string{
			"CREATE TABLE orders (id {key}, order_id {text} NOT NULL, made DATE NOT NULL)",
			"INSERT INTO orders SELECT n, CONCAT('ord-', 10 + n), '2026-01-01' FROM {1..50}",
		},
		columns: byTime, want: "SELECT order_id FROM orders ORDER BY id", sorts: true,
	}, {
		name: "numbers past all integers",
		make: []string{
			"CREATE TABLE orders (id DECIMAL(30,2) PRIMARY KEY, order_id {text} NOT NULL)",
			"INSERT INTO orders SELECT 9007199254740993000000 + n / 4.0, CONCAT('ord-', n) FROM {1..50}",
		},
		columns: byID, want: "SELECT order_id FROM orders ORDER BY id",
	}, {
		name: "unsigned numbers", only: MySQL,
		make: []string{
			"CREATE TABLE orders (id BIGINT UNSIGNED PRIMARY KEY, order_id {text} NOT NULL)",
			"INSERT INTO orders SELECT 18446744073709551615 - n, CONCAT('ord-', n) FROM {1..40}",
			"INSERT INTO orders SELECT 9007199254740990 + n, CONCAT('o-', n) FROM {1..10}",
		},
		columns: byID, want: "SELECT order_id FROM orders ORDER BY id",
	}, {
		name: "unsigned numbers by themselves", only: MySQL,
		make: []string{
			"CREATE TABLE orders (id BIGINT UNSIGNED PRIMARY KEY)",
			"INSERT INTO orders SELECT 18446744073709551615 - n FROM {1..40}",
		},
		columns: [2]string{"id", "id"}, want: "SELECT id FROM orders ORDER BY id",
	}, {
		name: "texts in the collation's order",
		make: []string{
			"CREATE TABLE orders (order_id {text} PRIMARY KEY)",
			"INSERT INTO orders SELECT CONCAT('o', n) FROM {1..20}",
			"INSERT INTO orders SELECT CONCAT('O', n, 'x') FROM {1..20}",
			`INSERT INTO orders VALUES ('ä'), ('zz'), ('Z'), ('日本'), ('it''s'), ('a\b'), ('"'), ('%s'), ('$1'), ('?')`,
		},
		columns: [2]string{"order_id", "order_id"}, want: "SELECT order_id FROM orders ORDER BY order_id",
	}, {
		name: "padded texts",
		make: []string{
			"CREATE TABLE orders (order_id CHAR(20) PRIMARY KEY)",
			"INSERT INTO orders SELECT CONCAT('o', n) FROM {1..50}",
		},
		columns: [2]string{"order_id", "order_id"}, want: "SELECT RTRIM(order_id) FROM orders ORDER BY order_id",
	}, {
		name: "texts in another character set", only: MySQL,
		make: []string{
			"CREATE TABLE orders (order_id VARCHAR(20) CHARACTER SET latin1 PRIMARY KEY)",
			"INSERT INTO orders SELECT CONCAT('ö', n, 'é') FROM {1..50}",
		},
		columns: [2]string{"order_id", "order_id"}, want: "SELECT order_id FROM orders ORDER BY order_id",
	}, {
		name: "texts that the collation takes for the same", only: MySQL,
		make: []string{
			"CREATE TABLE orders (order_id {text} NOT NULL, made {time} NOT NULL, KEY (made, order_id)) COLLATE utf8mb4_general_ci",
			"INSERT INTO orders VALUES ('a', '2026-01-01'), ('A', '2026-01-01'), ('a ', '2026-01-01'), ('ä', '2026-01-01'), ('b', '2026-01-01'), ('B', '2026-01-02'), ('b', '2026-01-02')",
		},
		columns: byTime, want: "SELECT order_id FROM orders ORDER BY made, CAST(order_id AS BINARY)", tie: "order_id", sorts: true,
	}, {
		name: "texts that the collation takes for the same", only: Postgres,
		make: []string{
			"CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
			"CREATE TABLE orders (order_id text COLLATE any_case NOT NULL, made {time} NOT NULL)",
			"CREATE INDEX made_x ON orders (made, order_id)",
			"INSERT INTO orders VALUES ('a', '2026-01-01'), ('A', '2026-01-01'), ('ä', '2026-01-01'), ('b', '2026-01-01'), ('B', '2026-01-02'), ('b', '2026-01-02')",
		},
		columns: byTime, want: `SELECT order_id FROM orders ORDER BY made, order_id COLLATE "C"`, tie: "order_id", sorts: true,
	}, {
		name: "texts in the order of a language", only: Postgres,
		make: []string{
			`CREATE TABLE orders (order_id text COLLATE "de-x-icu" PRIMARY KEY)`,
			"INSERT INTO orders VALUES ('a'), ('A'), ('ä'), ('b'), ('B'), ('ab'), ('Ab'), ('z'), ('Z')",
		},
		columns: [2]string{"order_id", "order_id"}, want: "SELECT order_id FROM orders ORDER BY order_id",
	}, {
		name: "UUIDs",
		make: []string{
			"CREATE TABLE orders (u UUID PRIMARY KEY, order_id {text} NOT NULL)",
			"INSERT INTO orders SELECT CONCAT('0188', n + 1000, '-', 9999 - n, '-7000-8000-000000000000')" + "{uuid}, CONCAT('ord-', n) FROM {1..50}",
		},
		columns: [2]string{"order_id", "u"}, want: "SELECT order_id FROM orders ORDER BY u",
	}, {
		name: "bytes",
		make: []string{
			"CREATE TABLE orders (b {bytes} NOT NULL UNIQUE, order_id {text} NOT NULL)",
			"{insert bytes}",
		},
		columns: [2]string{"order_id", "b"}, want: "SELECT order_id FROM orders ORDER BY b",
	}, {
		name: "names of a type of their own", only: Postgres,
		make: []string{
			"CREATE TYPE size AS ENUM ('small', 'medium', 'large')",
			"CREATE DOMAIN number AS int CHECK (VALUE > 0)",
			"CREATE TABLE orders (size size NOT NULL, order_id number PRIMARY KEY)",
			"CREATE INDEX size_x ON orders (size, order_id)",
			"INSERT INTO orders SELECT (ARRAY['small', 'medium', 'large'])[1 + n % 3]::size, n FROM {1..50}",
		},
		columns: [2]string{"order_id", "size"}, want: "SELECT order_id FROM orders ORDER BY size, order_id", tie: "order_id",
	}, {
		name: "partitions", only: Postgres,
		make: []string{
			"CREATE TABLE orders (id bigint NOT NULL, order_id {text} NOT NULL, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
			"CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (0) TO (20)",
			"CREATE TABLE orders_2 PARTITION OF orders FOR VALUES FROM (20) TO (100)",
			"INSERT INTO orders SELECT n, CONCAT('ord-', n) FROM {1..50}",
		},
		columns: byID, want: "SELECT order_id FROM orders ORDER BY id",
	}, {
		name: "names that have to be quoted",
		make: []string{
			`CREATE TABLE orders ({q}or"d` + "`" + `er{q} {text} NOT NULL, {q}select{q} INT PRIMARY KEY)`,
			"INSERT INTO orders SELECT CONCAT('ord-', n), n FROM {1..50}",
		},
		columns: [2]string{"or\"d`er", "select"}, want: "SELECT CONCAT('ord-', n) FROM {1..50} ORDER BY n",
	}, {
		name: "a view",
		make: []string{
			"CREATE TABLE orders (id {key}, order_id {text})",
			"CREATE VIEW v AS SELECT order_id, id FROM orders WHERE id > 10",
			"INSERT INTO orders SELECT n, CONCAT('ord-', n) FROM {1..50}",
		},
		view: "v", columns: byID, want: "SELECT order_id FROM orders WHERE id > 10 ORDER BY id", tie: "order_id", sorts: true,
	}, {
		name: "no rows",
		make: []string{"CREATE TABLE orders (id {key})"}, columns: [2]string{"id", "id"}, want: "SELECT id FROM orders",
	}, {
		name: "the same number twice",
		make: []string{
			"CREATE TABLE orders (id INT NOT NULL, order_id INT NOT NULL)",
			"CREATE INDEX id_x ON orders (id, order_id)",
			"INSERT INTO orders SELECT 1, n % 7 FROM {1..50}",
		},
		// The same order comes once, or as often as it is in the table.
		columns: byID, want: "SELECT DISTINCT order_id FROM orders ORDER BY order_id", tie: "order_id",
	},
}

// dialect translates what only these tests need.
func dialect(kind Kind, text string) string {
	words := map[string][2]string{
		"{q}":            {"`", `"`},
		"{uuid}":         {"", "::uuid"},
		"{insert bytes}": {"INSERT INTO orders SELECT UNHEX(CONCAT(HEX(n * 5), '00FF')), CONCAT('ord-', n) FROM {1..50}", `INSERT INTO orders SELECT decode(lpad(to_hex(n * 5), 4, '0') || '00ff', 'hex'), CONCAT('ord-', n) FROM {1..50}`},
	}
	for from, to := range words {
		if kind == MySQL {
			text = strings.ReplaceAll(text, from, to[0])
		} else {
			text = strings.ReplaceAll(text, from, to[1])
		}
	}
	if kind == MySQL { // MySQL escapes with backslashes, and double quotes enclose strings
		text = strings.ReplaceAll(text, "d`er", "d``er")
		text = strings.ReplaceAll(text, `a\b`, `a\\b`)
	} else {
		text = strings.ReplaceAll(text, "or\"d", "or\"\"d")
	}
	return text
}

// testOrder reads tables in batches of several sizes, and continues from every position.
func testOrder(t *testing.T, s *server) {
	for i, tc := range append(slices.Clip(orderCases), partCases...) {
		if tc.only != "" && tc.only != s.kind {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			schema := fmt.Sprintf("order_%d", i)
			s.exec(t, "CREATE SCHEMA "+schema+"{utf8}")
			own := *s
			own.db = s.connIn(t, schema)
			for _, text := range tc.make {
				own.exec(t, dialect(s.kind, text))
			}
			want := own.query(t, tc.want)
			opts := s.options(schema + ".orders")
			if tc.view != "" {
				opts.Table = schema + "." + tc.view
			}
			opts.IDColumn, opts.CursorColumn, opts.PartColumns = tc.columns[0], tc.columns[1], tc.parts
			for _, batch := range []int{1, 7, DefaultBatch} {
				opts.Batch = batch
				readInOrder(t, newTable(t, opts), want, batch == 7)
			}
			checkPlan(t, newTable(t, opts), tc)
		})
	}
}

// readInOrder reads a table. With resume, it continues from every position.
func readInOrder(t *testing.T, table *Table, want []string, resume bool) {
	t.Helper()
	var got []string
	var positions []Position
	var after []int
	report, err := table.Read(t.Context(), Position{}, collect(&got), func(p Position) error {
		positions, after = append(positions, p), append(after, len(got))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(slices.Compact(slices.Clone(got))) == len(want) { // rows with the same position and ID
		got = slices.Compact(got)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("batches of %d, -want +got:\n%s", table.opts.Batch, diff)
	}
	if report.Skipped != 0 || report.IDs < int64(len(want)) {
		t.Errorf("report %+v of %d rows", report, len(want))
	}
	for i := 0; resume && i < len(positions) && int(report.IDs) == len(want); i++ {
		text, err := json.Marshal(positions[i])
		if err != nil {
			t.Fatal(err)
		}
		var from Position
		if err := json.Unmarshal(text, &from); err != nil || from != positions[i] {
			t.Fatalf("%s, %v", text, err)
		}
		got = got[:after[i]]
		if _, err := table.Read(t.Context(), from, collect(&got), nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("from %s, -want +got:\n%s", text, diff)
		}
	}
}

// checkPlan checks the server's plan for a batch, and the warnings.
func checkPlan(t *testing.T, table *Table, tc orderCase) {
	t.Helper()
	c, l, err := table.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	tie := ""
	if l.tie != nil {
		tie = l.tie.name
	}
	if tc.tie != "" && tie != tc.tie || tc.tie == "" && !tc.sorts && tie != "" {
		t.Errorf("rows with the same cursor are ordered by %q, want %q", tie, tc.tie)
	}
	if warned := strings.Contains(fmt.Sprint(l.warnings), "sorted for every batch") || tc.view != ""; warned != tc.sorts {
		t.Errorf("warnings %q, want one of sorting: %v", l.warnings, tc.sorts)
	}
	x := &scan{conn: c, layout: l, opts: TableOptions{Batch: 3}}
	last, found, err := x.lastRow(t.Context())
	third := &batch{}
	if err == nil {
		err = x.fetchOne(t.Context(), Span{}, third)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !found || tc.sorts {
		return
	}
	for _, span := range []Span{{}, {From: third.span.To}, {To: last}, {From: third.span.To, To: last}} {
		page := l.pageQuery(span, 2)
		page.text, page.prepared = "EXPLAIN "+page.text, false
		plan := ""
		err := c.query(t.Context(), page, func(columns [][]byte) { plan += string(slices.Concat(columns...)) + "\n" })
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(plan, "filesort") || strings.Contains(plan, "ALL") || strings.Contains(plan, "Sort") || strings.Contains(plan, "Seq Scan") {
			t.Errorf("%s: %s", page.text, plan)
		}
		if !span.From.zero() && !strings.Contains(plan, "range") && !strings.Contains(plan, "Index Cond") {
			t.Errorf("%s begins at the beginning: %s", page.text, plan)
		}
	}
}
