package tests

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// fenceLease is what the holders below are stopped for: the next one gets the
// lock when it has passed.
const fenceLease = "200ms"

// fenceDatabase is a database with the examples written for it.
type fenceDatabase struct {
	*bedtest.Bed
	name, driver, dsn string
	db                *sql.DB
	redis             *testbed.Redis
	holder            string              // the binary
	examples          map[string][]string // statements, by case
}

// fresh makes the tables anew, with one order, and runs cases on them.
func (d *fenceDatabase) fresh(t *testing.T, cases []string) {
	t.Helper()
	for _, table := range []string{"orders", "payouts", "order_fences"} {
		d.exec(t, "DROP TABLE IF EXISTS "+table)
	}
	if d.name == "postgres" {
		d.exec(t, "DROP FUNCTION IF EXISTS check_fence")
	}
	d.exec(t, "CREATE TABLE orders (id BIGINT PRIMARY KEY, commission BIGINT NOT NULL)")
	d.exec(t, "CREATE TABLE payouts (order_id BIGINT NOT NULL, amount BIGINT NOT NULL)")
	d.exec(t, "INSERT INTO orders VALUES (1001, 0)")
	for _, statement := range d.statements(t, cases...) {
		d.exec(t, statement)
	}
}

// statements returns the statements of these cases, one after the other.
func (d *fenceDatabase) statements(t *testing.T, cases ...string) (list []string) {
	t.Helper()
	for _, name := range cases {
		if name == unfenced {
			list = append(list, "UPDATE orders SET commission = :commission WHERE id = :id")
			continue
		}
		found := d.examples[name]
		if len(found) == 0 {
			t.Fatalf("%s.sql has no case %q", d.name, name)
		}
		list = append(list, found...)
	}
	return list
}

// wantRefused checks that a transaction of n statements ended with one that changed
// no row, or with an error that has this text.
func (r fenceResult) wantRefused(t *testing.T, n int, text string) {
	t.Helper()
	if text == "" && (r.Error != "" || len(r.Rows) == n) || !strings.Contains(r.Error, text) {
		t.Errorf("it ended with %+v, want no row of one statement, or the error %q", r, text)
	}
}

func (d *fenceDatabase) exec(t *testing.T, statement string) int64 {
	t.Helper()
	done, err := d.db.ExecContext(t.Context(), statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	n, err := done.RowsAffected()
	must(t, err)
	return n
}

// value returns what a query answers in its one row.
func (d *fenceDatabase) value(t *testing.T, query string) string {
	t.Helper()
	rows, err := d.db.QueryContext(t.Context(), query)
	must(t, err)
	defer func() { _ = rows.Close() }()
	var values []string
	for rows.Next() {
		var v string
		must(t, rows.Scan(&v))
		values = append(values, v)
	}
	must(t, rows.Err())
	return strings.Join(values, ",")
}

var (
	fenceCaseLine  = regexp.MustCompile(`(?m)^-- case: (.*)$`)
	sqlComment     = regexp.MustCompile(`(?m)^ *--.*\n`)
	endOfStatement = regexp.MustCompile(`(?m);$`)
)

// readFenceCases reads a file of examples: statements end with a semicolon at the end of
// a line, except within a function's body.
func readFenceCases(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	cases := make(map[string][]string)
	marks := fenceCaseLine.FindAllStringSubmatchIndex(string(text), -1)
	for i, m := range marks {
		end := len(text)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		name, body := string(text[m[2]:m[3]]), sqlComment.ReplaceAllString(string(text[m[1]:end]), "")
		var open string // a statement that is not at its end
		for _, part := range endOfStatement.Split(body, -1) {
			open += part
			if strings.Count(open, "$$")%2 == 1 {
				open += ";"
				continue
			}
			if strings.TrimSpace(open) != "" {
				cases[name] = append(cases[name], strings.TrimSpace(open))
			}
			open = ""
		}
	}
	return cases
}

// fenceHolder is a running tests/holder.
type fenceHolder struct {
	*testbed.Program
	url   string
	fence int64
}

// fenceRequest and fenceResult are those of tests/holder.
type fenceRequest struct {
	SQL       []string
	Params    map[string]string
	Isolation sql.IsolationLevel
}

type fenceResult struct {
	Rows  []int64
	Error string
}

// hold starts a holder of the order's lock. It returns when that has the lock. A busy machine
// may outlast the lease before the holder knows of it: then another one starts.
func (d *fenceDatabase) hold(t *testing.T) *fenceHolder {
	t.Helper()
	start := func() (*testbed.Program, error) {
		return d.Bed.Bed.Program(t.Context(), d.holder, "-redis", d.redis.Addr(), "-key", "order:lock:1001", "-lease", fenceLease,
			"-driver", d.driver, "-dsn", d.dsn)
	}
	p, err := start()
	for tries := 0; tries < 10 && err != nil && strings.Contains(err.Error(), "the answer came after the lease had ended"); tries++ {
		p, err = start()
	}
	must(t, err)
	addr, err := p.Addr("http")
	must(t, err)
	// The next case takes the same lock.
	t.Cleanup(func() { must(t, p.Stop()) })
	h := &fenceHolder{Program: p, url: "http://" + addr}
	resp, err := client.Get(h.url + "/fence")
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	h.fence, err = strconv.ParseInt(string(text), 10, 64)
	must(t, err)
	return h
}

func (h *fenceHolder) write(statements []string, id, commission string) fenceResult {
	return h.post("/write", fenceRequest{SQL: statements, Params: map[string]string{"id": id, "commission": commission}})
}

// post asks the holder, which may be asleep. It can be called from any goroutine.
func (h *fenceHolder) post(path string, r fenceRequest) (res fenceResult) {
	body, err := json.Marshal(r)
	if err != nil {
		return fenceResult{Error: err.Error()}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+path, bytes.NewReader(body))
	if err != nil {
		return fenceResult{Error: err.Error()}
	}
	resp, err := client.Do(req)
	if err != nil {
		return fenceResult{Error: err.Error()}
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&res); err != nil {
		return fenceResult{Error: err.Error()}
	}
	return res
}
