package tests

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// reloads is a stack whose configuration changes while it runs.
type reloads struct {
	*stack
	text string // of the file at the start
}

func newReloads(t testing.TB, s settings) *reloads {
	t.Helper()
	r := &reloads{stack: newStack(t, s)}
	text, err := os.ReadFile(r.gate.ConfigFile())
	must(t, err)
	r.text = string(text)
	return r
}

// result returns how many readings of the configuration have ended so.
func (r *reloads) result(name string) string {
	return r.metric(`ordergate_config_reload_total{result="` + name + `"}`)
}

// wantAfter makes a change, and waits until its reading has ended so.
func (r *reloads) wantAfter(result string, change func()) {
	r.t.Helper()
	before := r.result(result)
	change()
	bedtest.Eventually(r.t, "a reload that is "+result, func() bool { return r.result(result) != before })
}

// rewrite replaces the file.
func (r *reloads) rewrite(yaml string) {
	r.t.Helper()
	must(r.t, r.gate.WriteConfig(yaml))
}

// edited returns the text of the start with parts of it replaced.
func (r *reloads) edited(pairs ...string) string { return edit(r.t, pairs...)(r.text) }

// absentIs has absent orders answered with a status.
func (r *reloads) absentIs(status int) string {
	return r.edited("lookup: {filter: orders}", fmt.Sprintf("lookup: {filter: orders, absent: {status: %d, body: '%d'}}", status, status))
}

// TestReload changes the file in the ways in which files are changed: nobody has to send
// a signal.
func TestReload(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	r := newReloads(t, settings{backend: b.addr(), orders: 10})
	file := r.gate.ConfigFile()
	r.must("GET", "/orders/77", "").want(t, 404, "absent")

	r.wantAfter("applied", func() { r.rewrite(r.absentIs(410)) })
	if a := r.must("GET", "/orders/77", ""); a.status != 410 || a.body != "410" {
		t.Errorf("after a rename: %d %s", a.status, a.body)
	}
	if status, text := r.admin("GET", "/v1/config", ""); status != 200 || !regexp.MustCompile(`status: 410 # line \d+\n`).MatchString(text) {
		t.Errorf("the configuration in force: %d %s", status, text)
	}
	if status, text := r.admin("GET", "/v1/config/diff", ""); status != 200 || text != "" {
		t.Errorf("what the file changes after a reload: %d %s", status, text)
	}
	r.wantAfter("applied", func() { must(t, os.WriteFile(file, []byte(r.absentIs(451)), 0o600)) })
	r.must("GET", "/orders/77", "").want(t, 451, "absent")

	// As kubelet lays a ConfigMap out, and changes it.
	dir := t.TempDir()
	version := func(name string, status int) {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name, "ordergate.yaml"), []byte(r.absentIs(status)), 0o600))
		must(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	r.wantAfter("applied", func() {
		version("..v1", 403)
		must(t, os.Symlink(filepath.Join(dir, "..data", "ordergate.yaml"), file+".link"))
		must(t, os.Rename(file+".link", file))
	})
	r.must("GET", "/orders/77", "").want(t, 403, "absent")
	r.wantAfter("applied", func() {
		version("..v2", 418)
		must(t, os.RemoveAll(filepath.Join(dir, "..v1")))
	})
	r.must("GET", "/orders/77", "").want(t, 418, "absent")

	// Everything else goes on.
	r.must("GET", "/orders/7", "").want(t, 200, "")
	r.must("POST", "/orders?do=create&id=78", "").want(t, 201, "")
	r.must("GET", "/orders/78", "").want(t, 200, "")
	r.must("POST", "/orders/78/settle", "").want(t, 200, "")
	if got := r.result("applied"); got != "4" {
		t.Errorf("%s reloads were applied, want 4", got)
	}
}

