package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	logKey  = "ordergate:{orders}:log"
	metaKey = "ordergate:{orders}:meta"
)

// damageCase is damage to a log of five entries, all of which were read.
type damageCase struct {
	name string
	do   func(ctx context.Context, c *redis.Client, a *instance) error
	kind Kind
	want string // part of the reason of the reader's doubt
	// wantFresh is the same for a reader that starts afterwards: "" if the log now looks intact.
	wantFresh string
}

func xadd(ctx context.Context, c *redis.Client, seq int, values ...string) error {
	return c.XAdd(ctx, &redis.XAddArgs{Stream: logKey, ID: fmt.Sprintf("%d-0", seq), Values: values}).Err()
}

var mishaps = []damageCase{
	{"log deleted", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.Del(ctx, logKey).Err()
	}, Gap, "entry 5 is gone", "ends at entry 0, but counts 5"},
	{"log deleted, then appended to", func(ctx context.Context, c *redis.Client, a *instance) error {
		return errors.Join(c.Del(ctx, logKey).Err(), a.Append(ctx, "new"))
	}, Gap, "entry 5 is gone", "entry 1 is missing"},
	{"identity deleted", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.Del(ctx, metaKey).Err()
	}, Gap, "it was recreated", "identity was gone"},
	{"identity deleted, then appended to", func(ctx context.Context, c *redis.Client, a *instance) error {
		return errors.Join(c.Del(ctx, metaKey).Err(), a.Append(ctx, "new"))
	}, Gap, "it was recreated", "identity was gone"},
	{"identity replaced", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.HSet(ctx, metaKey, "epoch", "another").Err()
	}, Gap, "belongs to another deployment", ""},
	{"everything flushed", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.FlushAll(ctx).Err()
	}, Gap, "it was recreated", ""},
	{"everything flushed, then grown past us", func(ctx context.Context, c *redis.Client, a *instance) error {
		err := c.FlushAll(ctx).Err()
		for i := range 7 {
			err = errors.Join(err, a.Append(ctx, fmt.Sprint("new", i)))
		}
		return err
	}, Gap, "recreated", ""},
	{"hole", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return errors.Join(xadd(ctx, c, 7, "id", "new", "n", "x"), c.HSet(ctx, metaKey, "seq", 7).Err())
	}, Gap, "entry 6 is missing", "entry 6 is missing"},
	{"hole made by a deletion", func(ctx context.Context, c *redis.Client, a *instance) error {
		return errors.Join(a.Append(ctx, "6"), a.Append(ctx, "7"), c.XDel(ctx, logKey, "6-0").Err())
	}, Gap, "entry 6 is missing", "entry 6 is missing"},
	{"newest entry deleted", func(ctx context.Context, c *redis.Client, a *instance) error {
		return errors.Join(a.Append(ctx, "6"), c.XDel(ctx, logKey, "6-0").Err())
	}, Gap, "ends at entry 5, but counts 6", "ends at entry 5, but counts 6"},
	{"trimmed", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.XTrimMaxLen(ctx, logKey, 0).Err()
	}, Gap, "entry 5 is gone", "ends at entry 0, but counts 5"},
	{"trimmed behind us", func(ctx context.Context, c *redis.Client, a *instance) error {
		return errors.Join(a.Append(ctx, "6"), a.Append(ctx, "7"), c.XTrimMaxLen(ctx, logKey, 1).Err())
	}, Gap, "entry 5 is gone", "entry 1 is missing"},
	{"set back", func(ctx context.Context, c *redis.Client, _ *instance) error { return setBack(ctx, c, 3) },
		Failover, "went back from entry 5 to 3", ""},
	{"newest entries and the counter deleted", func(ctx context.Context, c *redis.Client, a *instance) error {
		return errors.Join(c.XDel(ctx, logKey, "4-0", "5-0").Err(), c.Del(ctx, metaKey).Err(), a.Append(ctx, "new"))
	}, Gap, "it was recreated", "identity was gone"},
	{"counter lost", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.HDel(ctx, metaKey, "seq").Err()
	}, Gap, "it was recreated", "identity was gone"},
	{"foreign entry", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.XAdd(ctx, &redis.XAddArgs{Stream: logKey, Values: []string{"id", "x", "n", "y"}}).Err()
	}, Gap, "entry 6 is missing", "entry 6 is missing"},
	{"foreign entry in one of our places", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.XAdd(ctx, &redis.XAddArgs{Stream: logKey, ID: "5-7", Values: []string{"id", "x", "n", "y"}}).Err()
	}, Gap, "was not written by ordergate", "was not written by ordergate"},
	{"entry with other fields", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return errors.Join(xadd(ctx, c, 6, "order", "new"), c.HSet(ctx, metaKey, "seq", 6).Err())
	}, Gap, "entry 6-0 is malformed", "entry 6-0 is malformed"},
	{"entry without an ID", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return errors.Join(xadd(ctx, c, 6, "id", "", "n", "x"), c.HSet(ctx, metaKey, "seq", 6).Err())
	}, Gap, "ID of 0 bytes", "ID of 0 bytes"},
	// A replica that lacked the newest entries was promoted, and has new entries.
	{"failover, then grown past us", func(ctx context.Context, c *redis.Client, a *instance) error {
		if err := setBack(ctx, c, 4); err != nil {
			return err
		}
		return errors.Join(a.Append(ctx, "other5"), a.Append(ctx, "other6"))
	}, Failover, "entry 5 is not the one read before", ""},
	{"failover, then grown to where we are", func(ctx context.Context, c *redis.Client, a *instance) error {
		if err := setBack(ctx, c, 4); err != nil {
			return err
		}
		return a.Append(ctx, "other5")
	}, Failover, "entry 5 is not the one read before", ""},
	{"another term", func(ctx context.Context, c *redis.Client, _ *instance) error {
		return c.HSet(ctx, metaKey, "term", strings.Repeat("0", 40)).Err()
	}, Failover, "restarted or failed over", "restarted or failed over"},
}

