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
type tailer struct {
	*Follower
	batch    *follow.Batch
	caughtUp follow.CaughtUp

	at checkpoint // after the last transaction

	// Of the present connection.
	setup        setup
	poller       *poller
	stream       *stream
	ends         follow.LogEnds[logEnd]
	inTx         bool // a transaction
	relation     relation
	emitted      string // the place that was emitted last, and
	emittedLSN   lsn    // its position
	lastMessage  time.Time
	requested    time.Time // the server how far it has read; zero: it has answered
	requestTimer *time.Timer
	requestPause time.Duration // before it is asked again
}

// The pauses between two questions how far the server has read.
const (
	minRequestPause = 2 * time.Millisecond
	maxRequestPause = 50 * time.Millisecond
)

// session follows the changes on one connection, from the place emitted last.
func (r *tailer) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	conn, err := pgx.ConnectConfig(ctx, r.config)
	if err != nil {
		cancel()
		return explain(err)
	}
	r.poller = &poller{Follower: r.Follower, setup: &r.setup, conn: conn}
	defer r.poller.close()
	defer wg.Wait()
	defer cancel()
	if err := r.prepare(ctx, conn); err != nil {
		return err
	}
	if r.stream, err = r.openStream(ctx, &r.setup, r.at.LSN); err != nil {
		return err
	}
	defer r.stream.close()
	r.log.Info("following the table by logical replication", "table", r.setup.tableName, "slot", r.opts.Slot, "from", r.at.LSN.String())
	if err := r.batch.Advance(ctx); err != nil { // the first place
		return err
	}
	r.poller.files = r.setup.table.files
	ends := make(chan follow.LogEnd[logEnd])
	wg.Go(func() {
		follow.PollLogEnd(ctx, r.opts.PollEvery, timeout, r.poller.logEnd, ends, func(err error) {
			r.log.Debug("asking where the log ends", "error", follow.OneLine(err))
		})
	})
	return r.loop(ctx, ends)
}

