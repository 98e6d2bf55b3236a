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
type asker struct {
	*Follower
	setup *setup
	conn  *pgx.Conn
	files []string // see watched

	// stuck is set when the server has not read up to the end that was asked for,
	// although it has nothing more to send.
	stuck atomic.Bool
	tried bool // in vain
}

// end asks where the log ends, on a new connection if need be.
func (a *asker) end(ctx context.Context) (e end, err error) {
	if a.conn == nil || a.conn.IsClosed() {
		if a.conn, err = pgx.ConnectConfig(ctx, a.config); err != nil {
			return e, explain(err)
		}
	}
	if e, err = a.setup.end(ctx, a.conn, a.opts.Publication, a.table.Sanitize()); err != nil {
		return e, err
	}
	if e.filled, err = filled(ctx, a.conn, a.files, e.watched.files); err != nil {
		return e, explain(err)
	}
	if e.filled == "" { // or the next answer says it again: this one may not be taken
		a.files = e.watched.files
	}
	if a.stuck.Swap(false) {
		a.nudge(ctx)
	}
	return e, nil
}

// nudge has the server write its log to the disk. It reads only what is there, and
// what a transaction has written that was not committed yet may stay in memory for as
// long as nobody commits anything.
func (a *asker) nudge(ctx context.Context) {
	_, err := a.conn.Exec(ctx, "SELECT pg_logical_emit_message(true, 'ordergate', '')")
	if err != nil && !a.tried {
		a.tried = true
		a.log.Warn("the server cannot be made to write its log, so that it may seem to lag while transactions are open", "error", follow.OneLine(explain(err)))
	}
}

func (a *asker) close() {
	if a.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = a.conn.Close(ctx) // it was only read from
	}
}
