package loader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/source"
	"github.com/ordergate/ordergate/internal/source/kafka"
	"github.com/ordergate/ordergate/internal/wait"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// feed appends the orders of a topic to the change log. One instance of a deployment does so at a time,
// from the place in Redis, which is stored behind the orders: if Redis loses some, it has an earlier place,
// too. Nothing depends on a feed: while it is not read, filters only lack its orders, as they do without it.
type feed struct {
	name    string // of the source
	client  redis.UniversalClient
	changes *changelog.Log
	set     *redisset.Set // nil: none
	key     string        // of a hash with the place
	field   string
	lock    redisset.LeaderLock
	topic   *kafka.Feed
	state   followState
	bad     *recurring.Problem
	log     *slog.Logger
}

// feeds returns the feeds of a filter.
func (o *Options) feeds(name string, loader *Loader, formats []order.Format) (all []*feed, err error) {
	filter := o.Config.Filters[name]
	for _, s := range filter.Sources {
		c := o.Config.Sources[s]
		if !c.Feed() {
			continue
		}
		// Another topic, or another reading of its messages, has a place of its own.
		as := nameInRedis(s, fmt.Appendf(nil, "%q %q %q %q %q", c.Topic, c.Format, c.Table, c.ID, partColumns(c, filter.Parts)))
		f := &feed{
			name: s, client: o.Redis, changes: loader.log, set: loader.set,
			key: followKey(name), field: as, lock: o.leaderLock(name, workFollow+as),
			log: o.Logger.With("filter", name, "source", s),
		}
		f.state.problem = recurring.New(f.log, slog.LevelWarn, "a topic is not read: its new orders are not added", "the topic is read again, or by another ordergate",
			runbook.Topics.Do("repair what error names; ordergate tries again, and misses no message meanwhile"))
		f.bad = recurring.New(f.log, slog.LevelWarn, "messages of a topic have no usable order ID: ordergate skips them", "the messages of the topic have order IDs again",
			runbook.Topics.Do("compare the message at this position with the source's format and id"))
		opts, err := topicOptions(s, c, filter.Parts, formats)
		if err != nil {
			return nil, err
		}
		opts.OnBad = func(position, reason string) { f.bad.Note("position", position, "reason", reason) }
		opts.CaughtUp, opts.Logger = f.caughtUp, f.log
		f.topic = kafka.New(opts)
		all = append(all, f)
	}
	return all, nil
}

// topicOptions returns the configured options of a topic.
func topicOptions(name string, c config.Source, parts []string, formats []order.Format) (kafka.Options, error) {
	opts := kafka.Options{
		Brokers: c.Brokers, Topic: c.Topic, Format: kafka.Format(c.Format), Table: c.Table,
		Check: rules.Check(formats), Username: c.Username, Password: c.RereadPassword(), Mechanism: c.Mechanism,
	}
	if opts.Password == nil {
		opts.Password = func() string { return string(c.Password) }
	}
	path := func(name string) []string {
		if c.Format == config.FeedJSON {
			return strings.Split(name, ".")
		}
		return []string{name}
	}
	opts.ID = path(c.ID)
	for _, column := range partColumns(c, parts) {
		opts.Parts = append(opts.Parts, path(column))
	}
	var err error
	if c.TLS != nil {
		opts.TLS, err = c.TLS.Config("sources." + name + ".tls")
	}
	return opts, err
}

// SampleTopic reads the oldest messages of a topic for some seconds, and returns some of their orders. A
// message without one is an error, if no other has any.
func SampleTopic(ctx context.Context, c *config.Config, filter, name string) (s source.Sample, err error) {
	formats, err := rules.FormatsOf(c, filter)
	if err != nil {
		return s, err
	}
	opts, err := topicOptions(name, c.Sources[name], c.Filters[filter].Parts, formats)
	if err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	s.Column = "id"
	bad := ""
	opts.OnBad = func(position, reason string) { bad = cmp.Or(bad, position+": "+reason) }
	opts.CaughtUp = func(time.Time) { cancel() }
	err = kafka.New(opts).Read(ctx, "", func(_ context.Context, ids []string, _ string) error {
		for _, id := range ids[:min(len(ids), sampledMessages-len(s.Rows))] {
			s.Rows = append(s.Rows, source.SampleRow{Where: fmt.Sprintf("message number %d", len(s.Rows)+1), ID: strings.Clone(id)})
		}
		if len(s.Rows) == sampledMessages {
			return errSampled
		}
		return nil
	})
	switch {
	case len(s.Rows) > 0 || errors.Is(err, context.Canceled) && bad == "":
		return s, nil
	case bad != "":
		return s, fmt.Errorf("no message of topic %s has a usable order ID, the first is at %s", c.Sources[name].Topic, bad)
	}
	return s, err
}

// sampledMessages is how many orders of a topic are compared with the rules.
const sampledMessages = 4

// caughtUp notes that everything was appended that the topic had at a time.
func (f *feed) caughtUp(at time.Time) {
	if f.state.caughtUp(at) {
		f.log.Info("a topic is read, for all ordergates")
	}
}

// run reads the topic until ctx ends, whenever this process has the lock.
func (f *feed) run(ctx context.Context) {
	defer f.state.problem.Drop()
	defer f.bad.Drop()
	awaitMembership(ctx, f.changes)
	for ctx.Err() == nil {
		err := f.readLocked(ctx)
		if f.state.ended(); ctx.Err() == nil && !errors.Is(err, redislock.ErrBusy) {
			f.state.lost(err)
		}
		_ = wait.For(ctx, followRetry)
	}
}

// readLocked waits for the lock, and reads the topic until an error.
func (f *feed) readLocked(ctx context.Context) error {
	work, _, done, err := f.lock(ctx)
	if err != nil {
		return fmt.Errorf("waiting for the leader lock: %w", err)
	}
	defer done()
	place, err := f.client.HGet(work, f.key, f.field).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("reading the place in the topic: %w", err)
	}
	err = f.topic.Read(work, place, f.append)
	if cause := context.Cause(work); cause != nil {
		return cause
	}
	return err
}

// append appends orders, and stores the place behind them.
func (f *feed) append(ctx context.Context, ids []string, place string) error {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	if err := announce(ctx, f.changes, f.set, ids); err != nil {
		return fmt.Errorf("appending orders: %w", err)
	}
	if err := f.client.HSet(ctx, f.key, f.field, place).Err(); err != nil {
		return fmt.Errorf("storing the place in the topic: %w", err)
	}
	return nil
}

// condition reports why the topic is not read. It is always ready: nothing depends on a topic.
func (f *feed) condition() health.Condition {
	c := health.Condition{Name: "source " + f.name, Ready: true}
	if cause := f.state.cause(); cause != "" {
		c.Reason = "new orders of the topic are not added: " + cause
	}
	return c
}
