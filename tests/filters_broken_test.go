package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// fragile are the filters that are broken.
var fragile = []filterKind{
	{name: "bloom", settings: "kind: redis-bloom"},
	{name: "bitmap", settings: "kind: redis-bitmap; shards: 3"},
	{name: "layered", settings: "kind: layered"},
	{name: "closed", settings: "kind: redis-bitmap; freshness: none"}, // no order is created
}

// key is where the bits of a filter are, or its first shard's.
func (k filterKind) key() string { return "order:bloom:" + k.name + ":{0}" }

// filterInfo is what filter info tells, as far as the tests look at it.
type filterInfo struct {
	State, Reason string
	IDs, Capacity uint64
	Expansion     struct {
		Generation int
		Running    bool
	}
	Redis []struct {
		Key    string
		Whole  bool
		Shards int
	}
}

// info asks the ordergate about a filter.
func (s *stack) info(filter string) (info filterInfo) {
	s.t.Helper()
	resp, err := client.Get("http://" + s.GateAddr(s.gate, "admin") + "/filters/" + filter)
	must(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(s.t, err)
	if err := json.Unmarshal(text, &info); err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("info of filter %s: %d %s", filter, resp.StatusCode, text)
	}
	return info
}

// load says that the sources of a filter have every order. It may have to be said again: a filter in Redis
// that is being replaced cannot be filled.
func (s *stack) load(filter string) {
	s.t.Helper()
	inTheEnd(s.t, "filter "+filter+" is loaded", func() bool {
		resp, err := client.Post("http://"+s.GateAddr(s.gate, "admin")+"/filters/"+filter+"/load", "", nil)
		must(s.t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		must(s.t, err)
		if resp.StatusCode != http.StatusOK {
			s.t.Logf("loading filter %s: %d %s", filter, resp.StatusCode, text)
		}
		return resp.StatusCode == http.StatusOK
	})
}

// wreck is a deployment whose filters are broken while existing orders are asked for.
type wreck struct {
	*bedtest.Bed
	t       *testing.T
	backend *backend
	servers *replicated
	client  redis.UniversalClient
	gates   []*stack

	mu    sync.Mutex
	known map[string][]int // orders that exist, by filter
}

func newWreck(t *testing.T, on func(*bedtest.Bed, ...string) *replicated, args ...string) *wreck {
	t.Helper()
	bed := bedtest.New(t)
	w := &wreck{Bed: bed, t: t, backend: newBackend(t), known: make(map[string][]int)}
	w.servers = on(bed, append(bed.RedisBloomArgs(), args...)...)
	var addrs []string
	for _, node := range w.servers.nodes {
		addrs = append(addrs, node.Addr())
	}
	w.client = redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, IsClusterMode: len(addrs) > 1})
	t.Cleanup(func() { _ = w.client.Close() })
	for _, k := range fragile {
		for n := 1; n <= existing; n++ {
			w.known[k.name] = append(w.known[k.name], n)
		}
	}
	w.gates = []*stack{w.newGate(), w.newGate()}
	w.refuse()
	return w
}

func (w *wreck) newGate() *stack { return kindsStack(w.t, w.Bed, w.backend, w.servers, fragile) }

// restart puts a new ordergate in the place of one.
func (w *wreck) restart(i int) {
	w.t.Helper()
	w.mu.Lock()
	old := w.gates[i]
	w.mu.Unlock()
	started := w.newGate()
	w.mu.Lock()
	w.gates[i] = started
	w.mu.Unlock()
	must(w.t, old.gate.Stop())
}

// refuse waits until every filter refuses what does not exist, on both sides.
func (w *wreck) refuse() {
	w.t.Helper()
	for _, k := range fragile {
		for _, s := range k.sides(w.t, w.gates) {
			s.refuses()
		}
	}
}

// create makes an order in each filter, and looks for it on the other side.
func (w *wreck) create(n int) {
	w.t.Helper()
	for _, k := range fragile {
		if k.name == "closed" {
			continue
		}
		sides := k.sides(w.t, w.gates)
		sides[n%2].create(n)
		if a := sides[1-n%2].get(n); a.status != http.StatusOK {
			w.t.Errorf("%s: order %d was created, and got %d elsewhere", k.name, n, a.status)
		}
		w.mu.Lock()
		w.known[k.name] = append(w.known[k.name], n)
		w.mu.Unlock()
	}
}

