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
	"github.com/ordergate/ordergate/internal/wait"
)

// tailer is one call of Follow.
type tailer struct {
	*Follower
	batch    *follow.Batch
	caughtUp follow.CaughtUp

	at checkpoint // behind the last transaction

	useless error // why the slot is of no use: the next session drops it, and Follow returns this

	// Of the present connection.
	setup        setup
	slot         slot
	poller       *poller
	stream       *stream
	ends         follow.LogEnds[logEnd]
	inTx         bool // a transaction is under way
	relation     relation
	emitted      string // the last checkpoint emitted
	emittedLSN   lsn    // its position
	lastMessage  time.Time
	requested    time.Time // when the server's progress was requested; zero: it has replied
	requestTimer *time.Timer
	requestPause time.Duration // before the next request
}

// The pauses between two requests of the server's progress.
const (
	minRequestPause = 2 * time.Millisecond
	maxRequestPause = 50 * time.Millisecond
)

// session follows the changes on one connection, from the last checkpoint that was emitted.
func (r *tailer) session(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	conn, err := pgx.ConnectConfig(ctx, r.settings())
	if err != nil {
		cancel()
		return explain(err)
	}
	r.poller = &poller{Follower: r.Follower, setup: &r.setup, conn: conn}
	defer r.poller.close()
	defer wg.Wait()
	defer cancel()
	reading := false
	// From the slot's position the next follower would meet the same change again. The slot is in use
	// until the server has noticed the end of the stream.
	defer func() {
		if r.useless == nil && (errors.Is(err, follow.ErrUnsure) || reading && errors.Is(err, follow.ErrGone)) {
			r.useless, err = err, errors.New(follow.OneLine(err))
		}
	}()
	if err := r.prepare(ctx, conn); err != nil {
		return err
	}
	reading = true
	if r.stream, err = r.openStream(ctx, &r.setup, &r.at, r.slot); err != nil {
		return err
	}
	defer r.stream.close()
	r.log.Info("following the table by logical replication", "table", r.setup.tableName, "slot", r.opts.Slot, "from", r.at.LSN.String())
	if err := r.batch.Advance(ctx); err != nil { // the first checkpoint
		return err
	}
	r.poller.files = r.setup.table.files
	ends := make(chan follow.LogEnd[logEnd])
	wg.Go(func() {
		follow.PollLogEnd(ctx, r.opts.PollEvery, timeout, r.opts.PollNow, r.poller.logEnd, ends, func(err error) {
			r.log.Debug("asking where the log ends", "error", follow.OneLine(err))
		})
	})
	return r.loop(ctx, ends)
}

