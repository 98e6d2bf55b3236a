package loader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/wait"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// setting is how an ordergate is configured.
type setting struct {
	setKind
	sources  []string
	format   string
	capacity uint64
}

// setKind is what all ordergates have in common that share a set.
type setKind struct {
	kind, prefix string
	shards       int
	keep         int // days; 0: it has none
}

var settingsOfSearch = struct {
	kinds   []setKind
	dated   []setKind // of runs whose IDs tell a day
	sources [][]string
	formats []string
}{
	[]setKind{
		{"redis-bitmap", "one", 1, 0},
		{"redis-bitmap", "two", 3, 0},
		{"redis-bloom", "three", 2, 0},
		{"redisson", "four", 1, 0},
		{"layered", "one", 1, 0},
	},
	[]setKind{
		{"redis-bitmap", "five", 2, 2},
		{"redis-bloom", "six", 1, 2},
		{"redis-bitmap", "five", 2, 4},
		{"redis-bitmap", "one", 1, 0},
	},
	[][]string{{"a"}, {"b"}, {"a", "b"}, {"c", "b"}}, // c is another name of a
	[]string{"uuid", "pattern"},
}

// liveSet is an ordergate.
type liveSet struct {
	s       *setSearch
	name    string
	setting setting
	loader  *Loader
	client  *redis.Client

	fails  atomic.Int32 // percent of the commands that fail
	days   atomic.Int64 // that have passed by its clock, which may be behind
	dead   atomic.Bool
	idle   atomic.Bool // it has no turn
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func (l *liveSet) has(table string) bool {
	return slices.ContainsFunc(l.setting.sources, func(s string) bool { return s == table || s == "c" && table == "a" })
}

var errInjected = errors.New("lost on the way")

// DialHook implements redis.Hook.
func (l *liveSet) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *liveSet) strike() (before, after bool) {
	if l.dead.Load() {
		return true, false
	}
	if n := rand.Int32N(100); n < l.fails.Load() {
		return n%2 == 0, n%2 != 0
	}
	return false, false
}

// ProcessHook implements redis.Hook.
func (l *liveSet) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		before, after := l.strike()
		if before {
			cmd.SetErr(errInjected)
			return errInjected
		}
		err := next(ctx, cmd)
		if after {
			cmd.SetErr(errInjected)
			return errInjected
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (l *liveSet) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		before, after := l.strike()
		var err error
		if !before {
			err = next(ctx, cmds)
		}
		if before || after {
			for _, cmd := range cmds {
				cmd.SetErr(errInjected)
			}
			return errInjected
		}
		return err
	}
}

// upToDate is a filter.Window that holds until the log changes.
type upToDate struct {
	s       *setSearch
	changes int64
}

// Holds implements filter.Window.
func (w upToDate) Holds() bool { return w.changes == w.s.changes.Load() }

// window opens one, but for the time in which the log is changed.
func (l *liveSet) window() filter.Window {
	if !l.s.mu.TryRLock() {
		return upToDate{l.s, -1}
	}
	defer l.s.mu.RUnlock()
	return upToDate{l.s, l.s.changes.Load()}
}

// Spread implements filter.Appender: what is appended all have.
func (l *liveSet) Spread(context.Context) error { return nil }

