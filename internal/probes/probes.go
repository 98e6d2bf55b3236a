// Package probes counts the different absent IDs in the lookups of a day, over all instances of
// a deployment. A scan raises the count; a client that repeats a mistake does not.
//
// Start with [New], keep [Counter.Run] running, and call [Counter.Add] for each such lookup.
// The count is a HyperLogLog in Redis and one in this process. No ID is stored.
package probes

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter/hll"
	"github.com/ordergate/ordergate/internal/rediskey"
)

// Options are the settings of a [Counter]. The zero value is usable.
type Options struct {
	Logger     *slog.Logger     // default: none
	Now        func() time.Time // decides the day; default time.Now
	SendEvery  time.Duration    // time between two writes to Redis; default 1 s
	CountEvery time.Duration    // time between two reads of the count; default 10 s
	Timeout    time.Duration    // timeout of either; default 2 s
	QueueBytes int              // bytes of IDs that wait for a write; default 256 KiB
}

// EnsureDefaults sets what is unset.
func (o *Options) EnsureDefaults() {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	o.SendEvery = cmp.Or(o.SendEvery, time.Second)
	o.CountEvery = cmp.Or(o.CountEvery, 10*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 2*time.Second)
	o.QueueBytes = cmp.Or(o.QueueBytes, 256<<10)
}

// Counter counts the distinct IDs of a day. All methods are safe for concurrent use.
type Counter struct {
	client  redis.UniversalClient // nil: the count is of this process alone
	filter  string
	opts    Options
	day     atomic.Pointer[day]
	queue   queue
	dropped atomic.Uint64

	// Used by Run only.
	sending    batch  // taken from the queue, and not in Redis yet
	sendingDay string // its day
	redisAway  bool   // the last write failed
}

// day is a day in UTC with its counts.
type day struct {
	name    string // yyyymmdd
	local   hll.Sketch
	inRedis atomic.Uint64 // the last count read from Redis
}

// New returns the counter of a filter's IDs. Their HyperLogLog in Redis is
// "ordergate:{filter}:probed:<yyyymmdd>", for days in UTC. It expires eight days after the last
// addition. Without a client the counter is for this process alone.
func New(client redis.UniversalClient, filter string, opts Options) *Counter {
	opts.EnsureDefaults()
	c := &Counter{client: client, filter: filter, opts: opts}
	c.day.Store(&day{name: c.today()})
	if client != nil {
		c.queue.start(opts.QueueBytes)
	}
	return c
}

func (c *Counter) today() string { return c.opts.Now().UTC().Format("20060102") }

func (c *Counter) key(day string) string { return rediskey.Of(c.filter, "probed:"+day) }

// Add counts an ID of a lookup that does not exist. It never waits for Redis and does not
// allocate. It copies the ID.
//
// A flood sends almost nothing to Redis: an ID that does not change the sketch here would not
// change it there. Of the first million different IDs 60,000 change it, of the next nine
// million 27,000 (measured). If the queue is full, the sketch here skips the ID too, so that a
// later one of its kind is counted.
func (c *Counter) Add(id string) {
	hash := hll.Redis(id)
	d := c.day.Load()
	if !d.local.Changes(hash) {
		return
	}
	if c.client != nil && !c.queue.push(id) {
		c.dropped.Add(1)
		return
	}
	d.local.Add(hash)
}

// Today returns the count of today, to about 1 %: the last count of Redis, or the count here if
// that is greater.
func (c *Counter) Today() uint64 {
	d := c.day.Load()
	return max(d.local.Count(), d.inRedis.Load())
}

// Dropped returns the number of IDs that found the queue full. While it grows the count is a
// lower bound.
func (c *Counter) Dropped() uint64 { return c.dropped.Load() }

// Run writes the counted IDs to Redis, and begins a new count at each midnight, until ctx ends.
// It returns nil, after a last write.
func (c *Counter) Run(ctx context.Context) error {
	every, count := time.NewTicker(c.opts.SendEvery), time.NewTicker(c.opts.CountEvery)
	defer every.Stop()
	defer count.Stop()
	for {
		select {
		case <-ctx.Done():
			c.send(context.WithoutCancel(ctx))
			return nil
		case <-c.queue.halfFull:
			if !c.redisAway { // the ticker retries
				c.send(ctx)
			}
		case <-every.C:
			c.send(ctx)
			c.rollOver()
		case <-count.C:
			c.refreshCount(ctx)
		}
	}
}

// rollOver begins a new day. An ID that is counted at this moment may belong to either day.
func (c *Counter) rollOver() {
	if today := c.today(); today > c.day.Load().name { // not if a clock was set back
		c.day.Store(&day{name: today})
	}
}
