package changelog

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// primaries are a demoted primary that does not know it, and the promoted one.
type primaries struct{ former, present tcpServer }

// TestTwoPrimaries acknowledges an order at a server that was just promoted, while another instance
// uses the demoted primary. No window may hold there once the client receives the order.
func TestTwoPrimaries(t *testing.T) {
	t.Parallel()
	opts := func(instanceID string) Options {
		o := brisk(instanceID)
		o.Lease = 700 * time.Millisecond
		return o
	}
	base := func(i *instance) serverTime {
		i.member.mu.Lock()
		defer i.member.mu.Unlock()
		return i.member.renewedFrom
	}
	// These return when a client may receive the order.
	appended := func(t *testing.T, i *instance) {
		t.Helper()
		i.mustAppend(t, "1001")
	}
	withdrawn := func(t *testing.T, i *instance) {
		t.Helper()
		if err := i.appendAndWait(t.Context(), "1001"); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("Append = %v", err)
		}
		if err := i.Withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// moves returns once an instance has requested a lease from another server.
	moves := func(t *testing.T, i *instance, w *wire, to tcpServer) {
		t.Helper()
		before := base(i)
		w.set(sendTo(connect(t, to)))
		eventually(t, "it has a lease of the new server", func() bool { return base(i).leaseEpoch != before.leaseEpoch })
	}
	joins := func(t *testing.T, i *instance) {
		t.Helper()
		eventually(t, "it is a member", func() bool {
			i.member.mu.Lock()
			defer i.member.mu.Unlock()
			return i.member.joined
		})
	}
	// begins starts the present server's lease epoch, and lets it grow old.
	begins := func(t *testing.T, m primaries) {
		t.Helper()
		newInstance(t, m.present, Options{Lease: opts("").Lease}).mustAppend(t, "1")
	}
	started := func(t *testing.T, m primaries, instanceID string) (*instance, *wire) {
		t.Helper()
		i := newInstance(t, m.present, opts(instanceID))
		w := wired(t, m.present, i)
		w.set(only(i.page, cut)) // it has no lease here
		i.start(t)
		joins(t, i)
		return i, w
	}
	for _, tc := range []struct {
		name     string
		ends     bool // a ends
		outsider bool // the creator is no member, and cannot withdraw
		// creator starts from a, a member at the demoted primary. It returns the instance that
		// creates the order at the promoted one.
		creator func(t *testing.T, m primaries, a *instance, w *wire) (*instance, *wire)
	}{
		{"one that has moved on", false, false, func(t *testing.T, m primaries, a *instance, w *wire) (*instance, *wire) {
			moves(t, a, w, m.present)
			return a, w
		}},
		{"one that moves on late", false, false, func(t *testing.T, m primaries, a *instance, w *wire) (*instance, *wire) {
			begins(t, m)
			moves(t, a, w, m.present)
			return a, w
		}},
		{"one that was killed and is back", true, false, func(t *testing.T, m primaries, a *instance, w *wire) (*instance, *wire) {
			begins(t, m)
			w.set(cut)
			a.stop()
			return started(t, m, "a")
		}},
		{"one that is back and had no answer at first", true, false, func(t *testing.T, m primaries, a *instance, w *wire) (*instance, *wire) {
			begins(t, m)
			w.set(cut)
			a.stop()
			i := newInstance(t, m.present, opts("a"))
			w = wired(t, m.present, i)
			lost := false
			w.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				switch {
				case runs(cmd, i.page):
					return errCut
				case runs(cmd, i.join) && !lost:
					err := next(ctx, cmd)
					if lost = err == nil; lost {
						return errCut
					}
					return err
				}
				return next(ctx, cmd)
			})
			i.start(t)
			joins(t, i)
			return i, w
		}},
		{"one that is new", false, false, func(t *testing.T, m primaries, _ *instance, w *wire) (*instance, *wire) {
			w.set(sendTo(connect(t, m.present)))
			return started(t, m, "c")
		}},
		{"somebody who is no member", false, true, func(t *testing.T, m primaries, _ *instance, w *wire) (*instance, *wire) {
			w.set(sendTo(connect(t, m.present)))
			i := newInstance(t, m.present, Options{Lease: opts("").Lease})
			return i, wired(t, m.present, i)
		}},
	} {
		for how, tell := range map[string]func(*testing.T, *instance){"appended": appended, "withdrawn": withdrawn} {
			if tc.outsider && how == "withdrawn" {
				continue
			}
			t.Run(tc.name+", "+how, func(t *testing.T) {
				m, promote := primaryAndReplica(t)
				b, bWire := wiredInstance(t, m.former, opts("b"))
				a, w := wiredInstance(t, m.former, opts("a"))
				waitSure(t, a, b)
				eventually(t, "it has a lease", func() bool { return time.Since(base(a).received) < opts("").Lease/2 })
				promote()
				creator, wire := tc.creator(t, m, a, w)
				if how == "withdrawn" {
					present := connect(t, m.present)
					wire.set(func(ctx context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
						if runs(cmd, creator.append) || creator != a && runs(cmd, creator.page) {
							return errCut
						}
						return present.Process(ctx, cmd)
					})
				}
				tell(t, creator)
				if err := b.Wait(t.Context()); err == nil {
					t.Error("who asks the former server is sure, and does not know of the order")
				}
				wire.set(sendTo(connect(t, m.present)))
				if how == "withdrawn" {
					creator.mustAppend(t, "1001")
				}
				bWire.set(sendTo(connect(t, m.present)))
				if !tc.ends {
					waitSure(t, a)
				}
				waitSure(t, b)
				if !b.has("1001") {
					t.Error("the order is missing")
				}
			})
		}
	}
}

