package binlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/source/follow"
)

// tailer is one call of Follow.
type tailer struct {
	*Follower
	client     *serverClient
	spotClient *serverClient
	batch      *follow.Batch
	caughtUp   follow.CaughtUp

	at       checkpoint // behind the last transaction
	lastEnd  logEnd     // the last that the server reported
	readOnly bool       // the server reported that it is read-only
	spot     *spotCheck

	// Of the present connection.
	server server
	layout layout
	// The indexes of the columns of a full ID in the rows of an event, and the texts of a row.
	indexes []int
	texts   []string
	ends    follow.LogEnds[logEnd]
	tx      transaction
}

// session follows the log on one connection, from the last checkpoint that was emitted.
func (r *tailer) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if err := r.prepare(ctx); err != nil {
		return err
	}
	stream, err := r.openStream(ctx, r.server, r.at, &r.layout)
	if err != nil {
		return err
	}
	defer stream.close()
	r.log.Info("following the binary log", "table", r.layout.table.String(), "server", r.server.name, "from", r.at.String())
	if r.at.Server != r.server.name {
		r.at.Server, r.at.File, r.at.Pos, r.at.Created = r.server.name, "", 0, 0
	}
	ends := make(chan follow.LogEnd[logEnd])
	r.spot.restart(r.layout.indexed)
	wg.Go(func() { r.lookUp(ctx) })
	wg.Go(func() {
		follow.PollLogEnd(ctx, r.opts.PollEvery, timeout, r.opts.PollNow, func(ctx context.Context) (logEnd, error) {
			return r.client.logEnd(ctx, r.server.flavor)
		}, ends, func(err error) {
			r.log.Debug("asking where the binary log ends", "error", follow.OneLine(err))
		})
	})
	return r.loop(ctx, stream, ends)
}

// prepare queries what must be known before reading the log.
func (r *tailer) prepare(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*timeout)
	defer cancel()
	if r.server, err = r.client.describe(ctx); err != nil {
		return err
	}
	if err := r.client.checkLogged(ctx, r.table.schema); err != nil {
		return err
	}
	// The order of the queries matters. The GTID set lies before the checkpoint. The column comes
	// before any log end: if it changes in between, the log reports that before that end.
	begin, err := r.client.logEnd(ctx, r.server.flavor)
	if err != nil {
		return err
	}
	if begin.server != r.server.name {
		return fmt.Errorf("server %s answers, after %s did", begin.server, r.server.name)
	}
	if err := r.checkReplica(begin); err != nil {
		return err
	}
	r.ends, r.tx = follow.LogEnds[logEnd]{}, transaction{}
	if r.batch.LastEmitted() == "" {
		if err := r.client.moveToVisible(ctx, &r.server, &begin); err != nil {
			return err
		}
		if r.at.Prepared, err = r.awaitPrepared(ctx); err != nil {
			return err
		}
	}
	if err := r.rewind(begin); err != nil {
		return err
	}
	r.layout, err = r.client.describeTable(ctx, r.table, r.opts.Columns(), r.server)
	r.indexes, r.texts = make([]int, len(r.layout.ids)), make([]string, len(r.layout.ids))
	return err
}

// rewind returns to the last checkpoint that was emitted. The first time, begin is the checkpoint.
func (r *tailer) rewind(begin logEnd) (err error) {
	r.batch.Discard()
	last := r.batch.LastEmitted()
	if last == "" {
		if begin.pos > math.MaxUint32 {
			return fmt.Errorf("%s is longer than the protocol can express; waiting for the next file", begin.file)
		}
		r.at = checkpoint{Server: r.server.name, File: begin.file, Pos: begin.pos, GTIDs: r.server.set, Prepared: r.at.Prepared}
		return nil
	}
	if r.at, err = parseCheckpoint(last); err != nil {
		return follow.Permanent(fmt.Errorf("%w: %w", follow.ErrGone, err))
	}
	if r.at.Server != r.server.name || r.at.File == "" {
		if r.at.GTIDs.flavor != r.server.flavor || r.server.set.IsZero() {
			return follow.Permanent(fmt.Errorf("%w: it is of server %s, but %s answers, and transactions have no names (GTIDs)",
				follow.ErrGone, r.at.Server, r.server.name))
		}
		return nil
	}
	if order, ok := compare(begin.file, begin.pos, r.at.File, r.at.Pos); ok && order < 0 {
		return r.wentBackError(begin)
	}
	if r.at.Pos > math.MaxUint32 {
		return follow.Permanent(fmt.Errorf("%w: %s is longer than the protocol can express", follow.ErrGone, r.at.File))
	}
	return nil
}

