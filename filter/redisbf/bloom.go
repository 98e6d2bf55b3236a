package redisbf

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/redisbatch"
)

// reserve is room in each filter for the marks of a hundred loads.
const reserve = 1024

var (
	bloomCreate = compose("bloom_create")
	bloomUnmark = compose("bloom", "marks", "unmark")
	bloomMark   = compose("bloom", "marks", "mark")
)

// bloom is the kind Bloom. An ID goes in as its digest: the server's own hash is
// not keyed.
type bloom struct {
	set      *Set
	marks    *marks
	capacity uint64 // of one shard, with the reserve
	shards   [][]string
}

func newBloom(s *Set) *bloom {
	o := s.opts
	b := &bloom{set: s, capacity: shardCapacity(o.Capacity, o.Shards) + reserve, shards: make([][]string, o.Shards)}
	for i := range b.shards {
		b.shards[i] = []string{fmt.Sprintf("%s:{%d}", o.Key, i)}
	}
	b.marks = newMarks(s, fmt.Sprintf("bloom capacity=%d rate=%g shards=%d", o.Capacity, o.FalsePositiveRate, o.Shards), o.FalsePositiveRate)
	return b
}

func (b *bloom) keys(shard int) []string { return b.shards[shard] }
func (b *bloom) atomic() bool            { return false }
func (b *bloom) most() int               { return maxIDs }

func (b *bloom) queueLookup(p redis.Pipeliner, shard int, ids []string) readAnswers {
	g := b.marks.of(shard)
	args := append(make([]any, 0, 2+len(g.items)+len(ids)), "bf.mexists", b.keys(shard)[0])
	for i := range g.items {
		args = append(args, &g.items[i])
	}
	for _, id := range ids {
		args = append(args, b.set.hash.digest(id))
	}
	cmd := redis.NewBoolSliceCmd(context.Background(), args...)
	_ = p.Process(context.Background(), cmd) // only queued
	return func(answers []presence.Answer) (shardState, error) {
		has, err := cmd.Result()
		if err != nil {
			return incomplete, err
		}
		return b.marks.answers(shard, g, has, answers)
	}
}

// add never makes a filter, which would be one of other parameters.
func (b *bloom) add(shard int, ids []string) ([]*call, error) {
	args := append(make([]any, 0, 4+len(ids)), "bf.insert", b.keys(shard)[0], "nocreate", "items")
	for _, id := range ids {
		args = append(args, b.set.hash.digest(id))
	}
	return []*call{{args: args, shard: shard, read: func(reply any) error {
		results, _ := reply.([]any)
		for _, r := range results {
			if err, failed := r.(error); failed {
				return inserting(err)
			}
		}
		if len(results) != len(ids) {
			return fmt.Errorf("%d values in an answer of %d", len(results), len(ids))
		}
		return nil
	}, failed: inserting}}, nil
}

// inserting names the errors of BF.INSERT. On Valkey, they end the script that has it.
func inserting(err error) error {
	switch text := strings.ToLower(err.Error()); {
	case strings.Contains(text, "filter is full"):
		return ErrFull
	case strings.Contains(text, "not found"), strings.Contains(text, "no such key"):
		return ErrGone
	}
	return err
}

func (b *bloom) unmark(shard int, load string, end *int64) (*call, error) {
	items, read := b.marks.unmarkItems(shard, load, end)
	return b.markCall(bloomUnmark(), shard, items, read), nil
}

func (b *bloom) rewind(shard int) bool { return b.marks.rewind(shard) }

func (b *bloom) mark(shard int, load string, end int64) (*call, error) {
	items, read := b.marks.markItems(shard, load, end)
	return b.markCall(bloomMark(), shard, items, read), nil
}

func (b *bloom) markCall(script *redisbatch.Script, shard int, items []string, read func(any) error) *call {
	args := []any{b.marks.n, lookAhead}
	for i := range items {
		args = append(args, &items[i])
	}
	return &call{script: script, keys: b.keys(shard), args: args, shard: shard, read: read, failed: inserting}
}

// trait is a parameter of a filter, which it has as items in it: a server does not
// return all parameters. That of the secret is keyed.
type trait struct {
	what  string
	items [traitItems]any
}

// traitItems are enough for a filter to have none by chance: see chance. Their
// number is the same in all filters, so that one can be told from another.
const traitItems = 8

