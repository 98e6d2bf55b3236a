package redisset

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/internal/presence"
)

// target is the bits of one generation. Its methods are safe for concurrent use.
type target interface {
	name() string
	// query answers Absent only if that was read in Redis after the call.
	query(ctx context.Context, id string) (presence.Answer, error)
	// add returns nil once Redis has acknowledged all IDs. With ErrGone the set of some IDs is
	// missing; the others were added.
	add(ctx context.Context, ids []string) error
	// incomplete returns its incomplete sets. The errors are those of redisbf about a foreign
	// set.
	incomplete(ctx context.Context) ([]*redisbf.Set, error)
	// sets returns all sets that it consists of now.
	sets() ([]*redisbf.Set, error)
	// unmark makes every miss Unknown.
	unmark(ctx context.Context) error
	drop(ctx context.Context) error
	info(ctx context.Context) (Info, error)
	close()
}

// Info describes a set, as redisbf.Info does.
type Info struct {
	Generation int
	Capacity   uint64
	IDs        uint64
	Bytes      uint64
	FillRatio  float64 // of the fullest segment
	// EstimatedFalsePositiveRate is the chance that an absent ID passes now, if all segments
	// are read. It is smaller for an ID with a day.
	EstimatedFalsePositiveRate float64
	Parts                      []redisbf.Info
}

// single is one set.
type single struct {
	set atomic.Pointer[redisbf.Set]
	key string
	// newSet, if not nil, creates the set again with the parameters that Redis has then. They
	// are checked until the set is complete: Java services may create it, and create it anew
	// with others.
	newSet   func() (*redisbf.Set, error)
	complete atomic.Bool
}

func newSingle(client redis.UniversalClient, bits redisbf.Options) (*single, error) {
	t := &single{key: bits.Key}
	set, err := redisbf.New(client, bits)
	if err != nil {
		return nil, err
	}
	t.set.Store(set)
	if bits.Kind == redisbf.Redisson {
		t.newSet = func() (*redisbf.Set, error) { return redisbf.New(client, bits) }
	}
	return t, nil
}

func (t *single) name() string { return t.key }

func (t *single) query(ctx context.Context, id string) (presence.Answer, error) {
	return t.set.Load().Ask(ctx, id)
}

func (t *single) add(ctx context.Context, ids []string) error { return t.set.Load().Add(ctx, ids) }

func (t *single) sets() ([]*redisbf.Set, error) { return []*redisbf.Set{t.set.Load()}, nil }

func (t *single) incomplete(ctx context.Context) ([]*redisbf.Set, error) {
	for {
		was := t.complete.Load()
		if t.newSet != nil && !was {
			if err := t.reopen(ctx); err != nil {
				return nil, err
			}
		}
		lacking, err := incompleteOf(ctx, []*redisbf.Set{t.set.Load()})
		whole := err == nil && len(lacking) == 0
		t.complete.Store(whole)
		if t.newSet == nil || whole || !was {
			return lacking, err
		}
	}
}

// reopen replaces a set whose parameters have changed.
func (t *single) reopen(ctx context.Context) error {
	was := t.set.Load()
	if was.Open(ctx) == nil {
		return nil
	}
	now, err := t.newSet()
	if err != nil {
		return err
	}
	if err := now.Open(ctx); err != nil {
		now.Close()
		return err
	}
	if !t.set.CompareAndSwap(was, now) {
		now.Close() // another call was faster
		return nil
	}
	go was.Close() // it waits for the running queries
	return nil
}

// incompleteOf returns the incomplete ones of sets.
func incompleteOf(ctx context.Context, sets []*redisbf.Set) (lacking []*redisbf.Set, err error) {
	for _, set := range sets {
		whole, err := set.Whole(ctx)
		if err != nil {
			return nil, err
		}
		if !whole {
			lacking = append(lacking, set)
		}
	}
	return lacking, nil
}

func (t *single) unmark(ctx context.Context) error { return t.set.Load().Unmark(ctx) }
func (t *single) drop(ctx context.Context) error   { return t.set.Load().Drop(ctx) }
func (t *single) close()                           { t.set.Load().Close() }

func (t *single) info(ctx context.Context) (Info, error) {
	return infoOf(ctx, []*redisbf.Set{t.set.Load()})
}

func infoOf(ctx context.Context, sets []*redisbf.Set) (all Info, err error) {
	stopped := 1.0
	for _, set := range sets {
		info, err := set.Info(ctx)
		if err != nil {
			return Info{}, fmt.Errorf("reading the filter in Redis: %w", err)
		}
		all.Capacity += info.Capacity
		all.IDs += info.IDs
		all.Bytes += info.Bytes
		all.FillRatio = max(all.FillRatio, info.FillRatio)
		stopped *= 1 - info.EstimatedFalsePositiveRate
		all.Parts = append(all.Parts, info)
	}
	all.EstimatedFalsePositiveRate = 1 - stopped
	return all, nil
}
