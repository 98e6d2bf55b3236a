// Package bedtest is package testbed for tests: the servers end with the test,
// what goes wrong fails it, and what is not installed skips it.
//
// Start with [New]. Where the environment variable CI is set a missing program
// is a failure: there it would hide that nothing was tested.
package bedtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
)

// limit bounds one start, the compiler of a build included.
const limit = 3 * time.Minute

// Bed is a testbed that belongs to a test. Its methods must be called from the
// goroutine that runs the test, as they may end it.
type Bed struct {
	*testbed.Bed
	tb testing.TB
}

// New returns an empty bed in a temporary directory, or skips the test; see
// [NeedProcesses]. When the test ends, the servers are stopped; a server that had ended
// by itself, or does not end in order, fails the test, and a failed test shows the end of
// each one's output.
func New(tb testing.TB) *Bed {
	tb.Helper()
	NeedProcesses(tb)
	bed, err := testbed.New(tb.TempDir(), tb.Output())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		processes := bed.Processes()
		if err := bed.Close(); err != nil {
			tb.Error(err)
		}
		if tb.Failed() {
			for _, p := range processes {
				tb.Logf("%s wrote at last: %s", p.Name(), p.Tail())
			}
		}
	})
	return &Bed{Bed: bed, tb: tb}
}

// NeedProcesses skips a test that starts another program, such as a server or a compiler,
// with -short, which "make quick" sets: Go's cache of results does not see what another
// program reads. [New] calls it; so must a test that starts a process by other means.
func NeedProcesses(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts another program: not with -short")
	}
}

// OnlyShort skips a test on miniredis without -short. Whatever runs on miniredis runs on a
// redis-server, too, and the race detector has miniredis take seconds for a long script.
// "make test" runs these in its target test-miniredis.
func OnlyShort(tb testing.TB) {
	tb.Helper()
	if !testing.Short() {
		tb.Skip("on miniredis: only with -short")
	}
}

// WithoutRace skips a test in which the race detector would see nothing new: one that takes
// one step after the other, many times, or that does the same as another one on another kind
// of server. "make test" runs it in the target test-plain: the test, or the subtests on a
// cluster where they call this.
func WithoutRace(tb testing.TB) {
	tb.Helper()
	if Race {
		tb.Skip("runs without the race detector")
	}
}

// Redis starts a redis-server; see [testbed.Bed.Redis].
func (b *Bed) Redis(args ...string) *testbed.Redis {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (*testbed.Redis, error) { return b.Bed.Redis(ctx, args...) })
}

// Replica starts a redis-server that replicates another one.
func (b *Bed) Replica(of *testbed.Redis) *testbed.Redis {
	b.tb.Helper()
	host, port, err := net.SplitHostPort(of.Addr())
	Check(b.tb, err)
	return b.Redis("--replicaof", host, port)
}

// RedisTLS starts a redis-server that serves TLS only; see
// [testbed.Bed.RedisTLS].
func (b *Bed) RedisTLS(args ...string) *testbed.Redis {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (*testbed.Redis, error) { return b.Bed.RedisTLS(ctx, args...) })
}

// Certificates returns the bed's certificates; see [testbed.Bed.Certificates].
func (b *Bed) Certificates() *testbed.Certificates {
	b.tb.Helper()
	return start(b, func(context.Context) (*testbed.Certificates, error) { return b.Bed.Certificates() })
}

// Sentinel starts a master, its replicas and their Sentinels; see
// [testbed.Bed.Sentinel].
func (b *Bed) Sentinel(args ...string) *testbed.Sentinel {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (*testbed.Sentinel, error) { return b.Bed.Sentinel(ctx, args...) })
}

// Cluster starts a Redis Cluster; see [testbed.Bed.Cluster].
func (b *Bed) Cluster(args ...string) *testbed.Cluster {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (*testbed.Cluster, error) { return b.Bed.Cluster(ctx, args...) })
}

