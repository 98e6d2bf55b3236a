package redislock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// mapsRead returns how often the map of a cluster was read.
func mapsRead(t *testing.T, c *redis.ClusterClient) int {
	t.Helper()
	var n atomic.Int64
	err := c.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		stats, err := node.Info(ctx, "commandstats").Result()
		_, calls, _ := strings.Cut(stats, "cmdstat_cluster|slots:calls=")
		calls, _, _ = strings.Cut(calls, ",")
		count, _ := strconv.Atoi(calls) // empty before the first read
		n.Add(int64(count))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return int(n.Load())
}

// inOneBatch sends calls to the primary that has a key as far as the client knows: they
// gather while its workers are held up.
func (m *mirrored) inOneBatch(t *testing.T, l *Locker, key string, calls ...*redisbatch.ScriptCall) error {
	t.Helper()
	batcher, c := l.nodes[0].batcher, m.client.(*redis.ClusterClient)
	node, err := c.MasterForKey(t.Context(), key)
	if err != nil {
		return err
	}
	blocked, open := m.probe.block(func(t trip) bool { return strings.HasPrefix(t.asked[0].key, "jam") })
	defer open()
	jammed, errs := make(chan error, redisbatch.MaxWorkers), make(chan error, len(calls))
	send := func(call *redisbatch.ScriptCall, errs chan<- error) {
		call.Queue = true
		go func() {
			_, err := batcher.Do(context.WithoutCancel(t.Context()), call)
			errs <- err
		}()
	}
	for i, jams := 0, 0; jams < redisbatch.MaxWorkers; i++ {
		jam := fmt.Sprint("jam", i)
		if at, err := c.MasterForKey(t.Context(), jam); err != nil || at != node {
			continue
		}
		send(l.acquireCall(jam, l.newOwner(), AcquireOption{}), jammed)
		bedtest.Receive(t, "a batch", blocked)
		jams++
	}
	for i, call := range calls {
		send(call, errs)
		// If the client reads the map of the cluster meanwhile, another primary answers at once.
		begin := time.Now()
		bedtest.Eventually(t, fmt.Sprintf("%d calls wait to be sent", i+1), func() bool {
			waiting, answered := batcher.Waiting(), len(errs)
			if time.Since(begin) > 25*time.Second { // it has happened, rarely: show where the call is
				stacks := make([]byte, 1<<20)
				t.Fatalf("call %d: %d wait, %d are answered\n%s", i+1, waiting, answered, stacks[:runtime.Stack(stacks, true)])
			}
			return waiting+answered > i
		})
	}
	open()
	var all error
	for range cap(jammed) {
		all = errors.Join(all, bedtest.Receive(t, "an answer", jammed))
	}
	for range cap(errs) {
		all = errors.Join(all, bedtest.Receive(t, "an answer", errs))
	}
	return all
}

// TestConfirmedAfterAMove moves slots to another primary, of which the client does not
// know yet. What replicas confirm follows the slot like everything else, and so does what
// goes in one batch with it.
func TestConfirmedAfterAMove(t *testing.T) {
	t.Parallel()
	m := mirroredCluster(t)
	m.settled(t)
	c := m.client.(*redis.ClusterClient)
	var l *Locker
	for _, tt := range []struct {
		name string
		do   func(held *Lease, free string) error
	}{
		{"acquire", func(_ *Lease, free string) error {
			lease, err := l.Acquire(t.Context(), free)
			if err == nil {
				release(t, lease)
			}
			return err
		}},
		{"acquire all", func(_ *Lease, free string) error {
			lease, err := l.AcquireAll(t.Context(), []string{free, free + "2"})
			if err == nil {
				release(t, lease)
			}
			return err
		}},
		{"hold", func(held *Lease, _ string) error { return held.Hold(t.Context(), "a test") }},
		{"release beside an acquire", func(held *Lease, free string) error {
			return m.inOneBatch(t, l, free,
				l.releaseCall(l.nodes[0], held.Key(), held.Owner(), "", false), l.acquireCall(free, l.newOwner(), AcquireOption{}))
		}},
		{"many at once", func(_ *Lease, free string) error {
			calls := make([]*redisbatch.ScriptCall, redisbatch.MinScripts)
			for i := range calls {
				calls[i] = l.acquireCall(fmt.Sprint(free, i), l.newOwner(), AcquireOption{})
			}
			before := mapsRead(t, c)
			err := m.inOneBatch(t, l, free, calls...)
			if n := mapsRead(t, c) - before; n > len(calls)/5 {
				t.Errorf("the map of the cluster was read %d times", n)
			}
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// A client that was told of a move reads the map once more, a while later.
			m.connectCluster(t, c.Options().Addrs)
			c = m.client.(*redis.ClusterClient)
			l = m.locker(t, Options{Replicas: 1, Hold: time.Hour, Lease: time.Hour})
			held := acquire(t, l, "{"+tt.name+"}held")
			beginMove(t, c, held.Key()).end()
			if err := tt.do(held, "{"+tt.name+"}free"); err != nil {
				t.Error(err)
			}
		})
	}
}
