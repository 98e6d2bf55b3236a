package tests

import (
	"io"
	"net/http"
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

// TestBackendDisprovesRefusals has a file of orders that was cut off. The backend has the rest.
func TestBackendDisprovesRefusals(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, 100)
	declared := func(yaml string) string {
		return "answer: {done: [{status: 2xx}], absent: [{status: 404}]}\n" + yaml
	}
	s := newStack(t, settings{backend: d.addr(), orders: 50, gate: both(declared, filterOf("capacity: 1000; verify: 1/1"))})
	s.must(http.MethodGet, "/orders/50", "").want(t, 200, "")
	made := s.must(http.MethodGet, "/orders/900", "")
	if made.status != 404 || d.missed("unknown") != 1 {
		t.Errorf("got %d, and the backend was asked %d times", made.status, d.missed("unknown"))
	}
	if *attachment == asModule {
		made.want(t, 404, "absent")
		if made.body != `{"error":"order not found"}` {
			t.Errorf("a sample shows by its answer: %s", made.body)
		}
	}
	s.must(http.MethodGet, "/orders/60", "").want(t, 200, "")
	bedtest.Eventually(t, "the backend's answers count", func() bool {
		return s.number(verifyMetric("backend", "absent")) >= 1 && s.number(verifyMetric("backend", "exists")) == 1
	})
	admin := s.GateAddr(s.gate, "admin")
	bedtest.Eventually(t, "the filter is unknown", func() bool {
		return s.number(`ordergate_filter_state{filter="orders",state="unknown"}`) == 1
	})
	if text := readyText(t, admin); !strings.Contains(text, `order \"60\" exists by the backend's answer to rule order-lookup`) {
		t.Errorf("/readyz: %s", text)
	}
	asked := d.missed("unknown")
	for range 8 { // more than are sampled in a second
		s.must(http.MethodGet, "/orders/901", "").want(t, 404, "")
	}
	if n := d.missed("unknown") - asked; n != 8 {
		t.Errorf("%d of 8 lookups passed an unknown filter", n)
	}
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
	config = strings.Replace(config, `proc: ""`, "proc: 127.0.0.1:0", 1)
	config = strings.Replace(config, "\nsources:\n", "\n  file: {capacity: 100, verify: 1/1, sources: [cut]}\nsources:\n  cut: {kind: csv, path: "+file+"}\n", 1)
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
	inFile := strings.Replace(verifyMetric("table", "exists"), "orders", "file", 1)
	bedtest.Eventually(t, "both are found", func() bool {
		return metric(verifyMetric("table", "exists")) == "1" && metric(verifyMetric("table", "absent")) == "1" && metric(inFile) == "1"
	})
	bedtest.Eventually(t, "the table is read again, all of it", func() bool { return status("/orders/50") == 200 })
	bedtest.Eventually(t, "absent orders are refused again", func() bool { return status("/orders/998") == 404 })
	if text := readyText(t, admin); !strings.Contains(text, `order \"50\" exists by the table of source orders-db`) {
		t.Errorf("the file's filter: /readyz: %s", text)
	}
	load := func() {
		command := exec.CommandContext(t.Context(), bed.Build("./cmd/sidecar", true), "load", "--filter", "file", "--config", g.ConfigFile())
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
