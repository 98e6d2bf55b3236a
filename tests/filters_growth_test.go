package tests

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// growing are filters that are made larger by a command, but for the last, which is
// nearly full at the beginning.
var growing = []filterKind{
	{name: "local", settings: "kind: local; expand: {by: 2}"},
	{name: "layers", settings: "kind: local; expand: {by: 2, how: layers}"},
	{name: "bloom", settings: "kind: redis-bloom; expand: {by: 2}"},
	{name: "bitmap", settings: "kind: redis-bitmap; shards: 3; expand: {by: 2}"},
	{name: "layered", settings: "kind: layered; expand: {by: 2}"},
	{name: "full", settings: "kind: redis-bitmap; expand: {at_fill: 0.8, by: 2}", capacity: 140},
}

// TestFiltersGrow makes filters larger while orders are created and looked for.
func TestFiltersGrow(t *testing.T) {
	t.Parallel()
	b, bed := newBackend(t), bedtest.New(t)
	servers := onSingle(bed, bed.RedisBloomArgs()...)
	client := redis.NewClient(&redis.Options{Addr: servers.nodes[0].Addr()})
	t.Cleanup(func() { _ = client.Close() })
	gates := []*stack{kindsStack(t, bed, b, servers, growing), kindsStack(t, bed, b, servers, growing)}
	binary, file := bed.Build("./cmd/sidecar", false), commandFile(t, gates[0])
	commands := make(chan error, len(growing))
	for _, k := range growing {
		if k.capacity != 0 { // it does so by itself
			commands <- nil
			continue
		}
		go func() {
			out, err := exec.CommandContext(t.Context(), binary, "filter", "expand", k.name, "--config", file).CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), "grown: ") {
				err = fmt.Errorf("the command for %s said %q: %w", k.name, out, err)
			}
			commands <- err
		}()
	}
	next := 70_000
	for ended := 0; ended < len(growing); {
		if next < 72_000 { // as many as the old sizes have room for
			for _, k := range growing {
				if k.capacity == 0 || next == 70_000 {
					k.crowd(t, k.sides(t, gates), next)
				}
			}
			next += crowded
		}
		select {
		case err := <-commands:
			must(t, err)
			ended++
		case <-time.After(time.Duration(next-70_000) * 5 * time.Millisecond): // ever longer, as the steps of the growth
		}
	}
	for _, k := range growing {
		t.Run(k.name, func(t *testing.T) { k.grown(t, gates, client, next) })
	}
}

// commandFile returns a configuration for commands that ask an ordergate.
func commandFile(t testing.TB, s *stack) string {
	t.Helper()
	text, err := os.ReadFile(s.gate.ConfigFile())
	must(t, err)
	path := filepath.Join(t.TempDir(), "ordergate.yaml")
	config := bedtest.Replace(string(text), "admin: 127.0.0.1:0", "admin: "+s.GateAddr(s.gate, "admin"))
	must(t, os.WriteFile(path, []byte(config), 0o600))
	return path
}

// grown looks at a filter when it has grown, with all orders from 70,000 to next.
func (k filterKind) grown(t *testing.T, gates []*stack, client *redis.Client, next int) {
	sides, inMemory := k.sides(t, gates), strings.HasPrefix(k.settings, "kind: local")
	if k.capacity != 0 {
		next = 70_000 + crowded
	}
	for _, s := range sides {
		inTheEnd(t, "it has grown", func() bool {
			i := s.info(k.name)
			return i.Expansion.Generation == 2 && !i.Expansion.Running && i.Capacity >= uint64(2*cmp.Or(k.capacity, 3000))
		})
		if inMemory {
			break // the other one was not told to
		}
	}
	for n := 1; n <= existing; n += 5 {
		for _, s := range sides {
			s.get(n).want(t, http.StatusOK, "")
		}
	}
	for n := 70_000; n < next; n += 3 {
		if a := sides[n%2].get(n); a.status != http.StatusOK {
			t.Errorf("order %s was created, and got %d %s", k.id(n), a.status, a.body)
		}
	}
	for _, s := range sides {
		s.refuses()
	}
	if inMemory {
		return
	}
	inTheEnd(t, "the old bits are gone", func() bool {
		keys, err := client.Keys(t.Context(), "order:bloom:"+k.name+":*").Result()
		must(t, err)
		for _, key := range keys {
			if !strings.HasPrefix(key, "order:bloom:"+k.name+":g2:") {
				return false
			}
		}
		return len(keys) > 0
	})
	if i := sides[1].info(k.name); i.Expansion.Generation != 2 || len(i.Redis) == 0 || !strings.HasPrefix(i.Redis[0].Key, "order:bloom:"+k.name+":g2") {
		t.Errorf("the other one has %+v", i)
	}
}

