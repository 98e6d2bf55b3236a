package redisset

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestExpand grows a set while eight write to it and eight ask, all from nodes of
// their own.
func TestExpand(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, d *deployment) {
		if d.opts.Bits.Kind == redisbf.Redisson {
			t.Skip("Java would not know")
		}
		d.opts.AtFill, d.opts.By = 0.9, 1.5
		nodes := []*node{d.node(), d.node(), d.node()}
		for _, n := range nodes {
			n.ready(t)
		}
		stop := d.traffic(t, nodes...)
		for range 2 {
			must(t, nodes[rand.IntN(3)].Expand(t.Context()))
		}
		stop()
		for _, n := range nodes {
			bedtest.Eventually(t, "all know of it", func() bool { v := n.view.Load(); return v.Generation == 3 && v.Old == 0 })
			n.works(t)
			d.neverAbsent(t, n)
		}
		if c := nodes[0].view.Load().Capacity; c < 2*d.opts.Bits.Capacity {
			t.Errorf("capacity %d after growing by half twice", c)
		}
		for _, key := range keysOf(t, nodes[0]) {
			if want := d.opts.Bits.Key + ":g3:"; len(key) < len(want) || key[:len(want)] != want {
				t.Errorf("%s is left", key)
			}
		}
	})
}

// dying ends a client at its nth command: that and all later ones fail, as those of
// a process that was killed.
type dying struct {
	left   atomic.Int64
	killed context.CancelFunc
}

var errDead = errors.New("the process is dead")

func (d *dying) DialHook(next redis.DialHook) redis.DialHook { return next }
func (d *dying) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if d.dead() {
			cmd.SetErr(errDead)
			return errDead
		}
		return next(ctx, cmd)
	}
}

func (d *dying) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if d.dead() {
			for _, cmd := range cmds {
				cmd.SetErr(errDead)
			}
			return errDead
		}
		return next(ctx, cmds)
	}
}

func (d *dying) dead() bool {
	if d.left.Add(-1) >= 0 {
		return false
	}
	d.killed()
	return true
}

// TestExpandTakenOver kills the one that grows a set at each of its commands. While
// others write and ask, one of them ends the work.
func TestExpandTakenOver(t *testing.T) {
	t.Parallel()
	srv := alone(t)
	for _, opts := range []Options{{}, {Segments: &filter.Segments{Keep: 3, Day: dated}}} {
		after := 1
		for done := false; !done; after = after*4/3 + 1 {
			d := newDeployment(t, srv, opts)
			d.source = d.source[:300]
			d.opts.AtFill, d.opts.By = 0.9, 1.5
			nodes := []*node{d.node(), d.node()}
			for _, n := range nodes {
				n.ready(t)
			}
			ctx, cancel := context.WithCancel(t.Context())
			client := srv.connect(t)
			killer := &dying{killed: cancel}
			killer.left.Store(int64(after))
			client.AddHook(killer)
			doomed := d.idle(client)
			stop := d.traffic(t, nodes...)
			err := doomed.Expand(ctx)
			done = err == nil
			cancel()
			for _, n := range nodes {
				bedtest.Eventually(t, "another ends what was begun", func() bool {
					v := n.view.Load()
					return v.Next == 0 && v.Old == 0 && n.health.Load().complete
				})
			}
			stop()
			for _, n := range nodes {
				d.neverAbsent(t, n)
				n.works(t)
				n.stop()
			}
		}
		if after < 20 {
			t.Errorf("it was done after %d commands", after)
		}
	}
}

// TestFillTakenOver kills the one that fills a set at each of its commands.
func TestFillTakenOver(t *testing.T) {
	t.Parallel()
	srv := alone(t)
	for done, after := false, 1; !done; after = after*4/3 + 1 {
		d := newDeployment(t, srv, Options{Bits: redisbf.Options{Shards: 2}})
		ctx, cancel := context.WithCancel(t.Context())
		client := srv.connect(t)
		killer := &dying{killed: cancel}
		killer.left.Store(int64(after))
		client.AddHook(killer)
		doomed := d.idle(client)
		_, err := doomed.refresh(ctx)
		if err == nil {
			err = doomed.fill(ctx)
		}
		done = err == nil
		cancel()
		t.Logf("killed after %d commands: %v", after, err)
		n := d.node()
		n.ready(t)
		d.neverAbsent(t, n)
		n.works(t)
		n.stop()
	}
}