func (r *tailer) wentBackError(e logEnd) error {
	return follow.Permanent(fmt.Errorf("%w: the log was at %s:%d, but ends at %s:%d (RESET MASTER?)",
		follow.ErrGone, r.at.File, r.at.Pos, e.file, e.pos))
}

// checkReplica returns an error if the log lacks the rows that the server gets from other servers.
func (r *tailer) checkReplica(e logEnd) error {
	if !e.unlogged && !r.server.unlogged {
		return nil
	}
	err := errors.New("the server gets rows from others (Galera, or gtid_slave_pos is set), and its log lacks those rows: start it with log_slave_updates=ON, or SET GLOBAL gtid_slave_pos='' if it replicates no more")
	if r.batch.LastEmitted() != "" {
		err = fmt.Errorf("%w: %w", follow.ErrUnsure, err)
	}
	return follow.Permanent(err)
}

// loop applies what the stream and the server report, until one of them fails.
func (r *tailer) loop(ctx context.Context, stream *stream, ends <-chan follow.LogEnd[logEnd]) error {
	advance := time.NewTicker(r.opts.Advance)
	defer advance.Stop()
	for {
		var err error
		select {
		case event := <-stream.events:
			if err = r.apply(ctx, event); err == nil {
				err = r.batch.Flush(ctx, len(stream.events) > 0)
			}
		case end := <-ends:
			err = r.addEnd(end)
			r.requestLookup()
		case answer := <-r.spot.answers:
			r.spot.answer = &answer
		case <-advance.C:
			if !r.tx.open() && r.at.Created != 0 { // else the file is not identified yet
				err = r.batch.Advance(ctx)
			}
		case err := <-stream.failed:
			// Apply what was sent before. It may be all that is left before a checkpoint that is
			// gone.
			for len(stream.events) > 0 {
				if err := r.apply(ctx, <-stream.events); err != nil {
					return err
				}
			}
			if err := r.batch.Flush(ctx, false); err != nil {
				return err
			}
			return explainStream(err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err == nil {
			err = r.judge()
		}
		if err != nil {
			return err
		}
		r.reportCaughtUp()
	}
}

// addEnd records where the server's log ended.
func (r *tailer) addEnd(end follow.LogEnd[logEnd]) error {
	e := end.End
	if e.server != r.server.name {
		return fmt.Errorf("server %s answers, after %s did", e.server, r.server.name)
	}
	if err := r.checkReplica(e); err != nil {
		return err
	}
	if r.lastEnd.server == e.server {
		if order, ok := compare(e.file, e.pos, r.lastEnd.file, r.lastEnd.pos); ok && order < 0 {
			return r.wentBackError(e)
		}
	}
	r.lastEnd = e
	if e.readOnly != r.readOnly {
		r.readOnly = e.readOnly
		if r.readOnly {
			r.log.Warn("the server is read_only: orders may be written to another, so that nothing counts as absent", "server", e.server,
				runbook.TableNotFollowed.Do("let the source's address name the primary"))
		}
	}
	if !e.readOnly {
		r.ends.Add(end)
	}
	return nil
}

// reportCaughtUp calls caughtUp if the tailer has reached an end of the log.
func (r *tailer) reportCaughtUp() {
	if r.tx.open() || !r.batch.Flushed() || r.batch.LastEmitted() == "" {
		return
	}
	if r.spot.doubtful() {
		return
	}
	if requested, ok := r.ends.PopReached(r.reached); ok {
		r.caughtUp(requested)
	}
}

// reached reports whether the log was read up to an end.
func (r *tailer) reached(e logEnd) bool {
	order, ok := compare(r.at.File, r.at.Pos, e.file, e.pos)
	return ok && order >= 0
}
