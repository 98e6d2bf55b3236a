package tests

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// replicated is a Redis whose master can be replaced.
type replicated struct {
	section string // of the configuration
	nodes   []*testbed.Redis
	// await waits for a master of a key other than the given one, which may be nil.
	await func(ctx context.Context, key string, old *testbed.Redis) (*testbed.Redis, error)
}

func onSentinel(bed *bedtest.Bed, args ...string) *replicated {
	s := bed.Sentinel(args...)
	return &replicated{
		section: fmt.Sprintf("mode: sentinel\n  addresses: [%s]", strings.Join(s.Addrs(), ", ")),
		nodes:   s.Nodes(),
		await: func(ctx context.Context, _ string, old *testbed.Redis) (*testbed.Redis, error) {
			return s.Await(ctx, old)
		},
	}
}

func onCluster(bed *bedtest.Bed, args ...string) *replicated {
	c := bed.Cluster(args...)
	return &replicated{
		section: fmt.Sprintf("mode: cluster\n  addresses: [%s]", strings.Join(c.Addrs(), ", ")),
		nodes:   c.Nodes(),
		await:   c.Await,
	}
}

// stackOn is newStack on a Redis of another kind than the example's.
func stackOn(t *testing.T, bed *bedtest.Bed, node *testbed.Redis, section string, change settings) *stack {
	t.Helper()
	s := &stack{Bed: bed, t: t, server: node}
	adapt := change.gate
	change.gate = func(yaml string) string {
		if adapt != nil {
			yaml = adapt(yaml)
		}
		changed := regexp.MustCompile(`(?m)^  addresses: \[.*$`).ReplaceAllLiteralString(yaml, "  "+section)
		if changed == yaml {
			t.Fatal("the example has no addresses to replace")
		}
		return changed
	}
	s.start(change)
	return s
}

// everything makes one request of each kind that ordergate guards.
func everything(t *testing.T, s *stack, b *backend) {
	t.Helper()
	s.must("GET", "/orders/77", "").want(t, 404, "absent")
	s.must("GET", "/orders/7", "").want(t, 200, "")
	if a := s.must("POST", "/orders?do=create&id=1077", "{}", "Content-Type", "application/json"); a.status != 201 {
		t.Errorf("create: %d %s", a.status, a.body)
	}
	s.must("GET", "/orders/1077", "").want(t, 200, "")

	done := s.inBackground(t.Context(), "/orders/1/settle?do=hang")
	bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived("/orders/1/settle") == 1 })
	s.must("POST", "/orders/1/settle", "").want(t, 409, "busy")
	b.goOn()
	if !<-done {
		t.Error("the first settlement failed")
	}
	bedtest.Eventually(t, "the lock is free", func() bool { return s.must("POST", "/orders/1/settle", "").status == 200 })
	fences(t, b, "/orders/1/settle")
}

// fences returns the fences of the settlements that the backend saw, which each
// have one, in the order of their arrival. They grow.
func fences(t *testing.T, b *backend, path string) []int64 {
	t.Helper()
	var list []int64
	for _, r := range b.seen() {
		if r.URL.Path != path {
			continue
		}
		fence, err := strconv.ParseInt(r.Header.Get("x-ordergate-fence"), 10, 64)
		if err != nil || r.Header.Get("x-ordergate-lease") == "" {
			t.Errorf("%s reached the backend without a lock: %v", path, r.Header)
		}
		list = append(list, fence)
	}
	if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
		t.Errorf("%s: fences %v do not grow", path, list)
	}
	return list
}

// TestRedisTLS has a Redis that serves TLS only, to clients with a certificate, a
// name and a password, and lets them do what docs/redis.md lists.
func TestRedisTLS(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docs", "redis.md"))
	must(t, err)
	user := regexp.MustCompile(`(?m)^user ordergate .*$`).FindString(string(text))
	const password = "a-password-that-nobody-logs"
	args := append(strings.Fields("--"+strings.Replace(user, "PASSWORD", password, 1)), "--user", "default", "off")
	passwordFile := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(passwordFile, []byte(password+"\n"), 0o600))

	b, bed := newBackend(t), bedtest.New(t)
	server, certs := bed.RedisTLS(args...), bed.Certificates()
	section := fmt.Sprintf("addresses: [%s]\n  username: ordergate\n  password_file: %s\n  tls: {ca: %s, cert: %s, key: %s, server_name: %s}",
		server.Addr(), passwordFile, certs.CA, certs.ClientCert, certs.ClientKey, testbed.ServerName)
	s := stackOn(t, bed, server, section, settings{backend: b.addr(), orders: 10})
	everything(t, s, b)
	log, err := os.ReadFile(s.gate.Output())
	must(t, err)
	if strings.Contains(string(log), password) {
		t.Errorf("the password is in the log: %s", log)
	}
}

