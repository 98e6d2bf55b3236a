package redisbf

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

// State is what a shard is good for.
type State string

// The states.
const (
	Missing State = "missing" // there is nothing in Redis
	Foreign State = "foreign" // there is something else, see ShardInfo.Problem
	Loading State = "loading" // nothing is absent from it yet
	Whole   State = "whole"
)

// Info describes a set. The numbers are those of all shards.
type Info struct {
	Kind              Kind
	Key               string
	Capacity          uint64
	FalsePositiveRate float64 // at capacity
	Whole             bool    // every shard is
	IDs               uint64  // estimated from the bits; counted by the server in the kind Bloom
	Bytes             uint64  // that Redis has for it
	FillRatio         float64 // the share of bits that are set, 0 to 1; half at capacity
	// EstimatedFalsePositiveRate is the chance that an absent ID passes now, if the
	// bits of an ID are independent of each other. In the kind Redisson they are not.
	EstimatedFalsePositiveRate float64
	Shards                     []ShardInfo
}

// ShardInfo describes one shard. Where it is missing or foreign, the numbers are 0.
type ShardInfo struct {
	Key                        string
	State                      State
	Problem                    string // what is different in a foreign one
	Bits                       uint64
	Hashes                     int
	IDs                        uint64
	Bytes                      uint64
	FillRatio                  float64
	EstimatedFalsePositiveRate float64
}

// Info asks Redis about the set, one shard after the other. A bitmap of more than
// 4 MiB is judged by a sample, which is right within 0.1% (of the IDs, at capacity,
// with a certainty of 99.99%) and keeps no server busy for longer than the count of
// 64 KiB.
func (s *Set) Info(ctx context.Context) (Info, error) {
	info := Info{Kind: s.opts.Kind, Key: s.opts.Key, Capacity: s.opts.Capacity, FalsePositiveRate: s.opts.FalsePositiveRate, Whole: true}
	for shard := range s.opts.Shards {
		sh, err := s.shardInfo(ctx, shard)
		if err != nil {
			return Info{}, fmt.Errorf("asking about filter %s: %w", s.opts.Key, err)
		}
		info.Whole = info.Whole && sh.State == Whole
		info.IDs += sh.IDs
		info.Bytes += sh.Bytes
		info.FillRatio += sh.FillRatio / float64(s.opts.Shards)
		info.EstimatedFalsePositiveRate += sh.EstimatedFalsePositiveRate / float64(s.opts.Shards)
		info.Shards = append(info.Shards, sh)
	}
	if r, is := s.kind.(*redisson); is {
		if f := r.filter.Load(); f != nil {
			info.Capacity, info.FalsePositiveRate = f.ids, f.rate
		}
	}
	return info, nil
}

func (s *Set) shardInfo(ctx context.Context, shard int) (ShardInfo, error) {
	states, err := s.kind.inspect(ctx, shard, shard+1)
	if err != nil {
		return ShardInfo{}, err
	}
	info := ShardInfo{Key: s.kind.keys(shard)[0], State: Loading, Problem: states[0].problem}
	switch {
	case states[0].missing:
		info.State = Missing
		return info, nil
	case info.Problem != "":
		info.State = Foreign
		return info, nil
	}
	stands, err := s.shardStates(ctx, shard, shard+1)
	if err != nil {
		return ShardInfo{}, err
	}
	if stands[0] == complete {
		info.State = Whole
	}
	if err := s.kind.info(ctx, shard, &info); err != nil {
		return ShardInfo{}, lookedAt(info.Key, err)
	}
	return info, nil
}

func (b *bitmap) info(ctx context.Context, shard int, to *ShardInfo) error {
	to.Bits, to.Hashes = b.bits, 2*b.words
	if err := b.set.count(ctx, to); err != nil {
		return err
	}
	load := loadOf(min(to.FillRatio, 1-1/float64(b.bits))) // a full one is as if one bit were left
	to.IDs = uint64(math.Round(load * float64(b.bits/wordBits) / float64(b.words)))
	to.EstimatedFalsePositiveRate = math.Pow(pairSet(load), float64(b.words))
	return nil
}