// TestReloadOfABadFile refuses what is bad, and what takes a restart: the old
// configuration stays, and whoever looks is told.
func TestReloadOfABadFile(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	r := newReloads(t, settings{backend: b.addr(), orders: 10})
	r.wantAfter("applied", func() { r.rewrite(r.absentIs(410)) })
	for _, tt := range []struct {
		name, yaml string
		told       []string
	}{
		{"bad", bedtest.Replace(r.absentIs(403), settleAction, "settle: {lock: none}\n    mod: observe"), []string{"settle.lock: ", "rules[2].mod: ", r.gate.ConfigFile() + ":"}},
		{"cut off", r.text[:strings.LastIndex(r.text, "{lock")+3], []string{"not YAML"}},
		{"empty", "", []string{"the file is empty"}},
		{"in part for a restart", strings.NewReplacer("capacity: 1_000_000", "capacity: 2_000_000", r.server.Addr(), "127.0.0.1:1").Replace(r.absentIs(403)),
			[]string{"redis.addresses, filters.orders.capacity: take a restart"}},
	} {
		r.wantAfter("refused", func() { r.rewrite(tt.yaml) })
		status, reasons := r.readiness()
		for _, want := range tt.told {
			if !strings.Contains(reasons["configuration"], want) {
				t.Errorf("%s: readiness says %q, want %q in it", tt.name, reasons["configuration"], want)
			}
		}
		if status != http.StatusOK {
			t.Errorf("%s: readiness was taken away: %d", tt.name, status)
		}
		if success := r.metric("ordergate_config_reload_success"); success != "0" {
			t.Errorf("%s: success is %s", tt.name, success)
		}
		r.must("GET", "/orders/77", "").want(t, 410, "absent")
		r.must("GET", "/orders/7", "").want(t, 200, "")
		r.must("POST", "/orders/7/settle", "").want(t, 200, "")
	}
	changes := "~ redis.addresses: ['" + r.server.Addr() + "'] -> ['127.0.0.1:1']\n~ filters.orders.capacity: 1_000_000 -> 2_000_000\n" +
		"~ rules.order-lookup.lookup.absent.status: 410 -> 403\n~ rules.order-lookup.lookup.absent.body: \"410\" -> \"403\"\n" +
		"redis.addresses: takes a restart\nfilters.orders.capacity: takes a restart\n"
	if status, text := r.admin("GET", "/v1/config/diff", ""); status != 200 || text != changes {
		t.Errorf("what the file changes: %d %s", status, text)
	}
	r.wantAfter("applied", func() { r.rewrite(r.absentIs(451)) })
	if _, reasons := r.readiness(); reasons["configuration"] != "" {
		t.Errorf("after a good file: %q", reasons["configuration"])
	}
	if success := r.metric("ordergate_config_reload_success"); success != "1" {
		t.Errorf("after a good file: success is %s", success)
	}
	r.must("GET", "/orders/77", "").want(t, 451, "absent")
	log, err := os.ReadFile(r.gate.Output())
	must(t, err)
	for _, want := range []string{"rules[2].settle.lock: ", "rules[2].mod: ", "reload: redis.addresses, filters.orders.capacity: take a restart; the old configuration stays"} {
		if n := strings.Count(string(log), want); n != 1 {
			t.Errorf("the log has %q %d times", want, n)
		}
	}
}

// TestReloadOnHangup sends the signal, before the sidecar has begun to serve, too.
func TestReloadOnHangup(t *testing.T) {
	needsSidecar(t, "Envoy's signals are its own")
	t.Parallel()
	b := newBackend(t)
	r := newReloads(t, settings{backend: b.addr(), orders: 10})
	r.wantAfter("unchanged", func() { must(t, r.gate.Signal(syscall.SIGHUP)) })
	before := r.result("applied")
	r.rewrite(r.absentIs(410))
	must(t, r.gate.Signal(syscall.SIGHUP))
	bedtest.Eventually(t, "the new answer", func() bool { return r.must("GET", "/orders/77", "").status == 410 })
	bedtest.Eventually(t, "it is counted", func() bool { return r.result("applied") != before })

	gate, err := r.GateUnready(t.Context(), r.Build("./cmd/sidecar", false), r.text)
	must(t, err)
	bedtest.Eventually(t, "its first word", func() bool { return gate.Tail() != "" })
	for range 20 {
		must(t, gate.Signal(syscall.SIGHUP))
	}
	must(t, gate.WaitReady(t.Context()))
}

