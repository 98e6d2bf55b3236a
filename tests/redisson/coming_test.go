package redisson

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestComingFromRedisson takes the steps of docs/coming-from-redisson.md, with its file.
func TestComingFromRedisson(t *testing.T) {
	t.Parallel()
	s, ctx := newStack(t, testbed.RedissonOptions{}), t.Context()
	filter := s.thread().BloomFilter("order:bloom:filter", testbed.StringCodec)
	if !value(filter.TryInit(ctx, 1000, 0.0001))(t) {
		t.Fatal("the filter is there already")
	}
	for n := range 100 {
		value(filter.Add(ctx, strconv.Itoa(n+1)))(t)
	}

	// The service tries the lock itself, as one that was not changed yet does.
	lock, inner := s.thread().Lock("order:lock:5"), s.thread().Lock("order:lock:5")
	settling := make(chan bool, 10)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		got, err := inner.TryLock(ctx, 0, lease)
		if got {
			err = inner.Unlock(ctx)
		}
		if err != nil {
			t.Error(err)
		}
		settling <- got
	}))
	t.Cleanup(service.Close)

	text := value(os.ReadFile(filepath.Join(s.Root(), "examples", "redisson", "ordergate.yaml")))(t)
	run := t.TempDir()
	config := string(text)
	for _, r := range []struct{ from, to string }{{"unix:/run/ordergate/authz", "unix:" + run + "/authz"}, {"unix:/run/ordergate/proc", "unix:" + run + "/proc"}, {"127.0.0.1:9194", "127.0.0.1:0"}, {"127.0.0.1:6379", s.addr}} {
		config = bedtest.Replace(config, r.from, r.to)
	}
	g := s.Gate(s.Build("./cmd/sidecar", true), config)
	t.Cleanup(func() { must(t, g.Stop()) })
	envoy := s.Envoy(value(s.EnvoyExample("unix:"+run+"/authz.sock", "unix:"+run+"/proc.sock", strings.TrimPrefix(service.URL, "http://")))(t))
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	url := "http://" + s.ListenerAddr(envoy, "orders")
	ask := func(method, path string) int {
		t.Helper()
		resp, err := client.Do(value(http.NewRequestWithContext(ctx, method, url+path, nil))(t))
		must(t, err)
		must(t, resp.Body.Close())
		return resp.StatusCode
	}
	want := func(method, path string, status int) {
		t.Helper()
		if got := ask(method, path); got != status {
			t.Fatalf("%s %s: %d, want %d", method, path, got, status)
		}
	}

	// Observed: every call passes, and ordergate leaves Java's lock as it is.
	if !value(lock.TryLock(ctx, 0, lease))(t) {
		t.Fatal("the lock is taken")
	}
	want("POST", "/orders/5/settle", 200)
	must(t, lock.Unlock(ctx))
	want("POST", "/orders/5/settle", 200)
	if <-settling || !<-settling {
		t.Error("an observed settlement has taken the Java services' lock")
	}
	want("GET", "/orders/777", 200)

	config = strings.ReplaceAll(config, "    mode: observe\n", "")
	must(t, g.WriteConfig(config))
	bedtest.Eventually(t, "the settlement is locked", func() bool {
		want("POST", "/orders/5/settle", 200)
		return !<-settling
	})
	want("GET", "/orders/777", 200) // the filter is not trusted yet
	file := filepath.Join(run, "ordergate.yaml")
	must(t, os.WriteFile(file, []byte(bedtest.Replace(config, "admin: 127.0.0.1:0", "admin: "+s.GateAddr(g, "admin"))), 0o600))
	(&gate{t: t, binary: s.Build("./cmd/sidecar", true), file: file}).command("trust", "orders", "--yes", "--known", "1,100")
	bedtest.Eventually(t, "what does not exist is refused", func() bool { return ask("GET", "/orders/777") == 404 })
	want("GET", "/orders/77", 200)
	value(filter.Add(ctx, "777"))(t)
	want("GET", "/orders/777", 200)

	if !value(lock.TryLock(ctx, 0, lease))(t) {
		t.Fatal("the settlement's lock is still taken")
	}
	want("POST", "/orders/5/settle", 409)
	want("POST", "/orders/6/settle", 200)
	must(t, lock.Unlock(ctx))
	want("POST", "/orders/5/settle", 200)
}