// prepare queries what must be known before reading changes, and creates what is missing.
func (r *tailer) prepare(ctx context.Context, conn *pgx.Conn) (err error) {
	limited, cancel := context.WithTimeout(ctx, 2*timeout)
	defer cancel()
	if r.useless != nil {
		if err := r.dropSlot(limited, conn); err != nil {
			return err
		}
		return r.useless
	}
	if r.setup, err = r.readSetup(limited, conn); err != nil {
		return err
	}
	r.ends, r.inTx, r.relation, r.requestPause = follow.LogEnds[logEnd]{}, false, relation{}, minRequestPause
	r.batch.Discard()
	if last := r.batch.LastEmitted(); last != "" {
		if r.at, err = parseCheckpoint(last); err != nil {
			return follow.Permanent(fmt.Errorf("%w: %w", follow.ErrGone, err))
		}
		if r.at.system() != r.setup.system {
			return follow.Permanent(fmt.Errorf("%w: it is of database cluster %s, but %s answers", follow.ErrGone, r.at.system(), r.setup.system))
		}
		if r.slot, err = r.checkSlot(limited, conn, r.at.LSN); err != nil {
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
	// The publication comes first: it must exist when a change is made.
	if err := r.ensurePublication(limited, conn, &r.setup); err != nil {
		return err
	}
	if r.slot, err = r.beginSlot(ctx, conn); err != nil {
		return err
	}
	r.at = checkpoint{Server: r.setup.server, LSN: r.slot.Confirmed, Table: r.setup.table.text, Files: r.setup.table.sum()}
	return r.awaitVisible(ctx, conn)
}

// awaitVisible waits until the transactions under way have ended. A reading of the table that begins
// after it finds all rows that the log has before the slot's position. A transaction is in the log
// before it is visible while its commit waits for a synchronous standby, for example.
func (r *tailer) awaitVisible(ctx context.Context, conn *pgx.Conn) error {
	var next string
	if err := conn.QueryRow(ctx, "SELECT pg_current_xact_id()::text").Scan(&next); err != nil {
		return explain(err)
	}
	for pause := minRequestPause; ; pause = min(2*pause, time.Second) {
		var ended bool
		err := conn.QueryRow(ctx, "SELECT pg_snapshot_xmin(pg_current_snapshot()) >= $1::text::xid8", next).Scan(&ended)
		if err != nil || ended {
			return explain(err)
		}
		if pause == time.Second {
			r.log.Info("waiting for the end of transactions, prepared ones included", "below", next)
		}
		if err := wait.For(ctx, pause); err != nil {
			return err
		}
	}
}

// checkTable returns an error unless the log has all rows since the checkpoint.
func (r *tailer) checkTable(table string) error {
	switch {
	case table == r.at.Table:
		return nil
	case table != "" && oidOf(table) != oidOf(r.at.Table):
		return follow.Permanent(fmt.Errorf("%w: the table is another of that name than before", follow.ErrUnsure))
	}
	return follow.Permanent(fmt.Errorf("%w: column %s is, or was, another one, or publication %s lacks, or lacked, changes of the table",
		follow.ErrUnsure, r.opts.IDColumn, r.opts.Publication))
}

// loop applies what the stream and the server report, until one of them fails.
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
		case end := <-ends:
			err = r.addEnd(end)
		case <-r.requestTimer.C:
			err = r.requestProgress()
		case <-second.C:
			err = r.keepAlive()
		case <-advance.C:
			if !r.inTx {
				err = r.batch.Advance(ctx)
			}
		case err := <-r.stream.failed:
			// Apply what was sent before.
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

// addEnd records where the server's log ended.
func (r *tailer) addEnd(end follow.LogEnd[logEnd]) error {
	if end.End.server != r.setup.server {
		return errors.New("another server answers than did before")
	}
	if err := r.checkTable(end.End.table.text); err != nil {
		return err
	}
	if table := end.End.rewritten; table != "" {
		return follow.Permanent(fmt.Errorf("%w: %s was attached with its rows, or was rewritten", follow.ErrUnsure, table))
	}
	r.at.Files = end.End.table.sum()
	r.ends.Add(end)
	if r.requested.IsZero() && r.at.LSN < end.End.at {
		r.requestPause = minRequestPause
		return r.requestProgress()
	}
	return nil
}

// requestProgress asks the server how far it has read, if a log end is pending. By itself the
// server reports nothing when it has read only changes of other tables.
func (r *tailer) requestProgress() error {
	end, ok := r.ends.First()
	if !ok || r.at.LSN >= end.End.at || !r.requested.IsZero() {
		return nil
	}
	r.requested = time.Now()
	return r.stream.sendStatus(r.confirmed(), true)
}

// applyKeepalive applies the server's progress.
func (r *tailer) applyKeepalive(keepalive *pglogrepl.PrimaryKeepaliveMessage) error {
	r.requested = time.Time{}
	if !r.inTx {
		r.at.LSN = max(r.at.LSN, lsn(keepalive.ServerWALEnd))
	}
	if end, ok := r.ends.First(); ok && r.at.LSN < end.End.at {
		// The server has not reached the end yet.
		if time.Since(end.Requested) > maxRequestPause {
			r.poller.lagging.Store(true)
		}
		r.requestTimer.Reset(r.requestPause)
		r.requestPause = min(2*r.requestPause, maxRequestPause)
	}
	if keepalive.ReplyRequested {
		return r.stream.sendStatus(r.confirmed(), false)
	}
	return nil
}

// keepAlive sends the server a status, and checks that it replies.
func (r *tailer) keepAlive() error {
	if !r.requested.IsZero() && time.Since(r.requested) > readTimeout && time.Since(r.lastMessage) > readTimeout {
		return fmt.Errorf("the server has not answered for %v", readTimeout)
	}
	return r.stream.sendStatus(r.confirmed(), false)
}

// confirmed returns the position of the last checkpoint that was emitted. The server may remove the
// changes before it.
func (r *tailer) confirmed() lsn {
	if last := r.batch.LastEmitted(); last != r.emitted {
		if p, err := parseCheckpoint(last); err == nil {
			r.emitted, r.emittedLSN = last, p.LSN
		}
	}
	return r.emittedLSN
}

// reportCaughtUp calls caughtUp if the tailer has reached an end of the log.
func (r *tailer) reportCaughtUp() {
	if r.inTx || !r.batch.Flushed() {
		return
	}
	if requested, ok := r.ends.PopReached(func(e logEnd) bool { return r.at.LSN >= e.at }); ok {
		r.caughtUp(requested)
	}
}
