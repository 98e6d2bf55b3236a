package changelog

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestReplay(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a := runInstance(t, s, Options{PageSize: 7, Timeout: 10 * time.Second})
		var want, got []string
		for i := range 50 {
			id := fmt.Sprint(i)
			if err := a.Append(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			want = append(want, id)
		}
		if err := a.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		position := a.State().Position
		err := a.Replay(t.Context(), func(id string) error {
			if len(got) == 20 { // later entries need not be read
				if err := a.Append(t.Context(), "late"); err != nil {
					return err
				}
			}
			got = append(got, id)
			return nil
		})
		if err != nil || !slices.Equal(got[:50], want) {
			t.Errorf("%v, %v", got, err)
		}
		if p := a.State().Position; p < position {
			t.Errorf("the follower went back to %d", p)
		}
		stop := errors.New("enough")
		if err := a.Replay(t.Context(), func(string) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("%v", err)
		}
		// A new log differs from the one that the set was filled from.
		c := redis.NewClient(s.options())
		defer func() { _ = c.Close() }()
		c.FlushAll(t.Context())
		// Replay refuses during recovery, or reads a log to which everything was appended again.
		got = nil
		err = a.Replay(t.Context(), func(id string) error {
			got = append(got, id)
			return nil
		})
		lost := slices.DeleteFunc(slices.Clone(want), func(id string) bool { return slices.Contains(got, id) })
		if !errors.Is(err, ErrBroken) && (err != nil || len(lost) > 0) {
			t.Errorf("after FLUSHALL: %v, without %v", err, lost)
		}
	})
}

// TestReplayOfLostEntries replays a log that has lost entries, until an operator confirms that the
// sources have their orders.
func TestReplayOfLostEntries(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a := runInstance(t, s, Options{})
		for _, id := range []string{"1", "2", "3", "4"} {
			if err := a.Append(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		replay := func() (got []string, err error) {
			err = a.Replay(t.Context(), func(id string) error { got = append(got, id); return nil })
			return got, err
		}
		if _, err := replay(); err != nil {
			t.Error(err)
		}
		for _, seq := range []string{"1-0", "3-0"} {
			if err := a.client.XDel(t.Context(), a.keys[keyLog], seq).Err(); err != nil {
				t.Fatal(err)
			}
			if _, err := replay(); !errors.Is(err, ErrLost) {
				t.Errorf("without entry %s: %v", seq, err)
			}
		}
		if err := a.ClearDoubts(t.Context(), a.Mark()); err != nil {
			t.Fatal(err)
		}
		if got, err := replay(); err != nil || !slices.Equal(got, []string{"2", "4"}) {
			t.Errorf("after a confirmation: %v, %v", got, err)
		}
	})
}
