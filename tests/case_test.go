package tests

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestCaseOfIDs has a table that ignores the case of IDs. Three spellings
// at once settle it once. A UUID has the case that its rule says, in the name of the lock.
func TestCaseOfIDs(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	const upper = "123E4567-E89B-12D3-A456-426614174000"
	table := newOrderTable(t, "mysql", bed.MariaDB("--character-set-server=utf8mb4").DSN(), 0, "")
	table.exec("ALTER TABLE orders ADD code VARCHAR(40) NOT NULL UNIQUE, ADD settled INT NOT NULL DEFAULT 0")
	table.exec("INSERT INTO orders (code) VALUES ('AB-1'), ('cd-2'), ('" + upper + "')")
	var arrived atomic.Int64
	var lock atomic.Value // of the last request
	release := make(chan struct{})
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, settled := strings.Split(r.URL.Path, "/")[2], 0
		if err := table.db.QueryRowContext(r.Context(), "SELECT settled FROM orders WHERE code = ?", code).Scan(&settled); err != nil {
			http.NotFound(w, r)
			return
		}
		if r.Method == http.MethodGet || settled > 0 {
			return
		}
		lock.Store(r.Header.Get("x-ordergate-key"))
		arrived.Add(1)
		<-release
		if _, err := table.db.ExecContext(r.Context(), "UPDATE orders SET settled = settled + 1 WHERE code = ?", code); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(b.Close)
	dsn := filepath.Join(t.TempDir(), "dsn")
	must(t, os.WriteFile(dsn, []byte(table.dsn), 0o600))
	rule := func(path, id string) string {
		return "\n  - name: " + path + "\n    match: {methods: [GET], path: \"/" + path + "/{id}\"}\n    id: {path: id, " + id + "}\n    lookup: {filter: codes}" +
			"\n  - name: settle-" + path + "\n    match: {methods: [POST], path: \"/" + path + "/{id}/settle\"}\n    id: {path: id, " + id + "}\n    lookup: {filter: codes}\n    settle: {lock: codes}\n"
	}
	s := newStack(t, settings{backend: strings.TrimPrefix(b.URL, "http://"), orders: 1, gate: func(yaml string) string {
		return edit(t, "\nfilters:\n", "\nfilters:\n  codes: {sources: [codes], verify: off}\n",
			"\nsources:\n", "\nsources:\n  codes: {kind: mysql, dsn_file: "+dsn+", table: orders, id_column: code, cursor_column: id}\n",
			"\nlocks:\n", "\nlocks:\n  codes: {key: \"code:lock:{id}\"}\n")(yaml) +
			rule("codes", `format: pattern, pattern: "[A-Za-z]{2}-[0-9]+", case: lower`) + rule("uuids", "format: uuid, case: upper")
	}})
	bedtest.Eventually(t, "the filter is certain", func() bool { return s.must("GET", "/codes/zz-9", "").status == 404 })
	for _, id := range []string{"AB-1", "ab-1", "aB-1", "CD-2", "cd-2"} {
		s.must("GET", "/codes/"+id, "").want(t, 200, "")
	}
	s.must("GET", "/uuids/"+strings.ToLower(upper), "").want(t, 200, "")
	s.must("GET", "/uuids/"+bedtest.Replace(upper, "1", "2"), "").want(t, 404, "absent")

	answers := make(chan answer, 4)
	send := func(path string) {
		go func() {
			a, err := s.send(t.Context(), "POST", path, "")
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	spellings := []string{"AB-1", "ab-1", "aB-1"}
	for _, id := range spellings {
		send("/codes/" + id + "/settle")
	}
	bedtest.Eventually(t, "each request is at the backend, or answered", func() bool { return int(arrived.Load())+len(answers) == len(spellings) })
	if n := arrived.Load(); n != 1 || lock.Load() != "code:lock:ab-1" {
		t.Errorf("%d spellings are settled at once, under the lock %s", n, lock.Load())
	}
	for range len(answers) {
		(<-answers).want(t, 409, "busy")
	}
	send("/uuids/" + strings.ToLower(upper) + "/settle")
	bedtest.Eventually(t, "the UUID is at the backend", func() bool { return arrived.Load() == 2 })
	if lock.Load() != "code:lock:"+upper {
		t.Errorf("the lock of a UUID is %s", lock.Load())
	}
	close(release)
	for range 2 {
		(<-answers).want(t, 200, "")
	}
	var settled int
	must(t, table.db.QueryRowContext(t.Context(), "SELECT settled FROM orders WHERE code = 'AB-1'").Scan(&settled))
	if settled != 1 {
		t.Errorf("the order was settled %d times", settled)
	}
}
