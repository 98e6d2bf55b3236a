package loader

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// The test of this file searches at random for an order that is absent from a set in Redis
// although it exists. Ordergates with the real set, places and tables share a real Redis and
// a real MariaDB. The change log is one of the test, which tells all at once: what it loses is
// told as a doubt, as the real one does. A whole run lasts about a second.

const (
	searchView    = 10 * time.Millisecond
	searchOverlap = 100 * time.Millisecond
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

// setSearch is one run.
type setSearch struct {
	t        *testing.T
	random   *rand.Rand
	addr     string
	client   *redis.Client
	db       *sql.DB
	dsn      string
	suffix   string // of the tables
	capacity uint64 // that of most: a set whose state is lost has to be made for that
	dated    bool   // IDs tell their day
	days     int64  // that have passed

	mu       sync.RWMutex // of the log
	changes  atomic.Int64 // of the log and its doubts; counted before they are made
	log      []string
	doubts   []string // that the log has
	lives    []*liveSet
	orders   []setOrder
	late     []lateOrder
	dump     map[string]string
	dumpedAt int
	next     int
	trace    []string
	turn     chan struct{}
	fence    atomic.Int64
	lose     atomic.Pointer[context.CancelCauseFunc] // of the turn under way
	refused  int
}

// setOrder is one that exists, and counts.
type setOrder struct{ id, table string }

type lateOrder struct {
	setOrder
	tx    *sql.Tx
	began time.Time
	by    *liveSet
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

func (s *setSearch) say(format string, args ...any) {
	s.trace = append(s.trace, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

func (s *setSearch) form(format string, id string) string {
	if format == "uuid" {
		return strings.ToLower(id)
	}
	return id
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

// Missed implements filter.Appender.
func (l *liveSet) AppendIncomplete(context.Context, string, time.Time) (filter.Entry, error) {
	return filter.Entry{}, errInjected
}

// Abandoned implements filter.Appender.
func (l *liveSet) AppendAbandoned(context.Context, string, time.Time) (filter.Entry, error) {
	return filter.Entry{}, errInjected
}

// Withdraw implements filter.Appender.
func (l *liveSet) Withdraw(context.Context) error { return nil }

// doubt tells all of one. The lock is held.
func (s *setSearch) doubt(reason string) {
	s.changes.Add(1)
	s.doubts = append(s.doubts, reason)
	for _, l := range s.lives {
		l.loader.filter.Doubt(filter.Doubt{Reason: reason})
	}
}

// acquireLeaderLock is the set's Turn, which can be lost.
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
	shares.ViewAge, shares.Grace, shares.InfoEvery, shares.LeaderLock = searchView, searchView, searchView, l.acquireLeaderLock
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
			sleep(ctx, 5*time.Millisecond)
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

// stop ends an ordergate. One that is killed says nothing more to Redis.
func (s *setSearch) stop(l *liveSet, killed bool) {
	s.say("%s ends, killed: %v", l.name, killed)
	l.dead.Store(killed)
	s.mu.Lock()
	s.lives = slices.DeleteFunc(s.lives, func(o *liveSet) bool { return o == l })
	if killed {
		s.doubt("killed")
	}
	s.mu.Unlock()
	l.cancel()
	l.wg.Wait()
	l.loader.set.Close()
	bedtest.Check(s.t, l.client.Close())
}

func (s *setSearch) pick() *liveSet {
	if len(s.lives) == 0 {
		return nil
	}
	return s.lives[s.random.IntN(len(s.lives))]
}

func (s *setSearch) anySetting() setting {
	r, all := s.random, settingsOfSearch
	how, kinds := setting{capacity: s.capacity}, all.kinds
	if s.dated {
		kinds = all.dated
	}
	if r.IntN(6) == 0 {
		how.capacity *= 2
	}
	how.setKind = kinds[0]
	if r.IntN(2) == 0 {
		how.setKind = kinds[r.IntN(len(kinds))]
	}
	how.sources = all.sources[2]
	if r.IntN(2) == 0 {
		how.sources = all.sources[r.IntN(len(all.sources))]
	}
	how.format = all.formats[min(1, r.IntN(6)/5)]
	if s.dated {
		how.format = config.FormatTimestamped
	}
	return how
}

// dateOfSearch is where an ID tells its day.
const dateOfSearch = "20060102150405"

func (l *liveSet) now() time.Time { return time.Now().AddDate(0, 0, int(l.days.Load())) }

// insert begins an order by an ordergate.
func (s *setSearch) insert(table string, by *liveSet) lateOrder {
	s.next++
	id := fmt.Sprintf("ABCDEF00-0000-4000-8000-%012d", s.next)
	if s.dated {
		at := time.Now()
		if by != nil {
			at = by.now()
		}
		id = at.UTC().Format(dateOfSearch) + fmt.Sprintf("%06d", s.next)
	}
	tx, err := s.db.BeginTx(s.t.Context(), nil)
	bedtest.Check(s.t, err)
	_, err = tx.ExecContext(s.t.Context(), "INSERT INTO "+table+s.suffix+" (id) VALUES ('"+id+"')")
	bedtest.Check(s.t, err)
	return lateOrder{setOrder: setOrder{id, table}, tx: tx, began: time.Now(), by: by}
}

// commit ends one, and has it learned, or its ordergate killed.
func (s *setSearch) commit(o lateOrder) {
	if time.Since(o.began) > searchOverlap/4 {
		bedtest.Check(s.t, o.tx.Rollback())
		return
	}
	bedtest.Check(s.t, o.tx.Commit())
	s.say("%s is committed in %s", o.id, o.table)
	if !slices.Contains(s.lives, o.by) {
		s.mu.Lock()
		s.doubt("created by one that ended")
		s.mu.Unlock()
		s.orders = append(s.orders, o.setOrder)
		return
	}
	if s.random.IntN(4) == 0 {
		s.stop(o.by, true)
		s.orders = append(s.orders, o.setOrder)
		return
	}
	if err := o.by.loader.filter.Learn(s.t.Context(), o.id); !errors.Is(err, filter.ErrExposed) {
		s.orders = append(s.orders, o.setOrder)
	}
}

func (s *setSearch) keys() []string {
	keys, err := s.client.Keys(s.t.Context(), "*").Result()
	bedtest.Check(s.t, err)
	slices.Sort(keys)
	return keys
}

// act does one thing.
func (s *setSearch) act() {
	ctx, r := s.t.Context(), s.random
	switch n := r.IntN(29); n {
	case 0, 1, 2, 3, 4:
		if l := s.pick(); l != nil {
			table := strings.Replace(l.setting.sources[r.IntN(len(l.setting.sources))], "c", "a", 1)
			o := s.insert(table, l)
			if r.IntN(3) == 0 {
				s.late = append(s.late, o)
			} else {
				s.commit(o)
			}
		}
	case 5, 6:
		if len(s.late) > 0 {
			o := s.late[0]
			s.late = s.late[1:]
			s.commit(o)
		}
	case 7, 8, 9:
		if len(s.lives) < 3 {
			s.start(s.anySetting())
		}
	case 10, 11:
		if l := s.pick(); l != nil {
			s.stop(l, r.IntN(2) == 0)
		}
	case 12, 13:
		keys := s.keys()
		if len(keys) == 0 {
			return
		}
		key := keys[r.IntN(len(keys))]
		s.say("DEL %s", key)
		bedtest.Check(s.t, s.client.Del(ctx, key).Err())
	case 14:
		s.say("FLUSHALL")
		s.mu.Lock()
		bedtest.Check(s.t, s.client.FlushAll(ctx).Err())
		s.log = nil
		s.doubt("flushed")
		s.mu.Unlock()
	case 15:
		s.mu.Lock()
		s.dump, s.dumpedAt = make(map[string]string), len(s.log)
		keys := s.keys()
		cmds, err := s.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			for _, key := range keys {
				tx.Dump(ctx, key)
			}
			return nil
		})
		for i, cmd := range cmds {
			if text, err := cmd.(*redis.StringCmd).Result(); err == nil {
				s.dump[keys[i]] = text
			}
		}
		_ = err // a key that has just been dropped
		s.mu.Unlock()
		s.say("dump of %d keys", len(s.dump))
	case 16:
		if s.dump == nil {
			return
		}
		s.say("failover to what was dumped")
		bedtest.Check(s.t, s.client.ConfigSet(ctx, "maxmemory", "0").Err())
		s.mu.Lock()
		_, err := s.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			tx.Do(ctx, "DEBUG", "CHANGE-REPL-ID")
			tx.FlushAll(ctx)
			for key, text := range s.dump {
				tx.RestoreReplace(ctx, key, 0, text)
			}
			return nil
		})
		bedtest.Check(s.t, err)
		s.log = s.log[:min(s.dumpedAt, len(s.log))]
		s.doubt("failed over")
		s.mu.Unlock()
	case 17:
		if l := s.pick(); l != nil {
			n := int32(r.IntN(40))
			s.say("%s: %d%% of its commands fail", l.name, n)
			l.fails.Store(n)
		}
	case 18:
		full := strconv.Itoa(r.IntN(2))
		s.say("maxmemory %s", full)
		bedtest.Check(s.t, s.client.ConfigSet(ctx, "maxmemory", full).Err())
	case 19:
		if lost := s.lose.Load(); lost != nil {
			s.say("a turn is lost")
			(*lost)(errLeaseLost)
		}
	case 20:
		s.say("the log is trimmed")
		s.mu.Lock()
		s.log = s.log[len(s.log)/2:]
		s.dumpedAt = 0
		s.mu.Unlock()
	case 21:
		if l := s.pick(); l != nil && l.setting.kind != config.FilterRedisson {
			s.say("%s: expand", l.name)
			l.wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				_ = l.loader.set.Expand(ctx)
			})
		}
	case 22, 23:
		if l := s.pick(); l != nil {
			s.say("%s: load", l.name)
			l.wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				_, _ = l.loader.Reload(ctx, "")
			})
		}
	case 24, 28:
		if l := s.pick(); l != nil {
			s.say("%s: trust", l.name)
			l.wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				_ = l.loader.set.Trust(ctx)
			})
		}
	case 25:
		key := "ordergate:{orders}:" + []string{"state", "places", "secret"}[r.IntN(3)]
		s.say("DEL %s", key)
		bedtest.Check(s.t, s.client.Del(ctx, key).Err())
	case 26, 27:
		s.pass()
	}
}

