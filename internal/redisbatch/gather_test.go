package redisbatch

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// trips is a server that takes some time for each, and notes how many calls came with it.
type trips struct {
	mu   sync.Mutex
	seen []int
}

const tripTime = 100 * time.Microsecond

func (s *trips) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) { panic("there is no server to dial") }
}

func (s *trips) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return s.answer(cmd) }
}

func (s *trips) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error { return s.answer(cmds...) }
}

func (s *trips) answer(cmds ...redis.Cmder) error {
	s.mu.Lock()
	s.seen = append(s.seen, len(cmds))
	s.mu.Unlock()
	time.Sleep(tripTime)
	for _, cmd := range cmds {
		cmd.(*redis.IntCmd).SetVal(1)
	}
	return nil
}

// TestBusyQueueGathers has calls come after a batch of several, in a bubble's time. No real
// server is that exact.
func TestBusyQueueGathers(t *testing.T) {
	const crowd = 8
	underWay := func(n int) func() int { return func() int { return n } }
	for _, tc := range []struct {
		name   string
		gather func() int
		want   []int
	}{
		{"many are under way", underWay(busyFrom), []int{1, crowd, 3, 1}},
		{"fewer are", underWay(busyFrom - 1), []int{1, crowd, 1, 2, 1}},
		{"none gathers", nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var server trips
				client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
				client.AddHook(&server)
				defer func() { _ = client.Close() }()
				b := NewScriptBatcher(client, tc.gather, 0, 0)
				var calls sync.WaitGroup
				start := func() {
					c := NewCall(incr, "k")
					for range maxPooled { // what a bubble makes must not get out of it by the pool
						c.Key("k")
					}
					calls.Go(func() {
						if n, err := b.Do(t.Context(), c); n != 1 || err != nil {
							t.Errorf("answered %d, %v", n, err)
						}
					})
				}
				start()
				synctest.Wait()
				for range crowd {
					start()
				}
				time.Sleep(2 * tripTime)
				for range 3 {
					time.Sleep(gatherFor / 5)
					start()
				}
				time.Sleep(10 * tripTime)
				start()
				time.Sleep(10 * tripTime)
				calls.Wait()
				b.Close()
				if tc.gather != nil && !slices.Equal(server.seen, tc.want) || tc.gather == nil && len(server.seen) <= 4 {
					t.Errorf("trips of %v calls, want %v", server.seen, tc.want)
				}
			})
		})
	}
}