// TestFailover replaces the master while a settlement runs and others come. It
// costs time: they are refused meanwhile, or wait. None gets by without a lock,
// the lock of the one that runs is still there on the new master, and afterwards
// all is as before.
func TestFailover(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		redis func(bed *bedtest.Bed, args ...string) *replicated
		away  func(*testing.T, *testbed.Redis)
	}{
		{"sentinel killed", onSentinel, func(_ *testing.T, r *testbed.Redis) { r.Kill() }},
		{"sentinel hanging", onSentinel, func(t *testing.T, r *testbed.Redis) { must(t, r.Pause()) }},
		{"cluster killed", onCluster, func(_ *testing.T, r *testbed.Redis) { r.Kill() }},
		{"cluster hanging", onCluster, func(t *testing.T, r *testbed.Redis) { must(t, r.Pause()) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, running, bed := newBackend(t), newBackend(t), bedtest.New(t)
			r := tt.redis(bed)
			// A release that is lost with its server leaves the lock until its lease ends.
			short := edit(t, "lease: 90s", "lease: 20s")
			s := stackOn(t, bed, r.nodes[0], r.section, settings{backend: b.addr(), orders: 10, gate: short})
			everything(t, s, b)
			// Another one beside it, with a backend of its own that takes its time.
			other := stackOn(t, bed, r.nodes[0], r.section, settings{backend: running.addr(), orders: 10, gate: short})
			const key, path = "order:lock:9", "/orders/9/settle"
			done := other.inBackground(t.Context(), path+"?do=hang")
			bedtest.Eventually(t, "the backend has it", func() bool { return running.arrived(path) == 1 })
			r.replicate(t, key)

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			old, err := r.await(ctx, key, nil)
			must(t, err)
			stop := s.settleOn(t, 5) // orders 2 to 6, one after the other
			tt.away(t, old)
			_, err = r.await(ctx, key, old)
			must(t, err)
			bedtest.Eventually(t, "the order that runs is known to be locked", func() bool {
				a := s.must("POST", path, "")
				if a.status == 200 {
					t.Fatal("the lock of a settlement that runs was lost")
				}
				return a.status == 409
			})
			answers := stop()
			for status := range answers {
				if status != 200 && status != 409 && status != 503 {
					t.Errorf("settlements were answered %v, want 200, 409 and 503 only", answers)
				}
			}
			t.Logf("settlements were answered %v", answers)

			running.goOn()
			if !<-done {
				t.Error("the settlement that ran failed")
			}
			bedtest.Eventually(t, "the order can be settled again", func() bool { return s.must("POST", path, "").status == 200 })
			if first, second := fences(t, running, path), fences(t, b, path); len(first) != 1 || len(second) != 1 || first[0] >= second[0] {
				t.Errorf("fences %v before and %v after the failover", first, second)
			}
			for n := 2; n <= 6; n++ {
				fences(t, b, fmt.Sprintf("/orders/%d/settle", n))
			}
			bedtest.Eventually(t, "absence is certain again", func() bool { return s.must("GET", "/orders/78", "").status == 404 })
			s.must("GET", "/orders/1077", "").want(t, 200, "")
		})
	}
}

// replicate waits until as many nodes have a key as are going to: with a master
// that died before, it would be lost.
func (r *replicated) replicate(t *testing.T, key string) {
	t.Helper()
	bedtest.Eventually(t, "the lock is on a replica", func() bool {
		have := 0
		for _, node := range r.nodes {
			client := redis.NewClient(&redis.Options{Addr: node.Addr()})
			// A replica in a cluster answers after READONLY only.
			pipe := client.Pipeline()
			pipe.ReadOnly(t.Context())
			exists := pipe.Exists(t.Context(), key)
			_, _ = pipe.Exec(t.Context()) // READONLY is unknown elsewhere
			have += int(exists.Val())
			_ = client.Close()
		}
		return have == 2 && len(r.nodes) == 6 || have == 3 && len(r.nodes) == 3
	})
}

// settleOn settles n orders from 2 on, again and again, until the returned function
// is called. It returns how often each status was the answer.
func (s *stack) settleOn(t *testing.T, n int) (stop func() map[int]int) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := make(map[int]int)
	for i := range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				a, err := s.send(t.Context(), "POST", fmt.Sprintf("/orders/%d/settle", i+2), "")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				answers[a.status]++
				mu.Unlock()
			}
		})
	}
	return sync.OnceValue(func() map[int]int {
		cancel()
		wg.Wait()
		return maps.Clone(answers)
	})
}
