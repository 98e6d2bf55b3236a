package loader

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

// growthState stores the growth of a filter in memory in Redis. A restart begins with the size
// of the other instances, and operators see which process grows the filter. It is a hash at the
// same key as the state of filters in Redis. It is a convenience: without it a filter grows
// again.
type growthState struct {
	client  redis.UniversalClient
	key     string
	process string
	filter  *filter.Filter
	log     *slog.Logger
}

const (
	// growthTick is the time between two writes of the progress.
	growthTick = time.Second
	// growthTimeout bounds each command.
	growthTimeout = 2 * time.Second
	// maxReserved bounds the reserved capacity, in multiples of the configured one: a wrong
	// number must not take all memory.
	maxReserved = 1000
)

func newGrowthState(o *Options, name string, f *filter.Filter) *growthState {
	return &growthState{o.Redis, redisset.StateKey(name), o.Process, f, o.Logger.With("filter", name)}
}

// reserve makes the filter as large as on the other instances. Call it before the first ID is
// added.
func (s *growthState) reserve(ctx context.Context) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, growthTimeout)
	defer cancel()
	capacity, err := s.client.HGet(ctx, s.key, "capacity").Uint64()
	switch {
	case errors.Is(err, redis.Nil):
		return
	case err == nil && capacity > maxReserved*s.filter.Capacity():
		err = errors.New("the stored capacity is too large")
	case err == nil:
		err = s.filter.Reserve(capacity)
	}
	if err != nil {
		s.log.Warn("the filter begins with its configured size", "key", s.key, "error", err,
			runbook.FilterFull.Do("nothing: it grows again"))
	}
}

// growthScript writes a size that is larger than the stored one.
//
//go:embed growth.lua
var growthSource string

var growthScript = redis.NewScript(growthSource)

// run writes the filter's growth, until ctx ends.
func (s *growthState) run(ctx context.Context) {
	if s == nil {
		return
	}
	last := filter.Expansion{Generation: 1}
	for range wait.Every(ctx, growthTick) {
		now := s.filter.Expansion()
		if now == last {
			continue
		}
		if err := s.write(ctx, now); err == nil { // otherwise the next tick repeats it
			last = now
		}
	}
}

func (s *growthState) write(ctx context.Context, e filter.Expansion) error {
	ctx, cancel := context.WithTimeout(ctx, growthTimeout)
	defer cancel()
	args := []any{strconv.FormatUint(s.filter.Capacity(), 10), ""}
	if e.Running {
		args = append(args[:1], s.process, "next_capacity", e.To, "read", e.Read, "began_ms", e.Began.UnixMilli())
	}
	return growthScript.Run(ctx, s.client, []string{s.key}, args...).Err()
}
