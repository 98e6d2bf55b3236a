package changelog

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// resume runs a log from a mark, and waits until it has been read.
func resume(t *testing.T, s server, at Mark) (*instance, error) {
	t.Helper()
	r := newInstance(t, s, idle)
	r.Resume(at)
	waited := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { waited <- r.Wait(ctx) }()
	eventually(t, "a caller waits", func() bool { return r.waiting() == 1 })
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error("Run:", err)
		}
	})
	t.Cleanup(r.stop)
	return r, <-waited
}

func TestResume(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a := runInstance(t, s, Options{PageSize: 2, PollEvery: time.Hour, Timeout: 10 * time.Second})
		if m := a.Mark(); m.Seq != 0 {
			t.Errorf("a mark in an empty log: %+v", m)
		}
		a.mustWait(t)
		empty := a.Mark()
		a.mustAppend(t, "1", "2", "3")
		a.mustWait(t)
		third := a.Mark()
		if third.Seq != 3 || third.LogID == "" || third.LogID != empty.LogID || third.Nonce == "" || empty.Seq != 0 {
			t.Fatalf("marks %+v and %+v", empty, third)
		}
		a.mustAppend(t, "4", "5")
		a.mustWait(t)
		for _, tc := range []struct {
			name string
			at   Mark
			want []string
		}{
			{"no mark", Mark{}, []string{"1", "2", "3", "4", "5"}},
			{"of nothing known", Mark{Seq: 3, Nonce: "x"}, []string{"1", "2", "3", "4", "5"}},
			{"of the empty log", empty, []string{"1", "2", "3", "4", "5"}},
			{"in the middle", third, []string{"4", "5"}},
			{"at the end", a.Mark(), nil},
		} {
			t.Run(tc.name, func(t *testing.T) {
				r, err := resume(t, s, tc.at)
				if err != nil || len(r.doubted()) > 0 {
					t.Fatalf("%v, lost: %v", err, r.doubted())
				}
				if r.count() != len(tc.want) {
					t.Errorf("%d IDs, want %q", r.count(), tc.want)
				}
				for _, id := range tc.want {
					if !r.has(id) {
						t.Errorf("%s was not read", id)
					}
				}
				if r.Mark() != a.Mark() || r.Position() != 5 {
					t.Errorf("mark %+v, position %d; want %+v", r.Mark(), r.Position(), a.Mark())
				}
			})
		}
	})
}

func TestResumeFindsTheLogChanged(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		for _, tc := range []struct {
			name string
			do   func(ctx context.Context, c *redis.Client, a *instance) error
			lost string // "" if the mark still holds
			want []string
		}{
			{"flushed", func(ctx context.Context, c *redis.Client, _ *instance) error { return c.FlushAll(ctx).Err() },
				"it was recreated", nil},
			{"made anew", func(ctx context.Context, c *redis.Client, a *instance) error {
				if err := c.FlushAll(ctx).Err(); err != nil {
					return err
				}
				a.mustAppend(t, "other")
				return nil
			}, "it was recreated", []string{"other"}},
			{"gone back", func(ctx context.Context, c *redis.Client, _ *instance) error { return setBack(ctx, c, 2) },
				"it went back from entry 3 to 2", []string{"1", "2"}},
			{"gone back and grown", func(ctx context.Context, c *redis.Client, a *instance) error {
				if err := setBack(ctx, c, 2); err != nil {
					return err
				}
				a.mustAppend(t, "other3", "other4")
				return nil
			}, "entry 3 is not the one read before", []string{"1", "2", "other3", "other4"}},
			{"trimmed before the mark", func(ctx context.Context, c *redis.Client, _ *instance) error {
				return c.XDel(ctx, logKey, "1-0").Err()
			}, "", []string{"4"}},
			{"trimmed at the mark", func(ctx context.Context, c *redis.Client, _ *instance) error {
				return c.XDel(ctx, logKey, "1-0", "2-0", "3-0").Err()
			}, "entry 3 is gone", []string{"4"}},
			{"a hole behind the mark", func(ctx context.Context, c *redis.Client, a *instance) error {
				a.mustAppend(t, "5")
				return c.XDel(ctx, logKey, "4-0").Err()
			}, "entry 4 is missing", []string{"1", "2", "3", "5"}},
			{"without its identity", func(ctx context.Context, c *redis.Client, _ *instance) error { return c.Del(ctx, metaKey).Err() },
				"it was recreated", []string{"1", "2", "3", "4"}},
		} {
			t.Run(tc.name, func(t *testing.T) {
				a := newInstance(t, s, idle)
				if err := a.client.FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				b := runInstance(t, s, idle)
				a.mustAppend(t, "1", "2", "3")
				b.mustWait(t)
				mark := b.Mark()
				b.stop()
				if mark != b.Mark() {
					t.Errorf("the mark is %+v after the end, was %+v", b.Mark(), mark)
				}
				a.mustAppend(t, "4")
				if err := tc.do(t.Context(), a.client, a); err != nil {
					t.Fatal(err)
				}
				r, err := resume(t, s, mark)
				if err != nil {
					t.Errorf("Wait = %v", err)
				}
				doubts := r.doubted()
				if tc.lost == "" && len(doubts) > 0 || tc.lost != "" && (len(doubts) == 0 || !strings.Contains(doubts[0].Reason, tc.lost)) {
					t.Errorf("doubts %v, want %q", doubts, tc.lost)
				}
				if r.count() != len(tc.want) {
					t.Errorf("%d IDs, want %q", r.count(), tc.want)
				}
				for _, id := range tc.want {
					if !r.has(id) {
						t.Errorf("%s was not read", id)
					}
				}
			})
		}
	})
}

// TestResumeOutlastsAnOutage starts without Redis. The mark stays valid.
func TestResumeOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	a := runInstance(t, s, idle)
	a.mustAppend(t, "1", "2")
	a.mustWait(t)
	mark := a.Mark()
	a.mustAppend(t, "3")
	s.stop(t)
	r := newInstance(t, s, Options{PollEvery: time.Millisecond, Timeout: 10 * time.Second})
	r.Resume(mark)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error("Run:", err)
		}
	})
	eventually(t, "Redis is found to be away", func() bool { return r.State().Phase == Unavailable })
	if r.Mark() != mark {
		t.Errorf("mark %+v, want %+v", r.Mark(), mark)
	}
	s.start(t)
	eventually(t, "the log is followed", func() bool { return r.Wait(t.Context()) == nil })
	// The server was restarted: the doubt is about that, and the mark holds.
	if d := r.doubted(); len(d) != 1 || d[0].Kind != Failover || r.count() != 1 || !r.has("3") || r.Mark().Seq != 4 {
		t.Errorf("lost %v, %d IDs, mark %+v", r.doubted(), r.count(), r.Mark())
	}
}
