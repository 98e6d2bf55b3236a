package loader

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

const (
	// firstReadTimeout bounds the wait for the first read of the change log. Sources that are
	// read before it have to be read again.
	firstReadTimeout = 5 * time.Second
	// peersTime is how long the other instances need to append their orders again after Redis
	// has lost data: they check every 100 ms, and may have to connect first.
	peersTime = 10 * time.Second
	// maxQueriesPerSecond bounds the average load of many doubts on the tables, whose
	// documented limit is five. A reading takes about a dozen queries. A reading with so many
	// queries that maxRest cuts its pause causes more.
	maxQueriesPerSecond = 4
	maxRest             = 5 * time.Second
	// retryMin and retryMax bound the pause after a failed reading.
	retryMin = time.Second
	retryMax = 30 * time.Second
)

// load makes the filter ready, from its snapshot if possible and otherwise from the sources.
// Then it follows the change log, clears doubts and writes snapshots, until ctx ends.
func (u *Loader) load(ctx context.Context, sources []filter.Source) {
	var background sync.WaitGroup
	defer background.Wait()
	restored := u.snapshots.restore(ctx)
	if !restored {
		u.growth.reserve(ctx)
	}
	if u.log != nil {
		background.Go(func() { _ = u.log.Run(ctx) })
	}
	load := func(ctx context.Context) error {
		u.snapshots.loads()
		defer u.snapshots.keepParts(ctx)()
		return u.filter.Load(ctx, u.unread(sources)...)
	}
	if !restored {
		u.awaitFirstRead(ctx)
		u.retry(ctx, "filter not loaded: nothing counts as absent", func(ctx context.Context) error {
			return u.cache.load(ctx, load)
		})
	}
	if restored || u.checkpoints != nil { // this run has not read the tables
		background.Go(func() { u.checkTables(ctx) })
	}
	background.Go(func() { u.recoverLoop(ctx, load) })
	background.Go(func() { u.logSnapshot.keep(ctx) })
	u.snapshots.keep(ctx, !restored)
}

// checkTables logs problems of the tables at the start, before the first time that it has to
// catch up.
func (u *Loader) checkTables(ctx context.Context) {
	for _, t := range u.tables() {
		if _, err := t.table.Check(ctx); err != nil && ctx.Err() == nil {
			u.logger.Warn("catching up with a table fails for now", "source", t.name, "error", err,
				runbook.FilterNotReady.Do("repair what error names; ordergate tries again"))
		}
	}
}

// unread returns sources that yield only the rows that the filter lacks.
func (u *Loader) unread(sources []filter.Source) []filter.Source {
	if u.checkpoints != nil {
		return []filter.Source{unreadBySet{u}}
	}
	list := slices.Clone(sources)
	for i, s := range list {
		if t, ok := s.(*tableSource); ok {
			list[i] = unreadRows{t, u.filter.NoteProgress}
		}
	}
	return list
}

// awaitFirstRead waits until the change log has been read once. From then on the loader
// receives each new entry, and a source that is read contains the earlier orders.
func (u *Loader) awaitFirstRead(ctx context.Context) {
	if u.log == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, firstReadTimeout)
	defer cancel()
	select {
	case <-u.log.TailReached():
	case <-ctx.Done():
		u.logSnapshot.wait()
	}
}

// retry calls do until it succeeds, ctx ends, or an operator has loaded the filter. It logs
// repeated equal errors once.
func (u *Loader) retry(ctx context.Context, failed string, do func(ctx context.Context) error) {
	logged := ""
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if err.Error() != logged {
			logged = err.Error()
			u.logger.Error(failed, "error", err,
				runbook.FilterNotReady.Do("repair what error names; ordergate tries again"))
		}
		if wait.For(ctx, pause) != nil || u.filter.Loaded() {
			return
		}
	}
}

// recoverLoop clears doubts until ctx ends. One reading clears all doubts that were there when
// it began.
func (u *Loader) recoverLoop(ctx context.Context, load func(context.Context) error) {
	logged := false // that an operator has to act
	for {
		if recovery, _, ok := u.filter.Doubts(); !ok || recovery < filter.ByOperator {
			logged = false
		} else if !logged {
			_, reason := u.filter.State()
			level := slog.LevelError
			if u.filter.OnlyAbandoned() {
				level = slog.LevelWarn
			}
			u.logger.Log(ctx, level, "nothing counts as absent until the sources have every order", "reason", reason,
				runbook.NoLiveSource.Do("run ordergate load when the sources have every order"))
			logged = true
		}
		var late <-chan time.Time // when the next doubt can be cleared
		if recovery, ok := u.filter.Recoverable(); ok {
			before := u.queries()
			began := time.Now()
			u.retry(ctx, "a doubt is not cleared: nothing counts as absent", func(ctx context.Context) error {
				return u.clear(ctx, recovery, load)
			})
			u.rest(ctx, began, u.queries()-before)
			if _, left := u.filter.Recoverable(); left {
				late = time.After(u.filter.UntilClearable()) // 0 if that moment has passed
			}
		}
		var again <-chan time.Time
		if at := u.rereadAt.Load(); at != 0 {
			again = time.After(time.Until(time.Unix(0, at)))
		}
		select {
		case <-ctx.Done():
			return
		case <-late:
		case <-again:
			u.rereadTables(ctx)
		case <-u.filter.DoubtAdded():
		}
	}
}

