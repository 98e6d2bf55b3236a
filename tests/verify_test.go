package tests

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func verifyMetric(check, result string) string {
	return `ordergate_verify_total{check="` + check + `",filter="orders",result="` + result + `"}`
}

// ready returns the body of /readyz.
func readyText(t testing.TB, admin string) string {
	t.Helper()
	resp, err := client.Get("http://" + admin + "/readyz")
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(text)
}

// TestBackendDisprovesRefusals has a file of orders that was cut off. The backend has the rest. It
// says so by its status, or in JSON with status 200.
func TestBackendDisprovesRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer  string
		json    bool
		through func(string) string // of Envoy; nil: lookups go past ext_proc
	}{
		"status": {answer: "{done: [{status: 2xx}], absent: [{status: 404}]}"},
		"json":   {answer: "{done: [{json: {code: 0}}], absent: [{json: {code: 404}}]}", json: true, through: allThroughProc(t)},
	} {
		t.Run(name, func(t *testing.T) {
			d := newShortList(t, tc.json)
			config := func(yaml string) string {
				return "answer: " + tc.answer + "\n" + edit(t, bedtest.VerifyOff, "    verify: 1/1\n")(yaml)
			}
			s := newStack(t, settings{backend: d.addr(), orders: 50, gate: config, envoy: tc.through})
			other := s.second(settings{backend: d.addr(), orders: 50, gate: config, envoy: tc.through})
			if a := s.must(http.MethodGet, "/orders/50", ""); a.status != 200 {
				t.Errorf("order 50: %d", a.status)
			}
			made := s.must(http.MethodGet, "/orders/900", "")
			if d.missed("unknown") != 1 {
				t.Errorf("the backend was asked %d times", d.missed("unknown"))
			}
			if *attachment == asModule || tc.through != nil { // otherwise the answer is the backend's
				made.want(t, 404, "absent")
				if made.body != `{"error":"order not found"}` || made.header.Get("content-type") != "application/json" {
					t.Errorf("a sample shows by its answer: %v, %s", made.header, made.body)
				}
			}
			s.must(http.MethodGet, "/orders/60", "").want(t, 200, "")
			bedtest.Eventually(t, "the backend's answers count", func() bool {
				return s.number(verifyMetric("backend", "absent")) >= 1 && s.number(verifyMetric("backend", "exists")) == 1
			})
			for _, s := range []*stack{s, other} {
				bedtest.Eventually(t, "the filter is unknown", func() bool {
					return s.number(`ordergate_filter_state{filter="orders",state="unknown"}`) == 1
				})
				text := readyText(t, s.GateAddr(s.gate, "admin"))
				if !strings.Contains(text, `order \"60\" exists by the backend's answer to rule order-lookup`) {
					t.Errorf("/readyz: %s", text)
				}
				asked := d.missed("unknown")
				for range 8 { // more than are sampled in a second
					s.must(http.MethodGet, "/orders/901", "")
				}
				if n := d.missed("unknown") - asked; n != 8 {
					t.Errorf("%d of 8 lookups passed an unknown filter", n)
				}
			}
		})
	}
}

// newShortList is newDatabase with 100 orders. It may say in JSON that there is no such order.
func newShortList(t *testing.T, inJSON bool) *database {
	d := newDatabase(t, 100)
	if !inJSON {
		return d
	}
	byStatus := d.Config.Handler
	d.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		byStatus.ServeHTTP(answer, r)
		code := 0
		if answer.Code != 200 {
			code = answer.Code
		}
		w.Header().Set("content-type", "application/json")
		_, _ = fmt.Fprintf(w, `{"code":%d}`, code)
	})
	return d
}

// TestTableDisprovesRefusals has a table that gets a row behind the rows that were read, past
// ordergate, and a file that lacks orders of the table.
func TestTableDisprovesRefusals(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	table := mariaTable(t, bed, 100)
	table.exec("DELETE FROM orders WHERE id = 50")
	file := idFile(t, 3)
	config := table.config(bed.Redis().Addr(), tableSettings{listen: ", http: 127.0.0.1:0", member: "verify", filter: ", verify: 1/1", source: ", follow: none"}) + `
  - name: create
    match: {methods: [POST], path: "/files/{id}"}
    id: {path: id, format: digits}
    create: {filter: file, learn: {response_json: id}, dedup: {confirm: orders-db}}
  - name: files
    match: {methods: [GET], path: "/files/{id}"}
    id: {path: id, format: digits}
    lookup: {filter: file}
`
	config = bedtest.Replace(config, `proc: ""`, "proc: 127.0.0.1:0")
	config = bedtest.Replace(config, "\nsources:\n", "\n  file: {capacity: 100, verify: 1/1, sources: [cut]}\nsources:\n  cut: {kind: csv, path: "+file+"}\n")
	g := bed.Gate(bed.Build("./cmd/sidecar", true), config, "ORDERS_DSN="+table.dsn)
	admin := bed.GateAddr(g, "admin")
	status := func(path string) int {
		resp, err := client.Get("http://" + bed.GateAddr(g, "http") + "/check/envoy" + path)
		must(t, err)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	metric := func(line string) string { return metricAt(t, "http://"+admin, line) }
	table.insert(50) // by an import that is not followed
	for _, path := range []string{"/orders/50", "/orders/999", "/files/50"} {
		status(path) // 404, or 200 for a sample
	}
	inFile := bedtest.Replace(verifyMetric("table", "exists"), "orders", "file")
	bedtest.Eventually(t, "both are found", func() bool {
		return metric(verifyMetric("table", "exists")) == "1" && metric(verifyMetric("table", "absent")) == "1" && metric(inFile) == "1"
	})
	bedtest.Eventually(t, "the table is read again, all of it", func() bool { return status("/orders/50") == 200 })
	bedtest.Eventually(t, "absent orders are refused again", func() bool { return status("/orders/998") == 404 })
	if text := readyText(t, admin); !strings.Contains(text, `order \"50\" exists by the table of source orders-db`) {
		t.Errorf("the file's filter: /readyz: %s", text)
	}
	load := func() {
		command := exec.CommandContext(t.Context(), bed.Build("./cmd/sidecar", false), "load", "--filter", "file", "--config", g.ConfigFile())
		command.Env = append(command.Environ(), "ORDERS_DSN="+table.dsn, "ORDERGATE_LISTEN_ADMIN="+admin)
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	load() // another reading of the same file does not help
	if metric(`ordergate_filter_state{filter="file",state="unknown"}`) != "1" {
		t.Error("an incomplete file counts")
	}
	must(t, os.WriteFile(file, []byte("id\n1\n2\n3\n50\n"), 0o600))
	load()
	bedtest.Eventually(t, "the whole file counts", func() bool { return status("/files/998") == 404 })
}
