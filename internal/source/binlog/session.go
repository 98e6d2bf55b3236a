package binlog

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// run is one call of Follow.
type run struct {
	*Follower
	asker    *asker
	batch    *follow.Batch
	caughtUp follow.CaughtUp

	at      place // after the last transaction
	lastEnd end   // the last that the server told
	behind  bool  // it was told that it is not the one that is written to

	// Of the present connection.
	server server
	table  tableName // as the log names it
	column column
	marks  follow.Marks[end]
	group  group
}

// session follows the log on one connection, from the place emitted last.
func (r *run) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if err := r.prepare(ctx); err != nil {
		return err
	}
	stream, err := r.openStream(ctx, r.server, r.at, r.table)
	if err != nil {
		return err
	}
	defer stream.close()
	r.log.Info("following the binary log", "table", r.table.String(), "server", r.server.name, "from", r.at.String())
	if r.at.Server != r.server.name {
		r.at.Server, r.at.File, r.at.Pos, r.at.Born = r.server.name, "", 0, 0
	}
	ends := make(chan follow.Mark[end])
	wg.Go(func() {
		follow.Ask(ctx, r.opts.Every, patience, func(ctx context.Context) (end, error) {
			return r.asker.end(ctx, r.server.flavor)
		}, ends, func(err error) {
			r.log.Debug("asking where the binary log ends", "error", follow.OneLine(err))
		})
	})
	return r.loop(ctx, stream, ends)
}

// prepare asks the server all that must be known before its log is read.
func (r *run) prepare(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	if r.server, err = r.asker.server(ctx); err != nil {
		return err
	}
	if err := r.asker.logged(ctx, r.Follower.table.schema); err != nil {
		return err
	}
	// The order of the questions matters. What is in the set lies before the place. The
	// column is asked for before any end of the log is: where it was another one, the log
	// says before that end that the table was changed.
	begin, err := r.asker.end(ctx, r.server.flavor)
	if err != nil {
		return err
	}
	if begin.server != r.server.name {
		return fmt.Errorf("server %s answers, after %s did", begin.server, r.server.name)
	}
	r.marks, r.group = follow.Marks[end]{}, group{}
	if err := r.rewind(begin); err != nil {
		return err
	}
	r.column, r.table, err = r.asker.column(ctx, r.Follower.table, r.opts.IDColumn)
	return err
}

// rewind goes back to the place emitted last; the first time, begin is the place.
func (r *run) rewind(begin end) (err error) {
	r.batch.Drop()
	last := r.batch.Last()
	if last == "" {
		if begin.pos > math.MaxUint32 {
			return fmt.Errorf("%s is longer than the protocol can tell; waiting for the next file", begin.file)
		}
		r.at = place{Server: r.server.name, File: begin.file, Pos: begin.pos, Set: r.server.set}
		return nil
	}
	if r.at, err = parsePlace(last); err != nil {
		return follow.Permanent(fmt.Errorf("%w: %w", follow.ErrGone, err))
	}
	if r.at.Server != r.server.name || r.at.File == "" {
		if r.at.Set.flavor != r.server.flavor || r.server.set.IsZero() {
			return follow.Permanent(fmt.Errorf("%w: it is of server %s, but %s answers, and transactions have no names (GTIDs)",
				follow.ErrGone, r.at.Server, r.server.name))
		}
		return nil
	}
	if order, ok := compare(begin.file, begin.pos, r.at.File, r.at.Pos); ok && order < 0 {
		return r.wentBack(begin)
	}
	if r.at.Pos > math.MaxUint32 {
		return follow.Permanent(fmt.Errorf("%w: %s is longer than the protocol can tell", follow.ErrGone, r.at.File))
	}
	return nil
}

func (r *run) wentBack(e end) error {
	return follow.Permanent(fmt.Errorf("%w: the log was at %s:%d, but ends at %s:%d (RESET MASTER?)",
		follow.ErrGone, r.at.File, r.at.Pos, e.file, e.pos))
}

// loop deals with what the stream and the server tell, until one of them fails.
func (r *run) loop(ctx context.Context, stream *stream, ends <-chan follow.Mark[end]) error {
	advance := time.NewTicker(r.opts.Advance)
	defer advance.Stop()
	for {
		var err error
		select {
		case event := <-stream.events:
			if err = r.apply(ctx, event); err == nil {
				err = r.batch.Settle(ctx, len(stream.events) > 0)
			}
		case mark := <-ends:
			err = r.mark(mark)
		case <-advance.C:
			if !r.group.open() {
				err = r.batch.Advance(ctx)
			}
		case err := <-stream.failed:
			// What was sent before is still to be dealt with: it may be all that there is
			// before a place that is gone.
			for len(stream.events) > 0 {
				if err := r.apply(ctx, <-stream.events); err != nil {
					return err
				}
			}
			if err := r.batch.Settle(ctx, false); err != nil {
				return err
			}
			return explainStream(err)
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
	e := mark.End
	if e.server != r.server.name {
		return fmt.Errorf("server %s answers, after %s did", e.server, r.server.name)
	}
	if r.lastEnd.server == e.server {
		if order, ok := compare(e.file, e.pos, r.lastEnd.file, r.lastEnd.pos); ok && order < 0 {
			return r.wentBack(e)
		}
	}
	r.lastEnd = e
	if e.readOnly != r.behind {
		r.behind = e.readOnly
		if r.behind {
			r.log.Warn("the server is read_only: orders may be written to another, so that nothing is known to be absent", "server", e.server)
		}
	}
	if !e.readOnly {
		r.marks.Add(mark)
	}
	return nil
}

// tell calls caughtUp if an end was reached that the server had told.
func (r *run) tell() {
	if r.group.open() || !r.batch.Settled() || r.batch.Last() == "" {
		return
	}
	asked, ok := r.marks.Reached(func(e end) bool {
		order, ok := compare(r.at.File, r.at.Pos, e.file, e.pos)
		return ok && order >= 0
	})
	if ok {
		r.caughtUp(asked)
	}
}
