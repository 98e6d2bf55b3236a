// Package probes counts how many different IDs are asked for in a day that do not
// exist, by all ordergates of a deployment together: what a scan looks like, and
// one client that repeats a mistake does not.
//
// Start with [New], keep [Counter.Run] running, and call [Counter.Note] for each
// such lookup. The count is a HyperLogLog of Redis, and one here: no ID is kept.
package probes

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter/hll"
)

// Options are the settings of a [Counter]. The zero value is usable.
type Options struct {
	Logger     *slog.Logger     // default: none
	Now        func() time.Time // tells the day; default time.Now
	SendEvery  time.Duration    // how often Redis is told; default 1 s
	CountEvery time.Duration    // how often Redis is asked for the count; default 10 s
	Timeout    time.Duration    // the longest that either may take; default 2 s
	QueueBytes int              // bytes of IDs that may wait for being told; default 256 KiB
}

// EnsureDefaults fills in what is unset.
func (o *Options) EnsureDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.SendEvery <= 0 {
		o.SendEvery = time.Second
	}
	if o.CountEvery <= 0 {
		o.CountEvery = 10 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	if o.QueueBytes <= 0 {
		o.QueueBytes = 256 << 10
	}
}

// Counter counts the distinct IDs of a day. All methods are safe for concurrent
// use.
type Counter struct {
	client  redis.UniversalClient // nil: what is counted here is all
	filter  string
	opts    Options
	day     atomic.Pointer[day]
	queue   queue
	dropped atomic.Uint64

	// Used by Run only.
	sending    batch  // was taken from the queue, and has not reached Redis
	sendingDay string // the day that it counts for
	redisAway  bool   // Redis did not take it
}

// day is one of UTC with what was seen in it.
type day struct {
	name    string // yyyymmdd
	local   hll.Sketch
	inRedis atomic.Uint64 // the count in Redis, when it was last asked
}

// New returns the counter of a filter's IDs. Their HyperLogLog in Redis is
// "ordergate:{filter}:probed:<yyyymmdd>", of days of UTC; it expires eight days
// after the last addition. Without a client the counter is for this process alone.
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

func (c *Counter) key(day string) string { return "ordergate:{" + c.filter + "}:probed:" + day }

// Note counts an ID that was asked for and does not exist. It never waits for Redis
// and does not allocate. The ID is copied.
//
// Of a flood Redis is told next to nothing: an ID that changes nothing in the sketch
// here would change nothing there. Of the first million different IDs 60,000 change
// it, of the next nine million 27,000 (measured). Should the queue be full of them,
// an ID is passed over in the sketch as well, so that the next one of its kind is
// not.
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

// Today returns how many there are today, to about 1 %: as many as Redis knew of at
// last, or as were seen here, whichever is more.
func (c *Counter) Today() uint64 {
	d := c.day.Load()
	return max(d.local.Count(), d.inRedis.Load())
}

// Dropped returns how often an ID found no room in the queue. While that grows the
// count is a lower bound.
func (c *Counter) Dropped() uint64 { return c.dropped.Load() }

// Run tells Redis of what is noted, and begins a new count at each midnight, until
// ctx ends. It returns nil, after one last try to tell what is left.
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
			if !c.redisAway { // the ticker tries again
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

// roll begins a new day. An ID that is noted at this moment may count for either.
func (c *Counter) rollOver() {
	if today := c.today(); today > c.day.Load().name { // not if a clock was set back
		c.day.Store(&day{name: today})
	}
}