func (b *bloom) traits(shard int) []trait {
	o := b.set.opts
	open := newHasher(Options{})
	traits := []trait{
		{what: fmt.Sprintf("capacity=%d", o.Capacity)}, {what: fmt.Sprintf("rate=%g", o.FalsePositiveRate)},
		{what: fmt.Sprintf("shards=%d", o.Shards)}, {what: fmt.Sprintf("shard=%d", shard)},
		{what: thisSecret},
	}
	for i := range traits {
		h := &open
		if i == len(traits)-1 {
			h = &b.set.hash
		}
		for j := range traits[i].items {
			traits[i].items[j] = h.markItem(fmt.Sprintf("bloom %s/%d", traits[i].what, j))
		}
	}
	return traits
}

func (b *bloom) create(shard int, made *bool) *call {
	args := []any{b.set.opts.FalsePositiveRate, b.capacity}
	for _, t := range b.traits(shard) {
		args = append(args, t.items[:]...)
	}
	return b.set.creation(bloomCreate(), shard, b.keys(shard), made, args...)
}

func (b *bloom) inspect(ctx context.Context, from, to int) ([]found, error) {
	about := make([]*redis.Cmd, to-from)
	types := make([]*redis.StatusCmd, to-from)
	has := make([]*redis.BoolSliceCmd, to-from)
	redisbatch.EnsureErrors(b.set.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range about {
			key := b.keys(from + i)[0]
			types[i] = p.Type(ctx, key)
			about[i] = redis.NewCmd(ctx, "bf.info", key)
			_ = p.Process(ctx, about[i])
			args := []any{"bf.mexists", key}
			for _, t := range b.traits(from + i) {
				args = append(args, t.items[:]...)
			}
			has[i] = redis.NewBoolSliceCmd(ctx, args...)
			_ = p.Process(ctx, has[i])
		}
		return nil
	}))
	states := make([]found, to-from)
	for i := range states {
		key := b.keys(from + i)[0]
		is, err := types[i].Result()
		if err != nil {
			return nil, lookedAt(key, err)
		}
		if is == "none" {
			states[i].missing = true
			continue
		}
		info, err := bloomInfo(about[i])
		if err != nil {
			states[i].problem = fmt.Sprintf("%s is of the type %s, not a Bloom filter", key, is)
			continue
		}
		present, err := has[i].Result()
		if err != nil {
			return nil, lookedAt(key, err)
		}
		if differs := b.differs(from+i, info, present); differs != "" {
			states[i].problem = key + " " + differs
			states[i].foreign = differs == notMadeWith+thisSecret
		}
	}
	return states, nil
}

// What is said of a filter with another secret, and nothing else that is different.
const (
	notMadeWith = "was not made with "
	thisSecret  = "this secret"
)

// differs says what is different in a filter that has so much of its traits, or
// nothing.
func (b *bloom) differs(shard int, info map[string]int64, has []bool) string {
	var lacks []string
	for _, t := range b.traits(shard) {
		if !all(has[:len(t.items)]) {
			lacks = append(lacks, t.what)
		}
		has = has[len(t.items):]
	}
	switch {
	case len(lacks) == len(b.traits(shard)):
		return "is a Bloom filter, but not one of ordergate's"
	case len(lacks) > 0:
		return notMadeWith + strings.Join(lacks, ", ")
	case info["capacity"] != int64(b.capacity):
		return fmt.Sprintf("has a capacity of %d, not %d", info["capacity"], b.capacity)
	case info["number of filters"] != 1:
		return fmt.Sprintf("has %d layers, not 1", info["number of filters"])
	}
	return ""
}

// bloomInfo reads the numbers of BF.INFO, by their names in lower case. Servers
// have different ones besides those needed here.
func bloomInfo(cmd *redis.Cmd) (map[string]int64, error) {
	reply, err := cmd.Result()
	if err != nil {
		return nil, err
	}
	info := make(map[string]int64)
	note := func(name, value any) {
		if n, is := value.(int64); is {
			info[strings.ToLower(fmt.Sprint(name))] = n
		}
	}
	switch reply := reply.(type) {
	case map[any]any: // RESP3
		for name, value := range reply {
			note(name, value)
		}
	case []any:
		for pair := range slices.Chunk(reply, 2) {
			note(pair[0], pair[len(pair)-1])
		}
	}
	for _, name := range []string{"capacity", "size", "number of filters", "number of items inserted"} {
		if _, has := info[name]; !has {
			return nil, fmt.Errorf("the server does not report the %s of a filter", name)
		}
	}
	return info, nil
}
