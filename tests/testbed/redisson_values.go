package testbed

import (
	"context"
	"slices"
	"strconv"
)

// RedissonBucket is an RBucket of a string.
type RedissonBucket struct {
	thread *RedissonThread
	codec  RedissonCodec
	name   string
}

// Bucket returns the one of getBucket.
func (t *RedissonThread) Bucket(name string, codec RedissonCodec) *RedissonBucket {
	return &RedissonBucket{thread: t, codec: codec, name: name}
}

// Set sets the value.
func (b *RedissonBucket) Set(ctx context.Context, text string) error {
	_, err := b.thread.call(ctx, "set", b.args(text)...)
	return err
}

// Get returns the value, "" if there is none.
func (b *RedissonBucket) Get(ctx context.Context) (string, error) {
	return b.thread.call(ctx, "get", b.args()...)
}

func (b *RedissonBucket) args(own ...string) []string {
	return slices.Concat([]string{"bucket", string(b.codec), b.name}, own)
}

// RedissonGeo is an RGeo of strings.
type RedissonGeo struct {
	thread *RedissonThread
	codec  RedissonCodec
	name   string
}

// Geo returns the one of getGeo.
func (t *RedissonThread) Geo(name string, codec RedissonCodec) *RedissonGeo {
	return &RedissonGeo{thread: t, codec: codec, name: name}
}

// Add adds a member at a place, in degrees, and returns how many members are new.
func (g *RedissonGeo) Add(ctx context.Context, longitude, latitude float64, member string) (int64, error) {
	degrees := func(d float64) string { return strconv.FormatFloat(d, 'f', -1, 64) }
	n, _, err := g.thread.intOf(ctx, "add", "geo", string(g.codec), g.name, degrees(longitude), degrees(latitude), member)
	return n, err
}
