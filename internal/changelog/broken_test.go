package changelog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	logKey  = "ordergate:{orders}:log"
	metaKey = "ordergate:{orders}:meta"
)

// damage is something that happens to a log of five entries, all of which were
// read.
type damage struct {
	name string
	do   func(ctx context.Context, c *redis.Client, a *instance) error
	want string // in the reader's error
	// fresh is the error of a reader that starts afterwards: "" when the log as it
	// is now cannot be told from a healthy one.
	fresh string
}

func xadd(ctx context.Context, c *redis.Client, seq int, values ...string) error {
	return c.XAdd(ctx, &redis.XAddArgs{Stream: logKey, ID: fmt.Sprintf("%d-0", seq), Values: values}).Err()
}

var damages = []damage{
	{"log deleted", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.Del(ctx, logKey).Err()
	}, "entry 5 is gone", "ends at entry 0, but counts 5"},
	{"log deleted, then appended to", func(ctx context.Context, c *redis.Client, a *instance) error {
		return errors.Join(c.Del(ctx, logKey).Err(), a.Append(ctx, "new"))
	}, "entry 5 is gone", "entry 1 is missing"},
	{"identity deleted", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.Del(ctx, metaKey).Err()
	}, "identity is gone", "identity is gone"},
	{"identity deleted, then appended to", func(ctx context.Context, c *redis.Client, a *instance) error {
		return errors.Join(c.Del(ctx, metaKey).Err(), a.Append(ctx, "new"))
	}, "identity is gone", "identity is gone"},
	{"identity replaced", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.HSet(ctx, metaKey, "epoch", "another").Err()
	}, "belongs to another deployment", ""},
	{"everything flushed", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.FlushAll(ctx).Err()
	}, "identity is gone", ""},
	{"everything flushed, then grown past us", func(ctx context.Context, c *redis.Client, a *instance) error {
		err := c.FlushAll(ctx).Err()
		for i := range 7 {
			err = errors.Join(err, a.Append(ctx, fmt.Sprint("new", i)))
		}
		return err
	}, "recreated", ""},
	{"hole", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return errors.Join(xadd(ctx, c, 7, "id", "new", "n", "x"), c.HSet(ctx, metaKey, "seq", 7).Err())
	}, "entry 6 is missing", "entry 6 is missing"},
	{"hole made by a deletion", func(ctx context.Context, c *redis.Client, a *instance) error {
		return errors.Join(a.Append(ctx, "6"), a.Append(ctx, "7"), c.XDel(ctx, logKey, "6-0").Err())
	}, "entry 6 is missing", "entry 6 is missing"},
	{"newest entry deleted", func(ctx context.Context, c *redis.Client, a *instance) error {
		return errors.Join(a.Append(ctx, "6"), c.XDel(ctx, logKey, "6-0").Err())
	}, "ends at entry 5, but counts 6", "ends at entry 5, but counts 6"},
	{"trimmed", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.XTrimMaxLen(ctx, logKey, 0).Err()
	}, "entry 5 is gone", "ends at entry 0, but counts 5"},
	{"set back", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return errors.Join(c.XDel(ctx, logKey, "4-0", "5-0").Err(), c.HSet(ctx, metaKey, "seq", 3).Err())
	}, "went back from entry 5 to 3", ""},
	{"counter lost", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.HDel(ctx, metaKey, "seq").Err()
	}, "counter is \"\"", "counter is \"\""},
	{"foreign entry", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.XAdd(ctx, &redis.XAddArgs{Stream: logKey, Values: []string{"id", "x", "n", "y"}}).Err()
	}, "entry 6 is missing", "entry 6 is missing"},
	{"entry with other fields", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return errors.Join(xadd(ctx, c, 6, "order", "new"), c.HSet(ctx, metaKey, "seq", 6).Err())
	}, "entry 6-0 is malformed", "entry 6-0 is malformed"},
	{"entry without an ID", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return errors.Join(xadd(ctx, c, 6, "id", "", "n", "x"), c.HSet(ctx, metaKey, "seq", 6).Err())
	}, "ID of 0 bytes", "ID of 0 bytes"},
	{"log is another type", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.Set(ctx, logKey, "x", 0).Err()
	}, "hold something else", "hold something else"},
	{"identity is another type", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return errors.Join(c.Del(ctx, metaKey).Err(), c.Set(ctx, metaKey, "x", 0).Err())
	}, "hold something else", "hold something else"},
	// A replica that missed the newest entries was promoted, and takes others.
	{"failover, then grown past us", func(ctx context.Context, c *redis.Client, a *instance) error {
		if err := setBack(ctx, c, 4); err != nil {
			return err
		}
		return errors.Join(a.Append(ctx, "other5"), a.Append(ctx, "other6"))
	}, "entry 5 is not the one read before", ""},
	{"failover, then grown to where we are", func(ctx context.Context, c *redis.Client, a *instance) error {
		if err := setBack(ctx, c, 4); err != nil {
			return err
		}
		return a.Append(ctx, "other5")
	}, "entry 5 is not the one read before", ""},
}