// pass has a day pass, by one clock after the other.
func (s *setSearch) pass() {
	if !s.dated {
		return
	}
	behind := slices.DeleteFunc(slices.Clone(s.lives), func(l *liveSet) bool { return l.days.Load() == s.days })
	if len(behind) == 0 {
		s.days++
		behind = s.lives
	}
	if len(behind) > 0 {
		l := behind[s.random.IntN(len(behind))]
		s.say("%s: day %d", l.name, s.days)
		l.days.Store(s.days)
	}
}

// refuses reports whether an order is refused that does not exist.
func (l *liveSet) refuses() bool {
	id := "abcdef00-0000-4000-8000-999999999999"
	if l.s.dated {
		id = l.now().UTC().Format(dateOfSearch) + "999999"
	}
	return l.loader.filter.Query(l.s.t.Context(), id) == filter.Absent
}

// foreign is what the reason is like for which a set is left alone: an operator has to delete
// one of another size, or without its configuration.
var foreign = regexp.MustCompile("was made with|was not made with|has a capacity|has expectedInsertions|has lost its configuration")

// ask asks all for all, and returns what is absent that should not be.
func (s *setSearch) ask() string {
	for _, l := range s.lives {
		for _, o := range s.orders {
			if l.has(o.table) && l.loader.filter.Query(s.t.Context(), s.form(l.setting.format, o.id)) == filter.Absent {
				return o.id + " is absent at " + l.name
			}
		}
		if l.refuses() {
			s.refused++
		}
	}
	return ""
}

