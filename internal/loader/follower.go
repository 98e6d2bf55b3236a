package loader

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/rediskey"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/source"
	"github.com/ordergate/ordergate/internal/source/binlog"
	"github.com/ordergate/ordergate/internal/source/follow"
	"github.com/ordergate/ordergate/internal/source/logical"
	"github.com/ordergate/ordergate/internal/wait"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

const (
	// followRetry is the pause after a follower's error.
	followRetry = 5 * time.Second
	// positionTimeout bounds a read or write of a position in Redis.
	positionTimeout = 2 * time.Second
)

// follower appends the new rows of a table to the change log. One instance of a deployment does
// so at a time, from the position in Redis.
//
// Its lease in the change log guarantees that every committed row is in the log. When the lease
// expires, filters answer Unknown, never Absent.
type follower struct {
	filter  string
	name    string // of the source
	config  config.Source
	parts   []string // of the IDs
	formats []order.Format
	client  redis.UniversalClient
	changes *changelog.Log
	set     *redisset.Set // nil: none
	member  *changelog.Member
	lease   time.Duration // of member
	key     string        // of a hash, whose field is the source's name
	lock    redisset.LeaderLock
	state   followState
	// requests are those of [Loader.CaughtUp].
	requests *catchUpRequests
	log      *slog.Logger
}

// followers returns the followers of a filter's tables.
func (o *Options) followers(name string, loader *Loader, formats []order.Format) (all []*follower) {
	for _, s := range o.Config.Filters[name].Sources {
		c := o.Config.Sources[s]
		if c.Follow == "" || c.Follow == config.FollowNone {
			continue
		}
		lease := max(o.Config.Filters[name].StaleAfter, 3*c.Every)
		all = append(all, &follower{
			filter: name, name: s, config: c, requests: newCatchUpRequests(), parts: o.Config.Filters[name].Parts, formats: formats, client: o.Redis, changes: loader.log, set: loader.set,
			member: loader.log.NewMember(followedPrefix+s, lease), lease: lease,
			key:  followKey(name),
			lock: o.leaderLock(name, workFollow+s),
			log:  o.Logger.With("filter", name, "source", s, "follow", c.Follow),
		})
	}
	for _, f := range all {
		f.state.problem = recurring.New(f.log, slog.LevelError, "a table is not followed: nothing counts as absent", "the table is followed again, or by another ordergate")
	}
	return all
}

// run follows the table until ctx ends, whenever this process has the lock.
func (f *follower) run(ctx context.Context) {
	defer f.state.problem.Drop()
	f.awaitMembership(ctx)
	for ctx.Err() == nil {
		f.followLocked(ctx)
		_ = wait.For(ctx, followRetry)
	}
}

// awaitMembership waits until this process has joined the change log: before that, an append counts
// only after the lease of a predecessor, which there may have been.
func (f *follower) awaitMembership(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstReadTimeout)
	defer cancel()
	select {
	case <-f.changes.TailReached():
	case <-ctx.Done():
	}
}

// followLocked waits for the lock, and follows the table until an error. It releases the lock a lease
// after the connection to the database ended, unless it has caught up since: another instance may
// reach the database.
func (f *follower) followLocked(ctx context.Context) {
	var requests sync.WaitGroup
	defer requests.Wait() // for popFor: another may follow already
	work, _, done, err := f.lock(ctx)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, redislock.ErrBusy) {
			f.state.lost(fmt.Errorf("waiting for the leader lock: %w", err))
		}
		return
	}
	defer done()
	work, cancel := context.WithCancelCause(work)
	var away *time.Timer // since the connection to the database ended
	defer func() {
		if away != nil {
			away.Stop()
		}
	}()
	// Both hold the latest event: a Redis that hangs must not block the follower.
	caughtUp, lost := make(chan time.Time, 1), make(chan struct{}, 1)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		f.renew(work, caughtUp, lost)
	}()
	drop := func() {
		select {
		case <-caughtUp:
		default:
		}
	}
	if f.config.SendsChanges() {
		requests.Go(func() { f.receiveRequests(work) })
	}
	err = f.follow(work, followEvents{
		caughtUp: func(at time.Time) {
			if f.state.caughtUp(at) {
				f.log.Info("a table is followed, for all ordergates")
			}
			if away != nil {
				away.Stop()
				away = nil
			}
			drop()
			caughtUp <- at
			if tokens := f.requests.take(at); tokens != nil {
				requests.Go(func() { f.reply(work, tokens) })
			}
		},
		lost: func(err error) {
			f.state.lost(err)
			if away == nil {
				away = time.AfterFunc(f.lease, func() { cancel(fmt.Errorf("another ordergate may follow: %w", err)) })
			}
			drop() // or the lease would be renewed once more
			select {
			case lost <- struct{}{}:
			default:
			}
		},
	})
	if cause := context.Cause(work); cause != nil {
		err = cause
	}
	cancel(nil)
	<-renewed
	if f.state.ended(); ctx.Err() == nil {
		f.state.lost(err)
	}
	f.leave(context.WithoutCancel(ctx))
}