// Append implements filter.Appender.
func (l *liveSet) Append(_ context.Context, ids ...string) error {
	if l.dead.Load() {
		return errInjected
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.changes.Add(1)
	l.s.log = append(l.s.log, ids...)
	for _, other := range l.s.lives {
		for _, id := range ids {
			other.loader.filter.Add(id)
		}
	}
	return nil
}

// Record implements filter.Appender.
func (l *liveSet) Record(ctx context.Context, ids ...string) error { return l.Append(ctx, ids...) }

// AppendIncomplete implements filter.Appender.
func (l *liveSet) AppendIncomplete(context.Context, string, time.Time) (filter.Entry, error) {
	return filter.Entry{}, errInjected
}

// AppendAbandoned implements filter.Appender.
func (l *liveSet) AppendAbandoned(context.Context, string, time.Time) (filter.Entry, error) {
	return filter.Entry{}, errInjected
}

// Withdraw implements filter.Appender.
func (l *liveSet) Withdraw(context.Context) error { return nil }

// acquireLeaderLock is the set's LeaderLock, which can be lost.
func (l *liveSet) acquireLeaderLock(ctx context.Context) (context.Context, int64, func(), error) {
	s := l.s
	if l.idle.Load() {
		<-ctx.Done()
		return nil, 0, nil, ctx.Err()
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, nil, ctx.Err()
	}
	work, cancel := context.WithCancelCause(ctx)
	var once sync.Once
	lost := context.CancelCauseFunc(func(err error) {
		cancel(err)
		once.Do(func() { <-s.turn })
	})
	s.lose.Store(&lost)
	return work, s.fence.Add(1), func() { lost(nil) }, nil
}

func (s *setSearch) start(how setting) *liveSet {
	s.next++
	l := &liveSet{s: s, name: fmt.Sprint("gate-", s.next), setting: how}
	l.days.Store(s.days)
	s.say("%s starts: %+v", l.name, how)
	l.client = redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	l.client.AddHook(l)
	c := &config.Config{Filters: map[string]config.Filter{}, Sources: map[string]config.Source{}}
	f := config.Filter{
		Kind: how.kind, KeyPrefix: "order:bloom:" + how.prefix, Capacity: how.capacity, FalsePositiveRate: 1e-6, Shards: how.shards,
		Sources: how.sources, RedisKind: "redis-bitmap",
	}
	if how.kind == config.FilterRedisson {
		f.Codec = "default"
	} else {
		f.Expand = &config.Expand{AtFill: 0.8, By: 1.5}
	}
	if how.keep > 0 {
		f.Segments = &config.Segments{By: "day", Keep: how.keep, From: config.SegmentFromID}
	}
	for _, name := range how.sources {
		table := strings.Replace(name, "c", "a", 1)
		c.Sources[name] = config.Source{
			Kind: config.SourceMySQL, DSN: config.Secret(s.dsn), Table: table + s.suffix, IDColumn: "id", CursorColumn: "n",
			Overlap: searchOverlap, OnBad: config.OnBadFail, Batch: 1000,
		}
	}
	id := config.ID{Path: "id", Format: how.format, Pattern: "[0-9a-fA-F-]{36}", MinLength: 1, MaxLength: 64}
	id.Time.Layout = dateOfSearch
	c.Rules = []config.Rule{{Name: "lookup", IDs: []config.ID{id}, Lookup: &config.Lookup{Filter: "orders"}}}
	c.Filters["orders"] = f
	o := &Options{Logger: slog.New(slog.DiscardHandler), Config: c, Redis: l.client, Warnings: new(recurring.Warnings)}
	l.loader = &Loader{config: f, logger: o.Logger}
	formats, err := rules.FormatsOf(c, "orders")
	bedtest.Check(s.t, err)
	l.loader.sources, err = sourcesOf(c, "orders", formats, o.Logger)
	bedtest.Check(s.t, err)
	opts := filter.Options{Capacity: 1000, FalsePositiveRate: 1e-6, Window: l.window, Appender: l, Live: true, RetryEvery: 5 * time.Millisecond}
	opts.CanonicalForms = func(id string) (string, []string) { return order.CanonicalForms(formats, id) }
	opts.Segments = segmentsOf(f.Segments, formats)
	shares := o.setOptions("orders", f, l.loader, opts)
	shares.Now = l.now
	shares.ViewAge, shares.Grace, shares.InfoEvery, shares.LeaderLock = s.view, s.view, searchView, l.acquireLeaderLock
	fill := shares.Fill
	shares.Fill = func(ctx context.Context, add func(string) error) error {
		if err := fill(ctx, add); err != nil {
			return err
		}
		s.mu.RLock()
		log := slices.Clone(s.log)
		s.mu.RUnlock()
		for _, id := range log {
			if err := add(id); err != nil {
				return err
			}
		}
		return nil
	}
	l.loader.set, err = redisset.New(l.client, shares)
	bedtest.Check(s.t, err)
	if l.loader.checkpoints != nil {
		l.loader.checkpoints.set = l.loader.set
	}
	besideSet(&opts, f, l.loader.set)
	l.loader.filter, err = filter.New("orders", opts)
	bedtest.Check(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	s.mu.Lock()
	s.lives = append(s.lives, l)
	l.loader.filter.Doubt(filter.Doubt{Reason: "the change log is read for the first time"})
	for _, id := range s.log {
		l.loader.filter.Add(id)
	}
	s.mu.Unlock()
	l.wg.Go(func() { _ = l.loader.set.Run(ctx) })
	l.wg.Go(func() { _ = l.loader.filter.Run(ctx) })
	l.wg.Go(func() { l.feed(ctx) })
	return l
}

// feed is what Loader.feed does, without its pauses.
func (l *liveSet) feed(ctx context.Context) {
	sources := l.loader.sources
	if l.setting.kind != config.FilterLayered {
		sources = nil
	}
	retry := func(do func() error) {
		for do() != nil && ctx.Err() == nil {
			_ = wait.For(ctx, 5*time.Millisecond)
		}
	}
	load := func(ctx context.Context) error { return l.loader.filter.Load(ctx, l.loader.unread(sources)...) }
	retry(func() error { return load(ctx) })
	for {
		if cure, ok := l.loader.filter.Recoverable(); ok {
			retry(func() error { return l.loader.clear(ctx, cure, load) })
		}
		select {
		case <-ctx.Done():
			return
		case <-l.loader.filter.DoubtAdded():
		}
	}
}

const dateOfSearch = "20060102150405"

func (l *liveSet) now() time.Time { return time.Now().AddDate(0, 0, int(l.days.Load())) }

func (l *liveSet) refuses() bool {
	id := "abcdef00-0000-4000-8000-999999999999"
	if l.s.dated {
		id = l.now().UTC().Format(dateOfSearch) + "999999"
	}
	return l.loader.filter.Query(l.s.t.Context(), id) == presence.Absent
}