// MariaDB starts a mariadbd; see [testbed.Bed.MariaDB].
func (b *Bed) MariaDB(args ...string) *testbed.MariaDB {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (*testbed.MariaDB, error) { return b.Bed.MariaDB(ctx, args...) })
}

// Postgres starts a PostgreSQL; see [testbed.Bed.Postgres].
func (b *Bed) Postgres(args ...string) *testbed.Postgres {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (*testbed.Postgres, error) { return b.Bed.Postgres(ctx, args...) })
}

// Kafka starts a Kafka server; see [testbed.Bed.Kafka].
func (b *Bed) Kafka(settings ...string) *testbed.Kafka {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (*testbed.Kafka, error) { return b.Bed.Kafka(ctx, settings...) })
}

// Envoy starts an Envoy; see [testbed.Bed.Envoy].
func (b *Bed) Envoy(config string, args ...string) *testbed.Envoy {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (*testbed.Envoy, error) { return b.Bed.Envoy(ctx, config, args...) })
}

// Module compiles ordergate's Envoy module, once in this process; see
// [testbed.Bed.Module].
func (b *Bed) Module() string {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (string, error) {
		return builds.once("module", func() (string, error) { return b.Bed.Module(ctx) })
	})
}

// EnvoyWithModule starts an Envoy with ordergate inside; see
// [testbed.Bed.EnvoyWithModule].
func (b *Bed) EnvoyWithModule(library, gate string, envoy func(config string) (string, error), args ...string) (*testbed.Envoy, *testbed.Gate) {
	b.tb.Helper()
	var g *testbed.Gate
	return start(b, func(ctx context.Context) (e *testbed.Envoy, err error) {
		e, g, err = b.Bed.EnvoyWithModule(ctx, library, gate, envoy, args...)
		return e, err
	}), g
}

// PHP starts the PHP order service on a fresh data directory; see
// [testbed.Bed.PHP].
func (b *Bed) PHP(seed, workers int) *testbed.Orders {
	b.tb.Helper()
	data := b.tb.TempDir()
	return start(b, func(ctx context.Context) (*testbed.Orders, error) { return b.Bed.PHP(ctx, data, seed, workers) })
}

// Java starts the Java order service on a fresh data directory; see
// [testbed.Bed.Java].
func (b *Bed) Java(seed int) *testbed.Orders {
	b.tb.Helper()
	data := b.tb.TempDir()
	return start(b, func(ctx context.Context) (*testbed.Orders, error) { return b.Bed.Java(ctx, data, seed) })
}

// FrontShop starts the PHP shop; see [testbed.Bed.FrontShop].
func (b *Bed) FrontShop(db *testbed.MariaDB) *testbed.Shop {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (*testbed.Shop, error) { return b.Bed.FrontShop(ctx, db) })
}

// SpringShop starts the Java shop; see [testbed.Bed.SpringShop].
func (b *Bed) SpringShop(db *testbed.MariaDB) *testbed.Shop {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (*testbed.Shop, error) { return b.Bed.SpringShop(ctx, db) })
}

// Build compiles a command, once in this process; see [testbed.Bed.Build].
func (b *Bed) Build(pkg string, race bool) string {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (string, error) {
		return builds.once(fmt.Sprint(pkg, " ", race), func() (string, error) { return b.Bed.Build(ctx, pkg, race) })
	})
}

// LongWindow is longer than the default: a busy machine may hold ordergate up for longer than
// that, and then lookups of absent orders pass, which a test would take for a fault. The answers
// to creates may still be held for less time than the message_timeout of Envoy's example.
const LongWindow = "{window: 1500ms}"

// WithLongWindow gives the filter of an example a [LongWindow].
func WithLongWindow(tb testing.TB, gate string) string {
	tb.Helper()
	gate, err := testbed.WithFreshness(gate, LongWindow)
	Check(tb, err)
	return gate
}