func (r *redisson) info(ctx context.Context, _ int, to *ShardInfo) error {
	f := r.filter.Load() // looked at before
	to.Bits, to.Hashes = f.size, f.hashes
	if err := r.set.count(ctx, to); err != nil {
		return err
	}
	to.EstimatedFalsePositiveRate = math.Pow(to.FillRatio, float64(f.hashes))
	// As RBloomFilter.count does: the number of IDs that leaves so many bits unset.
	unset := max(1-to.FillRatio, 1/float64(f.size))
	to.IDs = uint64(math.Round(-float64(f.size) / float64(f.hashes) * math.Log(unset)))
	return nil
}

func (b *bloom) info(ctx context.Context, shard int, to *ShardInfo) error {
	cmd := redis.NewCmd(ctx, "bf.info", to.Key)
	_ = b.set.client.Process(ctx, cmd) // the command has the error
	about, err := bloomInfo(cmd)
	if err != nil {
		return err
	}
	// RedisBloom returns neither bits nor hashes: these are its formulas.
	perID := bitsPerID(b.set.opts.FalsePositiveRate)
	to.Bits = uint64(math.Ceil(perID * float64(b.capacity)))
	to.Hashes = int(math.Ceil(perID * math.Ln2))
	to.IDs = uint64(about["number of items inserted"])
	to.Bytes = uint64(about["size"])
	to.FillRatio = -math.Expm1(-float64(to.Hashes) * float64(to.IDs) / float64(to.Bits))
	to.EstimatedFalsePositiveRate = math.Pow(to.FillRatio, float64(to.Hashes))
	// What tells its parameters are items too; those of a few loads are left in.
	to.IDs -= min(to.IDs, uint64(len(b.traits(shard))*traitItems))
	return nil
}

const (
	// samples of sampleBytes are counted of a large bitmap: 3.4e7 bits, of which half
	// are set give or take 9e-5, and IDs at capacity 2.5e-4 of their number.
	samples     = 64
	sampleBytes = 64 << 10
)

// count counts the bits of a bitmap, and its memory.
func (s *Set) count(ctx context.Context, info *ShardInfo) error {
	bytes := int64(info.Bits+7) / 8
	var counts []*redis.IntCmd
	var usage *redis.IntCmd
	counted := int64(0)
	redisbatch.EnsureErrors(s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		usage = p.MemoryUsage(ctx, info.Key)
		each := func(from, to int64) {
			counts = append(counts, p.BitCount(ctx, info.Key, &redis.BitCount{Start: from, End: to - 1}))
			counted += to - from
		}
		if bytes <= samples*sampleBytes {
			for from := int64(0); from < bytes; from += sampleBytes {
				each(from, min(from+sampleBytes, bytes))
			}
			return nil
		}
		// One from each of as many parts, so that they do not overlap.
		part := bytes / samples
		for i := range int64(samples) {
			from := i*part + rand.Int64N(part-sampleBytes+1)
			each(from, from+sampleBytes)
		}
		return nil
	}))
	set := int64(0)
	for _, c := range counts {
		n, err := c.Result()
		if err != nil {
			return err
		}
		set += n
	}
	info.FillRatio = min(1, float64(set)/float64(min(uint64(counted)*8, info.Bits)))
	info.Bytes = uint64(bytes)
	if n, err := usage.Result(); err == nil {
		info.Bytes = uint64(n)
	}
	return nil
}

// Whole reports whether every shard is. It takes a round trip, or a few.
func (s *Set) Whole(ctx context.Context) (bool, error) {
	states, err := s.shardStates(ctx, 0, s.opts.Shards)
	if err != nil {
		return false, fmt.Errorf("asking about filter %s: %w", s.opts.Key, err)
	}
	for _, state := range states {
		if state != complete {
			return false, nil
		}
	}
	return true, nil
}
