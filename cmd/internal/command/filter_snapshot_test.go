package command

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/listen"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// withSnapshot is serving with a snapshot, and another filter that has none.
func withSnapshot(path, admin string) string {
	text := bedtest.Replace(serving, "{orders: {}}", "{orders: {capacity: 100, snapshot: {path: "+path+"}}, bare: {}}")
	return bedtest.Replace(text, "admin: 127.0.0.1:0", "admin: "+admin)
}

// serveEngine runs an engine without faces until the test ends.
func serveEngine(t *testing.T, text string) *engine.Engine {
	t.Helper()
	c, err := engine.LoadConfig(writeConfig(t, text), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	m, err := engine.New(t.Context(), c, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	m.Start()
	t.Cleanup(m.Close)
	return m
}

func TestFilterSnapshotCommand(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "orders.snap")
	m := serveEngine(t, withSnapshot(path, "127.0.0.1:0"))
	bedtest.Eventually(t, "a snapshot is written", func() bool { _, err := os.Stat(path); return err == nil })
	socket := filepath.Join(dir, "a.sock")
	listener, err := listen.Listen("unix:"+socket, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: m.AdminServer(func() bool { return false }).Handler}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	good, bad := writeConfig(t, withSnapshot(path, "unix:"+socket)), filepath.Join(dir, "bad.snap")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-40] ^= 1
	if err := os.WriteFile(bad, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name           string
		args           []string
		config         string
		code           int
		stdout, stderr string
	}{
		{"good", []string{"orders"}, good, exitDone, path + ": 0 IDs in ", ""},
		{"as JSON", []string{"orders", "--json"}, good, exitDone, `"filter": "orders"`, ""},
		{"no name", nil, good, exitUsage, "", "want one filter, got 0"},
		{"no such filter", []string{"none"}, good, exitUsage, "", `has no filter "none"`},
		{"without a snapshot", []string{"bare"}, good, exitUsage, "", "filters.bare in " + good + " has no snapshot"},
		{"without a listener", []string{"orders"}, writeConfig(t, withSnapshot(path, `""`)), exitUsage, "", "no listen.admin"},
		{"nobody there", []string{"orders"}, writeConfig(t, withSnapshot(path, "unix:"+socket+"2")), exitFailed, "", "asking the ordergate at unix:"},
		{"somebody else there", []string{"orders"}, writeConfig(t, withSnapshot(path, other.Listener.Addr().String())), exitFailed, "", "it answered 404"},
		{"inspect", []string{"inspect", path}, good, exitDone, "all checksums are right", ""},
		{"inspect, as JSON", []string{"inspect", path, "--json"}, good, exitDone, `"label": "all/0"`, ""},
		{"inspect what is damaged", []string{"inspect", bad}, good, exitFailed, "", "inspect: snapshot " + bad + " is damaged: "},
		{"inspect nothing", []string{"inspect", path + "2"}, good, exitUsage, "", "no such file"},
		{"inspect, which", []string{"inspect"}, good, exitUsage, "", "want one file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := command(t.Context(), append([]string{"filter", "snapshot", "--config", tc.config}, tc.args...)...)
			if code != tc.code || !strings.Contains(stdout, tc.stdout) || !strings.Contains(stderr, tc.stderr) || strings.Count(stderr, "\n") > 1 {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
		})
	}
	var report admin.SnapshotReport
	_, stdout, _ := command(t.Context(), "filter", "snapshot", "orders", "--json", "--config", good)
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || report.Path != path || report.Bytes == 0 || report.Position != nil {
		t.Errorf("%+v, %v", report, err)
	}
}