// VerifyOff is in the filter of GateExample: a test counts on each refusal.
const VerifyOff = "    verify: off\n"

// GateExample returns ordergate's example, with a [LongWindow] and [VerifyOff]; see
// [testbed.Bed.GateExample].
func (b *Bed) GateExample(redis, ids string) string {
	b.tb.Helper()
	text, err := b.Bed.GateExample(redis, ids)
	Check(b.tb, err)
	before, after, found := strings.Cut(WithLongWindow(b.tb, text), "    capacity:")
	if !found {
		b.tb.Fatal("the filter of the example has no capacity")
	}
	return before + VerifyOff + "    capacity:" + after
}

// Gate starts an ordergate and waits until it is ready; see
// [testbed.Bed.Gate].
func (b *Bed) Gate(binary, config string, extras ...string) *testbed.Gate {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (*testbed.Gate, error) { return b.Bed.Gate(ctx, binary, config, extras...) })
}

// Program runs a binary until it listens; see [testbed.Bed.Program].
func (b *Bed) Program(binary string, args ...string) *testbed.Program {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (*testbed.Program, error) { return b.Bed.Program(ctx, binary, args...) })
}

// GateAddr returns the address of one of ordergate's listeners; see
// [testbed.Gate.Addr].
func (b *Bed) GateAddr(g *testbed.Gate, name string) string {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (string, error) { return g.Addr(ctx, name) })
}

// ListenerAddr returns the address of one of Envoy's listeners; see
// [testbed.Envoy.ListenerAddr].
func (b *Bed) ListenerAddr(e *testbed.Envoy, name string) string {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (string, error) { return e.ListenerAddr(ctx, name) })
}

// start runs a function under the time limit and ends the test if it fails.
func start[T any](b *Bed, f func(context.Context) (T, error)) T {
	b.tb.Helper()
	ctx, cancel := context.WithTimeout(b.tb.Context(), limit)
	defer cancel()
	v, err := f(ctx)
	Check(b.tb, err)
	return v
}

// Check ends the test if err is not nil: it skips one that lacks a program,
// unless CI is set, or for which a server of make matrix is too old, and fails it otherwise.
func Check(tb testing.TB, err error) {
	tb.Helper()
	var missing *testbed.MissingError
	var lacks *testbed.LacksError
	switch {
	case err == nil:
	case errors.As(err, &lacks):
		tb.Skip(err)
	case errors.As(err, &missing) && os.Getenv("CI") == "":
		tb.Skip(err)
	default:
		tb.Fatal(err)
	}
}

// patience bounds Eventually. It is far longer than anything takes, since the
// machine may be busy with other tests.
const patience = 30 * time.Second

// Eventually polls until ok, for what another goroutine or process has to do, and
// ends the test if it never happens. A cleanup may call it, where the test's context has ended.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for begin := time.Now(); !ok(); {
		waited := time.Since(begin)
		if waited > patience {
			tb.Fatalf("never happened: %s", what)
		}
		time.Sleep(Pause(waited))
	}
}

// Receive returns the next value of a channel, and ends the test if none comes.
func Receive[T any](tb testing.TB, what string, c <-chan T) (v T) {
	tb.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		tb.Fatalf("never came: %s", what)
	}
	return v
}

// Pause returns how long to wait before the next poll for something that has not happened
// for a while: 1 ms at first, and 50 ms at most, or polls take the time of what they wait
// for.
func Pause(waited time.Duration) time.Duration {
	return min(max(waited/10, time.Millisecond), 50*time.Millisecond)
}

// Each calls f for 0 to n-1, so many at a time, and waits for all.
func Each(n, atOnce int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// Replace replaces the first from in a text. It panics if there is none: a test on an unchanged text
// would not test what it says.
func Replace(text, from, to string) string {
	if !strings.Contains(text, from) {
		panic(fmt.Sprintf("the text has no %q", from))
	}
	return strings.Replace(text, from, to, 1)
}
