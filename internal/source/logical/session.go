package logical

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// run is one call of Follow.
type run struct {
	*Follower
	batch    *follow.Batch
	caughtUp follow.CaughtUp

	at place // after the last transaction

	// Of the present connection.
	setup    setup
	asker    *asker
	stream   *stream
	marks    follow.Marks[end]
	within   bool // a transaction
	relation relation
	kept     string // the place that was emitted last, and
	keptLSN  lsn    // its position
	heard    time.Time
	asked    time.Time // the server how far it has read; zero: it has answered
	poke     *time.Timer
	pause    time.Duration // before it is asked again
}

// The pauses between two questions how far the server has read.
const (
	shortPause = 2 * time.Millisecond
	longPause  = 50 * time.Millisecond
)

// session follows the changes on one connection, from the place emitted last.
func (r *run) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	conn, err := pgx.ConnectConfig(ctx, r.config)
	if err != nil {
		cancel()
		return explain(err)
	}
	r.asker = &asker{Follower: r.Follower, setup: &r.setup, conn: conn}
	defer r.asker.close()
	defer wg.Wait()
	defer cancel()
	if err := r.prepare(ctx, conn); err != nil {
		return err
	}
	if r.stream, err = r.openStream(ctx, &r.setup, r.at.LSN); err != nil {
		return err
	}
	defer r.stream.close()
	r.log.Info("following the table by logical replication", "table", r.setup.table, "slot", r.opts.Slot, "from", r.at.LSN.String())
	if err := r.batch.Advance(ctx); err != nil { // the first place
		return err
	}
	r.asker.files = r.setup.watched.files
	ends := make(chan follow.Mark[end])
	wg.Go(func() {
		follow.Ask(ctx, r.opts.Every, patience, r.asker.end, ends, func(err error) {
			r.log.Debug("asking where the log ends", "error", follow.OneLine(err))
		})
	})
	return r.loop(ctx, ends)
}

// prepare asks the server all that must be known before its changes are read, and
// makes what is missing.
func (r *run) prepare(ctx context.Context, conn *pgx.Conn) (err error) {
	limited, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	if r.setup, err = r.readSetup(limited, conn); err != nil {
		return err
	}
	r.marks, r.within, r.relation, r.pause = follow.Marks[end]{}, false, relation{}, shortPause
	r.batch.Drop()
	if last := r.batch.Last(); last != "" {
		if r.at, err = parsePlace(last); err != nil {
			return follow.Permanent(fmt.Errorf("%w: %w", follow.ErrGone, err))
		}
		if r.at.System != r.setup.system {
			return follow.Permanent(fmt.Errorf("%w: it is of database cluster %s, but %s answers", follow.ErrGone, r.at.System, r.setup.system))
		}
		if err := r.checkSlot(limited, conn, r.at.LSN); err != nil {
			return err
		}
		if err := r.ensurePublication(limited, conn, &r.setup); err != nil {
			return err
		}
		if err := r.checkWatched(r.setup.watched.text); err != nil {
			return err
		}
		if r.at.Files != r.setup.watched.sum() {
			return follow.Permanent(fmt.Errorf("%w: the table was rewritten, or has other partitions than before", follow.ErrUnsure))
		}
		return nil
	}
	// The publication comes first: it has to be there when a change is made.
	if err := r.ensurePublication(limited, conn, &r.setup); err != nil {
		return err
	}
	begin, err := r.beginSlot(ctx, conn)
	r.at = place{System: r.setup.system, LSN: begin, Watched: r.setup.watched.text, Files: r.setup.watched.sum()}
	return err
}

// checkWatched makes sure that all rows are in the log since the place.
func (r *run) checkWatched(watched string) error {
	switch {
	case watched == r.at.Watched:
		return nil
	case watched != "" && oidOf(watched) != oidOf(r.at.Watched):
		return follow.Permanent(fmt.Errorf("%w: the table is another of that name than before", follow.ErrUnsure))
	}
	return follow.Permanent(fmt.Errorf("%w: column %s is, or was, another one, or publication %s has, or had, not all of the table's changes",
		follow.ErrUnsure, r.opts.IDColumn, r.opts.Publication))
}

