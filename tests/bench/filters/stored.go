package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed"
)

// stored is a set in Redis that many ask at once.
type stored interface {
	// add adds IDs.
	add(ctx context.Context, ids []string) error
	// whole says that all IDs were added.
	whole(ctx context.Context) error
	// has asks for one ID. It blocks, and is safe for concurrent use.
	has(ctx context.Context, id string) (bool, error)
	close()
}

// storedCandidate is one way to keep a set in Redis and to ask for an ID. Each has a
// database of its own.
type storedCandidate struct {
	name string
	open func(ctx context.Context, client *redis.Client, n int, rate float64) (stored, error)
}

const (
	nameEach     = "one BF.EXISTS each" // the yardstick: what one writes with a client
	nameBloom    = "ordergate redis-bloom"
	nameBitmap   = "ordergate redis-bitmap"
	nameRedisson = "ordergate redisson"
)

func storedCandidates() []storedCandidate {
	return []storedCandidate{
		{nameEach, openEach},
		{nameBloom, openRedis(redisbf.Bloom)},
		{nameBitmap, openRedis(redisbf.Bitmap)},
		{nameRedisson, openRedis(redisbf.Redisson)},
	}
}

const orderKey = "orders"

// each asks by one command an ID, and proves nothing: a filter that is gone says no.
type each struct{ client *redis.Client }

func openEach(ctx context.Context, client *redis.Client, n int, rate float64) (stored, error) {
	return each{client}, client.BFReserveNonScaling(ctx, orderKey, rate, int64(n)).Err()
}

func (e each) add(ctx context.Context, ids []string) error {
	for chunk := range slices.Chunk(ids, 1000) {
		args := make([]any, len(chunk))
		for i, id := range chunk {
			args[i] = id
		}
		if err := e.client.BFMAdd(ctx, orderKey, args...).Err(); err != nil {
			return err
		}
	}
	return nil
}

func (e each) whole(context.Context) error { return nil }

func (e each) has(ctx context.Context, id string) (bool, error) {
	return e.client.BFExists(ctx, orderKey, id).Result()
}

func (e each) close() {}

// kept is a set of ours, which proves each absence.
type kept struct{ *redisbf.Set }

func openRedis(kind redisbf.Kind) func(context.Context, *redis.Client, int, float64) (stored, error) {
	return func(ctx context.Context, client *redis.Client, n int, rate float64) (stored, error) {
		s, err := redisbf.New(client, redisbf.Options{
			Kind: kind, Key: orderKey, Capacity: uint64(n), FalsePositiveRate: rate, Secret: benchKey,
		})
		if err != nil {
			return nil, err
		}
		if err := errors.Join(s.Open(ctx), s.Unmark(ctx)); err != nil {
			s.Close()
			return nil, err
		}
		return kept{s}, nil
	}
}

func (k kept) add(ctx context.Context, ids []string) error { return k.Add(ctx, ids) }
func (k kept) whole(ctx context.Context) error             { return k.MarkWhole(ctx) }
func (k kept) close()                                      { k.Close() }

func (k kept) has(ctx context.Context, id string) (bool, error) {
	answer, err := k.Ask(ctx, id)
	if err == nil && answer == presence.Unknown {
		err = errors.New("the set is not whole")
	}
	return answer == presence.Maybe, err
}

// pickStored returns those whose names were chosen.
func pickStored(all []storedCandidate, chosen []string) []storedCandidate {
	return slices.DeleteFunc(all, func(c storedCandidate) bool { return !slices.Contains(chosen, c.name) })
}

// measureStored measures all sizes on one Redis, which is emptied between them.
func measureStored(ctx context.Context, who []storedCandidate, s settings, progress io.Writer) (all []results, err error) {
	err = benchmark.OnBed(func(bed *testbed.Bed) error {
		args, err := bed.RedisBloomArgs()
		if err != nil {
			return err
		}
		starting, cancel := context.WithTimeout(ctx, startLimit)
		defer cancel()
		server, err := bed.Redis(starting, args...)
		if err != nil {
			return err
		}
		for _, n := range s.stored {
			r, err := measureAt(ctx, server.Addr(), n, who, s, progress)
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		return nil
	})
	return all, err
}

// measureAt measures sets of n IDs of all candidates.
func measureAt(ctx context.Context, addr string, n int, who []storedCandidate, s settings, progress io.Writer) (results, error) {
	control := redis.NewClient(&redis.Options{Addr: addr})
	defer control.Close()
	if err := control.FlushAll(ctx).Err(); err != nil {
		return results{}, fmt.Errorf("emptying Redis: %w", err)
	}
	var sets []subject
	var names []string
	for i, c := range who {
		client := redis.NewClient(&redis.Options{Addr: addr, DB: i, PoolSize: callers, ContextTimeoutEnabled: true})
		defer client.Close()
		set, err := c.open(ctx, client, n, s.rate)
		if err != nil {
			return results{}, fmt.Errorf("opening %s: %w", c.name, err)
		}
		defer set.close()
		if err := fill(ctx, set, n); err != nil {
			return results{}, fmt.Errorf("filling %s: %w", c.name, err)
		}
		takes, err := memoryUsage(ctx, client)
		if err != nil {
			return results{}, fmt.Errorf("asking for the memory of %s: %w", c.name, err)
		}
		fmt.Fprintf(progress, "%d IDs in Redis: %s is filled\n", n, c.name)
		sets = append(sets, subject{c.name, set, benchmark.Sample{
			bytesPerID: float64(takes) / float64(n), overFormula: 100 * (8*float64(takes)/bloomBits(n, s.rate) - 1),
		}})
		names = append(names, c.name)
	}
	return askStored(ctx, control, newResults(storedSection(n), names), sets, s, progress)
}

func fill(ctx context.Context, set stored, n int) error {
	for at := 0; at < n; at += chunkIDs {
		if err := set.add(ctx, texts(min(chunkIDs, n-at), func(i int) uint64 { return idOf(at + i) })); err != nil {
			return err
		}
	}
	return set.whole(ctx)
}

// bloomBits is what a Bloom filter takes that is half full at its capacity:
// m = -n ln p / (ln 2)^2 (Bloom, 1970).
func bloomBits(n int, rate float64) float64 {
	return -float64(n) * math.Log(rate) / (math.Ln2 * math.Ln2)
}

// memoryUsage returns the bytes of all keys of a database.
func memoryUsage(ctx context.Context, client *redis.Client) (total int64, err error) {
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil {
		return 0, err
	}
	for _, key := range keys {
		n, err := client.MemoryUsage(ctx, key).Result()
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
