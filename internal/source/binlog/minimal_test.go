package binlog

import (
	"fmt"
	"slices"
	"testing"
)

// TestComputedIDs has IDs that the server computes, and images of rows that lack columns.
func TestComputedIDs(t *testing.T) {
	server := startServer(t)
	server.db.SetMaxOpenConns(1)
	for i, image := range []string{"FULL", "MINIMAL", "NOBLOB"} {
		server.exec("SET SESSION binlog_row_image = " + image)
		for k, table := range []string{
			"(id INT AS (n + 100) STORED, n INT PRIMARY KEY, note TEXT)",
			"(n INT PRIMARY KEY, id INT AS (n + 100) STORED, note TEXT)",
			"(n INT PRIMARY KEY, id INT AS (n + 100) STORED UNIQUE, note TEXT)",
			"(m INT PRIMARY KEY AUTO_INCREMENT, n INT, id INT AS (n + 100) STORED, note TEXT)",
			"(m INT PRIMARY KEY AUTO_INCREMENT, n INT, id INT DEFAULT (n + 100), note TEXT)",
			"(m INT PRIMARY KEY AUTO_INCREMENT, n INT, id INT, note TEXT)",
			"(m INT PRIMARY KEY AUTO_INCREMENT, n INT, id INT INVISIBLE, note TEXT)",
		} {
			t.Run(fmt.Sprint(image, k), func(t *testing.T) {
				b := server.withTable(fmt.Sprintf("t_%d_%d", i, k))
				b.t = t
				b.exec("CREATE OR REPLACE TABLE orders " + table)
				want := []string{"101", "102"}
				if k >= 5 {
					b.exec("CREATE TRIGGER orders_i BEFORE INSERT ON orders FOR EACH ROW SET NEW.id = NEW.n + 100")
					b.exec("CREATE TRIGGER orders_u BEFORE UPDATE ON orders FOR EACH ROW SET NEW.id = NEW.n + 100")
				}
				if k != 4 {
					want = append(want, "109")
				}
				f := start(t, b.options(), "")
				f.WaitCaughtUp()
				b.exec("INSERT INTO orders (n) VALUES (1), (2)")
				b.exec("UPDATE orders SET n = 9 WHERE n = 1")
				b.exec("UPDATE orders SET note = 'x'")
				f.WaitCaughtUp()
				// A minimal image may show an update of each row of which the ID is computed.
				got := slices.Compact(slices.Sorted(slices.Values(f.IDs())))
				if !slices.Equal(want, got) {
					t.Errorf("%s: followed %q, want %q", table, got, want)
				}
			})
		}
	}
}
