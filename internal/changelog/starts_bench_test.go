package changelog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// BenchmarkStarts starts fifty ordergates at once beside a log of 100,000 entries. It measures the
// load on Redis, the duration, and how long a running ordergate has no window meanwhile.
func BenchmarkStarts(b *testing.B) {
	const entries, starts = 100_000, 50
	s := bedtest.New(b).Redis()
	standing, stop := startInstance(b, s, "standing")
	defer stop()
	for !standing.Window().Holds() {
		time.Sleep(time.Millisecond)
	}
	for i := 0; i < entries; i += reappendBatch {
		ids := make([]string, reappendBatch)
		for n := range ids {
			ids[n] = fmt.Sprintf("%020d", i+n)
		}
		if err := standing.Record(b.Context(), ids...); err != nil {
			b.Fatal(err)
		}
	}
	cpu := func() float64 {
		text, err := standing.client.Info(b.Context(), "cpu").Result()
		if err != nil {
			b.Fatal(err)
		}
		sum := 0.0
		for line := range strings.Lines(text) {
			for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
				if rest, ok := strings.CutPrefix(line, name); ok {
					seconds, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
					sum += seconds
				}
			}
		}
		return sum
	}
	for b.Loop() {
		before, began := cpu(), time.Now()
		done := make(chan struct{})
		var without time.Duration
		var watching, starting sync.WaitGroup
		stops := make(chan func(), starts)
		watching.Go(func() {
			since := time.Now()
			for {
				if standing.Window().Holds() {
					since = time.Now()
				}
				without = max(without, time.Since(since))
				select {
				case <-done:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
		for n := range starts {
			starting.Go(func() {
				i, stop := startInstance(b, s, "starting-"+strconv.Itoa(n))
				stops <- stop
				for !i.Window().Holds() {
					time.Sleep(time.Millisecond)
				}
			})
		}
		starting.Wait()
		b.ReportMetric(time.Since(began).Seconds(), "s/all")
		close(done)
		watching.Wait()
		b.ReportMetric((cpu()-before)/starts*1000, "redis-ms/start")
		b.ReportMetric(without.Seconds()*1000, "ms-without-window")
		b.StopTimer()
		for range starts {
			(<-stops)()
		}
		b.StartTimer()
	}
}

// startInstance runs an ordergate until it is stopped.
func startInstance(b *testing.B, s *testbed.Redis, instanceID string) (*instance, func()) {
	b.Helper()
	i := &instance{client: redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true, PoolSize: 100})}
	log, err := New(i.client, "orders", func(string) {}, Options{Member: instanceID, Window: 500 * time.Millisecond, MinEntries: 100_000})
	if err != nil {
		b.Fatal(err)
	}
	i.Log = log
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- log.Run(ctx) }()
	return i, func() {
		cancel()
		if err := errors.Join(<-ended, i.client.Close()); err != nil {
			b.Error(err)
		}
	}
}