// rereadTables reads the tables once more after an instance was killed, when none of its
// forwarded calls can still commit. The doubt about these calls was cleared before: no client
// has their answers.
func (u *Loader) rereadTables(ctx context.Context) {
	u.rereadAt.Store(0)
	if err := u.readNew(ctx, u.filter.Include); err != nil && ctx.Err() == nil {
		u.logger.Warn("the tables could not be read once more after an ordergate was killed", "error", err,
			runbook.FilterNotReady.Do("look at the database; ordergate tries again"))
		u.rereadAt.CompareAndSwap(0, time.Now().Add(retryMax).UnixNano())
	}
}

// queries returns how many queries the tables have answered so far.
func (u *Loader) queries() (n int64) {
	for _, t := range u.tables() {
		n += t.table.Queries()
	}
	return n
}

// rest waits until the tables may be read again: many doubts must not cause many queries.
func (u *Loader) rest(ctx context.Context, began time.Time, queries int64) {
	pause := min(time.Duration(max(queries, 1))*time.Second/maxQueriesPerSecond, maxRest)
	_ = wait.For(ctx, time.Until(began.Add(pause)))
}

// readNew reads the rows that may be new in the tables. Take is a method of the filter that
// accepts a reading.
func (u *Loader) readNew(ctx context.Context, take func(context.Context, func(context.Context, func(string) error) error) error) error {
	if u.checkpoints != nil {
		return u.catchUpSet(ctx, take)
	}
	return take(ctx, u.catchUp)
}

// clear performs the recovery of the current doubts once. The filter signals a doubt that is
// added meanwhile.
func (u *Loader) clear(ctx context.Context, recovery filter.Recovery, load func(context.Context) error) error {
	switch {
	case len(u.tables()) > 0:
		return u.readNew(ctx, u.filter.CatchUp)
	case recovery == filter.ByWaiting:
		return u.filter.WaitForPeers(ctx, func(ctx context.Context) error {
			return wait.For(ctx, peersTime)
		})
	}
	return load(ctx)
}

// tables returns the sources that contain each order as soon as it exists.
func (u *Loader) tables() (tables []*tableSource) {
	for _, s := range u.sources {
		if t, ok := s.(*tableSource); ok {
			tables = append(tables, t)
		}
	}
	return tables
}

// files returns the sources that are files.
func (u *Loader) files() (files []*csvSource) {
	for _, s := range u.sources {
		if f, ok := s.(*csvSource); ok {
			files = append(files, f)
		}
	}
	return files
}

// catchUp reads the rows that may be new in the tables.
func (u *Loader) catchUp(ctx context.Context, add func(id string) error) error {
	for _, t := range u.tables() {
		if err := t.tail(ctx, add); err != nil {
			return err
		}
	}
	return nil
}

// position is where a snapshot ends: in the change log, and in the tables.
type position struct {
	changelog.Mark
	Tables map[string]json.RawMessage `json:"tables,omitempty"`
}

// at returns the position up to which the filter contains every order.
func (u *Loader) at() []byte {
	if u.log == nil {
		return nil
	}
	p := position{Mark: u.log.Mark(), Tables: map[string]json.RawMessage{}}
	for _, t := range u.tables() {
		p.Tables[t.name] = t.position()
	}
	if p.Mark == (changelog.Mark{}) && len(p.Tables) == 0 {
		return nil
	}
	text, _ := json.Marshal(p) // texts and a number
	return text
}

// resume continues from a position. After an error, the next reading of each table begins at its
// first row.
func (u *Loader) resume(text []byte) (at changelog.Mark, err error) {
	var p position
	if err := json.Unmarshal(text, &p); err != nil {
		return at, err
	}
	for _, t := range u.tables() {
		err = errors.Join(err, t.from(p.Tables[t.name]))
	}
	if err != nil {
		u.forget()
	}
	return p.Mark, err
}

// forget makes the next reading of each table begin at its first row.
func (u *Loader) forget() {
	for _, t := range u.tables() {
		_ = t.from(nil)
	}
}