func (s *setSearch) createTables() error {
	for _, table := range []string{"a", "b"} {
		if _, err := s.db.ExecContext(s.t.Context(), "CREATE TABLE "+table+s.suffix+" (n BIGINT AUTO_INCREMENT PRIMARY KEY, id CHAR(36) NOT NULL)"); err != nil {
			return err
		}
	}
	return nil
}

// insertBefore inserts orders before there is an ordergate. A set has them, and nobody's
// memory, once a place is behind them.
func (s *setSearch) insertBefore() {
	for _, table := range []string{"a", "b", "a", "b"} {
		o := s.insert(table, nil)
		bedtest.Check(s.t, o.tx.Commit())
		s.orders = append(s.orders, o.setOrder)
	}
	time.Sleep(searchOverlap)
}

// run returns what is wrong, "" if nothing is.
func (s *setSearch) run(steps int) string {
	defer func() {
		for len(s.lives) > 0 {
			s.stop(s.lives[0], false)
		}
		for _, o := range s.late {
			_ = o.tx.Rollback()
		}
	}()
	s.insertBefore()
	for range steps {
		s.act()
		time.Sleep(time.Duration(s.random.IntN(8)) * 5 * time.Millisecond)
		if found := s.ask(); found != "" {
			return found
		}
	}
	s.say("all goes well")
	bedtest.Check(s.t, s.client.ConfigSet(s.t.Context(), "maxmemory", "0").Err())
	for len(s.lives) > 0 {
		s.stop(s.lives[0], false)
	}
	for range 2 {
		how := s.anySetting()
		all := []*liveSet{s.start(how), s.start(how)}
		began := time.Now()
		for len(all) > 0 {
			if found := s.ask(); found != "" {
				return found
			}
			all = slices.DeleteFunc(all, (*liveSet).refuses)
			if len(all) == 0 {
				break
			}
			state, reason := all[0].loader.filter.State()
			if foreign.MatchString(reason) {
				s.say("an operator deletes what is not %s's, for which it is %s", all[0].name, reason)
				for _, key := range s.keys() {
					if strings.Contains(key, "order:bloom:"+how.prefix) {
						bedtest.Check(s.t, s.client.Del(s.t.Context(), key).Err())
					}
				}
			}
			if time.Since(began) > 20*time.Second {
				return fmt.Sprintf("%s is never certain: %s, %s", all[0].name, state, reason)
			}
			time.Sleep(5 * time.Millisecond)
		}
		for len(s.lives) > 0 {
			s.stop(s.lives[0], false)
		}
	}
	return ""
}