// watch asks for existing orders until the returned function is called: none may be
// refused.
func (w *wreck) watch() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				k := fragile[rand.IntN(len(fragile))]
				w.mu.Lock()
				n, gate := w.known[k.name][rand.IntN(len(w.known[k.name]))], w.gates[rand.IntN(2)]
				w.mu.Unlock()
				// A gate that is restarted refuses nothing either: Envoy lets lookups pass.
				a, err := gate.send(ctx, http.MethodGet, "/"+k.name+"/"+k.id(n), "")
				if err == nil && a.status != http.StatusOK {
					w.t.Errorf("%s: order %d exists, and got %d %s", k.name, n, a.status, a.body)
					return
				}
				time.Sleep(15 * time.Millisecond) // leaves the processors to what is broken and mended
			}
		})
	}
	return func() { cancel(); readers.Wait() }
}

// flush deletes everything.
func (w *wreck) flush() {
	w.t.Helper()
	if c, is := w.client.(*redis.ClusterClient); is {
		must(w.t, c.ForEachMaster(w.t.Context(), func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }))
		return
	}
	must(w.t, w.client.FlushAll(w.t.Context()).Err())
}

// TestFiltersBroken breaks filters in Redis. No order that exists is refused, and what
// does not exist is refused again as soon as that is known.
func TestFiltersBroken(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		w := newWreck(t, onSingle, "--appendonly", "yes")
		defer w.watch()()
		w.deleteKeys()
		w.replaceKeys()
		w.restart(0)
		w.refuse()
		w.create(71_001)

		server := w.servers.nodes[0]
		must(t, server.Stop())
		for _, k := range fragile {
			k.sides(t, w.gates)[0].get(1).want(t, http.StatusOK, "")
			k.sides(t, w.gates)[1].get(50_000).want(t, http.StatusOK, "")
		}
		must(t, server.Restart(t.Context()))
		w.refuse()
		w.create(71_002)
		w.loseEverything()
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		w := newWreck(t, onCluster)
		defer w.watch()()
		w.deleteKeys()
		w.replaceKeys()
		w.loseEverything()
	})
}

// deleteKeys deletes one key of each filter: one shard of that which has several.
func (w *wreck) deleteKeys() {
	w.t.Helper()
	w.create(70_001)
	for _, k := range fragile {
		must(w.t, w.client.Del(w.t.Context(), k.key()).Err())
	}
	w.create(70_002)
	w.refuse()
	w.create(70_003)
}

// replaceKeys puts something else there. Nobody fills that: it belongs to somebody.
func (w *wreck) replaceKeys() {
	w.t.Helper()
	for _, k := range fragile {
		_, err := w.client.TxPipelined(w.t.Context(), func(p redis.Pipeliner) error {
			p.Del(w.t.Context(), k.key())
			p.RPush(w.t.Context(), k.key(), "a list")
			return nil
		})
		must(w.t, err)
	}
	for _, k := range fragile {
		for _, s := range w.gates {
			bedtest.Eventually(w.t, k.name+" is known to be broken", func() bool { return s.info(k.name).State == "unknown" })
			if reason := s.info(k.name).Reason; !strings.Contains(reason, k.key()) {
				w.t.Errorf("%s: the reason %q does not name the key", k.name, reason)
			}
		}
		if typed := w.client.Type(w.t.Context(), k.key()).Val(); typed != "list" {
			w.t.Errorf("%s is %s: it was written over", k.key(), typed)
		}
	}
	w.create(70_004)
	for _, k := range fragile {
		must(w.t, w.client.Del(w.t.Context(), k.key()).Err())
	}
	w.refuse()
	w.create(70_005)
}

// loseEverything empties Redis. The change log is gone as well: what others learned
// may be lost, so nothing is absent until somebody says that the sources have every order.
func (w *wreck) loseEverything() {
	w.t.Helper()
	w.mu.Lock()
	for name := range w.known { // the others were in the log only
		w.known[name] = w.known[name][:existing]
	}
	w.mu.Unlock()
	w.flush()
	for _, k := range fragile {
		for _, s := range k.sides(w.t, w.gates) {
			if k.name != "closed" {
				s.get(50_000).want(w.t, http.StatusOK, "")
				// One that notices the loss after the load has doubts of its own.
				inTheEnd(w.t, k.name+" has noticed", func() bool { return strings.Contains(s.info(k.name).Reason, "it was recreated") })
				continue
			}
			inTheEnd(w.t, "the filter is filled from its sources", func() bool {
				parts := s.info(k.name).Redis
				return len(parts) == 1 && parts[0].Whole && w.client.Exists(w.t.Context(), k.key()).Val() == 1
			})
		}
	}
	for _, k := range fragile {
		w.gates[0].load(k.name)
	}
	w.refuse()
	for i, k := range fragile {
		k.sides(w.t, w.gates)[0].get(1+i).want(w.t, http.StatusOK, "")
	}
	w.create(72_001)
	for _, s := range w.gates {
		for _, k := range fragile {
			if info := s.info(k.name); info.State != "ready" {
				w.t.Errorf("%s is %s after all: %s", k.name, info.State, fmt.Sprint(info.Reason))
			}
		}
	}
}
