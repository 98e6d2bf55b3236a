package redisbatch

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	incr = NewScript("return redis.call('incr', KEYS[1])")
	decr = NewScript("return redis.call('decr', KEYS[1])")
)

// onEveryRedis runs a test against each simple server, with one of its own.
func onEveryRedis(t *testing.T, test func(*testing.T, redis.UniversalClient)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		bedtest.OnlyShort(t)
		test(t, connect(t, miniredis.RunT(t).Addr()))
	})
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		test(t, single(t))
	})
}

func single(t *testing.T) redis.UniversalClient {
	return connect(t, bedtest.New(t).Redis().Addr())
}

func cluster(t *testing.T) *redis.ClusterClient {
	return connect(t, bedtest.New(t).Cluster().Addrs()...).(*redis.ClusterClient)
}

// connect returns a client as the sidecar has it, of a cluster if there are several
// addresses.
func connect(t *testing.T, addrs ...string) redis.UniversalClient {
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: addrs, IsClusterMode: len(addrs) > 1,
		ContextTimeoutEnabled: true, MaxRetries: 1, DialerRetries: 1,
		DialTimeout: 500 * time.Millisecond, ReadTimeout: time.Second, WriteTimeout: time.Second,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// probe sees every round trip of a client that runs scripts, and may hold it up.
type probe struct {
	mu    sync.Mutex
	trips []trip
	// before is called before a trip is sent, and may block.
	before func(trip)
}

// trip is what was sent together.
type trip struct {
	calls []sent
	own   bool // from the goroutine of a Do, not from a worker's
}

// sent is one call.
type sent struct {
	script *Script
	text   bool // the script itself was sent
	key    string
}

func (t trip) has(key string) bool {
	return slices.ContainsFunc(t.calls, func(s sent) bool { return s.key == key })
}

// watch adds a probe to a client, and makes the scripts known, so that each call is sent
// once. On a cluster the probe sees what each node is sent, but only of nodes that the
// client has not spoken to yet.
func watch(t *testing.T, c redis.UniversalClient) *probe {
	t.Helper()
	p := &probe{}
	load := func(ctx context.Context, node redis.Cmdable) error {
		_, err := node.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.ScriptLoad(ctx, incr.Text)
			pipe.ScriptLoad(ctx, decr.Text)
			return nil
		})
		return err
	}
	if cluster, ok := c.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(p) })
		bedtest.Check(t, cluster.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			return load(ctx, node)
		}))
	} else {
		c.AddHook(p)
		bedtest.Check(t, load(t.Context(), c))
	}
	return p
}

func (p *probe) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *probe) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		p.pass([]redis.Cmder{cmd})
		return next(ctx, cmd)
	}
}

func (p *probe) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.pass(cmds)
		return next(ctx, cmds)
	}
}

func (p *probe) pass(cmds []redis.Cmder) {
	t := read(cmds)
	if len(t.calls) == 0 { // what a connection begins with, say
		return
	}
	p.mu.Lock()
	p.trips = append(p.trips, t)
	before := p.before
	p.mu.Unlock()
	if before != nil {
		before(t)
	}
}

// read copies what is sent: its memory is used again.
func read(cmds []redis.Cmder) (t trip) {
	for _, cmd := range cmds {
		args := cmd.Args()
		if name := args[0]; name != "eval" && name != "evalsha" {
			continue
		}
		s := sent{text: args[0] == "eval", key: *args[firstKey].(*string)}
		for _, script := range []*Script{incr, decr} {
			if name := fmt.Sprint(args[1]); name == script.Hash || name == script.Text {
				s.script = script
			}
		}
		t.calls = append(t.calls, s)
	}
	var stack [16 << 10]byte
	t.own = strings.Contains(string(stack[:runtime.Stack(stack[:], false)]), "redisbatch.(*ScriptBatcher).Do(")
	return t
}

// block has trips wait that match before they are sent. It returns a channel that gets each
// of them as it begins to wait, and what lets them and all others pass.
func (p *probe) block(match func(trip) bool) (blocked <-chan trip, open func()) {
	waiting, opened := make(chan trip, 1000), make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = func(t trip) {
		if match(t) {
			waiting <- t
			<-opened
		}
	}
	return waiting, sync.OnceFunc(func() { close(opened) })
}

// seen returns the trips since the last call.
func (p *probe) seen() []trip {
	p.mu.Lock()
	defer p.mu.Unlock()
	trips := p.trips
	p.trips = nil
	return trips
}

func newBatcher(t *testing.T, c redis.UniversalClient) *ScriptBatcher {
	b := NewScriptBatcher(c, nil, 0, 0)
	t.Cleanup(b.Close)
	return b
}

// run runs a script, which answers above 0.
func run(t *testing.T, b *ScriptBatcher, script *Script, key string) {
	t.Helper()
	if n, err := b.Do(t.Context(), NewCall(script, key)); err != nil || n == 0 {
		t.Errorf("%s: %d, %v", key, n, err)
	}
}

func wantWaiting(t *testing.T, b *ScriptBatcher, n int) {
	t.Helper()
	bedtest.Eventually(t, fmt.Sprintf("%d calls wait", n), func() bool { return b.Waiting() == n })
}

// jam is a batcher whose calls do not get through until it is opened: so calls that come
// together go together.
type jam struct {
	*probe
	batcher *ScriptBatcher
	open    func()
	done    chan struct{} // one for each call that was answered
}

// jammed blocks the workers of a batcher.
func jammed(t *testing.T, c redis.UniversalClient) *jam {
	t.Helper()
	j := &jam{probe: watch(t, c), batcher: newBatcher(t, c), done: make(chan struct{}, 2000)}
	blocked, open := j.block(func(trip) bool { return true })
	j.open = open
	t.Cleanup(open) // before the batcher is closed
	for i := range MaxWorkers {
		j.run(t, incr, jamKey(i))
		bedtest.Receive(t, "a batch", blocked)
	}
	return j
}

func jamKey(i int) string { return fmt.Sprint("jam", i) }

// run runs a script in the background.
func (j *jam) run(t *testing.T, script *Script, key string) {
	go func() {
		run(t, j.batcher, script, key)
		j.done <- struct{}{}
	}()
}

// drain opens the jam and waits for so many answers besides those that jammed it.
func (j *jam) drain(t *testing.T, n int) {
	t.Helper()
	j.open()
	for range MaxWorkers + n {
		bedtest.Receive(t, "an answer", j.done)
	}
}

func names(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint(prefix, i))
	}
	return keys
}