// TestSearchSets runs a few, with SOAK=N so many times 500, or SEED alone, which decides on
// all that the test does, and not on who is quicker.
func TestSearchSets(t *testing.T) {
	bedtest.WithoutRace(t)
	const workers = 4
	first, n := 1, 4*workers
	if text := os.Getenv("SEED"); text != "" {
		first, _ = strconv.Atoi(text)
		n = 1
	} else if text := os.Getenv("SOAK"); text != "" {
		times, _ := strconv.Atoi(text)
		first, n = rand.IntN(1<<40), 500*max(times, 1)
	}
	bed := bedtest.New(t)
	maria := bed.MariaDB()
	db, err := sql.Open("mysql", maria.DSN())
	bedtest.Check(t, err)
	t.Cleanup(func() { bedtest.Check(t, db.Close()) })
	var next, refused atomic.Int64
	next.Store(int64(first))
	began := time.Now()
	var wg sync.WaitGroup
	for range min(n, workers) {
		server := bed.Redis(append(bed.RedisBloomArgs(), "--enable-debug-command", "yes", "--save", "", "--appendonly", "no")...)
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		wg.Go(func() {
			for seed := next.Add(1) - 1; seed < int64(first+n) && !t.Failed(); seed = next.Add(1) - 1 {
				s := &setSearch{
					t: t, random: rand.New(rand.NewPCG(uint64(seed), 7)), addr: server.Addr(), client: client, db: db, dsn: maria.DSN(),
					suffix: strconv.FormatInt(seed, 10), turn: make(chan struct{}, 1),
				}
				s.capacity = []uint64{60, 1000}[s.random.IntN(2)]
				s.dated = s.random.IntN(3) == 0
				if err := client.FlushAll(t.Context()).Err(); err != nil {
					t.Error(err)
					return
				}
				if err := s.createTables(); err != nil {
					t.Error(err)
					return
				}
				if found := s.run(30); found != "" {
					t.Errorf("seed %d: %s\n%s", seed, found, strings.Join(s.trace, "\n"))
				}
				refused.Add(int64(s.refused))
				for _, table := range []string{"a", "b"} {
					_, _ = db.ExecContext(t.Context(), "DROP TABLE "+table+s.suffix)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d runs from seed %d in %v: %d times an order was refused that does not exist", next.Load()-int64(first), first, time.Since(began).Round(time.Millisecond), refused.Load())
	if n > 1 && refused.Load() == 0 {
		t.Error("nothing was ever absent")
	}
}
