package faults

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// redisFaults are those of a Redis, of which current returns the one to do them to.
// Of one that is replaced meanwhile nothing is expected.
func (f *fleet) redisFaults(clocks *clocks, current func(ctx context.Context) *redis.Client) []fault {
	on := func(name string, do func(ctx context.Context, c *redis.Client) error) fault {
		return fault{name, func(ctx context.Context, _ *rand.Rand) {
			defer f.diary.note("%s", name)()
			if c := current(ctx); c != nil {
				if err := do(ctx, c); err != nil {
					f.t.Logf("%s: %v", name, err)
				}
			}
		}}
	}
	list := []fault{
		on("client kill", func(ctx context.Context, c *redis.Client) error {
			return c.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err()
		}),
		on("flushall", func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }),
	}
	for _, part := range []string{"log", "meta", "members"} {
		list = append(list, on("del, "+part, func(ctx context.Context, c *redis.Client) error { return c.Del(ctx, logKey(part)).Err() }))
	}
	return append(list, fault{"clock", func(ctx context.Context, r *rand.Rand) {
		// One sidecar is left alone meanwhile: that a clock went back is seen by who asks
		// for the time before and after, and not if nobody does.
		p := f.places[r.IntN(len(f.places))]
		p.turn.Lock()
		defer p.turn.Unlock()
		wait(ctx, time.Second)
		if c := current(ctx); c != nil {
			step := between(r, time.Second, 2*time.Minute)
			if r.IntN(2) == 0 {
				step = -step
			}
			defer f.diary.note("clock: %v", step)()
			clocks.step(f.t, c.Options().Addr, step)
			wait(ctx, time.Second)
		}
	}})
}

// singleFaults are those of a Redis that is alone, and keeps its data in a file.
func (f *fleet) singleFaults(server *testbed.Redis, clocks *clocks) []fault {
	list := f.redisFaults(clocks, func(context.Context) *redis.Client { return f.admin[0] })
	again := func(ctx context.Context) {
		if err := server.Restart(context.WithoutCancel(ctx)); err != nil {
			f.t.Error(err)
		}
	}
	return append(list,
		fault{"redis stopped", func(ctx context.Context, r *rand.Rand) {
			defer f.diary.note("redis stopped")()
			if err := server.Pause(); err != nil {
				f.t.Error(err)
			}
			wait(ctx, between(r, 100*time.Millisecond, longest(3*time.Second)))
			if err := server.Resume(); err != nil {
				f.t.Error(err)
			}
		}},
		fault{"redis killed", func(ctx context.Context, r *rand.Rand) {
			defer f.diary.note("redis killed")()
			server.Kill()
			wait(ctx, between(r, 0, longest(3*time.Second)))
			again(ctx)
		}},
		fault{"redis emptied", func(ctx context.Context, r *rand.Rand) {
			defer f.diary.note("redis emptied")()
			dir, err := f.admin[0].ConfigGet(context.WithoutCancel(ctx), "dir").Result()
			server.Kill()
			wait(ctx, between(r, 0, longest(3*time.Second)))
			if err == nil {
				err = os.RemoveAll(filepath.Join(dir["dir"], "appendonlydir"))
			}
			if err != nil {
				f.t.Errorf("emptying Redis: %v", err)
			}
			again(ctx)
		}})
}

// clocks sets the clocks of the Redis servers that are started after it was made.
type clocks struct{ dir string }

// redisWithClock takes the place of redis-server on the PATH. Sentinels have a clock
// that nobody sets.
const redisWithClock = `#!/bin/sh
port= before=
for word; do
  if [ "$word" = --sentinel ]; then exec REDIS "$@"; fi
  if [ "$before" = --port ]; then port=$word; fi
  before=$word
done
[ -e "DIR/$port" ] || head -c 8 /dev/zero >"DIR/$port"
exec env LD_PRELOAD=DIR/clock.so CLOCK_OFFSET="DIR/$port" REDIS "$@"
`

// newClocks needs a C compiler, as the race detector does.
func newClocks(t *testing.T) *clocks {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("there is no C compiler")
	}
	bedtest.Check(t, err)
	server, err := exec.LookPath("redis-server")
	if err != nil {
		bedtest.Check(t, &testbed.MissingError{Program: "redis-server", Fetch: "redis"})
	}
	dir := t.TempDir()
	if out, err := exec.Command(cc, "-O2", "-shared", "-fPIC", "-o", filepath.Join(dir, "clock.so"), filepath.Join("testdata", "clock.c")).CombinedOutput(); err != nil {
		t.Fatalf("compiling the clock: %v: %s", err, out)
	}
	script := strings.NewReplacer("REDIS", server, "DIR", dir).Replace(redisWithClock)
	bedtest.Check(t, os.WriteFile(filepath.Join(dir, "redis-server"), []byte(script), 0o700))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return &clocks{dir}
}

// step sets a server's clock forward, or back.
func (c *clocks) step(t *testing.T, addr string, by time.Duration) {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		err = c.add(filepath.Join(c.dir, port), by)
	}
	if err != nil {
		t.Errorf("setting the clock of %s: %v", addr, err)
	}
}

func (c *clocks) add(file string, by time.Duration) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var word [8]byte
	if _, err := f.ReadAt(word[:], 0); err != nil {
		return err
	}
	now := int64(binary.NativeEndian.Uint64(word[:])) + by.Microseconds()
	binary.NativeEndian.PutUint64(word[:], uint64(now))
	if n, err := f.WriteAt(word[:], 0); err != nil || n != len(word) {
		return fmt.Errorf("%d bytes: %w", n, err)
	}
	return nil
}

// TestClocks makes sure that a clock is set.
func TestClocks(t *testing.T) {
	c := newClocks(t)
	server := bedtest.New(t).Redis()
	client := connect(t, server.Addr())
	ahead := func() time.Duration {
		now, err := client.Time(t.Context()).Result()
		bedtest.Check(t, err)
		return time.Until(now).Round(10 * time.Second)
	}
	for _, by := range []time.Duration{0, 70 * time.Second, -150 * time.Second} {
		before := ahead()
		c.step(t, server.Addr(), by)
		if moved := ahead() - before; moved != by {
			t.Errorf("a clock that was set by %v moved by %v", by, moved)
		}
	}
}
