package redisson

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// gate is an ordergate with a filter that Java fills, and one that it fills itself.
type gate struct {
	*testbed.Gate
	t                   *testing.T
	binary, file        string
	http, admin, source string
}

// sourced is how many orders the filter has that ordergate fills.
const sourced = 300

func newGate(t *testing.T, s *stack, codec testbed.RedissonCodec) *gate {
	t.Helper()
	g := &gate{t: t, binary: s.Build("./cmd/sidecar", true), source: filepath.Join(t.TempDir(), "orders.csv")}
	var ids strings.Builder
	for n := range sourced {
		fmt.Fprintln(&ids, 1_000+n)
	}
	must(t, os.WriteFile(g.source, []byte(ids.String()), 0o600))
	how := "codec: " + string(codec)
	if codec == testbed.LongCodec {
		how = "elements: long"
	}
	config := fmt.Sprintf(`
listen: {authz: "", proc: "", http: 127.0.0.1:0, admin: 127.0.0.1:0}
redis: {addresses: [%s]}
filters:
  java: {kind: redisson, %[4]s, key_prefix: "java-%[2]s"}
  ours: {kind: redisson, %[4]s, key_prefix: "ours-%[2]s", capacity: 5000, sources: [seed]}
sources:
  seed: {kind: csv, path: %[3]s}
rules:
  - name: java
    match: {methods: [GET], path: "/java/{id}"}
    id: {path: id}
    lookup: {filter: java}
  - name: ours
    match: {methods: [GET], path: "/ours/{id}"}
    id: {path: id}
    lookup: {filter: ours}
`, s.addr, codec, g.source, how)
	started, err := s.GateUnready(t.Context(), g.binary, config)
	must(t, err)
	g.Gate = started
	t.Cleanup(func() { must(t, g.Stop()) }) // before its Redis ends for the next one
	g.http, g.admin = s.GateAddr(started, "http"), s.GateAddr(started, "admin")
	g.file = filepath.Join(t.TempDir(), "ordergate.yaml")
	must(t, os.WriteFile(g.file, []byte(bedtest.Replace(config, "admin: 127.0.0.1:0", "admin: "+g.admin)), 0o600))
	return g
}

// ask returns the verdict on an order.
func (g *gate) ask(filter string, n int) string {
	g.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + g.http + "/check/envoy/" + filter + "/" + strconv.Itoa(n))
	must(g.t, err)
	defer resp.Body.Close()
	return resp.Header.Get("x-ordergate-verdict")
}

// refuses waits until most of some made-up orders are refused.
func (g *gate) refuses(filter string) {
	g.t.Helper()
	bedtest.Eventually(g.t, "what does not exist is refused", func() bool {
		absent := 0
		for n := range 20 {
			if g.ask(filter, 900_000+n) == "absent" {
				absent++
			}
		}
		return absent >= 18
	})
}

// command runs ordergate filter.
func (g *gate) command(args ...string) {
	g.t.Helper()
	if out, err := g.run(args...); err != nil {
		g.t.Fatalf("ordergate filter %v: %v, %s", args, err, out)
	}
}

func (g *gate) run(args ...string) (string, error) {
	out, err := exec.CommandContext(g.t.Context(), g.binary, append([]string{"filter", "--config", g.file}, args...)...).CombinedOutput()
	return string(out), err
}

// TestFilterShared has a real RBloomFilter and an ordergate use one filter.
func TestFilterShared(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{})
	for _, codec := range []testbed.RedissonCodec{testbed.DefaultCodec, testbed.StringCodec, testbed.LongCodec} {
		t.Run(string(codec), func(t *testing.T) {
			g := newGate(t, s, codec)
			t.Run("filled by Java", func(t *testing.T) { filledByJava(t, s, g, codec) })
			t.Run("filled by ordergate", func(t *testing.T) { filledByOrdergate(t, s, g, codec) })
		})
	}
}

// filledByJava is one that ordergate believes once somebody has said that it is whole.
func filledByJava(t *testing.T, s *stack, g *gate, codec testbed.RedissonCodec) {
	ctx, java := t.Context(), s.thread().BloomFilter("java-"+string(codec), codec)
	fill := func(items int64) {
		t.Helper()
		if !value(java.TryInit(ctx, items, 0.001))(t) {
			t.Fatal("the filter is there already")
		}
		for n := range 100 {
			value(java.Add(ctx, strconv.Itoa(n+1)))(t)
		}
	}
	all := func() {
		t.Helper()
		for n := range 100 {
			if v := g.ask("java", n+1); v != "maybe" {
				t.Fatalf("order %d, which Java has added, is %s", n+1, v)
			}
		}
	}
	doubts := func() {
		t.Helper()
		for _, n := range []int{1, 100, 900_000, 900_001} {
			if v := g.ask("java", n); v == "absent" {
				t.Errorf("order %d is %s before anybody said that Java has added all", n, v)
			}
		}
	}
	doubts()
	fill(5000)
	doubts()
	// As with the wrong elements, the filter lacks an order that exists.
	if out, err := g.run("trust", "java", "--yes", "--known", "1,777"); err == nil || !strings.Contains(out, `lacks an order that exists, and is not trusted: "777"`) {
		t.Errorf("trusted without order 777: %v, %s", err, out)
	}
	if out, err := g.run("trust", "java", "--yes"); err == nil {
		t.Errorf("trusted without a trial: %s", out)
	}
	doubts()
	g.command("trust", "java", "--yes", "--known", "1,100")
	g.refuses("java")
	all()
	if v := g.ask("java", 101); v != "absent" {
		t.Errorf("order 101 is %s", v)
	}
	value(java.Add(ctx, "101"))(t)
	if v := g.ask("java", 101); v != "maybe" {
		t.Errorf("order 101, which Java has just added, is %s", v)
	}
	g.command("add", "java", "102")
	if !value(java.Contains(ctx, "102"))(t) {
		t.Error("Java does not know what was added here")
	}

	// Java makes it anew, and larger: nobody has said anything of that one.
	name := "java-" + string(codec)
	must(t, s.redis.Del(ctx, name, "{"+name+"}:config").Err())
	doubts()
	fill(8000)
	doubts()
	g.command("trust", "java", "--yes", "--known", "1")
	g.refuses("java")
	all()
}

// filledByOrdergate is one that Java asks.
func filledByOrdergate(t *testing.T, s *stack, g *gate, codec testbed.RedissonCodec) {
	ctx, java := t.Context(), s.thread().BloomFilter("ours-"+string(codec), codec)
	g.refuses("ours")
	g.command("add", "ours", "5001", "5002")
	for n := range sourced + 2 {
		id := strconv.Itoa(1_000 + n)
		if n >= sourced {
			id = strconv.Itoa(5_001 + n - sourced)
		}
		if !value(java.Contains(ctx, id))(t) {
			t.Fatalf("Java does not know order %s", id)
		}
	}
	had := 0
	for n := range 100 {
		if value(java.Contains(ctx, strconv.Itoa(800_000+n)))(t) {
			had++
		}
	}
	if had > 5 {
		t.Errorf("Java has %d of 100 orders that nobody added", had)
	}
	if n := value(java.Count(ctx))(t); n < sourced || n > sourced+40 { // and the marks
		t.Errorf("Java counts %d", n)
	}
	if value(java.TryInit(ctx, 5000, 0.001))(t) {
		t.Error("Java takes it for one that has yet to be made")
	}
}
