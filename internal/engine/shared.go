package engine

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
)

// shared returns the set in Redis of a filter. Who fills it reads the sources and
// the change log; one of Redisson's without sources is filled by others.
func (m *Engine) shared(name string, c config.Filter, unit *filterUnit, beside filter.Options) (*redisset.Set, error) {
	set, err := redisset.New(m.redis, m.sharedOptions(name, c, unit, beside))
	if unit.places != nil {
		unit.places.set = set
	}
	return set, err
}

func (m *Engine) sharedOptions(name string, c config.Filter, unit *filterUnit, beside filter.Options) redisset.Options {
	opts := redisset.Options{
		Name: name, Bits: bitsOf(c), Segments: beside.Segments, CanonicalForms: beside.CanonicalForms,
		Forms: shortSum(strings.Join(forms(rulesOf(m.config, name)), "\n")),
		Fill:  unit.everything, Logger: m.log,
	}
	if c.Freshness.Mode == config.FreshnessNone && len(c.Sources) > 0 {
		opts.Fill = unit.sourcesAtLeast
	}
	opts.LeaderLock = func(ctx context.Context) (context.Context, int64, func(), error) { return m.turn(ctx, name) }
	if c.InRedis() == config.FilterRedisson && len(c.Sources) == 0 {
		opts.Fill, opts.LeaderLock = nil, nil
	}
	if c.Expand != nil {
		opts.AtFill, opts.By, opts.Max = c.Expand.AtFill, c.Expand.By, c.Expand.Max
	}
	if tables := unit.live(); len(tables) > 0 && c.Kind != config.FilterLayered { // else memory has them
		unit.places = &places{client: m.redis, keys: []string{"ordergate:{" + name + "}:places", redisset.StateKey(name)}, tables: tables}
		unit.places.name = shortSum(fmt.Sprintf("%q %q %+v %q", opts.Bits.Kind, opts.Bits.Key, c.Segments, opts.Forms))
		opts.Checkpoints = unit.places
		opts.OnIncomplete = func(reason string) { unit.filter.Doubt(filter.Doubt{Reason: reason}) }
	}
	return opts
}

// sourcesAtLeast is everything, for a filter whose sources have every order there is:
// it does without a log that was lost.
func (u *filterUnit) sourcesAtLeast(ctx context.Context, add func(id string) error) error {
	if err := u.everything(ctx, add); !errors.Is(err, changelog.ErrBroken) {
		return err
	}
	return nil
}

// bitsOf returns what the bits in Redis are made of. The size of a filter of
// Redisson that others fill is theirs.
func bitsOf(c config.Filter) redisbf.Options {
	bits := redisbf.Options{
		Kind: redisbf.Kind(c.InRedis()), Key: c.KeyPrefix, Capacity: c.Capacity, FalsePositiveRate: c.FalsePositiveRate,
		Shards: c.Shards, Codec: redisbf.Codec(c.Codec),
	}
	if c.Secret != "" {
		bits.Secret = filterKey(c.Secret)
	}
	if bits.Kind == redisbf.Redisson && len(c.Sources) == 0 {
		bits.Capacity, bits.FalsePositiveRate = 0, 0
	}
	return bits
}

// LoadConfig reads a configuration, and checks it as far as that can be done without
// a server. The error has a line for each violation.
func LoadConfig(file string, getenv func(string) string) (*config.Config, error) {
	c, _, err := LoadConfigWith(file, config.Options{Getenv: getenv})
	return c, err
}

// LoadConfigWith is LoadConfig with options, of which CheckTable is set here.
func LoadConfigWith(file string, o config.Options) (*config.Config, config.Aside, error) {
	o.CheckTable = checkTable
	c, aside, err := config.LoadWith(file, o)
	if err == nil && o.Uses == nil {
		err = bitsFit(c)
	}
	return c, aside, err
}

// bitsFit reports a filter in Redis whose shards would be too large.
func bitsFit(c *config.Config) error {
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
	// followed is how many IDs there is room for at first in the memory of a filter in
	// Redis, which holds those of the change log.
	followed = 1 << 16
	// MemoryShare is the part of the false positive rate that memory may add to that of
	// the set in Redis.
	MemoryShare = 1.0 / 8
)

// besideShared fits what is in memory to a set in Redis.
func besideShared(opts *filter.Options, c config.Filter, set *redisset.Set) {
	opts.Remote = set
	opts.FalsePositiveRate *= MemoryShare
	if c.Kind != config.FilterLayered {
		opts.Capacity, opts.Segments = followed, nil
	}
}
