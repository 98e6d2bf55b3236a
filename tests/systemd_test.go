package tests

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// activated starts ordergate as systemd does: with sockets that listen, a socket for its messages, and
// a watchdog.
func activated(t *testing.T, config string, watchdog time.Duration, passed ...net.Listener) (cmd *exec.Cmd, messages <-chan string, output *bedtest.Log) {
	t.Helper()
	bed := bedtest.New(t)
	dir, err := os.MkdirTemp("", "og") // a socket's path has to be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/notify", Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { _ = notify.Close() })
	file := filepath.Join(dir, "ordergate.yaml")
	must(t, os.WriteFile(file, []byte(strings.ReplaceAll(config, "DIR", dir)), 0o600))
	// The process ID is that of the shell that becomes ordergate.
	cmd = exec.CommandContext(t.Context(), "sh", "-c", `LISTEN_PID=$$ WATCHDOG_PID=$$ exec "$0" serve --drain-delay 0s --config "$1"`, bed.Build("./cmd/sidecar", false), file)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+dir+"/notify", fmt.Sprint("LISTEN_FDS=", len(passed)), fmt.Sprint("WATCHDOG_USEC=", watchdog.Microseconds()))
	for _, l := range passed {
		f, err := l.(*net.TCPListener).File()
		must(t, err)
		t.Cleanup(func() { _ = f.Close() })
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	output = &bedtest.Log{}
	cmd.Stderr = output
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	received := make(chan string, 1000)
	go func() {
		defer close(received)
		for {
			buffer := make([]byte, 4096)
			n, err := notify.Read(buffer)
			if err != nil {
				return
			}
			received <- string(bytes.TrimSpace(buffer[:n]))
		}
	}()
	return cmd, received, output
}

// listener listens at a port of loopback.
func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestSystemd follows what ordergate reports to systemd, and uses a socket that systemd has opened.
func TestSystemd(t *testing.T) {
	needsSidecar(t, "the module is Envoy's")
	t.Parallel()
	admin := listener(t)
	config := "listen: {authz: 'unix:DIR/authz.sock', proc: 'unix:DIR/proc.sock', admin: '" + admin.Addr().String() + "'}\nredis: {mode: embedded}\n"
	cmd, messages, _ := activated(t, config, 300*time.Millisecond, admin)
	want := func(text string) {
		t.Helper()
		for {
			if got := bedtest.Receive(t, text, messages); strings.Contains(got, text) {
				return
			}
		}
	}
	want("READY=1\nSTATUS=serving")
	want("WATCHDOG=1")
	response, err := http.Get("http://" + admin.Addr().String() + "/healthz") //nolint:noctx // on loopback
	must(t, err)
	if must(t, response.Body.Close()); response.StatusCode != 200 {
		t.Errorf("/healthz at the socket of systemd: %s", response.Status)
	}
	must(t, cmd.Process.Signal(syscall.SIGHUP))
	want("RELOADING=1")
	want("READY=1")
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	want("STOPPING=1")
	must(t, cmd.Wait())
}

// TestSystemdFailure reports the first mistake of a file as the unit's status: the journal may lack lines
// of a process that ended at once.
func TestSystemdFailure(t *testing.T) {
	needsSidecar(t, "the module is Envoy's")
	t.Parallel()
	cmd, messages, _ := activated(t, "listen: {authz: 'unix:DIR/authz.sock', proc: 'unix:DIR/proc.sock', admin: 'unix:DIR/admin.sock'}\nredis: {mode: embedded}\nfilters: {orders: {capacity: 10, sources: [db]}}\nsources: {db: {kind: mysql, dsn_env: NOT_SET, table: orders, id_column: id}}\n", 0)
	if got := bedtest.Receive(t, "the mistake", messages); !regexp.MustCompile(`^STATUS=\S+:4: sources.db.dsn_env: the variable of this name is not set[^\n]*$`).MatchString(got) {
		t.Errorf("it reports %q", got)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it starts")
	}
}

// TestSystemdSocketOfNoListener passes a socket that the file does not name.
func TestSystemdSocketOfNoListener(t *testing.T) {
	needsSidecar(t, "the module is Envoy's")
	t.Parallel()
	other := listener(t)
	cmd, _, output := activated(t, "listen: {authz: 'unix:DIR/authz.sock', proc: 'unix:DIR/proc.sock', admin: 'unix:DIR/admin.sock'}\nredis: {mode: embedded}\n", 0, other)
	if err := cmd.Wait(); err == nil || !strings.Contains(output.String(), "systemd passed a socket at "+other.Addr().String()+", which is none of the addresses of listen") {
		t.Errorf("it ends with %v: %s", err, output)
	}
}