// setBack makes the log what it was after its first n entries, as a replica would
// have it: with its last-generated ID, which XDEL would leave where it is.
func setBack(ctx context.Context, c *redis.Client, n int) error {
	rows, err := c.XRangeN(ctx, logKey, "-", "+", int64(n)).Result()
	if err != nil {
		return err
	}
	if err := c.Del(ctx, logKey).Err(); err != nil {
		return err
	}
	for i, row := range rows {
		if err := xadd(ctx, c, i+1, "id", row.Values["id"].(string), "n", row.Values["n"].(string)); err != nil {
			return err
		}
	}
	return c.HSet(ctx, metaKey, "seq", n).Err()
}

func TestDamageIsNoticed(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		for _, d := range damages {
			t.Run(d.name, func(t *testing.T) {
				ctx := t.Context()
				a := newInstance(t, s, idle)
				if err := a.client.FlushAll(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				b := runInstance(t, s, idle)
				a.mustAppend(t, "1", "2", "3", "4", "5")
				b.mustWait(t)
				if err := d.do(ctx, a.client, a); err != nil {
					t.Fatal(err)
				}
				err := b.Wait(ctx)
				if !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), d.want) {
					t.Fatalf("Wait = %v, want ErrBroken with %q", err, d.want)
				}
				if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), logKey) {
					t.Errorf("error %q is more than a line, or does not name the log", err)
				}
				if st := b.State(); st.Phase != Broken || !errors.Is(st.Err, ErrBroken) {
					t.Errorf("state %+v", st)
				}
				// A log that looks healthy again is not believed.
				if err := a.client.FlushAll(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				if err := b.Wait(ctx); !errors.Is(err, ErrBroken) {
					t.Errorf("later Wait = %v, want ErrBroken", err)
				}
			})
		}
	})
}

func TestDamageIsNoticedByAReaderThatStartsLater(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		for _, d := range damages {
			t.Run(d.name, func(t *testing.T) {
				ctx := t.Context()
				a := newInstance(t, s, idle)
				if err := a.client.FlushAll(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				a.mustAppend(t, "1", "2", "3", "4", "5")
				if err := d.do(ctx, a.client, a); err != nil {
					t.Fatal(err)
				}
				err := runInstance(t, s, idle).Wait(ctx)
				if d.fresh == "" && err != nil {
					t.Errorf("Wait = %v, want nil", err)
				}
				if d.fresh != "" && (!errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), d.fresh)) {
					t.Errorf("Wait = %v, want ErrBroken with %q", err, d.fresh)
				}
			})
		}
	})
}

// The instance that appended an entry knows that the log must have it, even
// before it read it.
func TestLossOfAnAcknowledgedEntryIsNoticedByItsWriter(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		for _, tc := range []struct {
			name  string
			grown bool
			want  string
		}{
			{"log shorter", false, "it lost entry 4"},
			{"log grown again", true, "entry 4 is not the one that was acknowledged"},
		} {
			t.Run(tc.name, func(t *testing.T) {
				ctx := t.Context()
				other := newInstance(t, s, idle)
				if err := other.client.FlushAll(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				b := runInstance(t, s, idle)
				other.mustAppend(t, "1", "2", "3")
				b.mustWait(t)
				b.mustAppend(t, "4")
				if err := setBack(ctx, other.client, 3); err != nil {
					t.Fatal(err)
				}
				if tc.grown {
					other.mustAppend(t, "other4", "other5")
				}
				if err := b.Wait(ctx); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("Wait = %v, want ErrBroken with %q", err, tc.want)
				}
			})
		}
	})
}

// A Redis that comes back empty has forgotten IDs.
func TestRedisComesBackEmpty(t *testing.T) {
	s := startRealServer(t)
	a := newInstance(t, s, idle)
	opts := idle
	opts.PollEvery = 1 // nanosecond: as often as it can
	b := runInstance(t, s, opts)
	a.mustAppend(t, "1")
	b.mustWait(t)
	s.stop(t)
	s.startIn(t, t.TempDir())
	eventually(t, "the loss is noticed", func() bool { return errors.Is(b.Wait(t.Context()), ErrBroken) })
}
