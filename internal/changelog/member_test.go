package changelog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const membersKey = "ordergate:{orders}:members"

func TestLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, b := runInstance(t, s, brisk("a")), runInstance(t, s, brisk("b"))
		waitSure(t, a, b)
		first := members(t, b.client)
		if len(first) != 2 || first[a.member.Name()] == 0 || first[b.member.Name()] == 0 {
			t.Fatalf("members %v", first)
		}
		for name, end := range first {
			eventually(t, "the lease of "+name+" goes on", func() bool {
				return members(t, b.client)[name] > end+float64(3*brisk("").Lease.Milliseconds())
			})
		}
		waitSure(t, a, b)
		if d := append(a.doubted(), b.doubted()...); len(d) > 0 {
			t.Errorf("doubts %v", d)
		}
	})
}

// TestMemberThatVanishes returns the member in the end: it has lost nothing.
func TestMemberThatVanishes(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, brisk("b unix:/run/b.sock"))
		waitSure(t, a, b)
		for range 2 {
			w.set(cut)
			began := time.Now()
			waitAway(t, b, a.member.Name())
			if peers, err := b.Peers(t.Context()); err != nil || len(peers) != 2 || peers[0].Name != "a" || peers[0].Left >= 0 || peers[1].Name != "b unix:/run/b.sock" {
				t.Errorf("peers %+v, %v", peers, err)
			}
			// Its lease, and some time for a busy machine.
			if took := time.Since(began); took > brisk("").Lease+10*time.Second {
				t.Errorf("that took %v", took)
			}
			for range 20 {
				if err := b.Wait(t.Context()); !errors.Is(err, ErrAway) {
					t.Fatalf("Wait = %v while a member is away", err)
				}
			}
			if st := b.State(); st.Phase != Away || !errors.Is(st.Err, ErrAway) || b.Window().Holds() {
				t.Errorf("state %+v", st)
			}
			w.set(nil)
			waitSure(t, a, b)
		}
		if d := append(a.doubted(), b.doubted()...); len(d) > 0 {
			t.Errorf("doubts %v", d)
		}
	})
}

func TestMemberDeregisters(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, b := runInstance(t, s, patient("a")), runInstance(t, s, patient("b"))
		waitSure(t, a, b)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			a.stop()
		}()
		for after := 0; after < 20; {
			b.mustWait(t) // all the time
			select {
			case <-stopped:
				after++
			default:
			}
		}
		if m := members(t, b.client); len(m) != 1 || m[b.member.Name()] == 0 {
			t.Errorf("members %v", m)
		}
		if d := b.doubted(); len(d) > 0 {
			t.Errorf("doubts %v", d)
		}
		// No instance waits for it any more, so it has nothing to withdraw.
		w := wired(t, s, a)
		w.set(cut)
		if err := a.Append(t.Context(), "late"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Append = %v", err)
		}
		if err := a.Withdraw(t.Context()); !errors.Is(err, errNotMember) {
			t.Errorf("Withdraw of one that has left = %v", err)
		}
	})
}

// TestSuccessor starts a member with the instance ID of one that ended without deregistering, or
// could not deregister because of a pending write.
func TestSuccessor(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		for _, tc := range []struct {
			name string
			end  func(t *testing.T, a *instance, w *wire)
		}{
			{"of one that crashed", func(_ *testing.T, a *instance, w *wire) {
				w.set(cut)
				a.stop()
			}},
			{"of one that owed", func(t *testing.T, a *instance, w *wire) {
				w.set(only(a.append, cut))
				if err := a.Append(t.Context(), "owed"); !errors.Is(err, ErrUnavailable) {
					t.Errorf("Append = %v", err)
				}
				a.stop()
			}},
		} {
			t.Run(tc.name, func(t *testing.T) {
				b := runInstance(t, s, patient("b"))
				if err := b.client.FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				a, w := wiredInstance(t, s, patient("a"))
				waitSure(t, a, b)
				before := len(b.doubted())
				tc.end(t, a, w)
				if _, ok := members(t, b.client)[a.member.Name()]; !ok {
					t.Fatal("it has left")
				}
				next := runInstance(t, s, patient("a"))
				eventually(t, "the crash is reported", func() bool { return len(b.doubted()) > before })
				waitSure(t, next, b)
				got := b.kinds()[before:]
				if !slices.Equal(got, []Kind{Crash}) || !strings.Contains(b.doubted()[before].Reason, "at a ended") {
					t.Errorf("doubts %v, want one of a crash at a", b.doubted()[before:])
				}
				m := members(t, b.client)
				if _, old := m[a.member.Name()]; old || m[next.member.Name()] == 0 {
					t.Errorf("members %v", m)
				}
			})
		}
	})
}

