package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/internal/source/binlog"
	"github.com/ordergate/ordergate/internal/source/follow"
)

// liveTimeout bounds each step of a live check: to read a change log, or to ask a database.
const liveTimeout = 10 * time.Second

// CheckLive connects to what a valid configuration names, as an ordergate does that starts
// with it, and returns what is wrong, with Path and Message. It takes each lock once, of an ID
// that is no order's, and reads change logs; it is no member of any. Of a table that is
// followed by logical replication it makes no slot. It blocks for some seconds for each
// server that does not answer.
func CheckLive(ctx context.Context, c *config.Config) []config.Violation {
	l := &live{config: c, tables: make(map[string]bool)}
	defer l.connect(ctx)()
	for _, name := range slices.Sorted(maps.Keys(c.Locks)) {
		l.checkLock(ctx, name, c.Locks[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.Filters)) {
		l.checkFilter(ctx, name, c.Filters[name])
	}
	return l.found
}

// live is a check that runs.
type live struct {
	config *config.Config
	redis  redis.UniversalClient // nil: there is none that could be asked
	found  []config.Violation
	tables map[string]bool // sources that were checked
}

// report notes what is wrong, if anything is.
func (l *live) report(path string, err error) {
	if err != nil {
		l.found = append(l.found, config.Violation{Path: path, Message: err.Error()})
	}
}

// connect looks whether Redis is there, and whether it keeps what it is given.
func (l *live) connect(ctx context.Context) (shut func()) {
	c := l.config.Redis
	if c == nil || c.Mode == config.RedisEmbedded {
		return func() {}
	}
	client, shut, err := redisconn.Connect(ctx, c, 0)
	if err != nil {
		l.report("redis", err)
		return func() {}
	}
	if err := client.Ping(ctx).Err(); err != nil {
		l.report("redis", fmt.Errorf("not reachable: %w", err))
		return shut
	}
	l.redis = client
	stored := redisconn.Stored{ChangeLogs: len(l.config.Filters) > 0}
	for _, lock := range l.config.Locks {
		stored.Locks = stored.Locks || lock.Kind != config.LockQuorum
	}
	if found := redisconn.CheckEviction(ctx, stored, client); found.Text != "" {
		l.report("redis", errors.New(found.Text))
	}
	return shut
}

func (l *live) checkLock(ctx context.Context, name string, c config.Lock) {
	if c.Kind != config.LockQuorum && l.redis == nil {
		return
	}
	locking.Check(ctx, l.redis, l.config.Redis, c, func(place string, err error) { l.report("locks."+name+place, err) })
}

func (l *live) checkFilter(ctx context.Context, name string, c config.Filter) {
	if l.redis != nil {
		l.report("filters."+name, l.readLog(ctx, name))
		if c.InRedis() != "" {
			if err := l.redis.Exists(ctx, c.KeyPrefix).Err(); err != nil {
				l.report("filters."+name+".key_prefix", err)
			}
		}
	}
	for _, s := range c.Sources {
		if !l.tables[s] {
			l.checkSource(ctx, s, l.config.Sources[s])
		}
	}
}

// readLog reads a filter's change log, as far as it gets within the time, and returns what
// keeps it from being read.
func (l *live) readLog(ctx context.Context, name string) error {
	log, err := changelog.New(l.redis, name, func(string) {}, changelog.Options{})
	if err != nil {
		return err
	}
	reading, stop := context.WithTimeout(ctx, liveTimeout)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = log.Run(reading) // the state has its error
	}()
	defer func() { stop(); <-done }()
	for reading.Err() == nil {
		switch state := log.State(); {
		case errors.Is(state.Err, changelog.ErrBlind), errors.Is(state.Err, changelog.ErrBroken), errors.Is(state.Err, changelog.ErrUnavailable):
			return state.Err
		case state.Phase != changelog.Loading:
			return nil
		}
		select {
		case <-reading.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil // it is long, and can be read
}

// checkSource looks whether a file, or a table, can be read, and whether a table can be
// followed.
func (l *live) checkSource(ctx context.Context, name string, c config.Source) {
	l.tables[name] = true
	path := "sources." + name
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	if !c.Live() {
		file, err := os.Open(c.Path)
		if err != nil {
			l.report(path+".path", err)
			return
		}
		_ = file.Close()
		return
	}
	table, err := newTableSource(name, c, nil, slog.New(slog.DiscardHandler))
	if err == nil {
		_, err = table.table.Check(ctx)
	}
	if err == nil && c.Follow == config.FollowBinlog {
		err = followOnce(ctx, c)
	}
	l.report(path, err)
}

// errFollowed ends a follower that has begun.
var errFollowed = errors.New("it has begun")

// followOnce follows a table until the database has told where its log is.
func followOnce(ctx context.Context, c config.Source) error {
	f, err := binlog.New(binlog.Options{Options: follow.Options{
		DSN: string(c.DSN), Table: c.Table, IDColumn: c.IDColumn, Advance: 10 * time.Millisecond,
	}}) // without its server_id: a replica of that name may run
	if err != nil {
		return err
	}
	err = f.Follow(ctx, "", func(context.Context, []string, string) error { return errFollowed }, func(time.Time) {})
	if errors.Is(err, errFollowed) || errors.Is(err, context.DeadlineExceeded) { // the table could be read
		return nil
	}
	return err
}
