// Package redisbf keeps sets of order IDs in Redis, in Bloom filters that many
// processes share: those of RedisBloom, plain bitmaps, or those of Redisson, which
// Java services may fill as well.
//
// Start with [New] and [Set.Open]. A loader calls [Set.Unmark], adds all IDs by
// [Set.Add] and calls [Set.MarkWhole]; from then on [Set.Ask] answers
// Absent. Each Absent is proved by the very command that read the bits: it found
// the marks of a whole set in them. A key that is missing, evicted, replaced or
// damaged has no marks, so nothing is absent from it.
//
// A negative that was read on the primary after a request came is fresh by itself.
// What Redis acknowledged and then lost (a failover to a replica that lagged
// behind, a restart from an old dump) leaves the marks in place: a caller that cannot
// exclude that calls Unmark when it happens. Which order IDs to add, and when to
// trust an answer, is left to package filter.
package redisbf

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Kind is how a set is kept in Redis.
type Kind string

// The kinds.
const (
	// Bloom is a filter of RedisBloom, a module or a part of Redis 8; or of
	// valkey-bloom. It takes no more IDs than its capacity.
	Bloom Kind = "redis-bloom"
	// Bitmap is a string of bits, in any Redis since 6.2.
	Bitmap Kind = "redis-bitmap"
	// Redisson is an RBloomFilter of strings. Its hash is not keyed, so anybody can
	// craft IDs that pass. Its bits depend on each other: with random hashes, 1.1 to
	// 2.1 times as many pass as it promises, by its size.
	Redisson Kind = "redisson"
)

var (
	// ErrGone says that what is in Redis is not this set any more: its key is
	// missing, or is another set's. Open makes it anew.
	ErrGone = errors.New("the set is gone")
	// ErrFull says that a set of the kind Bloom takes no more IDs, or that nearly all
	// bits of one of the kind Redisson are set, so that its marks mean nothing.
	ErrFull = errors.New("the filter is full: make one of a larger capacity")
	// ErrLoadLost says that the set cannot be declared whole, since it is no longer
	// the one that the load began with, or since another load began later.
	ErrLoadLost = errors.New("the set was unmarked, dropped or lost since the load began")

	// ErrOtherSecret says that a set is there which was made with another secret, and
	// is the same in everything else.
	ErrOtherSecret = errors.New("the set has another secret")

	errReplica = errors.New("the server is a replica")
	errTooOld  = errors.New("the server is older than Redis 6.2, or has no Bloom filters: neither RedisBloom nor valkey-bloom")
	errNotOpen = errors.New("the set was not opened")
	errNotText = errors.New("the ID is not UTF-8")
	errClosed  = errors.New("the set is closed")
)

// Set is a set of IDs in Redis, in one or more shards. All methods are safe for
// concurrent use, also by any number of processes.
type Set struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // client, if it is one
	opts    Options
	kind    kind
	hash    hasher
	load    load // the one that Unmark began
	lookups lookups
}

// kind is what is different from kind to kind.
type kind interface {
	// keys returns the keys of a shard. The first is the one with the bits.
	keys(shard int) []string
	// inspect looks at shards, from one up to another.
	inspect(ctx context.Context, from, to int) ([]found, error)
	// create returns the call that makes a shard which is missing.
	create(shard int, made *bool) *call
	// queueLookup queues one query for the IDs in a shard, which Redis answers
	// atomically, and returns how to read the answers.
	queueLookup(p redis.Pipeliner, shard int, ids []string) readAnswers
	// add returns the calls that add the IDs to a shard.
	add(shard int, ids []string) ([]*call, error)
	// unmark returns the call by which a shard stops being whole and a load with
	// this name begins. What it sets end to is given to mark.
	unmark(shard int, load string, end *int64) (*call, error)
	// rewind forgets how many loads of a shard there were, and reports whether there
	// is anything to forget.
	rewind(shard int) bool
	// mark returns the call that declares a shard whole.
	mark(shard int, load string, end int64) (*call, error)
	// info returns more of a shard that is there.
	info(ctx context.Context, shard int, to *ShardInfo) error
	// atomic reports whether a query takes several commands, in a transaction.
	atomic() bool
	// most is how many IDs one query or call may have.
	most() int
}

// New returns a set. It does not talk to Redis: [Set.Open] does. The error says
// which option is impossible; too few shards for the capacity are, and it says how
// many are needed. A client that may read from replicas is refused.
func New(client redis.UniversalClient, opts Options) (*Set, error) {
	s := &Set{client: client, opts: opts}
	s.opts.EnsureDefaults()
	if err := s.opts.Validate(); err != nil {
		return nil, fmt.Errorf("filter %s: %w", opts.Key, err)
	}
	switch c := client.(type) {
	case *redis.Client:
	case *redis.ClusterClient:
		if o := c.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return nil, fmt.Errorf("filter %s: the client may read from replicas, which lag behind", opts.Key)
		}
		s.cluster = c
	default:
		return nil, fmt.Errorf("filter %s: a client of type %T is not supported", opts.Key, client)
	}
	s.hash = newHasher(s.opts)
	switch s.opts.Kind {
	case Bloom:
		s.kind = newBloom(s)
	case Bitmap:
		s.kind = newBitmap(s)
	case Redisson:
		s.kind = newRedisson(s)
	}
	s.lookups.start(s)
	return s, nil
}

// Open makes the shards that are missing, and checks those that are there: the
// type of the key and all parameters. The error names the key and what is
// different; then nothing was made. Several processes may open a set at once; of
// those with different options one succeeds. A shard that was made is not whole.
//
// To make a bitmap takes its server a moment, in which it does nothing else: 360 MB
// were filled with zeros in 0.26 s.
func (s *Set) Open(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return fmt.Errorf("opening filter %s: %w", s.opts.Key, err)
	}
	return nil
}

// Drop deletes the set. What is added to it later is refused with [ErrGone] until
// it is opened again, but for the kind Redisson, where it makes a new bitmap, which
// is not whole.
func (s *Set) Drop(ctx context.Context) error {
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard := range s.opts.Shards {
			p.Unlink(ctx, s.kind.keys(shard)...)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("dropping filter %s: %w", s.opts.Key, err)
	}
	return nil
}

// Keys returns all keys of the set.
func (s *Set) Keys() (keys []string) {
	for shard := range s.opts.Shards {
		keys = append(keys, s.kind.keys(shard)...)
	}
	return keys
}

// Close waits for the lookups that are queued or on their way; later ones are refused. The
// client stays open.
func (s *Set) Close() { s.lookups.close() }