// TestReloadDuringASettlement changes the lock, and takes the rule away, while a
// settlement runs: it ends as it began.
func TestReloadDuringASettlement(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	r := newReloads(t, settings{backend: b.addr(), orders: 10})
	running := r.hang(b, "POST", "/orders/5/settle", "")
	longer := r.edited("lease: 90s", "lease: 300s")
	r.wantAfter("applied", func() { r.rewrite(longer) })
	r.must("POST", "/orders/5/settle", "").want(t, 409, "busy")
	next := r.hang(b, "POST", "/orders/6/settle", "")
	if left := r.redis.PTTL(t.Context(), "order:lock:6").Val(); left.Seconds() < 120 {
		t.Errorf("the new lease lasts %v", left)
	}
	if left := r.redis.PTTL(t.Context(), "order:lock:5").Val(); left.Seconds() > 90 {
		t.Errorf("the old lease lasts %v", left)
	}
	rules, _, ok := strings.Cut(r.text, "  - name: commission-settle")
	if !ok {
		t.Fatal("the example has no such rule")
	}
	r.wantAfter("applied", func() { r.rewrite(rules) })
	if held := r.metric(`ordergate_lock_held{lock="settlement"}`); held != "2" {
		t.Errorf("%s locks are held", held)
	}
	b.goOn()
	running.wantAnswer(t)
	next.wantAnswer(t)
	r.wantGone("order:lock:*")
	bedtest.Eventually(t, "both have a known outcome", func() bool {
		return r.metric(`ordergate_lock_outcome_total{lock="settlement",outcome="known"}`) == "2"
	})
	r.must("POST", "/orders/5/settle", "").want(t, 200, "") // under no rule
	if key := b.last("key"); key != "" {
		t.Errorf("it has the lock %q", key)
	}
}