// TestGrowthEndsAtMax grows by itself and by an operator, and no further than is allowed.
func TestGrowthEndsAtMax(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, alone(t), Options{Bits: redisbf.Options{Kind: redisbf.Bitmap, Capacity: 4_000}, AtFill: 0.8, By: 4, Max: 6_000})
	n := d.node()
	n.ready(t)
	for i := range 4_000 {
		must(t, n.learn(t.Context(), fmt.Sprintf("new-%d", i)))
	}
	bedtest.Eventually(t, "it has grown as far as it may", func() bool { v := n.view.Load(); return v.Capacity == 6_000 && v.Old == 0 })
	bedtest.Eventually(t, "it says that it is full", n.AtMax)
	if err := n.Expand(t.Context()); !errors.Is(err, filter.ErrAtMax) {
		t.Errorf("expanding past the most: %v", err)
	}
	n.works(t)
	d.neverAbsent(t, n)
	if v := n.view.Load(); v.Generation != 2 || v.Capacity != 6_000 {
		t.Errorf("generation %d of %d", v.Generation, v.Capacity)
	}
}

// TestGrowsByItself fills a set beyond its threshold.
func TestGrowsByItself(t *testing.T) {
	t.Parallel()
	srv := alone(t)
	for _, kind := range []redisbf.Kind{redisbf.Bitmap, redisbf.Bloom} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t, srv, Options{Bits: redisbf.Options{Kind: kind, Capacity: 4_000}, AtFill: 0.8, By: 2})
			a, b := d.node(), d.node()
			a.ready(t)
			for i := range 1_500 { // to 4,500 of 4,000
				err := a.learn(t.Context(), fmt.Sprintf("new-%d", i))
				if err != nil && !errors.Is(err, redisbf.ErrFull) {
					t.Fatal(err)
				}
			}
			for _, n := range []*node{a, b} {
				bedtest.Eventually(t, "it has grown", func() bool { v := n.view.Load(); return v.Capacity == 8_000 && v.Old == 0 })
				n.ready(t)
				n.works(t)
				d.neverAbsent(t, n)
			}
			bedtest.Eventually(t, "its size is known", func() bool { return b.Size().Count > 4_400 })
			if g := a.view.Load().Generation; g != 2 {
				t.Errorf("generation %d", g)
			}
		})
	}
}

// TestKeepsWhatItHas has the source fail, or forget, while the set grows.
func TestKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, alone(t), Options{AtFill: 0.8, By: 2})
	a := d.node()
	a.ready(t)
	broken := errors.New("the database is away")
	d.broken.Store(&broken)
	if err := a.Expand(t.Context()); !errors.Is(err, broken) {
		t.Fatalf("growing: %v", err)
	}
	a.works(t)
	d.broken.Store(nil)
	all := d.source
	d.setSource(all[:100])
	if err := a.Expand(t.Context()); err == nil || !strings.Contains(err.Error(), " IDs were read again, of ") {
		t.Errorf("growing with a source that has lost most: %v", err)
	}
	d.setSource(all)
	a.works(t)
	bedtest.Eventually(t, "it has grown in the end", func() bool { v := a.view.Load(); return v.Generation == 2 && v.Old == 0 })
	a.works(t)
}

// TestForgottenState deletes the state of a set that has grown, and has another
// process know nothing of it.
func TestForgottenState(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, alone(t), Options{AtFill: 0.9, By: 2})
	a := d.node()
	a.ready(t)
	must(t, a.Expand(t.Context()))
	must(t, a.client.Del(t.Context(), a.key).Err())
	bedtest.Eventually(t, "it is restored", func() bool {
		return a.client.HGet(t.Context(), a.key, "generation").Val() == "2"
	})
	b := d.node()
	b.ready(t)
	b.works(t)
	must(t, a.client.HSet(t.Context(), a.key, "capacity", "many").Err())
	bedtest.Eventually(t, "damage is told", func() bool { _, reason := a.State(); return reason != "" })
	d.neverAbsent(t, a, b)
}

// TestExpandAfterAnother grows a set that has an older generation left.
func TestExpandAfterAnother(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, alone(t), Options{AtFill: 0.9, By: 2})
	a := d.idle(d.server.connect(t))
	_, err := a.refresh(t.Context())
	must(t, err)
	must(t, a.fill(t.Context()))
	must(t, a.client.HSet(t.Context(), a.key, "old", 7, "old_shards", 1).Err())
	must(t, a.Expand(t.Context()))
	if v := a.view.Load(); v.Generation != 2 || v.Old != 0 || v.Capacity != 20_000 {
		t.Errorf("%+v", v.state)
	}
	a.run()
	a.works(t)
}
