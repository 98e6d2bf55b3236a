package loader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/rediskey"
	"github.com/ordergate/ordergate/internal/rules"
)

// newSet returns a filter's set in Redis. The instance that fills it reads the sources and the
// change log. Other programs fill a set of Redisson without sources.
func (o *Options) newSet(name string, c config.Filter, loader *Loader, beside filter.Options) (*redisset.Set, error) {
	set, err := redisset.New(o.Redis, o.setOptions(name, c, loader, beside))
	if loader.checkpoints != nil {
		loader.checkpoints.set = set
	}
	return set, err
}

func (o *Options) setOptions(name string, c config.Filter, loader *Loader, beside filter.Options) redisset.Options {
	opts := redisset.Options{
		Name: name, Bits: bitsOf(c), Segments: beside.Segments, CanonicalForms: beside.CanonicalForms,
		Forms: shortSum(strings.Join(rules.Forms(rules.IDsOf(o.Config, name)), "\n")),
		Fill:  loader.refill, Logger: o.Logger,
	}
	if c.Freshness.Mode == config.FreshnessNone && len(c.Sources) > 0 {
		opts.Fill = loader.sourcesWithoutLog
	}
	opts.LeaderLock = o.leaderLock(name, workExpand)
	if c.InRedis() == config.FilterRedisson && len(c.Sources) == 0 {
		opts.Fill, opts.LeaderLock = nil, nil
	}
	if c.Expand != nil {
		opts.AtFill, opts.By, opts.Max = c.Expand.AtFill, c.Expand.By, c.Expand.Max
	}
	if len(loader.sources) > 0 && c.Kind != config.FilterLayered { // else memory has them
		loader.checkpoints = &checkpointStore{client: o.Redis, keys: []string{rediskey.Of(name, "places"), redisset.StateKey(name)}, tables: loader.tables(), files: loader.files()}
		loader.checkpoints.name = shortSum(fmt.Sprintf("%q %q %+v %q", opts.Bits.Kind, opts.Bits.Key, c.Segments, opts.Forms))
		opts.Checkpoints = loader.checkpoints
		opts.OnIncomplete = func(reason string) { loader.filter.Doubt(filter.Doubt{Reason: reason, Recovery: filter.ByReload}) }
	}
	return opts
}

// refill is readEverything for a set. What the log has lost is a doubt of its own, which an operator
// clears.
func (u *Loader) refill(ctx context.Context, add func(id string) error) error {
	err := u.readEverything(ctx, add)
	if errors.Is(err, changelog.ErrLost) {
		return u.readSources(ctx, add)
	}
	return err
}

// sourcesWithoutLog is everything, for a filter whose sources have every order there is:
// it does without a log that was lost.
func (u *Loader) sourcesWithoutLog(ctx context.Context, add func(id string) error) error {
	err := u.readEverything(ctx, add)
	if errors.Is(err, changelog.ErrBroken) || errors.Is(err, changelog.ErrLost) {
		return u.readSources(ctx, add)
	}
	return err
}

// bitsOf returns the options of the bits in Redis. Other programs determine the size of a
// Redisson filter that they fill.
func bitsOf(c config.Filter) redisbf.Options {
	bits := redisbf.Options{
		Kind: redisbf.Kind(c.InRedis()), Key: c.KeyPrefix, Capacity: c.Capacity, FalsePositiveRate: c.FalsePositiveRate,
		Shards: c.Shards, Codec: redisbf.Codec(c.Codec),
	}
	if c.Elements == config.ElementsLong {
		bits.Codec = redisbf.LongCodec
	}
	if c.Secret != "" {
		bits.Secret = filterKey(c.Secret)
	}
	if bits.Kind == redisbf.Redisson && len(c.Sources) == 0 {
		bits.Capacity, bits.FalsePositiveRate = 0, 0
	}
	return bits
}

// CheckSets returns an error for a filter in Redis whose shards would be too large.
func CheckSets(c *config.Config) error {
	for _, name := range slices.Sorted(maps.Keys(c.Filters)) {
		if c.Filters[name].InRedis() == "" {
			continue
		}
		bits := bitsOf(c.Filters[name])
		bits.Secret = [16]byte{1} // another may be found in Redis
		bits.EnsureDefaults()
		if err := bits.Validate(); err != nil {
			return fmt.Errorf("filters.%s: %w", name, err)
		}
	}
	return nil
}

const (
	// initialCapacity is how many IDs there is room for at first in the memory of a filter in
	// Redis, which holds those of the change log.
	initialCapacity = 1 << 16
	// MemoryShare is the share of the false positive rate that memory may add to that of the
	// set in Redis.
	MemoryShare = 1.0 / 8
)

// besideSet adapts the part in memory to a set in Redis.
func besideSet(opts *filter.Options, c config.Filter, set *redisset.Set) {
	opts.Remote = set
	opts.FalsePositiveRate *= MemoryShare
	if c.Kind != config.FilterLayered {
		opts.Capacity, opts.Segments = initialCapacity, nil
	}
}
