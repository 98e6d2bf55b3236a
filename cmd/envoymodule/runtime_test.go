package main

import (
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSettings(t *testing.T) {
	for text, want := range map[string]settings{
		"/etc/ordergate.yaml":                      {Config: "/etc/ordergate.yaml"},
		" ordergate.yaml\n":                        {Config: "ordergate.yaml"},
		`{"config": "o.yaml"}`:                     {Config: "o.yaml"},
		`{"config":"o","failure_mode_allow":true}`: {Config: "o", FailureModeAllow: true},
	} {
		if got, err := parseSettings([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"": "which ordergate.yaml?", "{}": "which ordergate.yaml?", `{"conf": "o"}`: `unknown field "conf"`,
		`{"config": 1}`: "filter_config: ", `{`: "filter_config: ",
	} {
		if got, err := parseSettings([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", text, got, err, want)
		}
	}
}

const gated = `
listen: {admin: ADDR}
filters: {orders: {}}
rules:
  - {name: r, match: {methods: [GET], path: "/{id}"}, id: {path: id}, lookup: {filter: orders}}
`

func noEnv(string) string { return "" }

// TestOneForAll has several places of Envoy's configuration share an engine, which ends
// with the last of them.
func TestOneForAll(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := taken.Addr().String()
	path := filepath.Join(t.TempDir(), "ordergate.yaml")
	if err := os.WriteFile(path, []byte(bedtest.Replace(gated, "ADDR", addr)), 0o600); err != nil {
		t.Fatal(err)
	}
	var all runtimes
	log := slog.New(slog.DiscardHandler)
	// The address is that of an Envoy which is being replaced, for a while.
	first, err := all.get(path, noEnv, log)
	if err != nil {
		t.Fatal(err)
	}
	second, err := all.get(filepath.Join(filepath.Dir(path), ".", "ordergate.yaml"), noEnv, log)
	if err != nil || second != first {
		t.Fatalf("another engine for the same file: %v", err)
	}
	_ = taken.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	healthy := func() bool {
		resp, err := client.Get("http://" + addr + "/healthz")
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}
	bedtest.Eventually(t, "operators are answered", healthy)
	all.release(first, func(time.Duration) {})
	if !healthy() {
		t.Error("it ended while a filter uses it")
	}
	all.release(second, func(time.Duration) {})
	if healthy() {
		t.Error("it did not end")
	}
	third, err := all.get(path, noEnv, log)
	if err != nil {
		t.Fatal(err)
	}
	bedtest.Eventually(t, "it is there again", healthy)
	all.release(third, func(time.Duration) {})
}

// TestPlaces has engines of several Envoys on a host be members of their own of the change
// log: the sidecar's addresses, which may be the same in all files, name none of them.
func TestPlaces(t *testing.T) {
	redisAddr := bedtest.New(t).Redis().Addr()
	var all runtimes
	var made []*runtime
	for _, admin := range []string{`""`, `""`, "127.0.0.1:0", freeAddr(t), freeAddr(t)} {
		path := filepath.Join(t.TempDir(), "ordergate.yaml")
		text := bedtest.Replace(gated, "ADDR", admin) + "redis: {addresses: [" + redisAddr + "]}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := all.get(path, noEnv, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, r)
	}
	client := redis.NewClient(&redis.Options{Addr: redisAddr})
	defer func() { _ = client.Close() }()
	bedtest.Eventually(t, "all are members", func() bool {
		n, err := client.ZCard(t.Context(), "ordergate:{orders}:members").Result()
		return err == nil && n == int64(len(made))
	})
	for _, r := range made {
		all.release(r, func(time.Duration) {})
	}
	if n, err := client.ZCard(t.Context(), "ordergate:{orders}:members").Result(); err != nil || n != 0 {
		t.Errorf("%d members are left, error %v", n, err)
	}
}

// TestEndsWhileRedisHangs ends two files whose locks Redis does not release. Envoy's main thread waits for
// neither of them alone, and for both not longer than endTime.
func TestEndsWhileRedisHangs(t *testing.T) {
	server := bedtest.New(t).Redis()
	late := make(chan struct{})
	all := runtimes{late: func() { close(late) }}
	var made []*runtime
	for range 2 {
		path := filepath.Join(t.TempDir(), "ordergate.yaml")
		text := bedtest.Replace(gated, "ADDR", `""`) + "redis: {addresses: [" + server.Addr() + "]}\n"
		bedtest.Check(t, os.WriteFile(path, []byte(text), 0o600))
		r, err := all.get(path, noEnv, slog.New(slog.DiscardHandler))
		bedtest.Check(t, err)
		made = append(made, r)
	}
	bedtest.Check(t, server.Pause())
	left := make(chan struct{})
	hangs := func(time.Duration) { <-left }
	all.release(made[0], hangs) // returns
	begin := time.Now()
	all.release(made[1], hangs)
	<-late
	if took := time.Since(begin); took > 2*endTime {
		t.Errorf("Envoy waits for %v", took)
	}
	close(left)
	bedtest.Check(t, server.Resume())
	all.ending.Wait()
}

// freeAddr returns an address that was free just now.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestBadFile(t *testing.T) {
	var all runtimes
	path := filepath.Join(t.TempDir(), "ordergate.yaml")
	for text, want := range map[string]string{
		"":         "no such file",
		"rules: 1": "rules",
		bedtest.Replace(gated, "ADDR", "nowhere:x"): "listen.admin: ",
	} {
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		name := path
		if text == "" {
			name += "2"
		}
		if _, err := all.get(name, noEnv, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if len(all.all) != 0 {
		t.Error("something of it is left")
	}
}