// heirs are two ordergates with a large filter, one of which is killed.
type heirs struct {
	*bedtest.Bed
	t     *testing.T
	redis *redis.Client
	gates [2]*stack
	added int
}

// large is how many orders the filter of heirs has, so that reading them takes long
// enough to be killed meanwhile.
const large = 150_000

func newHeirs(t *testing.T, filter string) *heirs {
	t.Helper()
	bed := bedtest.New(t)
	server := bed.Redis()
	h := &heirs{Bed: bed, t: t, redis: redis.NewClient(&redis.Options{Addr: server.Addr()})}
	t.Cleanup(func() { _ = h.redis.Close() })
	config := fmt.Sprintf(`
listen: {authz: "", proc: "", http: 127.0.0.1:0, admin: 127.0.0.1:0}
redis: {addresses: [%s], member: MEMBER}
filters:
  orders: {capacity: 600_000, sources: [seed], expand: {by: 2}, %s}
sources:
  seed: {kind: csv, path: %s}
rules:
  - name: lookup
    match: {methods: [GET], path: "/orders/{id}"}
    id: {path: id}
    lookup: {filter: orders}
`, server.Addr(), filter, idFile(t, large))
	binary := bed.Build("./cmd/sidecar", false) // filter/redisset has the same with the race detector
	for i := range h.gates {
		h.gates[i] = &stack{Bed: bed, t: t, gate: bed.Gate(binary, bedtest.Replace(config, "MEMBER", fmt.Sprint("heir-", i)))}
	}
	return h
}

// ask returns the verdict on an order.
func (h *heirs) ask(gate, n int) string {
	h.t.Helper()
	s := h.gates[gate]
	resp, err := client.Get("http://" + s.GateAddr(s.gate, "http") + "/check/envoy/orders/" + strconv.Itoa(n))
	must(h.t, err)
	defer resp.Body.Close()
	return resp.Header.Get("x-ordergate-verdict")
}

