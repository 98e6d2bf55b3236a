package binlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"

	"github.com/ordergate/ordergate/internal/lazyregexp"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/source/follow"
	"github.com/ordergate/ordergate/internal/wait"
)

// The caller reads the table after the first checkpoint. The log has a transaction before it is
// visible: for a moment, while it waits for a replica (rpl_semi_sync_master_wait_point=AFTER_SYNC),
// and from XA PREPARE until XA COMMIT.

// moveToVisible moves the end of a server's log back, and with it the server's GTIDs, so that every
// transaction before it is visible. MySQL cannot report such a position to a user with the usual
// rights: there the end stays.
func (a *serverClient) moveToVisible(ctx context.Context, s *server, end *logEnd) error {
	if s.flavor != gomysql.MariaDBFlavor {
		return nil
	}
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return explain(err)
	}
	defer func() { _ = conn.Close() }() // returns it to the pool
	if _, err := conn.ExecContext(ctx, "START TRANSACTION WITH CONSISTENT SNAPSHOT"); err != nil {
		return explain(err)
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") }() // it only reads
	var name, file, pos string
	var set *string
	err = conn.QueryRowContext(ctx, "SELECT "+serverNameSQL(s.flavor)+`, f.variable_value, p.variable_value, BINLOG_GTID_POS(f.variable_value, p.variable_value)
		FROM information_schema.session_status f, information_schema.session_status p
		WHERE f.variable_name = 'binlog_snapshot_file' AND p.variable_name = 'binlog_snapshot_position'`).Scan(&name, &file, &pos, &set)
	if err != nil {
		return explain(err)
	}
	switch {
	case name != s.name:
		return fmt.Errorf("server %s answers, after %s did", name, s.name)
	case set == nil || file == "":
		return errors.New("the server does not report the position of a snapshot in its binary log")
	}
	end.file = file
	if end.pos, err = strconv.ParseUint(pos, 10, 64); err != nil {
		return fmt.Errorf("the position of a snapshot in the binary log: %q", pos)
	}
	s.set, err = parseGTIDs(s.flavor, *set)
	return err
}

// awaitPrepared waits until the XA transactions that are prepared now have ended. It returns those
// that are left after some seconds: a coordinator commits at once what it has prepared, unless it
// died.
func (r *tailer) awaitPrepared(ctx context.Context) ([]string, error) {
	left, err := r.client.prepared(ctx)
	for deadline := time.Now().Add(timeout); err == nil && len(left) > 0 && time.Now().Before(deadline); {
		if err := wait.For(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
		var now []string
		now, err = r.client.prepared(ctx)
		left = slices.DeleteFunc(left, func(xid string) bool { return !slices.Contains(now, xid) })
	}
	if code, _ := serverError(err); code == erXAAccess {
		r.log.Warn("XA transactions may be prepared, which come too late to be followed; GRANT XA_RECOVER_ADMIN shows them", "error", follow.OneLine(err),
			runbook.MariaDB.Do("grant the right, or nothing if no program uses XA"))
		return nil, nil
	}
	if len(left) > 0 {
		r.log.Warn("XA transactions are prepared: the table is read again when one is committed", "xids", strings.Join(left, " "),
			runbook.MariaDB.Do("nothing unless they were abandoned: then commit them or roll them back"))
	}
	return left, explain(err)
}

// erXAAccess is MySQL's ER_XAER_RMERR, "XAER_RMERR: ...", and what a user without XA_RECOVER_ADMIN
// gets from XA RECOVER.
const erXAAccess = 1401

// prepared returns the XA transactions that are prepared, as the log has them.
func (a *serverClient) prepared(ctx context.Context) (xids []string, err error) {
	rows, err := a.db.QueryContext(ctx, "XA RECOVER")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err reports errors
	for rows.Next() {
		var format, global, branch int
		var data []byte
		if err := rows.Scan(&format, &global, &branch, &data); err != nil {
			return nil, err
		}
		if len(data) < global+branch {
			return nil, errors.New("the server reports an XA transaction without its whole name")
		}
		xids = append(xids, fmt.Sprintf("X'%x',X'%x',%d", data[:global], data[global:global+branch], format))
	}
	return xids, rows.Err()
}

// commitXA matches the statement in the log that commits a prepared XA transaction.
var commitXA = lazyregexp.New(`(?i)^XA\s+COMMIT\s+(X'[0-9a-f]*',X'[0-9a-f]*',\d+)$`)

// committedXA returns the XA transaction that a statement of the log commits.
func committedXA(statement string) (xid string, ok bool) {
	found := commitXA.Compiled().FindStringSubmatch(statement)
	if found == nil {
		return "", false
	}
	hexadecimal := strings.ToLower(found[1])
	return strings.ReplaceAll(hexadecimal, "x'", "X'"), true
}
