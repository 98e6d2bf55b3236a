package testbed_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestRedis(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis := bed.Redis("--maxmemory", "32mb")
	other := bed.Redis("--requirepass", "secret")
	if redis.Addr() == other.Addr() {
		t.Fatalf("two servers on %s", redis.Addr())
	}
	if answer, err := command(other.Addr(), "PING"); !strings.HasPrefix(answer, "-NOAUTH") {
		t.Errorf("the one with a password answers %q, %v", answer, err)
	}
	if answer, err := command(redis.Addr(), "SET a 1"); answer != "+OK" {
		t.Fatalf("SET answers %q, %v", answer, err)
	}

	if err := redis.Pause(); err != nil {
		t.Fatal(err)
	}
	var netErr net.Error
	if err := ping(redis.Addr()); !errors.As(err, &netErr) || !netErr.Timeout() {
		t.Errorf("a paused server answers: %v", err)
	}
	if err := redis.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return ping(redis.Addr()) })

	addr, pid := redis.Addr(), redis.PID()
	if err := redis.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if redis.Addr() != addr || redis.PID() == pid {
		t.Errorf("restarted from %s, pid %d as %s, pid %d", addr, pid, redis.Addr(), redis.PID())
	}
	if answer, err := command(redis.Addr(), "EXISTS a"); answer != ":0" {
		t.Errorf("something survived the restart: %q, %v", answer, err)
	}

	// Stopping must work on a paused server too.
	if err := redis.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := redis.Stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return groupGone(redis.PID()) })
}

// TestRedisPortTaken restarts a Redis whose port somebody holds for a while.
func TestRedisPortTaken(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis := bed.Redis()
	restartOnATakenPort(t, redis)
	if err := ping(redis.Addr()); err != nil {
		t.Error(err)
	}
}

// restartOnATakenPort stops a server, takes its port, and has it restart; the port
// is free again once the server has met it.
func restartOnATakenPort(t *testing.T, server interface {
	Addr() string
	Output() string
	Stop() error
	Restart(ctx context.Context) error
},
) {
	t.Helper()
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	restarted := make(chan error)
	go func() { restarted <- server.Restart(t.Context()) }()
	eventually(t, func() error {
		text, err := os.ReadFile(server.Output())
		if err == nil && !strings.Contains(string(text), "ddress already in use") {
			err = errors.New("it has not met the taken port")
		}
		return err
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
}

func TestRedisRefusesItsArguments(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	need(t, "redis-server", "redis")
	_, err := bed.Bed.Redis(t.Context(), "--maxmemory", "a lot")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(err.Error(), "argument must be a memory value") {
		t.Errorf("got %v, want the exit status and what Redis says", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error has more than one line: %v", err)
	}
	if n := len(bed.Processes()); n != 0 {
		t.Errorf("the bed keeps %d processes of a failed start", n)
	}
}

const hello = `
static_resources:
  listeners:
  - name: hello
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: hello
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{match: {prefix: /}, direct_response: {status: 200, body: {inline_string: hello}}}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
`

func TestEnvoy(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	// An admin interface on a port of its own must not get in the way.
	envoy := bed.Envoy("admin: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}" + hello)
	check := func() {
		t.Helper()
		url := "http://" + bed.ListenerAddr(envoy, "hello")
		if status, body := do(t, http.MethodGet, url, ""); status != 200 || body != "hello" {
			t.Errorf("%s answers %d %q", url, status, body)
		}
	}
	check()
	check()
	eventually(t, func() error { // Envoy adds the workers' counts up now and then
		stats, err := envoy.Stats(t.Context(), "http.hello.downstream_rq_")
		if err == nil && stats["http.hello.downstream_rq_2xx"] != 2 {
			err = errors.New("two requests are not counted")
		}
		for name := range stats {
			if !strings.HasPrefix(name, "http.hello.downstream_rq_") {
				t.Fatalf("Stats returned %s", name)
			}
		}
		return err
	})
	if _, err := envoy.ListenerAddr(t.Context(), "bye"); err == nil || !strings.Contains(err.Error(), `["hello"]`) {
		t.Errorf("an unknown listener: %v, want an error that names the known ones", err)
	}
	if err := envoy.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	check()
	if err := envoy.Stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return groupGone(envoy.PID()) })
}

func TestEnvoyBadConfig(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	bedtest.Check(t, bed.Validate(t.Context(), hello))
	bad := strings.Replace(hello, "stat_prefix", "stat_suffix", 1)
	if err := bed.Validate(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "stat_suffix") {
		t.Errorf("Validate returned %v", err)
	}
	_, err := bed.Bed.Envoy(t.Context(), bad)
	if err == nil || !strings.Contains(err.Error(), "stat_suffix") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line with what Envoy says", err)
	}
}