// post has something done to the filter.
func (h *heirs) post(gate int, path, body string) error {
	s := h.gates[gate]
	resp, err := client.Post("http://"+s.GateAddr(s.gate, "admin")+"/filters/orders/"+path, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return err
}

// firstAdded is the first of the orders that are added.
const firstAdded = 10_000_000

// sure waits until the doubt is settled that one was killed.
func (h *heirs) sure() {
	h.t.Helper()
	inTheEnd(h.t, "orders are absent again", func() bool {
		return h.gates[0].info("orders").State == "ready" && h.gates[1].info("orders").State == "ready"
	})
}

// works adds an order at one and looks for some at others.
func (h *heirs) works(at int, others ...int) {
	h.t.Helper()
	must(h.t, h.post(at, "ids", fmt.Sprintf(`{"ids": ["%d"]}`, firstAdded+h.added)))
	h.added++
	for _, gate := range others {
		for i := range 8 {
			if v := h.ask(gate, 1+(i*7919+h.added*104729)%large); v == "absent" {
				h.t.Errorf("an order of the source is %s", v)
			}
		}
		for i := max(0, h.added-3); i < h.added; i++ {
			if v := h.ask(gate, firstAdded+i); v == "absent" {
				h.t.Errorf("an order that was added is %s", v)
			}
		}
	}
}

// worksUntil has the second add orders and look for some, until it has ended the first's
// work, which it begins half a minute after that is gone.
func (h *heirs) worksUntil(ended func(state map[string]string) bool) {
	h.t.Helper()
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	inTheEnd(h.t, "another one has ended it", func() bool {
		h.works(1, 1)
		<-pace.C
		return ended(h.state())
	})
}

// verdict is ask, once there is no doubt: that one was killed is told of a moment after
// it is back, and settled by time.
func (h *heirs) verdict(gate, n int) (v string) {
	h.t.Helper()
	inTheEnd(h.t, "a verdict", func() bool { v = h.ask(gate, n); return v != "unknown" })
	return v
}

// all looks for all that was added and much of the rest.
func (h *heirs) all(gate int) {
	h.t.Helper()
	for i := range h.added {
		if v := h.verdict(gate, firstAdded+i); v != "maybe" {
			h.t.Fatalf("order %d of those that were added is %s", i, v)
		}
	}
	for n := 1; n <= large; n += 1009 {
		if v := h.verdict(gate, n); v != "maybe" {
			h.t.Fatalf("order %d is %s", n, v)
		}
	}
	refused := 0
	for n := range 20 {
		if h.verdict(gate, 20_000_000+n) == "absent" {
			refused++
		}
	}
	if refused < 18 {
		h.t.Errorf("only %d of 20 were refused", refused)
	}
}

// state returns what Redis has of the filter.
func (h *heirs) state() map[string]string {
	h.t.Helper()
	state, err := h.redis.HGetAll(h.t.Context(), "ordergate:{orders}:state").Result()
	must(h.t, err)
	return state
}

// TestGrowthTakenOver kills the ordergate that makes a filter larger, in each state of
// that. Another one ends the work, and no order is lost.
func TestGrowthTakenOver(t *testing.T) {
	t.Parallel()
	for name, reached := range map[string]func(state map[string]string) bool{
		"begun":   func(s map[string]string) bool { return s["next"] == "2" && s["read"] == "" },
		"reading": func(s map[string]string) bool { return s["next"] == "2" && s["read"] != "" },
		"retired": func(s map[string]string) bool { return s["old"] == "1" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHeirs(t, "kind: redis-bitmap, shards: 3")
			h.works(0, 0, 1)
			answered := h.expandInBackground(0)
			inTheEnd(t, "the state is reached", func() bool { return reached(h.state()) })
			h.gates[0].gate.Kill()
			if at := h.state(); !reached(at) {
				t.Fatalf("it was killed too late, at %v", at)
			}
			if err := <-answered; err == nil {
				t.Error("it had done its work before")
			}
			h.worksUntil(func(s map[string]string) bool {
				return s["generation"] == "2" && s["next"] == "" && s["old"] == ""
			})
			keys, err := h.redis.Keys(t.Context(), "order:bloom:orders:*").Result()
			must(t, err)
			for _, key := range keys {
				if !strings.HasPrefix(key, "order:bloom:orders:g2:{") {
					t.Errorf("%s is left", key)
				}
			}
			if len(keys) != 3 {
				t.Errorf("the keys are %v", keys)
			}
			must(t, h.gates[0].gate.Restart(t.Context()))
			h.works(0, 0, 1)
			h.sure()
			h.all(0)
			h.all(1)
			for _, g := range h.gates {
				if i := g.info("orders"); i.Expansion.Generation != 2 || i.Capacity != 1_200_000 || i.State != "ready" {
					t.Errorf("it has %+v", i)
				}
			}
		})
	}
}

// expandInBackground has an ordergate make the filter larger.
func (h *heirs) expandInBackground(gate int) <-chan error {
	answered := make(chan error, 1)
	go func() { answered <- h.post(gate, "expand", "") }()
	return answered
}

