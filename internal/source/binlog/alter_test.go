package binlog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// TestAltered changes the table: its rows may have other IDs then. The follower may be running or
// not, and the log may name the columns or not.
func TestAltered(t *testing.T) {
	server := startServer(t)
	for name, change := range map[string]string{
		"two renamed into each other": "ALTER TABLE orders CHANGE id note VARCHAR(40), CHANGE note id VARCHAR(40)",
		"the same, with places":       "ALTER TABLE orders CHANGE id note VARCHAR(40) AFTER id, CHANGE note id VARCHAR(40) AFTER n",
		"another type":                "ALTER TABLE orders MODIFY id CHAR(3)",
		"moved":                       "ALTER TABLE orders MODIFY note VARCHAR(40) FIRST",
		"in comments":                 "/* a */ ALTER /* b */ TABLE /* c */ orders ADD x INT",
		"replaced":                    "CREATE OR REPLACE TABLE orders (id VARCHAR(40))",
		"created of rows":             "CREATE OR REPLACE TABLE orders SELECT 'x' AS id",
	} {
		t.Run(name, func(t *testing.T) {
			b := server.withTable("t_" + strings.Map(underscore, name))
			b.exec("ALTER TABLE orders MODIFY note VARCHAR(40)")
			b.exec("INSERT INTO orders (id, note) VALUES ('a', 'x')")
			from := b.checkpoint()
			f := start(t, b.options(), from)
			f.WaitCaughtUp()
			b.exec(change)
			f.WantError(follow.ErrUnsure, "changed the table", b.Config().Passwd)
			start(t, b.options(), from).WantError(follow.ErrUnsure, "changed the table", b.Config().Passwd)
			// Following without a checkpoint suffices.
			f = start(t, b.options(), "")
			f.WaitCaughtUp()
			b.exec("INSERT INTO orders (id) VALUES ('b')")
			f.Want("b")
		})
	}
}

// TestAlteredOthers leaves the table's rows unchanged.
func TestAlteredOthers(t *testing.T) {
	b := startServer(t)
	b.exec("CREATE OR REPLACE TABLE orders (n INT PRIMARY KEY, id VARCHAR(40)) PARTITION BY RANGE (n) (PARTITION p0 VALUES LESS THAN (100))")
	from := b.checkpoint()
	f := start(t, b.options(), from)
	for _, change := range []string{
		"ALTER TABLE orders ADD PARTITION (PARTITION p1 VALUES LESS THAN (200), PARTITION p2 VALUES LESS THAN (300))",
		"INSERT INTO orders VALUES (1, 'a'), (201, 'b')",
		"ALTER TABLE orders REORGANIZE PARTITION p0, p1 INTO (PARTITION p3 VALUES LESS THAN (200))",
		"ALTER TABLE orders DROP PARTITION p2",
		"CREATE INDEX i ON orders (id)",
		"CREATE TABLE orders_old LIKE orders",
		"ALTER TABLE orders_old ADD COLUMN x INT",
		"INSERT INTO orders VALUES (2, 'c')",
	} {
		b.exec(change)
	}
	f.Want("a", "b", "c")
	start(t, b.options(), from).Want("a", "b", "c")
}

// underscore makes text a name.
func underscore(r rune) rune {
	if r < 'a' || r > 'z' {
		return '_'
	}
	return r
}

// TestHiddenRows writes rows that the log does not show. A statement's text does not show which
// tables it writes.
func TestHiddenRows(t *testing.T) {
	server := startServer(t, "--log-bin-trust-function-creators=1", "--local-infile=1")
	server.db.SetMaxOpenConns(1) // one session
	file := filepath.Join(t.TempDir(), "rows")
	if err := os.WriteFile(file, []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mysql.RegisterLocalFile(file)
	const writer = "CREATE FUNCTION f1() RETURNS INT BEGIN INSERT INTO orders (id) VALUES ('a'); RETURN 1; END"
	const statement = "SET SESSION binlog_format = STATEMENT"
	for name, changes := range map[string][]string{
		"statement":       {statement, "INSERT INTO orders (id) VALUES ('a')"},
		"statement, load": {statement, "UPDATE orders SET id = CONCAT(id, '-') WHERE n > 0"},
		"trigger": {"CREATE TABLE orders_l (id VARCHAR(40))", "CREATE TRIGGER orders_t AFTER INSERT ON orders_l FOR EACH ROW INSERT INTO orders (id) VALUES (NEW.id)",
			statement, "INSERT INTO orders_l VALUES ('a')"},
		"trigger of a delete": {"CREATE TABLE orders_l (id VARCHAR(40))", "INSERT INTO orders_l VALUES ('a')",
			"CREATE TRIGGER orders_t AFTER DELETE ON orders_l FOR EACH ROW INSERT INTO orders (id) VALUES (OLD.id)", statement, "DELETE FROM orders_l"},
		"view":              {"CREATE VIEW orders_v AS SELECT id FROM orders", "CREATE VIEW away AS SELECT id FROM orders_v", statement, "INSERT INTO away VALUES ('a')"},
		"function":          {writer, "CREATE TABLE away1 (x INT)", statement, "INSERT INTO away1 SELECT f1()"},
		"function alone":    {strings.ReplaceAll(writer, "f1", "f2"), statement, "DO f2()"},
		"function, create":  {strings.ReplaceAll(writer, "f1", "f3"), statement, "CREATE TABLE away3 SELECT f3()"},
		"function, values":  {strings.ReplaceAll(writer, "f1", "f4"), "CREATE TABLE away4 (x INT)", statement, "REPLACE away4 VALUES (f4())"},
		"function, update":  {strings.ReplaceAll(writer, "f1", "f5"), "CREATE TABLE away5 (x INT)", "INSERT INTO away5 VALUES (1)", statement, "UPDATE away5 SET x = f5()"},
		"for one statement": {"SET STATEMENT binlog_format = STATEMENT FOR INSERT INTO orders (id) VALUES ('a')"},
		"analyzed":          {statement, "ANALYZE INSERT INTO orders (id) VALUES ('a')"},
		"loaded":            {statement, "LOAD DATA LOCAL INFILE '" + file + "' INTO TABLE orders (id)"},
		"in comments":       {statement, "/**/ INSERT INTO orders (id) VALUES ('*/COMMIT')"},
		"in versions":       {statement, "/*!999999 FLUSH */ INSERT INTO orders (id) VALUES ('a')"},
		"renamed":           {"CREATE TABLE orders_2 (n INT, id VARCHAR(40), note TEXT)", "RENAME TABLE orders TO orders_1, orders_2 TO orders"},
		"altered":           {"ALTER TABLE orders RENAME TO orders_1"},
		"exchanged": {
			"CREATE TABLE orders_p (n INT PRIMARY KEY, id VARCHAR(40), note TEXT)", "INSERT INTO orders_p VALUES (1, 'unseen', '')",
			"CREATE OR REPLACE TABLE orders (n INT PRIMARY KEY, id VARCHAR(40), note TEXT) PARTITION BY RANGE (n) (PARTITION p0 VALUES LESS THAN (100))",
			"ALTER TABLE orders EXCHANGE PARTITION p0 WITH TABLE orders_p",
		},
		"converted": {
			"CREATE OR REPLACE TABLE orders (n INT PRIMARY KEY, id VARCHAR(40), note TEXT) PARTITION BY RANGE (n) (PARTITION p0 VALUES LESS THAN (100))",
			"CREATE TABLE orders_p (n INT PRIMARY KEY, id VARCHAR(40), note TEXT)", "INSERT INTO orders_p VALUES (101, 'unseen', '')",
			"ALTER TABLE orders CONVERT TABLE orders_p TO PARTITION p1 VALUES LESS THAN (200)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := server.withTable("t_" + strings.Map(underscore, name))
			b.exec("SET SESSION binlog_format = ROW")
			last := len(changes) - 1
			for _, change := range changes[:last] {
				b.exec(change)
			}
			f := start(t, b.options(), "")
			f.WaitCaughtUp()
			b.exec(changes[last])
			f.WantError(follow.ErrUnsure, "", b.Config().Passwd)
		})
	}
}

