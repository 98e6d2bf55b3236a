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
	"github.com/ordergate/ordergate/internal/runbook"
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
	// wrongPause is how long a table is not followed in which IDs of its database's log are missing.
	wrongPause = 10 * time.Minute
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
	table   string // its name in Redis, see followedAs
	config  config.Source
	parts   []string // of the IDs
	formats []order.Format
	client  redis.UniversalClient
	changes *changelog.Log
	set     *redisset.Set // nil: none
	member  *changelog.Member
	lease   time.Duration // of member
	key     string        // of a hash, whose field is table
	stored  string        // the place that follow stored or read last
	lock    redisset.LeaderLock
	state   followState
	wrong   error // the last [follow.ErrWrong]
	wrongAt time.Time
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
		table := followedAs(s, c, o.Config.Filters[name].Parts)
		all = append(all, &follower{
			filter: name, name: s, table: table, config: c, requests: newCatchUpRequests(), parts: o.Config.Filters[name].Parts, formats: formats, client: o.Redis, changes: loader.log, set: loader.set,
			member: loader.log.NewMember(followedPrefix+table, lease), lease: lease,
			key:  followKey(name),
			lock: o.leaderLock(name, workFollow+table),
			log:  o.Logger.With("filter", name, "source", s, "follow", c.Follow),
		})
	}
	for _, f := range all {
		f.state.problem = recurring.New(f.log, slog.LevelError, "a table is not followed: nothing counts as absent", "the table is followed again, or by another ordergate",
			runbook.TableNotFollowed.Do("repair what error names; ordergate tries again"))
	}
	return all
}

// run follows the table until ctx ends, whenever this process has the lock.
func (f *follower) run(ctx context.Context) {
	defer f.state.problem.Drop()
	awaitMembership(ctx, f.changes)
	for ctx.Err() == nil {
		f.followLocked(ctx)
		_ = wait.For(ctx, followRetry)
	}
}

// awaitMembership waits until this process has joined the change log: before that, an append counts
// only after the lease of a predecessor, which there may have been.
func awaitMembership(ctx context.Context, changes *changelog.Log) {
	ctx, cancel := context.WithTimeout(ctx, firstReadTimeout)
	defer cancel()
	select {
	case <-changes.TailReached():
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
	left := func() {
		drop() // or the lease would be renewed once more
		select {
		case lost <- struct{}{}:
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
			left()
		},
		busy: func(err error) {
			f.state.busy(err)
			left()
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
	lost     func(error) // see [follow.Options]
	busy     func(error) // see [follow.Options]
}

// place is where a table is followed: a chain of changes, and a position in the database's log up to
// which the change log has all of them. A chain begins with a random name whenever a follower has no
// place to continue from. Every filter reads all of the table after that.
type place struct {
	Chain string `json:"chain"`
	At    string `json:"at"`
}

// parsePlace returns the zero place for a text that is none.
func parsePlace(text string) place {
	var p place
	if json.Unmarshal([]byte(text), &p) != nil || p.Chain == "" || p.At == "" {
		return place{}
	}
	return p
}

// follow continues from the stored place. Without one, it begins a chain.
func (f *follower) follow(ctx context.Context, tell followEvents) (err error) {
	for {
		if f.isWrong() && f.stored == "" {
			return f.wrong
		}
		if err = f.wrong; err == nil {
			if f.stored, err = f.member.RecordedAt(ctx, f.key, f.table); err != nil {
				return fmt.Errorf("reading the position: %w", err)
			}
			err = f.from(ctx, tell)
		}
		if !errors.Is(err, follow.ErrGone) && !errors.Is(err, follow.ErrUnsure) {
			return err
		}
		if errors.Is(err, follow.ErrWrong) && f.wrong == nil {
			f.wrong, f.wrongAt = err, time.Now()
		}
		f.log.Error("a table has to be read again, all of it", "error", err,
			runbook.PositionGone.Do("nothing: ordergate reads the table"))
		if err := f.discardPlace(ctx, err); err != nil {
			return fmt.Errorf("discarding the position: %w", err)
		}
	}
}

// isWrong reports whether IDs were read wrongly a short time ago.
func (f *follower) isWrong() bool {
	if time.Since(f.wrongAt) >= wrongPause {
		f.wrong = nil
	}
	return f.wrong != nil
}

// errNotFollowed says that no follower reports the changes of a table.
var errNotFollowed = errors.New("the table is not followed yet from a known position in its database's log")

// discardPlace ends the chain. The missed changes may be rows anywhere in the table, and new IDs of
// existing rows.
func (f *follower) discardPlace(ctx context.Context, why error) error {
	d := f.newDoubt(changelog.Gap, ": "+follow.OneLine(why))
	return f.move(ctx, "", &d)
}

// move moves the place, and appends IDs and a doubt in the same step.
func (f *follower) move(ctx context.Context, to string, doubt *changelog.Doubt, ids ...string) error {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	err := f.member.RecordAt(ctx, changelog.Move{Hash: f.key, Field: f.table, From: f.stored, To: to, Doubt: doubt}, ids...)
	if err == nil {
		f.stored = to
	}
	return err
}

// followKey is the key of the places of a filter's followers.
func followKey(filter string) string { return rediskey.Of(filter, "follow") }

// watchChains makes the followed tables of a filter check whether their chain is still the one of
// their last reading. A place that is missing equals none.
func (o *Options) watchChains(name string, tables []*tableSource) {
	for _, t := range tables {
		if o.Redis == nil || !o.Config.Sources[t.name].SendsChanges() {
			continue
		}
		t.followed = true
		table := followedAs(t.name, o.Config.Sources[t.name], o.Config.Filters[name].Parts)
		t.chain = func(ctx context.Context) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, positionTimeout)
			defer cancel()
			stored, err := o.Redis.HGet(ctx, followKey(name), table).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				return "", err
			}
			chain := parsePlace(stored).Chain
			if chain == "" {
				return "", errNotFollowed
			}
			return chain, nil
		}
	}
}