const fakeGate = "./tests/testbed/testdata/gate"

func TestGate(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	binary := bed.Build(fakeGate, true)
	gate := bed.Gate(binary, "one", "GATE_GREETING=hi")
	if got, want := bed.GateAddr(gate, "authz"), "unix:/run/a=b.sock"; got != want {
		t.Errorf("authz is at %q, want %q", got, want)
	}
	check := func(want string) {
		t.Helper()
		if _, body := do(t, http.MethodGet, "http://"+bed.GateAddr(gate, "admin")+"/config", ""); body != want {
			t.Errorf("it reads %q, want %q", body, want)
		}
	}
	check("hi one")
	if err := gate.WriteConfig("two"); err != nil {
		t.Fatal(err)
	}
	check("hi two")
	gate.Kill()
	if err := gate.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("hi two") // at the new address
	if err := gate.Stop(); err != nil {
		t.Error(err)
	}
}

func TestGateMisbehaves(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	binary := bed.Build(fakeGate, false)
	start := func(t *testing.T, config string) *testbed.Gate {
		gate, err := bed.GateUnready(t.Context(), binary, config)
		if err != nil {
			t.Fatal(err)
		}
		return gate
	}
	t.Run("refuses its configuration", func(t *testing.T) {
		_, err := bed.Bed.Gate(t.Context(), binary, "refuse")
		if err == nil || !strings.Contains(err.Error(), "gate: refused: line 1") {
			t.Errorf("got %v, want what it says", err)
		}
		gate := start(t, "refuse")
		var exit *exec.ExitError
		if err := gate.Wait(t.Context()); !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("Wait returned %v, want exit status 2", err)
		}
		if gate.Tail() != "gate: refused: line 1" {
			t.Errorf("Tail returned %q", gate.Tail())
		}
	})
	t.Run("has a data race", func(t *testing.T) {
		gate := start(t, "racy")
		bed.GateAddr(gate, "admin")
		if err := gate.Stop(); err == nil || !strings.Contains(err.Error(), "exit status 66") {
			t.Errorf("Stop returned %v, want its exit status", err)
		}
	})
	t.Run("does not end", func(t *testing.T) {
		t.Parallel() // it takes as long as Stop's patience
		gate := start(t, "deaf")
		bed.GateAddr(gate, "admin")
		if err := gate.Stop(); err == nil || !strings.Contains(err.Error(), "was killed") {
			t.Errorf("Stop returned %v, want that it was killed", err)
		}
		eventually(t, func() error { return groupGone(gate.PID()) })
	})
	t.Run("is never ready", func(t *testing.T) {
		gate := start(t, "unready")
		bed.GateAddr(gate, "admin")
		ready := make(chan error)
		go func() { ready <- gate.WaitReady(t.Context()) }()
		gate.Kill()
		if err := <-ready; err == nil {
			t.Error("WaitReady returned nil")
		}
	})
}

// TestBuildAtOnce builds one command several times at once while it is run.
func TestBuildAtOnce(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			binary, err := bed.Bed.Build(t.Context(), fakeGate, false)
			if err != nil {
				t.Error(err)
				return
			}
			gate, err := bed.Bed.Gate(t.Context(), binary, "")
			if err != nil {
				t.Error(err)
				return
			}
			if err := gate.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	_, err := bed.Bed.Build(t.Context(), "./tests/testbed/testdata/none", false)
	if err == nil || !strings.Contains(err.Error(), "testdata/none") {
		t.Errorf("building nothing returned %v", err)
	}
}

// do makes one request on a connection of its own and returns the answer.
func do(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	status, answer, err := request(t, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, answer
}

// request is do for goroutines that must not end the test.
func request(t *testing.T, method, url, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), err
}