// TestIrrelevantStatements runs statements that do not end Follow.
func TestIrrelevantStatements(t *testing.T) {
	b := startServer(t)
	b.db.SetMaxOpenConns(1) // one session
	f := start(t, b.options(), "")
	f.WaitCaughtUp()
	b.exec("CREATE TABLE checksums (id VARCHAR(40), n BIGINT)")
	b.exec("CREATE TABLE more (id VARCHAR(40))")
	b.exec("RENAME TABLE more TO less")
	b.exec("CREATE DATABASE shop")
	b.exec("CREATE TABLE shop.orders (id VARCHAR(40))")
	b.exec("CREATE INDEX i ON orders (id)")
	b.exec("TRUNCATE orders")
	for _, table := range []string{"ANALYZE", "OPTIMIZE", "REPAIR"} {
		b.exec(table + " TABLE less, orders")
	}
	b.exec("CREATE USER somebody IDENTIFIED BY 'geheim'")
	b.exec("GRANT SELECT ON orders TO somebody")
	b.exec("SET PASSWORD FOR somebody = PASSWORD('geheimer')")
	b.exec("REVOKE SELECT ON orders FROM somebody")
	b.exec("FLUSH PRIVILEGES")
	b.exec("DROP USER somebody")
	b.exec("CREATE SEQUENCE counter")
	b.exec("SELECT NEXTVAL(counter)")
	b.exec("CREATE TEMPORARY TABLE held SELECT * FROM orders")
	b.exec("DROP TEMPORARY TABLE held")
	b.exec("CREATE TABLE copied SELECT * FROM orders")
	b.exec("CREATE VIEW seen AS SELECT * FROM orders")
	b.exec("CREATE PROCEDURE empty() BEGIN TRUNCATE TABLE orders; SELECT 1; END")
	b.exec("CREATE TRIGGER ours BEFORE INSERT ON less FOR EACH ROW INSERT INTO orders (id) VALUES (NEW.id)")
	b.exec("DROP TRIGGER ours")
	b.exec("CREATE EVENT later ON SCHEDULE EVERY 1 DAY DO INSERT INTO orders (id) VALUES ('x')")
	b.exec("ANALYZE INSERT INTO checksums VALUES ('x', 1)")
	b.exec("/* a comment */ /*!40000 ALTER TABLE less DISABLE KEYS */")
	b.exec("INSERT INTO shop.orders VALUES ('elsewhere')")
	b.exec("START TRANSACTION")
	b.exec("INSERT INTO orders (id) VALUES ('a')")
	b.exec("SAVEPOINT s")
	b.exec("INSERT INTO orders (id) VALUES ('rolled back')")
	b.exec("ROLLBACK TO s")
	b.exec("INSERT INTO orders (id) VALUES ('b')")
	b.exec("COMMIT")
	b.exec("XA START 'x'")
	b.exec("INSERT INTO orders (id) VALUES ('c')")
	b.exec("XA END 'x'")
	b.exec("XA PREPARE 'x'")
	b.exec("XA COMMIT 'x'")
	b.exec("CREATE TABLE m (id VARCHAR(40)) ENGINE=MyISAM")
	b.exec("INSERT INTO m VALUES ('d')")
	b.exec("INSERT INTO orders (id) SELECT id FROM m")
	f.Want("a", "b", "c", "d")
}
