package changelog

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/orderid"
)

const inboxKey = "ordergate:{orders}:inbox"

func push(t *testing.T, i *instance, ids ...string) {
	t.Helper()
	values := make([]any, len(ids))
	for n, id := range ids {
		values[n] = id
	}
	if err := i.client.RPush(t.Context(), inboxKey, values...).Err(); err != nil {
		t.Error(err)
	}
}

// numbers returns n IDs with a common prefix.
func numbers(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(prefix, i)
	}
	return ids
}

// Every ID whose push Redis acknowledged is applied after the next Wait, however many there are.
func TestWaitSeesPushedIDs(t *testing.T) {
	t.Parallel()
	opts := idle
	opts.Timeout = time.Minute // miniredis with the race detector takes seconds for a page, even on an idle machine
	onEveryRedis(t, func(t *testing.T, s server) {
		b := runInstance(t, s, opts)
		b.mustWait(t)
		for _, n := range []int{1, inboxBatch - 1, inboxBatch, inboxBatch + 1, 5 * inboxBatch} {
			if _, slow := s.(*miniServer); slow && n > inboxBatch+1 {
				continue
			}
			ids := numbers(fmt.Sprint(n, "-"), n)
			push(t, b, ids...)
			b.mustWait(t)
			for _, id := range ids {
				if !b.has(id) {
					t.Fatalf("%s of %d is missing", id, n)
				}
			}
		}
		if left := b.client.LLen(t.Context(), inboxKey).Val(); left != 0 || len(b.doubted()) > 0 {
			t.Errorf("%d are left, doubts %v", left, b.doubted())
		}
	})
}

// Two instances drain the inbox, and many clients push. Each instance finds all IDs pushed before.
func TestManyPush(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		all := []*instance{runInstance(t, s, idle), runInstance(t, s, Options{PollEvery: time.Millisecond, Timeout: 10 * time.Second})}
		var wg sync.WaitGroup
		for who := range 8 {
			wg.Go(func() {
				for round := range 10 {
					ids := numbers(fmt.Sprintf("%d-%d-", who, round), 10)
					push(t, all[0], ids...)
					i := all[(who+round)%2]
					if err := i.Wait(t.Context()); err != nil {
						t.Error(err)
						return
					}
					for _, id := range ids {
						if !i.has(id) {
							t.Errorf("%s is missing", id)
							return
						}
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestInvalidPushes(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		b := runInstance(t, s, idle)
		b.mustWait(t)
		long := strings.Repeat("x", orderid.MaxBytes)
		push(t, b, "1", "", "2", long+"x", long)
		b.mustWait(t)
		got := b.doubted()
		if len(got) != 2 || got[0].Kind != Lost || got[1].Kind != Lost ||
			!strings.Contains(got[0].Reason, "ID of 0 bytes") || !strings.Contains(got[1].Reason, "ID of 257 bytes") {
			t.Errorf("doubts %v", got)
		}
		if b.count() != 3 || !b.has("1") || !b.has("2") || !b.has(long) {
			t.Errorf("%d IDs", b.count())
		}
		if b.mustWait(t); len(b.doubted()) != 2 {
			t.Errorf("doubts %v", b.doubted())
		}
	})
}

func TestInboxOfAnotherType(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		ctx := t.Context()
		opts := idle
		opts.PollEvery = time.Millisecond
		b := runInstance(t, s, opts)
		b.mustWait(t)
		if err := b.client.Set(ctx, inboxKey, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is noticed", func() bool { return b.State().Phase == Broken })
		if err := b.Wait(ctx); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "hold something else") {
			t.Errorf("Wait = %v", err)
		}
		b.mustAppend(t, "1") // other instances keep it
		if err := b.client.Del(ctx, inboxKey).Err(); err != nil {
			t.Fatal(err)
		}
		waitSure(t, b)
		if !b.has("1") || len(b.doubted()) > 0 {
			t.Errorf("doubts %v", b.doubted())
		}
	})
}

// IDs that cannot be appended stay in the inbox.
func TestInboxOfABrokenLog(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		ctx := t.Context()
		opts := idle
		opts.PollEvery = time.Millisecond
		b := runInstance(t, s, opts)
		b.mustWait(t)
		if err := b.client.Set(ctx, logKey, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		push(t, b, "1", "2", "3")
		eventually(t, "it is noticed", func() bool { return b.State().Phase == Broken })
		if err := b.Wait(ctx); !errors.Is(err, ErrBroken) {
			t.Errorf("Wait = %v", err)
		}
		if err := b.client.Del(ctx, logKey).Err(); err != nil {
			t.Fatal(err)
		}
		waitSure(t, b)
		for _, id := range []string{"1", "2", "3"} {
			if !b.has(id) {
				t.Errorf("%s was pushed, and is gone", id)
			}
		}
	})
}

// TestInboxIsChecked pushes an ID that no rule accepts, and may be another spelling of an order's. It
// is a doubt of every reader, also of later ones. IDs that an ordergate has checked are none.
func TestInboxIsChecked(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		opts := Options{Check: func(id string) string {
			if strings.HasPrefix(id, "0") {
				return "a leading zero"
			}
			return ""
		}}
		a, b := runInstance(t, s, opts), runInstance(t, s, opts)
		a.mustAppend(t, "07")
		push(t, a, "42")
		a.mustWait(t)
		if d := a.doubted(); len(d) > 0 {
			t.Errorf("%+v", d)
		}
		push(t, a, "042")
		late := runInstance(t, s, opts)
		for _, i := range []*instance{a, b, late} {
			i.mustWait(t)
			if d := i.doubted(); len(d) != 1 || d[0].Kind != Lost || !strings.Contains(d[0].Reason, "a leading zero") || !i.has("042") {
				t.Errorf("%+v", d)
			}
		}
	})
}