// setBack restores the log to its first n entries, as a replica would have it: with the
// last-generated ID, which XDEL does not change.
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

// skipTerm skips cases that need a server with a replication ID.
func (m damageCase) skipTerm(t *testing.T, c *redis.Client) {
	if m.name == "another term" && c.Info(t.Context(), "replication").Err() != nil {
		t.Skip("the server does not tell")
	}
}

// TestDamageIsFoundAndRepaired expects a doubt before any window opens, and the lost entries in the
// log again.
func TestDamageIsFoundAndRepaired(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		for _, d := range mishaps {
			t.Run(d.name, func(t *testing.T) {
				ctx := t.Context()
				a := newInstance(t, s, idle)
				d.skipTerm(t, a.client)
				if err := a.client.FlushAll(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				b := runInstance(t, s, idle)
				a.mustAppend(t, "1", "2", "3", "4", "5")
				b.mustWait(t)
				if got := b.doubted(); len(got) != 0 {
					t.Fatalf("doubts about a good log: %v", got)
				}
				if err := d.do(ctx, a.client, a); err != nil {
					t.Fatal(err)
				}
				b.mustWait(t)
				got := b.doubted()
				if len(got) == 0 || got[0].Kind != d.kind || !strings.Contains(got[0].Reason, d.want) || strings.Contains(got[0].Reason, "\n") {
					t.Fatalf("doubts %v, want one of kind %s with %q", got, d.kind, d.want)
				}
				b.mustWait(t)
				if again := b.doubted(); len(again) > len(got) {
					t.Errorf("doubts without end: %v", again)
				}
				// All other instances have the orders, too.
				c := runInstance(t, s, idle)
				c.mustWait(t)
				for _, id := range []string{"1", "2", "3", "4", "5"} {
					if !c.has(id) {
						t.Errorf("the log does not have %s again", id)
					}
				}
				a.mustAppend(t, "later")
				b.mustWait(t)
				if !b.has("later") || len(b.doubted()) > len(got) {
					t.Errorf("after it was mended: %v, doubts %v", b.has("later"), b.doubted())
				}
			})
		}
	})
}

func TestDamageIsFoundByALaterReader(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		for _, d := range mishaps {
			t.Run(d.name, func(t *testing.T) {
				ctx := t.Context()
				a := newInstance(t, s, idle)
				d.skipTerm(t, a.client)
				if err := a.client.FlushAll(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				a.mustAppend(t, "1", "2", "3", "4", "5")
				if err := d.do(ctx, a.client, a); err != nil {
					t.Fatal(err)
				}
				b := runInstance(t, s, idle)
				b.mustWait(t)
				got := b.doubted()
				if d.wantFresh == "" && len(got) > 0 || d.wantFresh != "" && (len(got) == 0 || !strings.Contains(fmt.Sprint(got), d.wantFresh)) {
					t.Errorf("doubts %v, want %q", got, d.wantFresh)
				}
				b.mustWait(t)
				if again := b.doubted(); len(again) > len(got) {
					t.Errorf("doubts without end: %v", again)
				}
			})
		}
	})
}