// A page of the predecessor arrives after its successor has joined, and before it renews.
func TestPageOfAPredecessor(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, patient("a"))
		waitSure(t, a)
		sent := make(chan func() error, 1)
		w.set(only(a.page, func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
			select {
			case sent <- func() error { return w.again(cmd) }:
			default:
			}
			return errCut
		}))
		late := <-sent
		w.set(cut)
		a.stop()
		next := newInstance(t, s, patient("a"))
		if err := next.member.join(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := late(); err != nil {
			t.Fatal(err)
		}
		m := members(t, next.client)
		if _, ok := m[next.member.Name()]; !ok || len(m) != 1 {
			t.Errorf("members %v, want %s only", m, next.member.Name())
		}
	})
}

// lapsedLongAgo makes a member's lease older than the expulsion time of an instance.
func lapsedLongAgo(t *testing.T, i *instance, name string) {
	t.Helper()
	since := time.Now().Add(-i.opts.Expel - time.Minute)
	if err := i.client.ZAdd(t.Context(), membersKey, redis.Z{Member: name, Score: float64(since.UnixMilli())}).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestMemberIsExpelled(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, patient("a"))
		b := runInstance(t, s, patient("b"))
		waitSure(t, a, b)
		w.set(cut)
		lapsedLongAgo(t, b, a.member.Name())
		b.mustWait(t)
		got := b.doubted()
		if len(got) != 1 || got[0].Kind != Crash || !strings.Contains(got[0].Reason, a.member.Name()) {
			t.Errorf("doubts %v", got)
		}
		if m := members(t, b.client); len(m) != 1 || m[b.member.Name()] == 0 {
			t.Errorf("members %v", m)
		}
		w.set(nil) // it was only away
		eventually(t, "it is back", func() bool { return len(members(t, b.client)) == 2 })
		waitSure(t, a, b)
		if got := b.doubted(); len(got) != 1 {
			t.Errorf("doubts %v", got)
		}
	})
}

// A required member counts as away before it joins, while it is away, and after its expulsion.
func TestRequiredMember(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		ctx := t.Context()
		opts := patient("b")
		opts.Require = []string{"source:db"}
		b := runInstance(t, s, opts)
		waitAway(t, b, "source:db")
		m := b.NewMember("source:db", brisk("").Lease)
		eventually(t, "it has come", func() bool {
			if err := m.Renew(ctx, time.Now()); err != nil {
				t.Fatal(err)
			}
			return b.Wait(ctx) == nil
		})
		waitAway(t, b, "source:db")
		lapsedLongAgo(t, b, "source:db")
		eventually(t, "it is taken for gone", func() bool { return len(b.doubted()) == 1 })
		waitAway(t, b, "source:db")
		if got := b.doubted(); len(got) != 1 || got[0].Kind != Crash || len(members(t, b.client)) != 1 {
			t.Errorf("doubts %v, members %v", got, members(t, b.client))
		}
		eventually(t, "it is back", func() bool {
			if err := m.Renew(ctx, time.Now()); err != nil {
				t.Fatal(err)
			}
			return b.Wait(ctx) == nil
		})
		if err := m.Leave(ctx); err != nil {
			t.Fatal(err)
		}
		waitAway(t, b, "source:db")
	})
}

// TestRenewalNamesAnEarlierReply renews a lease as of a past time without pending writes.
func TestRenewalNamesAnEarlierReply(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		b := newInstance(t, s, idle)
		const lease = time.Hour
		m := b.NewMember("source:db", lease)
		renew := func(confirmedAt time.Time) (left time.Duration) {
			t.Helper()
			if err := m.Renew(t.Context(), confirmedAt); err != nil {
				t.Fatal(err)
			}
			return time.Duration(members(t, b.client)["source:db"]-float64(m.lastReply.ms)) * time.Millisecond
		}
		start := time.Now()
		if left := renew(start); left > 0 {
			t.Errorf("a lease of %v before the first reply of Redis", left)
		}
		if left := renew(start); left > 0 {
			t.Errorf("a lease of %v as of before", left)
		}
		heard := m.lastReply
		if left := renew(time.Now()); left <= lease-time.Minute || left > lease {
			t.Errorf("a lease of %v, want %v less what it took", left, lease)
		}
		if end := int64(members(t, b.client)["source:db"]); end != heard.ms+lease.Milliseconds() {
			t.Errorf("it ends %d ms after the reply, want %v", end-heard.ms, lease)
		}
	})
}

