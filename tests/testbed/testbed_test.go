package testbed_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// patience bounds every wait for a real process.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if dir := os.Getenv("TESTBED_PARENT"); dir != "" {
		os.Exit(parent(dir))
	}
	goleak.VerifyTestMain(m)
}

// parent is what TestKilledParent kills: a process with servers of its own, those
// that TESTBED_SERVERS names. It prints their process IDs and waits.
func parent(dir string) int {
	ctx := context.Background()
	bed, err := testbed.New(dir, nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	var pids []any
	for _, name := range strings.Fields(os.Getenv("TESTBED_SERVERS")) {
		server, err := startServer(ctx, bed, name, dir)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		pids = append(pids, server.PID())
	}
	fmt.Println(pids...)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed
	return 0
}

func startServer(ctx context.Context, bed *testbed.Bed, name, dir string) (interface{ PID() int }, error) {
	switch name {
	case "redis":
		return bed.Redis(ctx)
	case "php":
		return bed.PHP(ctx, dir, 1, 4)
	case "mariadb":
		return bed.MariaDB(ctx)
	case "postgres":
		return bed.Postgres(ctx)
	}
	return nil, fmt.Errorf("no server is called %s", name)
}

func TestKilledParent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child that its parent died")
	}
	for _, servers := range []string{"redis php", "mariadb", "postgres"} {
		t.Run(servers, func(t *testing.T) {
			t.Parallel()
			killParent(t, servers)
		})
	}
}

func killParent(t *testing.T, servers string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TESTBED_PARENT="+t.TempDir(), "TESTBED_SERVERS="+servers)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
	if program, fetch, missing := strings.Cut(strings.TrimSpace(line), " is missing: run python3 tools/fetch.py "); missing {
		bedtest.Check(t, &testbed.MissingError{Program: program, Fetch: fetch})
	}
	pids := strings.Fields(line)
	if len(pids) != len(strings.Fields(servers)) {
		t.Fatalf("the parent said %q", line)
	}
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("the parent said %q", line)
		}
		eventually(t, func() error { return groupGone(pid) })
	}
}

// TestThreadEnds starts a server from a thread that ends: the kernel takes the
// end of the forking thread for the death of the parent.
func TestThreadEnds(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	need(t, "redis-server", "redis")
	type result struct {
		redis *testbed.Redis
		tid   int
		err   error
	}
	results := make(chan result)
	ctx := t.Context()
	var start func()
	start = func() {
		runtime.LockOSThread()
		if threadID() == os.Getpid() {
			// The main thread never ends: hold it, so that another one is taken.
			defer runtime.UnlockOSThread()
			done := make(chan struct{})
			go func() { defer close(done); start() }()
			<-done
			return
		}
		redis, err := bed.Bed.Redis(ctx)
		results <- result{redis, threadID(), err}
		// Not unlocked: the thread ends with the goroutine.
	}
	go start()
	r := <-results
	if r.err != nil {
		t.Fatal(r.err)
	}
	if runtime.GOOS == "linux" {
		eventually(t, func() error {
			if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", r.tid)); err == nil {
				return errors.New("the thread is still there")
			}
			return nil
		})
	}
	if err := ping(r.redis.Addr()); err != nil {
		t.Error(err)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	need(t, "redis-server", "redis")
	start := func(t *testing.T) (*testbed.Bed, *testbed.Redis, *strings.Builder) {
		var log strings.Builder
		bed, err := testbed.New(t.TempDir(), &log)
		if err != nil {
			t.Fatal(err)
		}
		redis, err := bed.Redis(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return bed, redis, &log
	}
	t.Run("stops what runs", func(t *testing.T) {
		bed, redis, log := start(t)
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
		eventually(t, func() error { return groupGone(redis.PID()) })
		if want := "redis-1: stopped\n"; !strings.HasSuffix(log.String(), want) {
			t.Errorf("log is %q, want %q at its end", log, want)
		}
		if err := bed.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if _, err := bed.Redis(t.Context()); err == nil {
			t.Error("a closed bed started a Redis")
		}
		if err := redis.Restart(t.Context()); err == nil {
			t.Error("a closed bed restarted a Redis")
		}
	})
	t.Run("reports what ended by itself", func(t *testing.T) {
		bed, redis, _ := start(t)
		if err := syscall.Kill(redis.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-redis.Done()
		if err := bed.Close(); err == nil || !strings.Contains(err.Error(), "redis-1 ended by itself (signal: killed)") {
			t.Errorf("Close returned %v", err)
		}
	})
	t.Run("takes a kill for an end", func(t *testing.T) {
		bed, redis, _ := start(t)
		redis.Kill()
		if err := redis.Signal(syscall.SIGHUP); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("Signal after Kill returned %v", err)
		}
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestMissingProgram(t *testing.T) {
	bed := bedtest.New(t)
	t.Setenv("PATH", t.TempDir())
	starts := map[string]func() error{
		"redis-server": func() error { _, err := bed.Bed.Redis(t.Context()); return err },
		"php":          func() error { _, err := bed.Bed.PHP(t.Context(), t.TempDir(), 1, 1); return err },
		"java":         func() error { _, err := bed.Bed.Java(t.Context(), t.TempDir(), 1); return err },
	}
	for program, start := range starts {
		t.Run(program, func(t *testing.T) {
			var missing *testbed.MissingError
			if err := start(); !errors.As(err, &missing) || missing.Program != program {
				t.Fatalf("got %v, want a MissingError", err)
			}
			if !strings.Contains(missing.Error(), "python3 tools/fetch.py "+missing.Fetch) {
				t.Errorf("%q does not say what to run", missing)
			}
		})
	}
}

func TestOutsideOfTheCheckout(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := testbed.New(t.TempDir(), nil); err == nil {
		t.Error("New found a checkout where there is none")
	}
}

// need skips the test without a program; see bedtest.NeedProcesses and bedtest.Check.
func need(t *testing.T, program, fetch string) {
	t.Helper()
	bedtest.NeedProcesses(t)
	if _, err := exec.LookPath(program); err != nil {
		bedtest.Check(t, &testbed.MissingError{Program: program, Fetch: fetch})
	}
}

// eventually polls until check returns nil.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

// groupGone tells whether no process of a group runs any more. What has ended
// but was not yet collected by whoever adopted it does not count.
func groupGone(group int) error {
	if runtime.GOOS != "linux" {
		if err := syscall.Kill(-group, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("group %d is still there: %w", group, err)
		}
		return nil
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return err
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// After the name in brackets: state, parent, group (proc(5)).
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if fields[2] == strconv.Itoa(group) && fields[0] != "Z" && fields[0] != "X" {
			return fmt.Errorf("of group %d there is still: %s", group, text)
		}
	}
	return nil
}

// ping asks a Redis for a sign of life, for a second at most.
func ping(addr string) error {
	answer, err := command(addr, "PING")
	if err == nil && answer != "+PONG" {
		err = fmt.Errorf("%s answers %q", addr, answer)
	}
	return err
}

// command sends a line to a Redis and returns the first line of its answer.
func command(addr, line string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "%s\r\n", line); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(answer), err
}