// prepare asks the server all that must be known before its changes are read, and
// makes what is missing.
func (r *tailer) prepare(ctx context.Context, conn *pgx.Conn) (err error) {
	limited, cancel := context.WithTimeout(ctx, 2*timeout)
	defer cancel()
	if r.setup, err = r.readSetup(limited, conn); err != nil {
		return err
	}
	r.ends, r.inTx, r.relation, r.requestPause = follow.LogEnds[logEnd]{}, false, relation{}, minRequestPause
	r.batch.Discard()
	if last := r.batch.LastEmitted(); last != "" {
		if r.at, err = parseCheckpoint(last); err != nil {
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
		if err := r.checkTable(r.setup.table.text); err != nil {
			return err
		}
		if r.at.Files != r.setup.table.sum() {
			return follow.Permanent(fmt.Errorf("%w: the table was rewritten, or has other partitions than before", follow.ErrUnsure))
		}
		return nil
	}
	// The publication comes first: it has to be there when a change is made.
	if err := r.ensurePublication(limited, conn, &r.setup); err != nil {
		return err
	}
	begin, err := r.beginSlot(ctx, conn)
	r.at = checkpoint{System: r.setup.system, LSN: begin, Table: r.setup.table.text, Files: r.setup.table.sum()}
	return err
}

// checkWatched makes sure that all rows are in the log since the place.
func (r *tailer) checkTable(watched string) error {
	switch {
	case watched == r.at.Table:
		return nil
	case watched != "" && oidOf(watched) != oidOf(r.at.Table):
		return follow.Permanent(fmt.Errorf("%w: the table is another of that name than before", follow.ErrUnsure))
	}
	return follow.Permanent(fmt.Errorf("%w: column %s is, or was, another one, or publication %s has, or had, not all of the table's changes",
		follow.ErrUnsure, r.opts.IDColumn, r.opts.Publication))
}

// loop deals with what the stream and the server tell, until one of them fails.
func (r *tailer) loop(ctx context.Context, ends <-chan follow.LogEnd[logEnd]) error {
	advance, second := time.NewTicker(r.opts.Advance), time.NewTicker(time.Second)
	defer advance.Stop()
	defer second.Stop()
	r.requestTimer = time.NewTimer(maxRequestPause)
	defer r.requestTimer.Stop()
	r.lastMessage, r.requested = time.Now(), time.Time{}
	for {
		var err error
		select {
		case m := <-r.stream.messages:
			r.lastMessage = time.Now()
			if err = r.apply(ctx, m); err == nil {
				err = r.batch.Flush(ctx, len(r.stream.messages) > 0)
			}
		case mark := <-ends:
			err = r.addEnd(mark)
		case <-r.requestTimer.C:
			err = r.requestProgress()
		case <-second.C:
			err = r.keepAlive()
		case <-advance.C:
			if !r.inTx {
				err = r.batch.Advance(ctx)
			}
		case err := <-r.stream.failed:
			// What was sent before is still to be dealt with.
			for len(r.stream.messages) > 0 {
				if err := r.apply(ctx, <-r.stream.messages); err != nil {
					return err
				}
			}
			if err := r.batch.Flush(ctx, false); err != nil {
				return err
			}
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		r.reportCaughtUp()
	}
}

// mark takes note of where the server's log ended.
func (r *tailer) addEnd(mark follow.LogEnd[logEnd]) error {
	if mark.End.server != r.setup.server {
		return errors.New("another server answers than did before")
	}
	if err := r.checkTable(mark.End.table.text); err != nil {
		return err
	}
	if table := mark.End.rewritten; table != "" {
		return follow.Permanent(fmt.Errorf("%w: %s was attached with its rows, or was rewritten", follow.ErrUnsure, table))
	}
	r.at.Files = mark.End.table.sum()
	r.ends.Add(mark)
	if r.requested.IsZero() && r.at.LSN < mark.End.at {
		r.requestPause = minRequestPause
		return r.requestProgress()
	}
	return nil
}

// ask has the server say how far it has read, if it matters. It sends nothing by
// itself when it has read changes of other tables only.
func (r *tailer) requestProgress() error {
	mark, ok := r.ends.First()
	if !ok || r.at.LSN >= mark.End.at || !r.requested.IsZero() {
		return nil
	}
	r.requested = time.Now()
	return r.stream.sendStatus(r.confirmed(), true)
}

// answered deals with how far the server has read.
func (r *tailer) applyKeepalive(alive *pglogrepl.PrimaryKeepaliveMessage) error {
	r.requested = time.Time{}
	if !r.inTx {
		r.at.LSN = max(r.at.LSN, lsn(alive.ServerWALEnd))
	}
	if mark, ok := r.ends.First(); ok && r.at.LSN < mark.End.at {
		// It is not there yet.
		if time.Since(mark.Requested) > maxRequestPause {
			r.poller.lagging.Store(true)
		}
		r.requestTimer.Reset(r.requestPause)
		r.requestPause = min(2*r.requestPause, maxRequestPause)
	}
	if alive.ReplyRequested {
		return r.stream.sendStatus(r.confirmed(), false)
	}
	return nil
}

// stillThere tells the server that we are, and finds out whether it is.
func (r *tailer) keepAlive() error {
	if !r.requested.IsZero() && time.Since(r.requested) > readTimeout && time.Since(r.lastMessage) > readTimeout {
		return fmt.Errorf("the server has not answered for %v", readTimeout)
	}
	return r.stream.sendStatus(r.confirmed(), false)
}

// confirmed returns the position of the place that was emitted last: what is before
// it, the server need not keep.
func (r *tailer) confirmed() lsn {
	if last := r.batch.LastEmitted(); last != r.emitted {
		if p, err := parseCheckpoint(last); err == nil {
			r.emitted, r.emittedLSN = last, p.LSN
		}
	}
	return r.emittedLSN
}

// tell calls caughtUp if an end was reached that the server had told.
func (r *tailer) reportCaughtUp() {
	if r.inTx || !r.batch.Flushed() {
		return
	}
	if asked, ok := r.ends.PopReached(func(e logEnd) bool { return r.at.LSN >= e.at }); ok {
		r.caughtUp(asked)
	}
}