// loop deals with what the stream and the server tell, until one of them fails.
func (r *run) loop(ctx context.Context, ends <-chan follow.Mark[end]) error {
	advance, second := time.NewTicker(r.opts.Advance), time.NewTicker(time.Second)
	defer advance.Stop()
	defer second.Stop()
	r.poke = time.NewTimer(longPause)
	defer r.poke.Stop()
	r.heard, r.asked = time.Now(), time.Time{}
	for {
		var err error
		select {
		case m := <-r.stream.messages:
			r.heard = time.Now()
			if err = r.apply(ctx, m); err == nil {
				err = r.batch.Settle(ctx, len(r.stream.messages) > 0)
			}
		case mark := <-ends:
			err = r.mark(mark)
		case <-r.poke.C:
			err = r.ask()
		case <-second.C:
			err = r.stillThere()
		case <-advance.C:
			if !r.within {
				err = r.batch.Advance(ctx)
			}
		case err := <-r.stream.failed:
			// What was sent before is still to be dealt with.
			for len(r.stream.messages) > 0 {
				if err := r.apply(ctx, <-r.stream.messages); err != nil {
					return err
				}
			}
			if err := r.batch.Settle(ctx, false); err != nil {
				return err
			}
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		r.tell()
	}
}

// mark takes note of where the server's log ended.
func (r *run) mark(mark follow.Mark[end]) error {
	if mark.End.server != r.setup.server {
		return errors.New("another server answers than did before")
	}
	if err := r.checkWatched(mark.End.watched.text); err != nil {
		return err
	}
	if table := mark.End.filled; table != "" {
		return follow.Permanent(fmt.Errorf("%w: %s was attached with its rows, or was rewritten", follow.ErrUnsure, table))
	}
	r.at.Files = mark.End.watched.sum()
	r.marks.Add(mark)
	if r.asked.IsZero() && r.at.LSN < mark.End.at {
		r.pause = shortPause
		return r.ask()
	}
	return nil
}

// ask has the server say how far it has read, if it matters. It sends nothing by
// itself when it has read changes of other tables only.
func (r *run) ask() error {
	mark, ok := r.marks.First()
	if !ok || r.at.LSN >= mark.End.at || !r.asked.IsZero() {
		return nil
	}
	r.asked = time.Now()
	return r.stream.confirm(r.confirmed(), true)
}

// answered deals with how far the server has read.
func (r *run) answered(alive *pglogrepl.PrimaryKeepaliveMessage) error {
	r.asked = time.Time{}
	if !r.within {
		r.at.LSN = max(r.at.LSN, lsn(alive.ServerWALEnd))
	}
	if mark, ok := r.marks.First(); ok && r.at.LSN < mark.End.at {
		// It is not there yet.
		if time.Since(mark.Asked) > longPause {
			r.asker.stuck.Store(true)
		}
		r.poke.Reset(r.pause)
		r.pause = min(2*r.pause, longPause)
	}
	if alive.ReplyRequested {
		return r.stream.confirm(r.confirmed(), false)
	}
	return nil
}

// stillThere tells the server that we are, and finds out whether it is.
func (r *run) stillThere() error {
	if !r.asked.IsZero() && time.Since(r.asked) > silence && time.Since(r.heard) > silence {
		return fmt.Errorf("the server has not answered for %v", silence)
	}
	return r.stream.confirm(r.confirmed(), false)
}

// confirmed returns the position of the place that was emitted last: what is before
// it, the server need not keep.
func (r *run) confirmed() lsn {
	if last := r.batch.Last(); last != r.kept {
		if p, err := parsePlace(last); err == nil {
			r.kept, r.keptLSN = last, p.LSN
		}
	}
	return r.keptLSN
}

// tell calls caughtUp if an end was reached that the server had told.
func (r *run) tell() {
	if r.within || !r.batch.Settled() {
		return
	}
	if asked, ok := r.marks.Reached(func(e end) bool { return r.at.LSN >= e.at }); ok {
		r.caughtUp(asked)
	}
}
