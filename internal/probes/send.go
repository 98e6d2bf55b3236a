package probes

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ordergate/ordergate/internal/runbook"
)

const (
	// keepFor is a week and one day.
	keepFor = 8 * 24 * time.Hour
	// perCommand bounds one command: Redis takes half a millisecond for 1000 IDs.
	perCommand = 1000
)

// send writes the counted IDs to Redis. After an error it keeps them for the next time, as far
// as the queue has space.
func (c *Counter) send(ctx context.Context) {
	if c.client == nil || !c.flush(ctx) {
		return
	}
	c.sending, c.sendingDay = c.queue.takeBatch(), c.day.Load().name
	c.flush(ctx)
}

// flush writes the batch, and reports whether none is left.
func (c *Counter) flush(ctx context.Context) bool {
	if len(c.sending.ends) > 0 {
		if err := c.add(ctx, c.key(c.sendingDay), c.sending.ids()); err != nil {
			if !c.redisAway && ctx.Err() == nil { // one line for each outage
				c.opts.Logger.Warn("the distinct absent IDs of lookups are not counted in Redis for now", "filter", c.filter, "error", err,
					runbook.Probes.Do("nothing: they are counted again when Redis answers"))
			}
			c.redisAway = true
			return false
		}
	}
	if c.sending.bytes != nil {
		c.queue.recycle(c.sending)
	}
	c.sending, c.redisAway = batch{}, false
	return true
}

func (c *Counter) add(ctx context.Context, key string, ids []any) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	pipe := c.client.Pipeline()
	for some := range slices.Chunk(ids, perCommand) {
		pipe.PFAdd(ctx, key, some...)
	}
	pipe.Expire(ctx, key, keepFor)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("adding to %s: %w", key, err)
	}
	return nil
}

// refreshCount reads the count of all instances. After an error the last one stays.
func (c *Counter) refreshCount(ctx context.Context) {
	if c.client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	d := c.day.Load()
	if n, err := c.client.PFCount(ctx, c.key(d.name)).Result(); err == nil {
		d.inRedis.Store(uint64(n))
	}
}