// A key of another type cannot be read or written. Its owner must delete it.
func TestKeysOfAnotherType(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		for _, key := range []string{logKey, metaKey} {
			t.Run(key, func(t *testing.T) {
				ctx := t.Context()
				a := newInstance(t, s, idle)
				if err := a.client.FlushAll(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				opts := idle
				opts.PollEvery = time.Millisecond
				b := runInstance(t, s, opts)
				a.mustAppend(t, "1")
				b.mustWait(t)
				if err := errors.Join(a.client.Del(ctx, key).Err(), a.client.Set(ctx, key, "x", 0).Err()); err != nil {
					t.Fatal(err)
				}
				eventually(t, "it is noticed", func() bool { return b.State().Phase == Broken })
				if err := b.Wait(ctx); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "hold something else") || strings.Contains(err.Error(), "\n") {
					t.Errorf("Wait = %v", err)
				}
				if err := a.client.Del(ctx, key).Err(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "it is followed again", func() bool { return b.Wait(ctx) == nil })
				if len(b.doubted()) == 0 {
					t.Error("there is no doubt about a log that was gone")
				}
			})
		}
	})
}

// The instance that appended an entry finds its loss, even if it has not read the entry.
func TestWriterFindsItsLostEntry(t *testing.T) {
	t.Parallel()
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
				b.mustWait(t)
				if got := b.doubted(); len(got) == 0 || !strings.Contains(got[0].Reason, tc.want) {
					t.Errorf("doubts %v, want %q", got, tc.want)
				}
				if b.mustWait(t); !b.has("4") || b.State().Repaired == 0 {
					t.Errorf("the entry is not in the log again: %+v", b.State())
				}
			})
		}
	})
}

// After a restart without data, the log gets its IDs again.
func TestRedisComesBackEmpty(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	a := newInstance(t, s, idle)
	opts := idle
	opts.PollEvery = 1 // nanosecond: as often as possible
	b := runInstance(t, s, opts)
	a.mustAppend(t, "1")
	b.mustWait(t)
	s.stop(t)
	s.startIn(t, t.TempDir())
	eventually(t, "the log is read again", func() bool { return b.Wait(t.Context()) == nil })
	if got := b.doubted(); len(got) == 0 || got[0].Kind != Gap {
		t.Errorf("doubts %v", got)
	}
	c := runInstance(t, s, idle)
	if c.mustWait(t); !c.has("1") {
		t.Error("what the instance knew is not in the log again")
	}
}

// A restart may have lost the last second. Every instance reports a doubt, even if it knows of no
// lost entry.
func TestRestartCausesADoubt(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	opts := idle
	opts.PollEvery = time.Millisecond
	a, b := newInstance(t, s, idle), runInstance(t, s, opts)
	a.mustAppend(t, "1")
	b.mustWait(t)
	for restarts := range 2 {
		s.stop(t)
		s.start(t)
		eventually(t, "the log is read again", func() bool { return b.Wait(t.Context()) == nil })
		got := b.doubted()
		if len(got) != restarts+1 || got[restarts].Kind != Failover {
			t.Errorf("after %d restarts there are the doubts %v", restarts+1, got)
		}
	}
}

// A log is longer than the remembered items. Reading it again must not displace the lost items. If
// more is lost than is remembered, every instance reports a doubt.
func TestLossOfMoreThanIsRemembered(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		lost int
		told bool
		// The oldest remembered item was in the log before, and still is.
		again bool
	}{{"less than is remembered", 100, false, false}, {"more", recentItems + 100, true, false}, {"more, and the oldest came twice", recentItems + 100, true, true}} {
		t.Run(tc.name, func(t *testing.T) {
			s := startRealServer(t)
			opts := idle
			opts.PageSize = 5000
			b := runInstance(t, s, opts)
			const n = 2*recentItems + 500
			ids := make([]string, n)
			for i := range ids {
				ids[i] = fmt.Sprint(i)
			}
			if tc.again {
				ids[n-recentItems] = ids[0]
			}
			for at := 0; at < n; at += 500 {
				if err := b.Append(t.Context(), ids[at:at+500]...); err != nil {
					t.Fatal(err)
				}
			}
			b.mustWait(t)
			keep := n - tc.lost
			pipe := b.client.Pipeline()
			loseAfter(t.Context(), pipe, uint64(keep))
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.mustWait(t)
			b.mustWait(t) // the doubt that was appended
			c := runInstance(t, s, opts)
			c.mustWait(t)
			missing := 0
			for _, id := range ids {
				if !c.has(id) {
					missing++
				}
			}
			if want := max(0, tc.lost-recentItems); missing != want {
				t.Errorf("%d of %d are not in the log again, want %d", missing, tc.lost, want)
			}
			doubted := slices.ContainsFunc(c.doubted(), func(d Doubt) bool { return d.Kind == Lost })
			if doubted != tc.told {
				t.Errorf("doubts %v", c.doubted())
			}
		})
	}
}