// TestGrowthStopped stops the ordergate that makes a filter larger in order: it does
// not wait for that, and another one ends the work.
func TestGrowthStopped(t *testing.T) {
	t.Parallel()
	h := newHeirs(t, "kind: redis-bitmap")
	answered := h.expandInBackground(0)
	inTheEnd(t, "it waits until nobody asks the old bits", func() bool { return h.state()["old"] == "1" })
	must(t, h.gates[0].gate.Stop())
	if err := <-answered; err == nil {
		t.Error("it had done its work before")
	}
	h.worksUntil(func(s map[string]string) bool { return s["old"] == "" })
	h.all(1)
}

// TestRebuildTakenOver kills the ordergate that rebuilds a filter in its memory, while
// another one waits to do the same.
func TestRebuildTakenOver(t *testing.T) {
	t.Parallel()
	h := newHeirs(t, "kind: local")
	h.works(0, 0, 1)
	first := h.expandInBackground(0)
	inTheEnd(t, "it has begun", func() bool {
		return h.redis.Exists(t.Context(), "ordergate:{orders}:expand").Val() == 1
	})
	h.gates[0].gate.Kill()
	if err := <-first; err == nil {
		t.Error("it had done its work before")
	}
	h.works(1, 1)
	must(t, h.post(1, "expand", ""))
	must(t, h.gates[0].gate.Restart(t.Context()))
	h.works(0, 0, 1)
	h.sure()
	h.all(0)
	h.all(1)
	if i := h.gates[1].info("orders"); i.Expansion.Generation != 2 || i.Capacity != 1_200_000 {
		t.Errorf("it has %+v", i)
	}
}

// TestGrowthAfterLostEntries makes filters larger whose change log has lost entries. No order is
// lost with them. An operator who says that the sources have every order ends that.
func TestGrowthAfterLostEntries(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	server := newClient(t, bed.Redis().Addr())
	seed := filepath.Join(t.TempDir(), "seed.csv")
	must(t, os.WriteFile(seed, []byte("1\n"), 0o600))
	config := `
listen: {authz: 127.0.0.1:0, proc: "", admin: 127.0.0.1:0, token_env: TOKEN}
redis: {addresses: [` + server.Options().Addr + `], member: one}
sources:
  seed: {kind: csv, path: ` + seed + `}
filters:
  local: {capacity: 1_000, sources: [seed], expand: {by: 2}}
rules:
`
	filters := []string{"local"}
	for _, name := range filters {
		config += fmt.Sprintf("  - {name: %[1]s, match: {methods: [GET], path: \"/%[1]s/{id}\"}, id: {path: id, format: digits}, lookup: {filter: %[1]s}}\n", name)
	}
	g := asTableGate(t, bed, bed.Gate(bed.Build("./cmd/sidecar", false), config, "TOKEN=0123456789abcdef"))
	for _, name := range filters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := func(id int) string {
				var r struct{ Answer string }
				g.get(fmt.Sprintf("/filters/%s/contains?id=%d", name, id), &r)
				return r.Answer
			}
			absent := func() {
				t.Helper()
				bedtest.Eventually(t, "an order that does not exist is absent", func() bool { return answer(9999) == "absent" })
			}
			absent()
			g.post("/filters/"+name+"/ids", `{"ids":["2","3","4","5"]}`)
			entries, err := server.XRange(t.Context(), "ordergate:{"+name+"}:log", "-", "+").Result()
			must(t, err)
			for _, e := range entries {
				if e.Values["id"] == "3" {
					must(t, server.XDel(t.Context(), "ordergate:{"+name+"}:log", e.ID).Err())
				}
			}
			if status := g.tryPost("/filters/"+name+"/expand", ""); status != http.StatusOK {
				t.Errorf("expand: %d", status)
			}
			absent()
			for id := 1; id <= 5; id++ {
				if a := answer(id); a != "maybe" {
					t.Errorf("order %d is %s", id, a)
				}
			}
			g.post("/filters/"+name+"/load", "")
			g.post("/filters/"+name+"/expand", "")
			absent()
		})
	}
}