// from follows the table from the stored place, or begins a chain.
func (f *follower) from(ctx context.Context, tell followEvents) error {
	stored := parsePlace(f.stored)
	from, chain, began := stored.At, stored.Chain, stored.Chain != ""
	if !began {
		chain = rand.Text()
	}
	emit := func(ctx context.Context, ids []string, at string) error {
		var begins *changelog.Doubt
		if !began {
			d := f.newDoubt(changelog.Gap, " is followed from now on")
			begins = &d
		}
		if err := f.append(ctx, ids, place{chain, at}, begins); err != nil {
			return err
		}
		began = true
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	caughtUp := func(at time.Time) {
		if !began {
			return
		}
		if !f.member.IsPlaceKnown() {
			if err := f.move(ctx, f.stored, nil); err != nil {
				cancel(fmt.Errorf("after a restart or a failover of Redis: %w", err))
				return
			}
		}
		tell.caughtUp(at)
	}
	opts := follow.Options{
		DSN: string(f.config.DSN), RereadDSN: f.config.RereadDSN(), Table: f.config.Table, IDColumn: f.config.IDColumn, PartColumns: partColumns(f.config, f.parts), Check: rules.Check(f.formats), Logger: f.log,
		OnBadRow: func(reason string) { f.bad(ctx, reason) }, OnDisconnect: tell.lost, OnBusy: tell.busy,
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

// append appends new rows to the change log, and moves the place behind them.
func (f *follower) append(ctx context.Context, ids []string, at place, doubt *changelog.Doubt) error {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	if f.set != nil { // it gets IDs that are in the log, and before the position
		if err := announce(ctx, f.changes, f.set, ids); err != nil {
			return err
		}
		ids = nil
	}
	text, _ := json.Marshal(at) // texts
	if err := f.move(ctx, string(text), doubt, ids...); err != nil {
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
			f.log.Error("a row without an ID is not in the change log yet", "reason", reason,
				runbook.FilterNotReady.Do("look at Redis and the way to it; ordergate tries again"))
		}
		_ = wait.For(ctx, followRetry)
	}
}

// doubt records a doubt about the table in the change log. The text follows the table's name.
func (f *follower) doubt(ctx context.Context, kind changelog.Kind, text string) error {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	return f.changes.RecordDoubt(ctx, f.newDoubt(kind, text))
}

func (f *follower) newDoubt(kind changelog.Kind, text string) changelog.Doubt {
	return changelog.Doubt{Kind: kind, Reason: "the table of source " + f.name + text}
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
			return context.Cause(ctx)
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
