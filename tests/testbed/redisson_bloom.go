package testbed

import (
	"context"
	"slices"
	"strconv"
)

// RedissonCodec is how Redisson turns a string into the bytes that it hashes.
type RedissonCodec string

// The codecs.
const (
	StringCodec  RedissonCodec = "string"  // UTF-8
	DefaultCodec RedissonCodec = "default" // Kryo, what a service has that chose none
	LongCodec    RedissonCodec = "long"    // the same, of Long instead of String
)

// RedissonBloomFilter is an RBloomFilter of strings.
type RedissonBloomFilter struct {
	thread *RedissonThread
	codec  RedissonCodec
	name   string
}

// BloomFilter returns the one of getBloomFilter.
func (t *RedissonThread) BloomFilter(name string, codec RedissonCodec) *RedissonBloomFilter {
	return &RedissonBloomFilter{thread: t, codec: codec, name: name}
}

// TryInit makes the filter for so many items at a rate of false positives, unless
// it is there already, which it reports.
func (f *RedissonBloomFilter) TryInit(ctx context.Context, items int64, rate float64) (bool, error) {
	return f.thread.boolOf(ctx, "tryInit", f.args(
		strconv.FormatInt(items, 10), strconv.FormatFloat(rate, 'g', -1, 64))...)
}

// Add adds an item and reports whether it was new, as far as the filter knows.
func (f *RedissonBloomFilter) Add(ctx context.Context, item string) (bool, error) {
	return f.thread.boolOf(ctx, "add", f.args(item)...)
}

// Contains reports whether the item may have been added.
func (f *RedissonBloomFilter) Contains(ctx context.Context, item string) (bool, error) {
	return f.thread.boolOf(ctx, "contains", f.args(item)...)
}

// Count estimates how many items were added.
func (f *RedissonBloomFilter) Count(ctx context.Context) (int64, error) {
	n, _, err := f.thread.intOf(ctx, "count", f.args()...)
	return n, err
}

func (f *RedissonBloomFilter) args(own ...string) []string {
	return slices.Concat([]string{"bloom", string(f.codec), f.name}, own)
}