// followEvents are the callbacks of a database's follower.
type followEvents struct {
	caughtUp follow.CaughtUp
	lost     func(error) // see [follow.Options.Lost]
}

// follow continues from the stored position. Without one, the other instances have to read the
// rows that were committed before the new position: follow appends a doubt before it stores
// that position. After a discarded position, they have to read all of the table.
func (f *follower) follow(ctx context.Context, tell followEvents) error {
	for {
		from, err := f.changes.RecordedAt(ctx, f.key, f.name)
		if err != nil {
			return fmt.Errorf("reading the position: %w", err)
		}
		err = f.from(ctx, from, tell)
		if !errors.Is(err, follow.ErrGone) && !errors.Is(err, follow.ErrUnsure) {
			return err
		}
		f.log.Error("a table has to be read again, all of it", "error", err)
		if err := f.discardPosition(ctx, err); err != nil {
			return fmt.Errorf("discarding the position: %w", err)
		}
	}
}

// discarded replaces a discarded position until there is a new one.
const discarded = "given up"

// errNotFollowed says that no follower reports the changes of a table.
var errNotFollowed = errors.New("the table is not followed yet since its position in the database's log was discarded")

// discardPosition discards the position. The missed changes may be rows anywhere in the table,
// and new IDs of existing rows. Catching up after the doubt reads all of the table, once it is
// followed again.
func (f *follower) discardPosition(ctx context.Context, why error) error {
	if err := f.append(ctx, nil, discarded); err != nil {
		return err // the next follower finds the position, and gets here again
	}
	return f.doubt(ctx, changelog.Gap, ": "+follow.OneLine(why))
}

// begin appends a doubt before the first position is stored: the table is followed from now on.
// A follower that finds a position appends none.
func (f *follower) begin(ctx context.Context, again bool) error {
	if again {
		short, cancel := context.WithTimeout(ctx, positionTimeout)
		defer cancel()
		if err := f.client.HSet(short, f.key, reread(f.name), rand.Text()).Err(); err != nil {
			return fmt.Errorf("requesting a read of the whole table: %w", err)
		}
	}
	return f.doubt(ctx, changelog.Gap, " is followed from now on")
}

// followKey is the key of the positions of a filter's followers. Beside the position of each
// source it has a token, which changes whenever all of the table has to be read again.
func followKey(filter string) string { return rediskey.Of(filter, "follow") }

// reread is the field of the token.
func reread(source string) string { return source + "#reread" }

// watchRereads makes the followed tables of a filter check whether they have to be read again
// as a whole.
func (o *Options) watchRereads(name string, tables []*tableSource) {
	for _, t := range tables {
		if o.Redis == nil || !o.Config.Sources[t.name].SendsChanges() {
			continue
		}
		t.reread = func(ctx context.Context) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, positionTimeout)
			defer cancel()
			kept, err := o.Redis.HMGet(ctx, followKey(name), t.name, reread(t.name)).Result()
			if err == nil && kept[0] == discarded {
				err = errNotFollowed
			}
			if err != nil {
				return "", err
			}
			token, _ := kept[1].(string)
			return token, nil
		}
	}
}

