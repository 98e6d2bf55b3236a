package redisset

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestDumpAmidAFill has Redis come back, in the midst of a fill and faster than that
// notices, with what it had a moment before: that is not whole at the end of the fill.
func TestDumpAmidAFill(t *testing.T) {
	t.Parallel()
	for _, kind := range []redisbf.Kind{redisbf.Bitmap, redisbf.Bloom, redisbf.Redisson} {
		for _, grows := range []bool{false, true} {
			if grows && kind == redisbf.Redisson {
				continue
			}
			name := string(kind)
			if grows {
				name += ", another generation"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				bed := bedtest.New(t)
				redisServer := bed.Redis(bed.RedisBloomArgs()...)
				srv := server{"single", redis.UniversalOptions{Addrs: []string{redisServer.Addr()}}}
				opts := Options{Bits: redisbf.Options{Kind: kind}}
				if grows {
					opts.AtFill, opts.By = 0.9, 2
				}
				d := newDeployment(t, srv, opts)
				for len(d.source) < 3*batchSize {
					d.source = append(d.source, "more-"+d.source[len(d.source)-3_000])
				}
				client := srv.connect(t).(*redis.Client)
				var n *node
				var amid atomic.Bool
				n = d.idle(srv.connect(t))
				n.opts.Fill = func(ctx context.Context, add func(string) error) error {
					if !amid.Swap(false) {
						return d.fill(ctx, add)
					}
					var data []byte
					config, err := client.ConfigGet(ctx, "dir").Result()
					must(t, err)
					dump := filepath.Join(config["dir"], "dump.rdb")
					for i := range 3 {
						for _, id := range d.source[i*batchSize : (i+1)*batchSize] {
							if err := add(id); err != nil {
								return err
							}
						}
						switch i {
						case 0:
							n.has(t, d.source[batchSize-1])
							must(t, client.Save(ctx).Err())
							data, err = os.ReadFile(dump)
							must(t, err)
						case 1:
							n.has(t, d.source[2*batchSize-1])
							redisServer.Kill()
							must(t, os.WriteFile(dump, data, 0o600))
							must(t, redisServer.Restart(t.Context())) // the fill may have been given up by now
						}
					}
					return nil
				}
				amid.Store(!grows)
				n.run()
				n.ready(t)
				if grows {
					amid.Store(true)
					_ = n.Expand(t.Context()) // it says that it came to nothing
					bedtest.Eventually(t, "Redis is back", func() bool { return client.Ping(t.Context()).Err() == nil })
					if err := n.Expand(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if amid.Load() {
					t.Fatal("nothing happened")
				}
				for _, id := range d.source {
					if a := n.settled(t, id); a != presence.Maybe {
						t.Fatalf("%s is %v, after Redis came back with less", id, a)
					}
				}
			})
		}
	}
}

// has waits until an ID was added to all generations.
func (n *node) has(t testing.TB, id string) {
	t.Helper()
	bedtest.Eventually(t, id+" is in the set", func() bool {
		for _, target := range n.view.Load().all() {
			if a, err := target.query(t.Context(), id); err != nil || a != presence.Maybe {
				return false
			}
		}
		return true
	})
}
