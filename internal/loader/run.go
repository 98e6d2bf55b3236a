package loader

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/changelog"
)

const (
	// firstReadTimeout is how long the sources are not read because the change log cannot be
	// reached: what is read before that has to be read again.
	firstReadTimeout = 5 * time.Second
	// settleTime is what others need to say what they know, after Redis has lost
	// something: they look every 100 ms, and may have to connect first.
	settleTime = 10 * time.Second
	// maxQueriesPerSecond is how many queries a second a flood of doubts costs the live sources in
	// the long run, of the five that they are told: a reading takes a dozen or so. Of one
	// that takes so many that longestRest is over before, it is more.
	maxQueriesPerSecond = 4
	longestRest         = 5 * time.Second
	// retryMin and retryMax bound the pause after a reading that failed.
	retryMin = time.Second
	retryMax = 30 * time.Second
)

// feed makes a filter ready, from its snapshot if that will do and from the sources
// otherwise, has it follow the change log, clears doubts, and writes snapshots, until
// ctx ends.
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
	if restored || u.checkpoints != nil { // nobody has read the tables
		background.Go(func() { u.checkTables(ctx) })
	}
	background.Go(func() { u.recoverLoop(ctx, load) })
	background.Go(func() { u.logSnapshot.keep(ctx) })
	u.snapshots.keep(ctx, !restored)
}

// checkTables has what is wrong with the tables told at the start, not when somebody
// catches up with them.
func (u *Loader) checkTables(ctx context.Context) {
	for _, t := range u.tables() {
		if _, err := t.table.Check(ctx); err != nil && ctx.Err() == nil {
			u.logger.Warn("a table cannot be caught up with for now", "source", t.name, "error", err)
		}
	}
}

// unread returns sources of what of the tables is not in the filter yet.
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

// awaitFirstRead waits until the change log has been read once, so that whatever comes of it
// after that is noticed, and a source that is read then has all that came before.
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

// retry tries until it succeeds, ctx ends, or somebody has loaded the filter. What
// fails in the same way again and again is one line.
func (u *Loader) retry(ctx context.Context, failed string, do func(ctx context.Context) error) {
	said := ""
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			u.logger.Error(failed, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if u.filter.Loaded() {
			return
		}
	}
}

// recoverLoop clears doubts until ctx ends: however many there are at a moment by one reading, which
// begins after they came.
func (u *Loader) recoverLoop(ctx context.Context, load func(context.Context) error) {
	said := false // that somebody is needed
	for {
		if cure, _, ok := u.filter.Doubts(); !ok || cure < filter.ByOperator {
			said = false
		} else if !said {
			_, reason := u.filter.State()
			u.logger.Error("nothing counts as absent until the sources have every order: run ordergate load when they have", "reason", reason)
			said = true
		}
		var late <-chan time.Time // when a doubt can be cleared that could not be before
		if cure, ok := u.filter.Recoverable(); ok {
			before := u.queries()
			began := time.Now()
			u.retry(ctx, "a doubt is not cleared: nothing counts as absent", func(ctx context.Context) error {
				return u.clear(ctx, cure, load)
			})
			u.rest(ctx, began, u.queries()-before)
			if _, left := u.filter.Recoverable(); left {
				late = time.After(u.filter.UntilClearable()) // 0 where it has passed meanwhile
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

// rereadTables reads the tables once more, when nothing that an ordergate had forwarded before it
// was killed can still commit. The doubt about that has been cleared: no client has the
// answer of such a call.
func (u *Loader) rereadTables(ctx context.Context) {
	u.rereadAt.Store(0)
	if err := u.takeNew(ctx, u.filter.Include); err != nil && ctx.Err() == nil {
		u.logger.Warn("the tables could not be read once more after an ordergate was killed", "error", err)
		u.rereadAt.CompareAndSwap(0, time.Now().Add(retryMax).UnixNano())
	}
}

// queries returns how many queries the live sources have answered so far.
func (u *Loader) queries() (n int64) {
	for _, t := range u.tables() {
		n += t.table.Queries()
	}
	return n
}

// rest waits until the sources can be read again: a flood of doubts is not to be one of
// queries.
func (u *Loader) rest(ctx context.Context, began time.Time, queries int64) {
	pause := min(time.Duration(max(queries, 1))*time.Second/maxQueriesPerSecond, longestRest)
	sleep(ctx, time.Until(began.Add(pause)))
}

// takeNew reads what may be new in the tables. Take is a method of the filter that takes a
// reading.
func (u *Loader) takeNew(ctx context.Context, take func(context.Context, func(context.Context, func(string) error) error) error) error {
	if u.checkpoints != nil {
		return u.catchUpSet(ctx, take)
	}
	return take(ctx, u.catchUp)
}

// clear does once what clears a doubt. One that came meanwhile is told by another
// message of Doubted.
func (u *Loader) clear(ctx context.Context, cure filter.Recovery, load func(context.Context) error) error {
	switch {
	case u.checkpoints != nil || len(u.tables()) > 0:
		return u.takeNew(ctx, u.filter.CatchUp)
	case cure == filter.ByWaiting:
		return u.filter.WaitForPeers(ctx, func(ctx context.Context) error {
			select {
			case <-time.After(settleTime):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	return load(ctx)
}

// live returns the sources that have each order as soon as it exists.
func (u *Loader) tables() (tables []*tableSource) {
	for _, s := range u.sources {
		if t, ok := s.(*tableSource); ok {
			tables = append(tables, t)
		}
	}
	return tables
}

// catchUp reads what the live sources have that may be new.
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

// at returns the position that everything has been added up to.
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

// resume goes on from a position.
func (u *Loader) resume(text []byte) (at changelog.Mark, err error) {
	var p position
	if err := json.Unmarshal(text, &p); err != nil {
		return at, err
	}
	for _, t := range u.tables() {
		err = errors.Join(err, t.from(p.Tables[t.name]))
	}
	return p.Mark, err
}