// TestDoubtOfADemotedPrimary appends a doubt at a demoted primary that still runs: an order has an
// unknown ID. Instances at the new primary read the sources before that order was created.
func TestDoubtOfADemotedPrimary(t *testing.T) {
	t.Parallel()
	m, promote := primaryAndReplica(t)
	a, aWire := wiredInstance(t, m.former, brisk("a"))
	b, bWire := wiredInstance(t, m.former, brisk("b"))
	waitSure(t, a, b)
	a.mustAppend(t, "1") // the newest entry that both servers have
	waitSure(t, a, b)
	promote()
	bWire.set(sendTo(connect(t, m.present)))
	eventually(t, "the failover is seen", func() bool { return b.hasKind(Failover) })
	since := time.UnixMilli(time.Now().UnixMilli())
	for _, d := range []Doubt{
		{Kind: Lost, Reason: "no ID", Orders: true, Since: since},
		{Kind: Running, Reason: "the client left", Orders: true, Since: since},
		{Kind: Gap, Reason: "the table of source x is followed from now on"},
	} {
		if _, err := a.AppendDoubt(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	aWire.set(sendTo(connect(t, m.present)))
	waitSure(t, a, b)
	for _, kind := range []Kind{Lost, Running, Gap} {
		i := slices.IndexFunc(b.doubted(), func(d Doubt) bool { return d.Kind == kind })
		if i < 0 {
			t.Errorf("doubts %v: none of kind %s", b.doubted(), kind)
		} else if d := b.doubted()[i]; d.Orders && !d.Since.Equal(since) {
			t.Errorf("%+v is not the one that was appended", d)
		}
	}
	before := len(b.doubted())
	waitSure(t, a, b)
	if err := failover(t.Context(), connect(t, m.present)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next failover is seen", func() bool { return len(b.doubted()) > before })
	waitSure(t, a, b)
	if got := b.kinds()[before:]; !slices.Equal(got, []Kind{Failover}) {
		t.Errorf("after one that lost nothing: doubts %v", got)
	}
}

// primaryAndReplica returns two servers, and a function that promotes the second. It then has the
// data of the first, and the first continues.
func primaryAndReplica(t *testing.T) (m primaries, promote func()) {
	t.Helper()
	bed := bedtest.New(t)
	former := bed.Redis("--repl-diskless-sync-delay", "0")
	present := bed.Replica(former)
	m = primaries{tcpServer{former.Addr()}, tcpServer{present.Addr()}}
	return m, func() {
		t.Helper()
		ctx, first, second := t.Context(), connect(t, m.former), connect(t, m.present)
		eventually(t, "the replica has all members", func() bool {
			return second.HGet(ctx, metaKey, "members").Val() == first.HGet(ctx, metaKey, "members").Val() && first.HGet(ctx, metaKey, "members").Val() == "2"
		})
		if err := second.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// sendTo sends commands to another server.
func sendTo(c *redis.Client) fate {
	return func(ctx context.Context, cmd redis.Cmder, _ redis.ProcessHook) error { return c.Process(ctx, cmd) }
}

// TestLeaveAfterAFailover: a member leaves a promoted server before it knows whether that server
// has all its acknowledged writes.
func TestLeaveAfterAFailover(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	a, w := wiredInstance(t, s, brisk("a"))
	b := runInstance(t, s, brisk("b"))
	waitSure(t, a, b)
	w.set(only(a.page, cut))
	if err := failover(t.Context(), b.client); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the failover is seen", func() bool { return b.hasKind(Failover) })
	waitAway(t, b, a.member.Name()) // the members that the failover may have lost were restored
	if b.hasKind(Crash) {
		t.Fatalf("doubts %v", b.doubted())
	}
	a.stop()
	eventually(t, "its leave is a doubt", func() bool { return b.hasKind(Crash) })
	if _, ok := members(t, b.client)[a.member.Name()]; ok {
		t.Error("it is still a member")
	}
	waitSure(t, b)
}

// TestWhoLeftIsNotCalledBack: a member leaves, and Redis loses its members before the others have
// read that. They restore all but that one: one that is cut off, though an earlier one with its
// instance ID left, and a follower, which left and came back under its name.
func TestWhoLeftIsNotCalledBack(t *testing.T) {
	t.Parallel()
	s, ctx := startRealServer(t), t.Context()
	earlier := runInstance(t, s, brisk("cut off"))
	waitSure(t, earlier)
	earlier.stop()
	left := runInstance(t, s, brisk("left"))
	off, offWire := wiredInstance(t, s, brisk("cut off"))
	b, w := wiredInstance(t, s, brisk("b"))
	follower := b.NewMember("source:db", brisk("").Lease)
	renew := func() {
		t.Helper()
		if err := follower.Renew(ctx, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	renew()
	if err := follower.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it knows the others", func() bool {
		renew()
		known := b.Members()
		return slices.Contains(known, left.member.Name()) && slices.Contains(known, off.member.Name()) && slices.Contains(known, follower.Name())
	})
	w.set(only(b.page, cut))
	offWire.set(cut)
	left.stop()
	if err := errors.Join(b.client.Del(ctx, membersKey).Err(), failover(ctx, b.client)); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(b.Members(), left.member.Name()) {
		t.Error("it has read that the other one left")
	}
	w.set(nil)
	eventually(t, "who is cut off is called back", func() bool { return members(t, b.client)[off.member.Name()] != 0 })
	m := members(t, b.client)
	if _, ok := m[left.member.Name()]; ok {
		t.Error("who left is called back")
	}
	if _, ok := m[follower.Name()]; !ok {
		t.Error("the follower is not called back")
	}
	offWire.set(nil)
	eventually(t, "all are back", func() bool {
		renew()
		return b.Wait(ctx) == nil
	})
	waitSure(t, off)
}
