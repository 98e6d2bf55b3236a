package logical

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// asker asks the server what the stream does not tell. It is for one goroutine, but
// for stuck.
type poller struct {
	*Follower
	setup *setup
	conn  *pgx.Conn
	files []string // see watched

	// stuck is set when the server has not read up to the end that was asked for,
	// although it has nothing more to send.
	lagging     atomic.Bool
	flushFailed bool // in vain
}

// end asks where the log ends, on a new connection if need be.
func (a *poller) logEnd(ctx context.Context) (e logEnd, err error) {
	if a.conn == nil || a.conn.IsClosed() {
		if a.conn, err = pgx.ConnectConfig(ctx, a.config); err != nil {
			return e, explain(err)
		}
	}
	if e, err = a.setup.logEnd(ctx, a.conn, a.opts.Publication, a.table.Sanitize()); err != nil {
		return e, err
	}
	if e.rewritten, err = findRewritten(ctx, a.conn, a.files, e.table.files); err != nil {
		return e, explain(err)
	}
	if e.rewritten == "" { // or the next answer says it again: this one may not be taken
		a.files = e.table.files
	}
	if a.lagging.Swap(false) {
		a.flushLog(ctx)
	}
	return e, nil
}

// nudge has the server write its log to the disk. It reads only what is there, and
// what a transaction has written that was not committed yet may stay in memory for as
// long as nobody commits anything.
func (a *poller) flushLog(ctx context.Context) {
	_, err := a.conn.Exec(ctx, "SELECT pg_logical_emit_message(true, 'ordergate', '')")
	if err != nil && !a.flushFailed {
		a.flushFailed = true
		a.log.Warn("the server cannot be made to write its log, so that it may seem to lag while transactions are open", "error", follow.OneLine(explain(err)))
	}
}

func (a *poller) close() {
	if a.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = a.conn.Close(ctx) // it was only read from
	}
}
