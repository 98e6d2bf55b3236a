package command

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// asProcess has a line of arguments for this program, executed as main does, in place of its tests.
const asProcess = "TEST_AS_PROCESS"

func TestMain(m *testing.M) {
	if args := os.Getenv(asProcess); args != "" {
		os.Args = append(os.Args[:1], strings.Fields(args)...)
		Main("")
	}
	goleak.VerifyTestMain(m)
}

// exampleEnv has what the example's configuration needs.
func exampleEnv(name string) string {
	if name == "ORDERS_DSN" {
		return "gate:secret@tcp(127.0.0.1:1)/shop"
	}
	return ""
}

// command runs a command line as main does.
func command(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = run(ctx, args, &out, &errs, exampleEnv)
	return code, out.String(), errs.String()
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ordergate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommandLine(t *testing.T) {
	good := filepath.Join("..", "..", "..", "examples", "envoy", "ordergate.yaml")
	bad := writeConfig(t, "locks: {a: {lease: 1}}\nrules: [{}]\n")
	noVariable := writeConfig(t, "filters: {orders: {sources: [db]}}\nsources:\n  db: {kind: mysql, dsn_env: NOPE, table: t, id_column: id}\nrules:\n"+
		"  - {name: a, match: {methods: [GET], path: \"/{id}\"}, id: {path: id}, lookup: {filter: orders}}\nredis: {}\n")
	dsn := func(kind, text string) string {
		path := filepath.Join(t.TempDir(), "dsn")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return writeConfig(t, "filters: {orders: {sources: [db]}}\nsources:\n  db: {kind: "+kind+", dsn_file: "+path+", table: t, id_column: id}\nredis: {}\n")
	}
	absent := filepath.Join(t.TempDir(), "nowhere", "file")
	tests := []struct {
		name   string
		args   []string
		code   int
		stdout string // has to begin with it
		stderr string // has to be in it; each line of stderr is an error
		lines  int
	}{
		{"no command", nil, exitUsage, "Guards order services", "which command?", 1},
		{"unknown command", []string{"sevre"}, exitUsage, "", `unknown argument "sevre" (did you mean serve?)`, 1},
		{"unknown flag", []string{"check", "--colour"}, exitUsage, "", "ordergate check: unknown flag: --colour\n", 1},
		{"surplus argument", []string{"check", "file"}, exitUsage, "", `unknown argument "file"`, 1},
		{"help on an unknown command", []string{"help", "locks", "lits"}, exitUsage, "", `ordergate locks: unknown argument "lits" (did you mean list?)`, 1},
		{"help on a command", []string{"help", "locks", "list"}, exitDone, "List the locks", "", 0},
		{"completion of a file", []string{"completion", "bash", "file"}, exitUsage, "", `unknown argument "file"`, 1},
		{"help", []string{"--help"}, exitDone, "Guards order services", "", 0},
		{"version", []string{"version"}, exitDone, "ordergate ", "", 0},
		{"version as a flag", []string{"--version"}, exitDone, "ordergate " + versionText() + "\n", "", 0},
		{"version as JSON", []string{"version", "--json"}, exitDone, `{"arch":"`, "", 0},
		{"good file", []string{"check", "--config", good}, exitDone, "", "", 0},
		{"no variable", []string{"check", "--config", noVariable}, exitDone, "", "", 0},
		{"serve without it", []string{"serve", "--config", noVariable}, exitUsage, "", "sources.db.dsn_env: the variable of this name is not set", 1},
		{"no DSN", []string{"check", "--config", dsn("mysql", "hunter2@@")}, exitUsage, "", "ordergate.yaml:3: sources.db.dsn_file: mysql table t: the DSN is malformed: use user:password@tcp(host:3306)/database", 1},
		{"DSN without a database", []string{"check", "--config", dsn("mysql", "u:hunter2@tcp(127.0.0.1:1)/")}, exitUsage, "", "sources.db.dsn_file: mysql table t: no database", 1},
		{"serve without a database", []string{"serve", "--config", dsn("mysql", "u:hunter2@tcp(127.0.0.1:1)/")}, exitUsage, "", "sources.db.dsn_file: mysql table t: no database", 1},
		{"no DSN of PostgreSQL", []string{"check", "--config", dsn("postgres", "postgres://u:hunter2@[/x")}, exitUsage, "", "sources.db.dsn_file: postgres table t: the DSN is malformed", 1},
		{"a good DSN", []string{"check", "--config", dsn("postgres", "postgres://u:hunter2@127.0.0.1:1/x")}, exitDone, "", "", 0},
		{"no file", []string{"check", "--config", ""}, exitUsage, "", `reading configuration "": no such file`, 1},
		{"missing file", []string{"check", "--config", "nowhere.yaml"}, exitUsage, "", "nowhere.yaml", 1},
		{"no folder of a missing file", []string{"envoy", "--config", good, "--out", absent}, exitUsage, "", absent, 1},
		{"missing configuration of Envoy", []string{"envoy", "--config", good, "--check", absent}, exitUsage, "", absent, 1},
		{"missing log", []string{"replay", "--config", good, absent}, exitUsage, "", absent, 1},
		{"missing orders of a log", []string{"replay", "--config", good, "--csv", absent, good}, exitUsage, "", absent, 1},
		{"missing IDs", []string{"load", "--config", writeConfig(t, serving), "--filter", "orders", "--csv", absent}, exitUsage, "", absent, 1},
		{"missing sample", []string{"filter", "size", "--ids", "1000", "--sample", absent}, exitUsage, "", absent, 1},
		{"missing body", []string{"explain", "--config", good, "-d", "@" + absent, "POST /orders"}, exitUsage, "", absent, 1},
		{"no folder of a report", []string{"bundle", "--config", good, "--out", absent}, exitUsage, "", absent, 1},
		{"no socket", []string{"health", "--config", writeConfig(t, "listen: {admin: \"unix:"+absent+"\"}\n"+strings.SplitN(serving, "\n", 3)[2])}, exitFailed, "", "", 1},
		{"bad file", []string{"check", "--config", bad}, exitUsage, "", ":1: locks.a.lease: ", 5},
		{"serve a bad file", []string{"serve", "--config", bad}, exitUsage, "", ":2: rules[0]: ", 5},
		{"log level", []string{"serve", "--config", good, "--log-level", "loud"}, exitUsage, "", `"loud" is not one of`, 1},
		{"negative time", []string{"serve", "--config", good, "--drain-delay", "-1s"}, exitUsage, "", "--drain-delay and --drain: must be at least 0s", 1},
		{"log format", []string{"serve", "--config", good, "--log-format", "xml"}, exitUsage, "", `"xml" is not one of`, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := command(t.Context(), tt.args...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if !strings.HasPrefix(stdout, tt.stdout) || tt.stdout == "" && stdout != "" {
				t.Errorf("stdout %q", stdout)
			}
			if strings.Contains(stderr, "hunter2") || !strings.Contains(stderr, tt.stderr) || strings.Count(stderr, "\n") != tt.lines {
				t.Errorf("stderr %q, want %d lines with %q", stderr, tt.lines, tt.stderr)
			}
		})
	}
}

// serving is the smallest file that serves on free ports, without any Redis.
const serving = `
listen: {authz: 127.0.0.1:0, proc: "", admin: 127.0.0.1:0}
filters: {orders: {}}
rules:
  - name: lookup
    match: {methods: [GET], path: "/orders/{id}"}
    id: {path: id}
    lookup: {filter: orders}
`

func TestServeStopsWhenTold(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop() // before it has begun: it starts and ends in order all the same
	code, _, stderr := command(ctx, "serve", "--config", writeConfig(t, serving), "--drain-delay", "0")
	if code != exitDone {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"name=authz", "name=admin", "msg=serving", "msg=stopped"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("log lacks %q:\n%s", want, stderr)
		}
	}
}

// stoppedReader is a pipe whose reader has stopped, and is full.
type stoppedReader struct{ goesOn chan struct{} }

func (r stoppedReader) Write(line []byte) (int, error) {
	<-r.goesOn
	return len(line), nil
}

// TestServeOutlastsTheReaderOfItsLog has the reader of standard error stop, or end: ordergate
// serves, and ends in order.
func TestServeOutlastsTheReaderOfItsLog(t *testing.T) {
	args := []string{"serve", "--drain-delay", "0s", "--config", writeConfig(t, serving)}
	t.Run("stopped", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		r := stoppedReader{make(chan struct{})}
		defer close(r.goesOn)
		if code := run(ctx, args, io.Discard, r, exampleEnv); code != exitDone {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("ended", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), asProcess+"="+strings.Join(args, " "))
		stderr, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(stderr); lines.Scan() && !strings.Contains(lines.Text(), "msg=serving"); {
		}
		_ = stderr.Close()
		for range 2 {
			_ = cmd.Process.Signal(syscall.SIGTERM) // it logs that it stops; the second one kills nothing
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
}