func (f *follower) from(ctx context.Context, from string, tell followEvents) error {
	again := from == discarded
	if again {
		from = ""
	}
	began := from != ""
	emit := func(ctx context.Context, ids []string, at string) error {
		if !began {
			if err := f.begin(ctx, again); err != nil {
				return err
			}
		}
		if err := f.append(ctx, ids, at); err != nil {
			return err
		}
		began = true
		return nil
	}
	caughtUp := func(at time.Time) {
		if began {
			tell.caughtUp(at)
		}
	}
	opts := follow.Options{
		DSN: string(f.config.DSN), RereadDSN: f.config.RereadDSN(), Table: f.config.Table, IDColumn: f.config.IDColumn, PartColumns: partColumns(f.config, f.parts), Check: rules.Check(f.formats), Logger: f.log,
		OnBadRow: func(reason string) { f.bad(ctx, reason) }, OnDisconnect: tell.lost,
		PollNow: f.requests.pollNow,
	}
	switch f.config.Follow {
	case config.FollowBinlog:
		b, err := binlog.New(binlog.Options{Options: opts, ServerID: f.config.ServerID})
		if err != nil {
			return err
		}
		return b.Follow(ctx, from, emit, caughtUp)
	case config.FollowLogical:
		l, err := logical.New(logical.Options{Options: opts, Slot: f.config.Slot, Publication: f.config.Publication})
		if err != nil {
			return err
		}
		return l.Follow(ctx, from, emit, caughtUp)
	}
	return f.poll(ctx, from, emit, caughtUp)
}

// append appends new rows to the change log, and stores the position behind them.
func (f *follower) append(ctx context.Context, ids []string, at string) error {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	if f.set != nil { // it gets IDs that are in the log, and before the position
		if err := announce(ctx, f.changes, f.set, ids); err != nil {
			return err
		}
		ids = nil
	}
	if err := f.changes.RecordAt(ctx, f.key, f.name, at, ids...); err != nil {
		return fmt.Errorf("storing the position: %w", err)
	}
	return nil
}

// bad handles a row without a usable ID. It returns when the doubt is in the log, or ctx has
// ended: then the next follower finds the row again.
func (f *follower) bad(ctx context.Context, reason string) {
	if f.config.OnBad == config.OnBadSkip {
		return
	}
	for logged := false; f.doubt(ctx, changelog.Lost, ": "+reason) != nil && ctx.Err() == nil; logged = true {
		if !logged {
			f.log.Error("a row without an ID is not in the change log yet", "reason", reason)
		}
		_ = wait.For(ctx, followRetry)
	}
}

// doubt records a doubt about the table in the change log. The text follows the table's name.
func (f *follower) doubt(ctx context.Context, kind changelog.Kind, text string) error {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	return f.changes.RecordDoubt(ctx, changelog.Doubt{Kind: kind, Reason: "the table of source " + f.name + text})
}

// poll reads the rows that may be new in the table periodically.
func (f *follower) poll(ctx context.Context, from string, emit follow.Emit, caughtUp follow.CaughtUp) error {
	table, err := newTableSource(f.name, f.config, f.parts, f.formats, f.log)
	if err != nil {
		return err
	}
	if err := table.from(json.RawMessage(from)); err != nil {
		return fmt.Errorf("%w: %w", follow.ErrGone, err)
	}
	tick := time.NewTicker(f.config.Every)
	defer tick.Stop()
	seen := newDedupWindow(f.config.Overlap)
	for {
		began := time.Now()
		var ids []string
		flush := func() error {
			err := emit(ctx, ids, string(table.position()))
			ids = ids[:0]
			return err
		}
		err := table.tail(ctx, func(id string) error {
			if !seen.first(id, began) {
				return nil
			}
			ids = append(ids, strings.Clone(id))
			if len(ids) < follow.MaxChunk {
				return nil
			}
			return flush()
		})
		if errors.Is(err, source.ErrPosition) {
			return fmt.Errorf("%w: %w", follow.ErrGone, err)
		}
		if err == nil {
			err = flush()
		}
		if err != nil {
			return err
		}
		caughtUp(began)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// dedupWindow remembers IDs for at least twice the overlap. The follower reads a table's last
// rows repeatedly, and appends each once.
type dedupWindow struct {
	keep     time.Duration
	now, old map[string]struct{}
	since    time.Time // of now
}

func newDedupWindow(overlap time.Duration) *dedupWindow {
	return &dedupWindow{keep: 2 * overlap, now: map[string]struct{}{}}
}

// first reports whether an ID is not remembered, and remembers it.
func (t *dedupWindow) first(id string, at time.Time) bool {
	if at.Sub(t.since) > t.keep {
		t.now, t.old, t.since = map[string]struct{}{}, t.now, at
	}
	_, recent := t.now[id]
	_, old := t.old[id]
	t.now[strings.Clone(id)] = struct{}{}
	return !recent && !old
}
