package redisset

import (
	"context"
	"errors"
	"testing"

	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/internal/presence"
)

// TestTrustHalfFilled has an operator trust a set that an ordergate has filled half when it
// ended.
func TestTrustHalfFilled(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, alone(t), Options{})
	all := d.opts.Fill
	ended := errors.New("it ended")
	d.opts.Fill = func(_ context.Context, add func(string) error) error {
		for _, id := range d.source[:batchSize] {
			must(t, add(id))
		}
		return ended
	}
	half := d.idle(d.server.connect(t))
	if err := half.fill(t.Context()); !errors.Is(err, ended) {
		t.Fatal(err)
	}
	if err := half.Trust(t.Context(), nil); !errors.Is(err, ErrFilled) {
		t.Errorf("it is trusted: %v", err)
	}
	d.opts.Fill = all
	n := d.node()
	d.neverAbsent(t, half, n)
	n.ready(t)
	n.works(t)
}

// TestRedissonAfterAnother has the filter be of kind redisson from now on. Java services know
// it by its key, whatever the set before was like, and whatever was being done to that.
func TestRedissonAfterAnother(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, alone(t), Options{Bits: redisbf.Options{Shards: 3}, AtFill: 0.9, By: 2})
	before := d.idle(d.server.connect(t))
	_, err := before.refresh(t.Context())
	must(t, err)
	must(t, before.fill(t.Context()))
	must(t, before.Expand(t.Context()))
	d.opts.Bits = redisbf.Options{Kind: redisbf.Redisson, Key: "java-" + d.opts.Name, Capacity: 10_000}
	d.opts.AtFill, d.opts.By = 0, 0
	java, err := redisbf.New(before.client, d.opts.Bits)
	must(t, err)
	defer java.Close()
	must(t, java.Open(t.Context()))
	must(t, java.Add(t.Context(), []string{"of-java"}))
	// It is growing, and an older generation of it is to be dropped.
	must(t, before.client.HSet(t.Context(), before.key, "next", 3, "next_capacity", 40_000, "next_shards", 3, "old", 1, "old_shards", 3).Err())
	n := d.node()
	n.ready(t)
	n.works(t)
	if a := n.settled(t, "of-java"); a != presence.Maybe {
		t.Errorf("what Java added is %v", a)
	}
	must(t, java.Add(t.Context(), []string{"of-java-2"}))
	if a := n.settled(t, "of-java-2"); a != presence.Maybe {
		t.Errorf("what Java added then is %v", a)
	}
}
