package changelog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// clock replaces the server's clock in the scripts of a test.
type clock struct {
	t      *testing.T
	client *redis.Client
	began  time.Time
	pace   float64 // speed relative to the real clock
	back   time.Duration
}

// clockLua is the time of the clock, in the form of TIME.
const clockLua = `(function()
	local began, pace, back = string.match(redis.call('GET', 'clock'), '(%d+) (%S+) (%d+)')
	local t = redis.call('TIME')
	local now = began + pace * (t[1] * 1000000 + t[2] - began) - back
	return {math.floor(now / 1000000), math.floor(now % 1000000)}
end)()`

// newClock starts a clock with a speed.
func newClock(t *testing.T, s server, pace float64) *clock {
	t.Helper()
	c := &clock{t: t, client: connect(t, s), began: time.Now(), pace: pace}
	c.setBack(0)
	if err := c.client.Set(t.Context(), "info", fmt.Sprintf("master_replid:%040x\r\nmaster_replid2:%040d\r\n", 1, 0), 0).Err(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *clock) setBack(by time.Duration) {
	c.t.Helper()
	c.back += by
	if err := c.client.Set(c.t.Context(), "clock", fmt.Sprintf("%d %f %d", c.began.UnixMicro(), c.pace, c.back.Microseconds()), 0).Err(); err != nil {
		c.t.Fatal(err)
	}
}

// use makes an instance use the clock. The instance must not run yet.
func (c *clock) use(i *instance) *instance {
	script := func(source string) *redis.Script {
		return redis.NewScript(withoutComments(reportToTest(enterSource+source, clockLua)))
	}
	i.append, i.join, i.leave = script(appendSource), script(joinSource), script(leaveSource)
	i.page, i.recall, i.clear = script(pageSource), script(recallSource), script(clearSource)
	return i
}

// TestClockSetBack sets the server's clock back by less than the time since a lease was renewed,
// and more than the time since a script ran. Without the margin, the lease would last longer than
// its member expects.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	c := newClock(t, s, 1)
	opts := patient("a")
	a := c.use(newInstance(t, s, opts))
	w := wired(t, s, a)
	a.start(t)
	b := c.use(newInstance(t, s, brisk(""))) // it only reads
	b.start(t)
	waitSure(t, a, b)
	w.set(cut)
	reads := b.State().Reads
	eventually(t, "the log is read for a while", func() bool { return b.State().Reads > reads+40 }) // 400 ms
	c.setBack(250 * time.Millisecond)
	waitAway(t, b, a.member.Name())
}

// TestClockIsSlewed slows the server's clock as far as chrony does. A member that waits for the end
// of its lease must wait until the lease is over by that clock.
func TestClockIsSlewed(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	c := newClock(t, s, 1-0.08333)
	opts := brisk("a")
	opts.Lease = time.Second
	a := c.use(newInstance(t, s, opts))
	w := wired(t, s, a)
	a.start(t)
	b := c.use(newInstance(t, s, brisk("")))
	b.start(t)
	for n := range 3 {
		waitSure(t, a, b)
		w.set(only(a.append, cut))
		if err := a.Append(t.Context(), fmt.Sprint(n)); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("Append = %v", err)
		}
		if err := a.Withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.Wait(t.Context()); err == nil {
			t.Error("the other has a window after a client received an order that is not in the log")
		}
		w.set(nil)
		if err := a.Append(t.Context(), fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLongLogAtTheStart starts an ordergate that reads a long log. The windows of the others stay
// open meanwhile.
func TestLongLogAtTheStart(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a := runInstance(t, s, patient("a"))
		waitSure(t, a)
		for i := range 100 {
			a.mustAppend(t, fmt.Sprint(i))
		}
		opts := patient("b")
		opts.PageSize = 10
		b := newInstance(t, s, opts)
		w, h := wired(t, s, b), hold(t)
		var mu sync.Mutex
		pages := 0
		w.set(only(b.page, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			mu.Lock()
			pages++
			held := pages > 6
			mu.Unlock()
			if held {
				return h.reply(ctx, cmd, next)
			}
			return next(ctx, cmd)
		}))
		b.start(t)
		<-h.entered
		waitSure(t, a)
		if at := b.Position(); at >= 100 {
			t.Errorf("it has read all %d entries", at)
		}
		h.release()
		waitSure(t, a, b)
	})
}

// TestMemberFarAway delays the appends of one member beyond the others' patience. The member
// continues to renew its lease, or no window would open anywhere.
func TestMemberFarAway(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	opts := brisk("a")
	opts.Lease = 2 * time.Second
	a, w := wiredInstance(t, s, opts)
	b := runInstance(t, s, patient("b"))
	waitSure(t, a, b)
	const roundTrip = leastPatience + 100*time.Millisecond
	w.set(only(a.append, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		time.Sleep(roundTrip) // both ways
		return next(ctx, cmd)
	}))
	a.mustAppend(t, "first")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for n := range 5 {
		wg.Go(func() {
			time.Sleep(time.Duration(n) * roundTrip / 5) // one is always under way
			for i := 0; ctx.Err() == nil; i++ {
				if err := a.Append(t.Context(), fmt.Sprint(n, " ", i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	first := members(t, b.client)[a.member.Name()]
	eventually(t, "its lease goes on", func() bool {
		if err := b.Wait(t.Context()); err != nil {
			t.Fatalf("Wait = %v", err)
		}
		return members(t, b.client)[a.member.Name()] > first+2*float64(opts.Lease.Milliseconds())
	})
}
