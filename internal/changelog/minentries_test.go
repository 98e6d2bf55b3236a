package changelog

import (
	"fmt"
	"testing"
	"time"
)

// slack is how many entries more than the minimum a stream keeps: those of one node of its tree
// (stream-node-max-entries, 100).
const slack = 100

func TestLogIsTrimmed(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		const keep = 1000
		opts := Options{PollEvery: time.Hour, Timeout: 10 * time.Second, MinEntries: keep}
		near, far := runInstance(t, s, opts), runInstance(t, s, opts)
		add := func(what string, n int) {
			t.Helper()
			for at := 0; at < n; at += 50 {
				ids := numbers(fmt.Sprint(what, at, "-"), 50)
				if at%100 == 0 {
					push(t, near, ids...)
				} else if err := near.Append(t.Context(), ids...); err != nil {
					t.Fatal(err)
				}
				near.mustWait(t) // it stays close to the tail
				if n := near.client.XLen(t.Context(), logKey).Val(); n > keep+slack {
					t.Fatalf("%d entries are kept, of which %d are needed", n, keep)
				}
			}
		}
		add("a", 200)
		far.mustWait(t)
		add("b", 2*keep)
		far.mustWait(t)
		if got := far.doubted(); len(got) == 0 || got[0].Kind != Gap {
			t.Errorf("doubts of one that was away: %v", got)
		}
		after := len(far.doubted())
		add("c", 200)
		far.mustWait(t)
		if !far.has("c0-0") || !far.has("c150-49") || len(far.doubted()) != after {
			t.Errorf("it does not go on: doubts %v", far.doubted())
		}
		if got := near.doubted(); len(got) > 0 {
			t.Errorf("doubts of one that was close: %v", got)
		}

		fresh := runInstance(t, s, opts)
		fresh.mustWait(t)
		fresh.mustWait(t)
		if got := fresh.kinds(); len(got) != 1 || got[0] != Gap {
			t.Errorf("doubts of one that is new: %v", fresh.doubted())
		}
		if n := near.client.XLen(t.Context(), logKey).Val(); n < keep {
			t.Errorf("%d entries are kept, want %d at least", n, keep)
		}
	})
}
