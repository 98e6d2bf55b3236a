package source

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// partCases are tables whose IDs have parts.
var partCases = []orderCase{
	{
		name: "a part, by number",
		make: []string{
			"CREATE TABLE orders (id {key}, tenant {text} NOT NULL, order_id INT NOT NULL, UNIQUE (tenant, order_id))",
			"INSERT INTO orders SELECT n, CONCAT('t', n % 3), n / 3 FROM {1..50}",
		},
		columns: byID, parts: []string{"tenant"}, want: "SELECT CONCAT(tenant, '/', order_id) FROM orders ORDER BY id",
	}, {
		name: "two parts of several types, by number",
		make: []string{
			"CREATE TABLE orders (id {key}, tenant BIGINT NOT NULL, shop CHAR(8) NOT NULL, order_id DECIMAL(12,0) NOT NULL)",
			"INSERT INTO orders SELECT n, n % 3, CONCAT('s', n % 5), n FROM {1..50}",
		},
		columns: byID, parts: []string{"tenant", "shop"}, want: "SELECT CONCAT(tenant, '/', rtrim(shop), '/', order_id) FROM orders ORDER BY id",
	}, {
		name: "the ID as the cursor, with the part in the index",
		make: []string{
			"CREATE TABLE orders (tenant INT NOT NULL, order_id INT NOT NULL, PRIMARY KEY (order_id, tenant))",
			"INSERT INTO orders SELECT n % 5, n / 5 FROM {1..50}",
		},
		columns: [2]string{"order_id", "order_id"}, parts: []string{"tenant"},
		want: "SELECT CONCAT(tenant, '/', order_id) FROM orders ORDER BY order_id, tenant", tie: "tenant",
	}, {
		name: "the ID as the cursor, with the part first in the key",
		make: []string{
			"CREATE TABLE orders (tenant INT NOT NULL, order_id INT NOT NULL, PRIMARY KEY (tenant, order_id))",
			"INSERT INTO orders SELECT n % 5, n / 5 FROM {1..50}",
		},
		columns: [2]string{"order_id", "order_id"}, parts: []string{"tenant"},
		want: "SELECT CONCAT(tenant, '/', order_id) FROM orders ORDER BY order_id, tenant", tie: "tenant", sorts: true,
	}, {
		name: "time, with the same ID of several tenants at once",
		make: []string{
			"CREATE TABLE orders (tenant INT NOT NULL, order_id INT NOT NULL, made {time} NOT NULL, PRIMARY KEY (tenant, order_id))",
			"CREATE INDEX made_x ON orders (made)",
			"INSERT INTO orders SELECT n, 1, '2026-01-01 10:00:00' FROM {1..9}",
			"INSERT INTO orders SELECT n, 2, '2026-01-01 10:00:01' FROM {1..9}",
		},
		columns: byTime, parts: []string{"tenant"},
		want: "SELECT CONCAT(tenant, '/', order_id) FROM orders ORDER BY made, tenant", tie: "tenant, order_id", sorts: true,
	}, {
		name: "time and a primary key beside the ID",
		make: []string{
			"CREATE TABLE orders (id {key}, tenant INT NOT NULL, order_id INT NOT NULL, made {time} NOT NULL)",
			"CREATE INDEX made_x ON orders (made, id)",
			"INSERT INTO orders SELECT n, n % 3, n / 3, '2026-01-01 10:00:00' FROM {1..50}",
		},
		columns: byTime, parts: []string{"tenant"}, want: "SELECT CONCAT(tenant, '/', order_id) FROM orders ORDER BY made, id", tie: "id",
	}, {
		name: "parts in different character sets", only: MySQL,
		make: []string{
			"CREATE TABLE orders (id {key}, tenant VARCHAR(20) CHARACTER SET latin1 NOT NULL, shop VARCHAR(20) CHARACTER SET latin2 COLLATE latin2_croatian_ci NOT NULL, order_id VARCHAR(20) CHARACTER SET utf8mb4 NOT NULL)",
			"INSERT INTO orders SELECT n, 'é', 'ő', CONCAT('Ω', n) FROM {1..50}",
		},
		columns: byID, parts: []string{"tenant", "shop"}, want: "SELECT CONCAT('é/ő/Ω', id) FROM orders ORDER BY id",
	}, {
		name: "a part of type UUID", only: Postgres,
		make: []string{
			"CREATE TABLE orders (id {key}, tenant UUID NOT NULL, order_id bigint NOT NULL)",
			"INSERT INTO orders SELECT n, CONCAT('01880000-', 9999 - n, '-7000-8000-000000000000')::uuid, n FROM {1..50}",
		},
		columns: byID, parts: []string{"tenant"}, want: "SELECT CONCAT(tenant, '/', order_id) FROM orders ORDER BY id",
	},
}

// testParts reads rows without a full ID, and catches up with new ones.
func testParts(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE parted (id {key}, tenant {text}, order_id {text})",
		"INSERT INTO parted (tenant, order_id) VALUES ('acme', '1'), ('bolt', '1'), (NULL, '2'), ('acme', NULL), ('a/b', '3'), ('acme', '3/4'), ('', '5'), ('acme', '')")
	opts := s.options("parted")
	opts.PartColumns, opts.OnBad = []string{"tenant"}, SkipBad
	table := newTable(t, opts)
	var got []string
	mark, report, err := table.Tail(t.Context(), Mark{}, collect(&got), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"acme/1", "bolt/1"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if report.Skipped != 6 || report.Numbered {
		t.Errorf("report %+v", report)
	}
	opts.OnBad = FailOnBad
	_, err = newTable(t, opts).Read(t.Context(), Position{}, collect(&got), nil)
	s.wantError(t, err, "rows have no usable order ID", "tenant, order_id is NULL", "one is empty, or has a slash")

	s.exec(t, "DELETE FROM parted WHERE id > 2", "INSERT INTO parted (tenant, order_id) VALUES ('bolt', '2')")
	got = nil
	if _, _, err = table.Tail(t.Context(), mark, collect(&got), nil); err != nil || !strings.Contains(strings.Join(got, " "), "bolt/2") {
		t.Errorf("caught up with %q, %v", got, err)
	}
	// A position of a table with other parts, or with none, is none.
	var at Position
	if _, err := table.Read(t.Context(), Position{}, collect(&got), func(p Position) error { at = p; return nil }); err != nil {
		t.Fatal(err)
	}
	s.exec(t, "ALTER TABLE parted ADD note {text}", "UPDATE parted SET note = 'n'")
	for _, parts := range [][]string{nil, {"note"}, {"tenant", "note"}, {"note", "tenant"}} {
		other := opts
		other.PartColumns = parts
		if _, err := newTable(t, other).Read(t.Context(), at, collect(&got), nil); !errors.Is(err, ErrPosition) {
			t.Errorf("parts %q: a position of other parts was taken: %v", parts, err)
		}
	}
	opts.PartColumns = []string{"no_such"}
	_, err = newTable(t, opts).Check(t.Context())
	s.wantError(t, err, "no_such")
}
