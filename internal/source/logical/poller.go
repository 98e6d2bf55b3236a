package logical

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/source/follow"
)

// poller queries the server for what the stream does not contain. It is for one goroutine, except
// lagging.
type poller struct {
	*Follower
	setup *setup
	conn  *pgx.Conn
	files []string // see tableState

	// lagging is set when the server has not read up to the requested end, although it has no more
	// changes to send.
	lagging     atomic.Bool
	flushFailed bool // a warning was logged
}

// logEnd returns the end of the log. It reconnects if need be.
func (a *poller) logEnd(ctx context.Context) (e logEnd, err error) {
	if a.conn == nil || a.conn.IsClosed() {
		if a.conn, err = pgx.ConnectConfig(ctx, a.settings()); err != nil {
			return e, explain(err)
		}
	}
	if e, err = a.setup.logEnd(ctx, a.conn, a.opts.Publication, a.table.Sanitize()); err != nil {
		return e, err
	}
	if e.rewritten, err = findRewritten(ctx, a.conn, a.files, e.table.files); err != nil {
		return e, explain(err)
	}
	if e.rewritten == "" { // else this result may be dropped, and the next must report it again
		a.files = e.table.files
	}
	if a.lagging.Swap(false) {
		a.flushLog(ctx)
	}
	return e, nil
}

// flushLog makes the server write its log to the disk. The server reads only what is there. The
// records of open transactions may stay in memory until any transaction commits.
func (a *poller) flushLog(ctx context.Context) {
	_, err := a.conn.Exec(ctx, "SELECT pg_logical_emit_message(true, 'ordergate', '')")
	if err != nil && !a.flushFailed {
		a.flushFailed = true
		a.log.Warn("the server cannot be made to write its log, so that it may seem to lag while transactions are open", "error", follow.OneLine(explain(err)),
			runbook.TableLags.Do("nothing while transactions are short; otherwise grant the function that error names"))
	}
}

func (a *poller) close() {
	if a.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = a.conn.Close(ctx) // it only reads
	}
}
