package tests

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// keeper is an ordergate with a snapshot, asked over HTTP, that is started again and
// again.
type keeper struct {
	*bedtest.Bed
	t      *testing.T
	server *testbed.Redis
	redis  *redis.Client
	log    *changelog.Log // by which others create orders
	member string         // where ordergate runs; "": at the same place again
	binary string
	ids    string // the source
	file   string // the snapshot
	config string // what the last one was started with
	gate   *testbed.Gate
}

func newKeeper(t *testing.T, orders int) *keeper {
	t.Helper()
	bed := bedtest.New(t)
	return newKeeperOn(t, bed, bed.Redis(), orders)
}

func newKeeperOn(t *testing.T, bed *bedtest.Bed, server *testbed.Redis, orders int) *keeper {
	t.Helper()
	k := &keeper{
		Bed: bed, t: t, server: server, binary: bed.Build("./cmd/sidecar", false),
		ids: idFile(t, orders), file: filepath.Join(t.TempDir(), "orders.snap"),
	}
	k.age(time.Hour)
	k.redis = redis.NewClient(&redis.Options{Addr: k.server.Addr()})
	t.Cleanup(func() { _ = k.redis.Close() })
	var err error
	k.log, err = changelog.New(k.redis, "orders", func(string) {}, changelog.Options{})
	must(t, err)
	return k
}

// age sets the time of the source's last change.
func (k *keeper) age(by time.Duration) {
	k.t.Helper()
	at := time.Now().Add(-by).Truncate(time.Second)
	must(k.t, os.Chtimes(k.ids, at, at))
}

// yaml is the configuration; settings are the filter's, beside what all have.
func (k *keeper) yaml(settings string) string {
	if settings == "" {
		settings = "capacity: 5000"
	}
	return fmt.Sprintf(`
listen: {authz: "", proc: "", http: 127.0.0.1:0, admin: 127.0.0.1:0}
redis: {addresses: [%s], member: %s}
filters:
  orders:
    sources: [seed]
    snapshot: {path: %s, every: 1h}
    %s
sources:
  seed: {kind: csv, path: %s}
rules:
  - name: lookup
    match: {methods: [GET], path: "/orders/{id}"}
    id: {path: id}
    lookup: {filter: orders}
`, k.server.Addr(), cmp.Or(k.member, "here"), k.file, strings.ReplaceAll(settings, "; ", "\n    "), k.ids)
}

// start starts an ordergate and waits until it is ready.
func (k *keeper) start(settings string) {
	k.t.Helper()
	k.config = k.yaml(settings)
	k.gate = k.Gate(k.binary, k.config)
}

// startUnready starts one that is not ready: its sources cannot be read.
func (k *keeper) startUnready(settings string) {
	k.t.Helper()
	k.config = k.yaml(settings)
	gate, err := k.GateUnready(k.t.Context(), k.binary, k.config)
	must(k.t, err)
	k.gate = gate
}

// ask returns the verdict on an order.
func (k *keeper) ask(id string) string {
	k.t.Helper()
	resp, err := client.Get("http://" + k.GateAddr(k.gate, "http") + "/check/envoy/orders/" + id)
	must(k.t, err)
	defer resp.Body.Close()
	return resp.Header.Get("x-ordergate-verdict")
}

// want asks about some orders. On a busy machine the log may not be read in time, so
// unknown is asked again, if it is not what is wanted.
func (k *keeper) want(verdict string, ids ...string) {
	k.t.Helper()
	for _, id := range ids {
		var got string
		bedtest.Eventually(k.t, "a verdict on order "+id, func() bool {
			got = k.ask(id)
			return got == verdict || got != "unknown"
		})
		if got != verdict {
			k.t.Errorf("order %s is %q, want %q", id, got, verdict)
		}
	}
}

// create has another ordergate learn orders, of which clients are told.
func (k *keeper) create(ids ...string) {
	k.t.Helper()
	for _, id := range ids {
		must(k.t, k.log.Append(k.t.Context(), id))
	}
	must(k.t, k.log.WaitForPeers(k.t.Context()))
}

// recordDoubt has another ordergate record a doubt, and wait until no window holds without it.
func recordDoubt(t testing.TB, log *changelog.Log, d changelog.Doubt) {
	t.Helper()
	must(t, log.RecordDoubt(t.Context(), d))
	must(t, log.WaitForPeers(t.Context()))
}

// touch has the source be another one than before, since a while.
func (k *keeper) touch() {
	k.t.Helper()
	info, err := os.Stat(k.ids)
	must(k.t, err)
	at := info.ModTime().Add(time.Second)
	must(k.t, os.Chtimes(k.ids, at, at))
}

// load says that the source has every order.
func (k *keeper) load() {
	k.t.Helper()
	if out, errors, err := k.command("load", "--filter", "orders"); err != nil {
		k.t.Fatalf("%v: %s%s", err, out, errors)
	}
}

// said reports whether the present ordergate has logged a line with all of this.
func (k *keeper) said(parts ...string) bool {
	k.t.Helper()
	text, err := os.ReadFile(k.gate.Output())
	must(k.t, err)
lines:
	for line := range strings.Lines(string(text)) {
		for _, p := range parts {
			if !strings.Contains(line, p) {
				continue lines
			}
		}
		return true
	}
	return false
}

func (k *keeper) mustSay(parts ...string) {
	k.t.Helper()
	defer func() {
		if k.t.Failed() {
			k.t.Log(k.gate.Tail())
		}
	}()
	bedtest.Eventually(k.t, fmt.Sprintf("ordergate says %q", parts), func() bool { return k.said(parts...) })
}

// metric returns a value of the filter's metrics.
func (k *keeper) metric(name string) float64 {
	k.t.Helper()
	s := stack{Bed: k.Bed, t: k.t, gate: k.gate}
	v, err := strconv.ParseFloat(s.metric("ordergate_filter_"+name+`{filter="orders"}`), 64)
	must(k.t, err)
	return v
}

// written waits until the file has the filter's last load.
func (k *keeper) written() {
	k.t.Helper()
	bedtest.Eventually(k.t, "a snapshot is written", func() bool { return k.metric("snapshot_bytes") > 0 })
}

// post has the snapshot written, and returns the status and the answer.
func (k *keeper) post(filter string) (int, string) {
	k.t.Helper()
	resp, err := client.Post("http://"+k.GateAddr(k.gate, "admin")+"/filters/"+filter+"/snapshot", "", nil)
	must(k.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(k.t, err)
	return resp.StatusCode, string(body)
}

// command runs ordergate with the configuration of the one that runs, and where that
// listens.
func (k *keeper) command(args ...string) (stdout, stderr string, err error) {
	k.t.Helper()
	config := bedtest.Replace(k.config, "admin: 127.0.0.1:0", "admin: "+k.GateAddr(k.gate, "admin"))
	path := filepath.Join(k.t.TempDir(), "ordergate.yaml")
	must(k.t, os.WriteFile(path, []byte(config), 0o600))
	cmd := exec.CommandContext(k.t.Context(), k.binary, append(args, "--config", path)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// command2 is command without a running ordergate.
func (k *keeper) command2(args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(k.t.Context(), k.binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func (k *keeper) bytes() []byte {
	k.t.Helper()
	data, err := os.ReadFile(k.file)
	must(k.t, err)
	return data
}

func (k *keeper) readyz() string {
	k.t.Helper()
	resp, err := client.Get("http://" + k.GateAddr(k.gate, "admin") + "/readyz")
	must(k.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(k.t, err)
	return string(body)
}
