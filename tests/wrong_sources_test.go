package tests

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

var csvSource = regexp.MustCompile(`\{kind: csv, path: [^}]*\}`)

// TestWrongColumns has filters with IDs that no client knows, so every order of the backend, 1 to
// 100, is refused. With the default of verify, the lookups of orders name the fault, and one of a
// made-up ID more ends the refusals.
func TestWrongColumns(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]func(t *testing.T) (source, why string){
		"the primary key": func(t *testing.T) (source, why string) {
			table := mariaTable(t, bedtest.New(t), 0)
			table.exec("ALTER TABLE orders ADD order_no VARCHAR(20) UNIQUE")
			table.exec("INSERT INTO orders SELECT 7000 + seq, 'x', seq FROM seq_1_to_100")
			dsn := filepath.Join(t.TempDir(), "dsn")
			must(t, os.WriteFile(dsn, []byte(table.dsn), 0o600))
			return "{kind: mysql, dsn_file: " + dsn + ", table: orders, id_column: id}", "column order_no of table orders has 10 of 10 such orders, and id_column is id"
		},
		"columns swapped in an export": func(t *testing.T) (source, why string) {
			text := ""
			for i := range 100 {
				text += fmt.Sprintf("%d,%d\n", 7001+i, 1+i)
			}
			file := filepath.Join(t.TempDir(), "orders.csv")
			must(t, os.WriteFile(file, []byte(text), 0o600))
			return "{kind: csv, path: " + file + "}", "or the first column of the file, is not that of the IDs in requests"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, 100)
			from, why := source(t)
			s := newStack(t, settings{backend: d.addr(), gate: func(yaml string) string {
				yaml = "answer: {done: [{status: 2xx}], absent: [{status: 404}]}\n" + edit(t, bedtest.VerifyOff, "")(yaml)
				return csvSource.ReplaceAllLiteralString(yaml, from)
			}})
			order := 0
			look := func(path string) answer {
				order = order%100 + 1
				return s.must(http.MethodGet, "/orders/"+bedtest.Replace(path, "N", fmt.Sprint(order)), "")
			}
			admin := s.GateAddr(s.gate, "admin")
			for range fewRefused { // an operator who tries it out
				look("N").want(t, 404, "absent")
			}
			for range 100 {
				look("N")
			}
			bedtest.Eventually(t, "/readyz names it", func() bool {
				text := readyText(t, admin)
				return strings.Contains(text, "all of 100 or more lookups since the start were refused") && strings.Contains(text, why)
			})
			if n := d.missed("unknown"); n != 0 {
				t.Errorf("%d made-up orders at the backend", n)
			}
			bedtest.Eventually(t, "the backend has answered that it has no such order", func() bool {
				look("90N") // 901 to 90100
				return d.missed("unknown") > 0
			})
			bedtest.Eventually(t, "orders are served", func() bool {
				served := 0
				for range 5 {
					if look("N").status == 200 {
						served++
					}
				}
				return served == 5
			})
			if text := readyText(t, admin); !strings.Contains(text, ` exists by the backend's answer to rule order-lookup`) {
				t.Errorf("/readyz: %s", text)
			}
			if log := gateLog(t, s); !strings.Contains(log, why) {
				t.Errorf("the log: %s", log)
			}
		})
	}
}

// TestFloodAtTheStart looks up made-up orders before any that exists: the table lacks them in every
// column, so no column is blamed.
func TestFloodAtTheStart(t *testing.T) {
	t.Parallel()
	table := mariaTable(t, bedtest.New(t), 100)
	dsn := filepath.Join(t.TempDir(), "dsn")
	must(t, os.WriteFile(dsn, []byte(table.dsn), 0o600))
	table.exec("ALTER TABLE orders ADD order_no VARCHAR(20) UNIQUE")
	d := newDatabase(t, 100)
	s := newStack(t, settings{backend: d.addr(), gate: func(yaml string) string {
		return csvSource.ReplaceAllLiteralString(edit(t, bedtest.VerifyOff, "")(yaml), "{kind: mysql, dsn_file: "+dsn+", table: orders, id_column: id}")
	}})
	for i := range 300 {
		s.must(http.MethodGet, fmt.Sprintf("/orders/9%05d", i), "").want(t, 404, "absent")
	}
	time.Sleep(5 * time.Second)
	if log, text := gateLog(t, s), readyText(t, s.GateAddr(s.gate, "admin")); strings.Contains(log+text, "since the start") {
		t.Errorf("a flood is called a fault: %s %s", log, text)
	}
}

// fewRefused is as many refusals as are not verified at a start.
const fewRefused = 20