// TestRenewalNeedsThePlace: a replica takes over that lacks what a follower has appended, and its place.
func TestRenewalNeedsThePlace(t *testing.T) {
	t.Parallel()
	const hash, lease = "ordergate:{orders}:follow", time.Hour
	b := newInstance(t, startRealServer(t), idle)
	m := b.NewMember("source:db", lease)
	renew := func() (renewed bool) {
		t.Helper()
		for range 3 {
			if err := m.Renew(t.Context(), time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		return members(t, b.client)["source:db"] > float64(m.lastReply.ms)
	}
	must(t, m.RecordAt(t.Context(), Move{Hash: hash, Field: "db", To: "first"}))
	must(t, m.RecordAt(t.Context(), Move{Hash: hash, Field: "db", From: "first", To: "second"}, "1"))
	if !renew() {
		t.Fatal("no lease")
	}
	must(t, errors.Join(b.client.HSet(t.Context(), hash, "db", "first").Err(), failover(t.Context(), b.client)))
	if renew() || m.IsPlaceKnown() {
		t.Errorf("a lease although the place is another one, or unknown: %v", m.IsPlaceKnown())
	}
	if m.RecordAt(t.Context(), Move{Hash: hash, Field: "db", From: "second", To: "third"}) == nil || renew() {
		t.Error("the place was moved from another one")
	}
	if at, err := m.RecordedAt(t.Context(), hash, "db"); err != nil || at != "first" {
		t.Errorf("the place is %q, %v", at, err)
	}
	if !renew() {
		t.Error("no lease although the place is known")
	}
}

// TestDuplicateMembers runs two processes with one instance ID. Both stay members, so other
// instances wait for either. Each logs the error once, and opens no window until it is alone.
func TestDuplicateMembers(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		var said [2]bytes.Buffer
		unhurried := func(instanceID string) Options {
			o := brisk(instanceID)
			o.Lease = 2 * time.Second // the lease of a live process does not end
			return o
		}
		logging := func(i int) Options {
			o := unhurried("a")
			o.Logger = slog.New(slog.NewTextHandler(&said[i], nil))
			return o
		}
		c := runInstance(t, s, unhurried("c"))
		a := runInstance(t, s, logging(0))
		waitSure(t, a, c)
		b := runInstance(t, s, logging(1))
		twins := func() {
			t.Helper()
			for _, i := range []*instance{a, b} {
				eventually(t, "it finds its duplicate", func() bool { return errors.Is(i.Wait(t.Context()), ErrDuplicate) })
			}
		}
		twins()
		if m := members(t, c.client); len(m) != 3 {
			t.Errorf("members %v", m)
		}
		c.mustWait(t) // it reads the doubt that the second process left
		tail := c.State().Tail
		for range 50 {
			c.mustWait(t)
			for _, i := range []*instance{a, b} {
				if err := i.Wait(t.Context()); !errors.Is(err, ErrDuplicate) {
					t.Fatalf("Wait = %v beside a twin", err)
				}
			}
		}
		if c.State().Tail != tail {
			t.Errorf("the log went from %d to %d", tail, c.State().Tail)
		}
		if err := c.client.Del(t.Context(), membersKey).Err(); err != nil { // both join again
			t.Fatal(err)
		}
		eventually(t, "all are back", func() bool { return len(members(t, c.client)) == 3 })
		twins()
		waitSure(t, c)
		b.stop()
		waitSure(t, a, c)
		a.stop()
		for i := range said {
			text := said[i].String()
			if n := strings.Count(text, "own redis.member"); n != 1 || strings.Count(text, "\n") > 20 {
				t.Errorf("it logged the error %d times:\n%s", n, text)
			}
		}
	})
}

// TestDuplicateIsCutOff: a duplicate that is cut off counts as away like any member. The order that
// it sends to a client is not in the log.
func TestDuplicateIsCutOff(t *testing.T) {
	onEveryRedis(t, func(t *testing.T, s server) {
		c := runInstance(t, s, brisk("c"))
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, brisk("a"))
		for _, i := range []*instance{a, b} {
			eventually(t, "it finds its duplicate", func() bool { return errors.Is(i.Wait(t.Context()), ErrDuplicate) })
		}
		w.set(cut)
		if err := a.Append(t.Context(), "1001"); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("Append = %v", err)
		}
		if err := a.Withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := c.Wait(t.Context()); !errors.Is(err, ErrAway) {
				t.Fatalf("Wait = %v while a member is away", err)
			}
		}
		w.set(nil)
		a.mustAppend(t, "1001")
		waitSure(t, c)
		if !c.has("1001") {
			t.Error("the order is missing")
		}
	})
}

// TestMissingReplicationID uses a server that hides its replication ID at first.
func TestMissingReplicationID(t *testing.T) {
	s := startRealServer(t)
	admin := connect(t, s)
	user := func(rules ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), append([]any{"acl", "setuser", "blind"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	user("on", "nopass", "~*", "+@all", "-info")
	i := newInstance(t, s, brisk("a"))
	i.client.Options().Username, i.client.Options().Password = "blind", "any"
	i.start(t)
	for range 20 {
		if err := i.Wait(t.Context()); err == nil {
			t.Fatal("it is sure, and would not notice a failover")
		}
	}
	denied := regexp.MustCompile("can't run this command|has no permissions to run the 'info' command") // before and since 7.2
	eventually(t, "it says why", func() bool {
		st := i.State()
		return st.Phase == Blind && errors.Is(st.Err, ErrBlind) && denied.MatchString(st.Err.Error())
	})
	i.mustAppend(t, "1001")
	user("+info")
	waitSure(t, i)
	if !i.has("1001") {
		t.Error("the order is missing")
	}
}
