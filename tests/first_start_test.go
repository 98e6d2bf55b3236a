package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestFirstStarts has ordergate start for the first time, with each kind of source and of filter, and
// as ordergate init writes its file. Its log names no trouble, until it has stopped.
func TestFirstStarts(t *testing.T) {
	t.Parallel()
	binlog := []string{"--log-bin", "--binlog-format=ROW", "--server-id=1"}
	table := func(open func(testing.TB, *bedtest.Bed, int, ...string) *orderTable, args []string, s tableSettings) func(*bedtest.Bed) (string, string) {
		return func(bed *bedtest.Bed) (string, string) {
			o := open(t, bed, 1000, args...)
			return o.config(bed.Redis().Addr(), s), "ORDERS_DSN=" + o.dsn
		}
	}
	for name, config := range map[string]func(*bedtest.Bed) (yaml, env string){
		"file": func(bed *bedtest.Bed) (string, string) {
			return bed.GateExample(bed.Redis().Addr(), idFile(t, 1000)), ""
		},
		"MariaDB polled":   table(mariaTable, nil, tableSettings{member: "one", source: ", follow: poll"}),
		"MariaDB followed": table(mariaTable, binlog, tableSettings{member: "one", source: ", follow: binlog", filter: ", snapshot: {path: " + t.TempDir() + "/orders.snap}"}),
		"PostgreSQL":       table(postgresTable, []string{"-c", "wal_level=logical"}, tableSettings{member: "one", source: ", follow: logical", filter: ", reconcile: {every: 1m}"}),
		"filters": func(bed *bedtest.Bed) (string, string) {
			kinds := slices.DeleteFunc(slices.Concat(inMemory, inRedis), func(k filterKind) bool { return k.arrival }) // has no sources
			return kindsYAML(t, "addresses: ["+bed.Redis(bed.RedisBloomArgs()...).Addr()+"]", kinds), ""
		},
		"init": func(bed *bedtest.Bed) (string, string) {
			o := mariaTable(t, bed, 1000, binlog...)
			dir := t.TempDir()
			(&stack{Bed: bed, t: t}).operator("", "init", "--out", dir, "--backend", "php-paths", "--database", "mariadb", "--table", "orders",
				"--id-column", "id", "--redis", bed.Redis().Addr(), "--lookup", "GET /orders/{id}", "--create", "POST /orders", "--settle", "POST /orders/{id}/pay")
			text, err := os.ReadFile(filepath.Join(dir, "ordergate.yaml"))
			must(t, err)
			return regexp.MustCompile(`(authz|proc|admin): *[^ #\n]+`).ReplaceAllString(string(text), "$1: 127.0.0.1:0"), "ORDERS_DSN=" + o.dsn
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			yaml, env := config(bed)
			gate := bed.Gate(bed.Build("./cmd/sidecar", false), yaml, env)
			must(t, gate.Stop())
			wantNoLine(t, gate, "level=WARN", "level=ERROR")
		})
	}
}

// wantNoLine checks that the log of an ordergate has no line with one of the texts.
func wantNoLine(t testing.TB, gate *testbed.Gate, texts ...string) {
	t.Helper()
	log, err := os.ReadFile(gate.Output())
	must(t, err)
	if !strings.Contains(string(log), "msg=serving ") && !strings.Contains(string(log), `msg="serving inside Envoy"`) {
		t.Errorf("this is no log:\n%s", log)
	}
	for line := range strings.Lines(string(log)) {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) }) {
			t.Errorf("in the log: %s", line)
		}
	}
}
