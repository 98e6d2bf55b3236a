package redislock

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// list returns the keys that List tells of, sorted.
func list(t *testing.T, c redis.UniversalClient, opts Options, prefix, suffix string) []string {
	t.Helper()
	opts.ensureDefaults()
	var keys []string
	err := List(t.Context(), c, opts.Kind, opts.Format, prefix, suffix, func(s State) error {
		if s.Foreign != "" {
			s.Key += ": " + s.Foreign
		}
		keys = append(keys, s.Key)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

// many sends n commands, not all at once: a busy server would take longer for them
// than the client waits.
func many(t *testing.T, c redis.UniversalClient, n int, add func(p redis.Pipeliner, i int)) {
	t.Helper()
	for from := 0; from < n; from += 1000 {
		_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := from; i < min(n, from+1000); i++ {
				add(p, i)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func testList(t *testing.T, c redis.UniversalClient) {
	ctx := t.Context()
	// Among so many keys that several steps are needed.
	many(t, c, 5000, func(p redis.Pipeliner, i int) { p.HSet(ctx, fmt.Sprintf("session:%d", i), "user", i) })
	for _, template := range []string{"l:%d", "l:{%d}:x", "{l*[?]}:%d", "%d"} {
		prefix, suffix, _ := strings.Cut(template, "%d")
		for _, opts := range lockKinds {
			t.Run(fmt.Sprintf("%s/%s %s", template, opts.Kind, opts.Format), func(t *testing.T) {
				l := newLocker(t, c, opts)
				var want []string
				for n := 40; n < 60; n++ {
					key := fmt.Sprintf(template, n)
					want = append(want, key)
					lease := acquire(t, l, key)
					defer func() { release(t, lease) }()
					// Re-entry and a semaphore's permits leave keys beside the lock.
					acquire(t, l, key, Reenter(lease.Owner()))
					if err := lease.Hold(ctx, "so that it is on record"); err != nil {
						t.Fatal(err)
					}
					defer c.Unlink(ctx, key, after(key, permitsOfSuffix), after(key, recordSuffix))
				}
				// Locks that ended, and with what they leave behind.
				for n := 60; n < 63; n++ {
					release(t, acquire(t, l, fmt.Sprintf(template, n)))
				}
				got := list(t, c, opts, prefix, suffix)
				if template == "%d" { // every key fits
					got = slices.DeleteFunc(got, func(key string) bool { return strings.Contains(key, ":") && !besideLock(key) })
				}
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

func testListForeign(t *testing.T, c redis.UniversalClient) {
	play(t, c, java, `
		hset l:1 k 1
		hset l:2 mode write a:write 1
		hset l:3 name Smith
		set l:4 worker-7
		rpush l:5 a
		set l:6 3
		hset L:7 a 1
		hset l: a 1`)
	for _, tt := range []struct {
		opts Options
		want []string
	}{
		{Options{Kind: Exclusive}, []string{"l:1", "l:2: a read-write lock", "l:3: a hash that is no lock"}},
		{Options{Kind: Read}, []string{"l:1: a lock that is no read-write lock", "l:2", "l:3: a lock that is no read-write lock"}},
		{Options{Kind: Exclusive, Format: String}, []string{"l:4", "l:6"}},
		{Options{Kind: Semaphore}, []string{"l:4: a string that is no number"}}, // l:6 has permits that are free
	} {
		if diff := gocmp.Diff(tt.want, list(t, c, tt.opts, "l:", "")); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.opts.Kind, tt.opts.Format, diff)
		}
	}
}

var errEnough = errors.New("enough")

func testListStops(t *testing.T, c redis.UniversalClient) {
	for n := range 300 {
		play(t, c, fmt.Sprintf("l:%d", n), "hset k a 1")
	}
	calls := 0
	err := List(t.Context(), c, Exclusive, Redisson, "l:", "", func(State) error {
		calls++
		return errEnough
	})
	if !errors.Is(err, errEnough) || calls != 1 {
		t.Errorf("%d calls and %v, want one call and its error", calls, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = List(ctx, c, Exclusive, Redisson, "l:", "", func(State) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// TestListWhileKeysMove has the table of keys grow and shrink during a listing,
// which makes SCAN name keys again.
func TestListWhileKeysMove(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	var want []string
	for n := 1000; n < 3000; n++ {
		key := fmt.Sprintf("l:%d", n)
		want = append(want, key)
		play(t, c, key, "hset k a 1")
	}
	// As many filler keys as make the table twice as large, or no more.
	filler := make([]any, 0, 40_000)
	var names []string
	for n := range 20_000 {
		filler, names = append(filler, fmt.Sprintf("f:%d", n), "x"), append(names, fmt.Sprintf("f:%d", n))
	}
	var got []string
	grown := false
	err := List(t.Context(), c, Exclusive, Redisson, "l:", "", func(s State) error {
		got = append(got, s.Key)
		if len(got)%100 == 0 {
			if grown = !grown; grown {
				return c.MSet(t.Context(), filler...).Err()
			}
			return c.Del(t.Context(), names...).Err()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestListKeepsNobodyWaiting counts what the server did, inside scripts too.
func TestListKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	ctx := t.Context()
	for _, key := range []string{"l:huge", "l:shared"} { // neither of them a lock
		many(t, c, 100_000, func(p redis.Pipeliner, i int) { p.HSet(ctx, key, fmt.Sprintf("field-%d", i), i) })
	}
	play(t, c, "", "hset l:shared mode read\nsetrange l:blob 10000000 x\nconfig resetstat")
	for _, opts := range lockKinds {
		list(t, c, opts, "l:", "")
	}
	stats, err := c.Info(ctx, "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]int)
	for _, m := range regexp.MustCompile(`(?m)^cmdstat_([^:]+):calls=(\d+),`).FindAllStringSubmatch(stats, -1) {
		if used[m[1]], err = strconv.Atoi(m[2]); err != nil {
			t.Fatal(err)
		}
	}
	for _, forbidden := range []string{"keys", "hgetall", "hkeys", "hvals", "smembers"} {
		if used[forbidden] > 0 {
			t.Errorf("%s was used; the commands were %v", strings.ToUpper(forbidden), used)
		}
	}
	// Four kinds look at two hashes, of which they read no more than is shown.
	if used["scan"] == 0 || used["hscan"] != 8 {
		t.Errorf("the commands were %v, want scan and 8 times hscan", used)
	}
	for name, calls := range used {
		if calls > 4*2*4*mostListed {
			t.Errorf("%d times %s is too often", calls, name)
		}
	}
}