// TestReloadUnderLoad has the file change more than a hundred times between versions with
// other answers, rules in other places or of other names, other places of new IDs in answers,
// and other locks, while orders are created, looked up and settled.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	const hotOrders = 3
	b := newBackend(t)
	r := newReloads(t, settings{
		backend: b.addr(), orders: 100, envoy: unhurried(t),
		gate: edit(t, "sources: [seed]", "sources: [seed]\n    stale_after: 60s"),
	})
	first := "  - {name: status, match: {methods: [GET], path: \"/status/{id}\"}, id: {path: id}, lookup: {filter: orders}}\n"
	versions := []string{
		r.text,
		bedtest.Replace(bedtest.Replace(r.absentIs(410), "rules:\n", "rules:\n"+first), "lease: 90s", "lease: 40s"),
		edit(t, "rules:\n", "rules:\n"+strings.ReplaceAll(first, "status", "state"), "tries: 3", "tries: 5",
			"- name: order-create", "- name: order-made", "response_json: orderId", "response_header: x-new-order")(r.absentIs(451)),
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var load sync.WaitGroup
	var nextID, settled, busy, unsure atomic.Int64
	nextID.Store(1000)
	worker := func(do func(n int)) {
		load.Go(func() {
			for n := 0; ctx.Err() == nil && !t.Failed(); n++ {
				do(n)
				time.Sleep(50 * time.Millisecond) // requests enough for each reload
			}
		})
	}
	get := func(method, path string) answer {
		a, err := r.send(t.Context(), method, path, "")
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
		return a
	}
	for i := range 2 {
		worker(func(n int) {
			path := fmt.Sprintf("/orders/%d", 1_000_000_000+2*n+i)
			switch a := get("GET", path); a.status {
			case 404, 410, 451:
				if a.verdict != "absent" {
					t.Errorf("%s: %d %q", path, a.status, a.verdict)
				}
			case 200: // a busy machine may keep ordergate from being sure
				unsure.Add(1)
				if v := b.verdictOn(path); v != "unknown" {
					t.Errorf("%s was passed on with the verdict %q", path, v)
				}
			default:
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
			get("GET", fmt.Sprintf("/orders/%d", n%100+1)).want(t, 200, "")
		})
		worker(func(int) { // created, and then looked up and settled
			id := strconv.FormatInt(nextID.Add(1), 10)
			get("POST", "/orders?do=create&id="+id).want(t, 201, "")
			get("GET", "/orders/"+id).want(t, 200, "")
			get("POST", "/orders/"+id+"/settle").want(t, 200, "")
			settled.Add(1)
		})
		worker(func(n int) { // orders that several settle at once
			switch a := get("POST", fmt.Sprintf("/orders/%d/settle", n%hotOrders+1)); a.status {
			case 200:
				settled.Add(1)
			case 409:
				busy.Add(1)
			default:
				t.Errorf("a settlement: %d %q %s", a.status, a.verdict, a.body)
			}
		})
	}
	const early = 20
	routines := 0 // at most, in the early reloads
	for i := range 51 {
		if t.Failed() {
			break
		}
		r.wantAfter("applied", func() {
			r.rewrite(versions[(i+1)%len(versions)])
			if *attachment == asSidecar && i%5 != 0 { // the others are noticed by themselves
				must(t, r.gate.Signal(syscall.SIGHUP))
			}
		})
		if i < early {
			routines = max(routines, r.routines())
		}
	}
	stop()
	load.Wait()

	r.wantGone("order:lock:*")
	fences := make(map[string]int64)
	arrived := int64(0)
	for _, req := range b.seen() {
		id, ok := strings.CutSuffix(strings.TrimPrefix(req.URL.Path, "/orders/"), "/settle")
		if !ok {
			continue
		}
		arrived++
		ours := func(name string) string { return req.Header.Get("x-ordergate-" + name) }
		fence, err := strconv.ParseInt(ours("fence"), 10, 64)
		if err != nil || ours("key") != "order:lock:"+id || ours("lease") == "" || ours("verdict") != "acquired" {
			t.Fatalf("order %s was settled with fence %q, key %q, lease %q, verdict %q", id, ours("fence"), ours("key"), ours("lease"), ours("verdict"))
		}
		if fence <= fences[id] {
			t.Errorf("order %s: fence %d came after %d", id, fence, fences[id])
		}
		fences[id] = fence
	}
	if arrived != settled.Load() || arrived < 100 {
		t.Errorf("%d settlements were answered, %d arrived", settled.Load(), arrived)
	}
	t.Logf("%d settlements, %d busy, %d orders created, %d unsure", arrived, busy.Load(), nextID.Load()-1000, unsure.Load())
	for line, want := range map[string]string{
		`ordergate_lock_lost_total{lock="settlement"}`: "0", `ordergate_lock_held{lock="settlement"}`: "0",
		`ordergate_lock_outcome_total{lock="settlement",outcome="unknown"}`: "0",
		`ordergate_config_reload_total{result="refused"}`:                   "0",
	} {
		bedtest.Eventually(t, line+" "+want, func() bool { return r.metric(line) == want })
	}
	// A lock begins to listen for releases when somebody first waits, which may be later;
	// that, and a few connections, is less than what each third reload would leave behind.
	const listening = 10
	routines += listening
	bedtest.Eventually(t, fmt.Sprintf("no more than %d goroutines", routines), func() bool { return r.routines() <= routines })
}

// unhurried has Envoy wait for ordergate for longer than any machine is busy: it would
// go on without an answer.
func unhurried(t testing.TB) func(string) string {
	if *attachment == asModule {
		return nil
	}
	return both(patiently(t), edit(t, "                timeout: 0.5s", "                timeout: 50s"))
}

// verdictOn returns what the backend was told of the last request for a path.
func (b *backend) verdictOn(path string) (verdict string) {
	for _, req := range b.seen() {
		if req.URL.Path == path {
			verdict = req.Header.Get("x-ordergate-verdict")
		}
	}
	return verdict
}

// routines returns how many goroutines ordergate has.
func (r *reloads) routines() int {
	r.t.Helper()
	n, err := strconv.Atoi(r.metric("go_goroutines"))
	must(r.t, err)
	return n
}
