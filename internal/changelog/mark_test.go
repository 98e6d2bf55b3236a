package changelog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// resumed is an instance that begins behind a mark.
type resumed struct {
	*instance
	mu   sync.Mutex
	lost []error
}

// tellLost is what the instance gives to Resume. At that time no Wait may have
// succeeded: the test's, which began before Run, is still waiting.
func (r *resumed) tellLost(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = append(r.lost, err)
}

func (r *resumed) reasons() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lost)
}

// resume runs a log from a mark, and waits until it has been read.
func resume(t *testing.T, s server, at Mark) (*resumed, error) {
	t.Helper()
	r := &resumed{instance: newInstance(t, s, idle)}
	r.Resume(at, r.tellLost)
	waited := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { waited <- r.Wait(ctx) }()
	eventually(t, "somebody waits", func() bool { return r.State().Waiting == 1 })
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
	onEveryRedis(t, func(t *testing.T, s server) {
		a := runInstance(t, s, Options{PageSize: 2, PollEvery: time.Hour, Limit: 10 * time.Second})
		if m := a.Mark(); m.Seq != 0 {
			t.Errorf("a mark in an empty log: %+v", m)
		}
		a.mustWait(t)
		empty := a.Mark()
		a.mustAppend(t, "1", "2", "3")
		a.mustWait(t)
		third := a.Mark()
		if third.Seq != 3 || third.Epoch == "" || third.Epoch != empty.Epoch || third.Nonce == "" || empty.Seq != 0 {
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
				if err != nil || len(r.reasons()) > 0 {
					t.Fatalf("%v, lost: %v", err, r.reasons())
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
	onEveryRedis(t, func(t *testing.T, s server) {
		for _, tc := range []struct {
			name   string
			do     func(ctx context.Context, c *redis.Client, a *instance) error
			lost   string // "" if the mark still holds
			want   []string
			broken bool
		}{
			{"flushed", func(ctx context.Context, c *redis.Client, _ *instance) error { return c.FlushAll(ctx).Err() },
				"it was recreated", nil, false},
			{"made anew", func(ctx context.Context, c *redis.Client, a *instance) error {
				if err := c.FlushAll(ctx).Err(); err != nil {
					return err
				}
				a.mustAppend(t, "other")
				return nil
			}, "it was recreated", []string{"other"}, false},
			{"gone back", func(ctx context.Context, c *redis.Client, _ *instance) error { return setBack(ctx, c, 2) },
				"it went back from entry 3 to 2", []string{"1", "2"}, false},
			{"gone back and grown", func(ctx context.Context, c *redis.Client, a *instance) error {
				if err := setBack(ctx, c, 2); err != nil {
					return err
				}
				a.mustAppend(t, "other3", "other4")
				return nil
			}, "entry 3 is not the one read before", []string{"1", "2", "other3", "other4"}, false},
			{"trimmed before the mark", func(ctx context.Context, c *redis.Client, _ *instance) error {
				return c.XDel(ctx, logKey, "1-0").Err()
			}, "", []string{"4"}, false},
			{"trimmed at the mark", func(ctx context.Context, c *redis.Client, _ *instance) error {
				return c.XDel(ctx, logKey, "1-0", "2-0", "3-0").Err()
			}, "entry 3 is gone", nil, true},
			{"a hole behind the mark", func(ctx context.Context, c *redis.Client, a *instance) error {
				a.mustAppend(t, "5")
				return c.XDel(ctx, logKey, "4-0").Err()
			}, "entry 4 is missing", nil, true},
			{"without its identity", func(ctx context.Context, c *redis.Client, _ *instance) error { return c.Del(ctx, metaKey).Err() },
				"its identity is gone", nil, true},
			{"of another type", func(ctx context.Context, c *redis.Client, _ *instance) error { return c.Set(ctx, logKey, "x", 0).Err() },
				"its keys hold something else", nil, true},
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
				if tc.broken != errors.Is(err, ErrBroken) || !tc.broken && err != nil {
					t.Errorf("Wait = %v", err)
				}
				reasons := r.reasons()
				if tc.lost == "" && len(reasons) > 0 || tc.lost != "" && (len(reasons) != 1 || !strings.Contains(reasons[0].Error(), tc.lost) || strings.Contains(reasons[0].Error(), "restart")) {
					t.Errorf("lost: %v, want %q", reasons, tc.lost)
				}
				if !tc.broken && r.count() != len(tc.want) {
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

// TestResumeOutlastsAnOutage has Redis away at first: that is no reason to give up
// the mark, and the mark is still what is known.
func TestResumeOutlastsAnOutage(t *testing.T) {
	s := startRealServer(t)
	a := runInstance(t, s, idle)
	a.mustAppend(t, "1", "2")
	a.mustWait(t)
	mark := a.Mark()
	a.mustAppend(t, "3")
	s.stop(t)
	r := &resumed{instance: newInstance(t, s, Options{PollEvery: time.Millisecond, Limit: 10 * time.Second})}
	r.Resume(mark, r.tellLost)
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
	if len(r.reasons()) > 0 || r.count() != 1 || !r.has("3") || r.Mark().Seq != 3 {
		t.Errorf("lost %v, %d IDs, mark %+v", r.reasons(), r.count(), r.Mark())
	}
}
