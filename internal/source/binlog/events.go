package binlog

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// transaction is the transaction under way, or a statement that stands for one.
type transaction struct {
	gtid any  // the event with its GTID
	rows bool // it has begun: rows may follow, and a commit ends it
}

func (g transaction) open() bool { return g.gtid != nil || g.rows }

// apply applies one event.
func (r *tailer) apply(ctx context.Context, e *replication.BinlogEvent) error {
	h := e.Header
	switch event := e.Event.(type) {
	case *replication.RotateEvent:
		if file := string(event.NextLogName); file != r.at.File {
			// The creation time of the next file is not known yet.
			if err := r.batch.Flush(ctx, false); err != nil {
				return err
			}
			r.at.File, r.at.Pos, r.at.Created = file, event.Position, 0
		}
	case *replication.FormatDescriptionEvent:
		if err := r.checkCreated(h.Timestamp); err != nil {
			return err
		}
		r.moveBehind(h)
		if r.batch.LastEmitted() == "" {
			return r.batch.Advance(ctx) // the first checkpoint
		}
	case *replication.MariadbGTIDEvent:
		r.begin(h, event)
		r.tx.rows = !event.IsStandalone()
	case *replication.GTIDEvent, *replication.GtidTaggedLogEvent:
		r.begin(h, event)
	case *replication.QueryEvent:
		return r.applyQuery(h, event)
	case *replication.RowsEvent:
		return r.applyRows(ctx, h, event)
	case *replication.XIDEvent:
		r.commit(h)
	case *replication.HeartbeatEvent:
		// The server has sent everything up to here that concerns this table.
		if !r.tx.open() && event.Filename == r.at.File {
			r.moveTo(max(uint64(h.LogPos), event.Offset))
		}
	case *replication.TransactionPayloadEvent:
		for _, inner := range event.Events {
			if err := r.apply(ctx, inner); err != nil {
				return err
			}
		}
	default:
		return r.applyOther(h)
	}
	return nil
}

// applyOther applies events without rows and GTIDs.
func (r *tailer) applyOther(h *replication.EventHeader) error {
	switch h.EventType {
	case replication.XA_PREPARE_LOG_EVENT:
		// It may be rolled back later. An ID too many does no harm.
		r.spot.remove()
		r.commit(h)
	case replication.INCIDENT_EVENT:
		return r.uncertain(h, "the server reports that its log lacks changes (incident)")
	default:
		if !slices.Contains(rowless, h.EventType) && h.Flags&replication.LOG_EVENT_IGNORABLE_F == 0 {
			return r.uncertain(h, "rows of a "+h.EventType.String()+" are not in the log")
		}
		r.moveBehind(h)
	}
	return nil
}

// rowless are the events that contain no rows and hide none.
var rowless = []replication.EventType{
	replication.STOP_EVENT, replication.INTVAR_EVENT, replication.RAND_EVENT, replication.USER_VAR_EVENT,
	replication.TABLE_MAP_EVENT, replication.IGNORABLE_EVENT, replication.ROWS_QUERY_EVENT, replication.PREVIOUS_GTIDS_EVENT,
	replication.TRANSACTION_CONTEXT_EVENT, replication.VIEW_CHANGE_EVENT,
	replication.MARIADB_ANNOTATE_ROWS_EVENT, replication.MARIADB_BINLOG_CHECKPOINT_EVENT,
	replication.MARIADB_GTID_LIST_EVENT, replication.MARIADB_START_ENCRYPTION_EVENT,
}

// checkCreated compares the file's creation time with that of the checkpoint.
func (r *tailer) checkCreated(at uint32) error {
	if r.at.Created != 0 && r.at.Created != at {
		return follow.Permanent(fmt.Errorf("%w: %s is another file of that name (RESET MASTER?)", follow.ErrGone, r.at.File))
	}
	r.at.Created = at
	return nil
}

// moveBehind moves the checkpoint behind an event outside transactions.
func (r *tailer) moveBehind(h *replication.EventHeader) {
	if !r.tx.open() && h.Flags&replication.LOG_EVENT_ARTIFICIAL_F == 0 {
		r.moveTo(uint64(h.LogPos))
	}
}

// moveTo moves the checkpoint within its file. Some events have the position 0. Positions behind 4
// GiB, which only a file's last transaction can have, come with their lower half. The next event or
// file corrects both.
func (r *tailer) moveTo(pos uint64) { r.at.Pos = max(r.at.Pos, pos) }

func (r *tailer) begin(h *replication.EventHeader, name any) {
	if h.LogPos > h.EventSize {
		r.moveTo(uint64(h.LogPos - h.EventSize))
	}
	r.tx = transaction{gtid: name}
}

func (r *tailer) commit(h *replication.EventHeader) {
	if r.tx.gtid != nil {
		r.at.GTIDs.add(r.tx.gtid)
	}
	r.tx = transaction{}
	r.moveTo(uint64(h.LogPos))
	r.batch.Commit()
}

// applyQuery applies a statement.
func (r *tailer) applyQuery(h *replication.EventHeader, event *replication.QueryEvent) error {
	if xid, ok := committedXA(string(event.Query)); ok && slices.Contains(r.at.Prepared, xid) {
		return r.uncertain(h, "an XA transaction was committed that had been prepared before the table was followed")
	}
	switch r.layout.table.meaningOf(string(event.Query), string(event.Schema)) {
	case beginsTx:
		r.tx.rows = true
		return nil
	case insideTx:
		return nil
	case endsTx:
		r.commit(h)
		return nil
	case hidesRows:
		return r.uncertain(h, "a statement wrote rows, or may have, or has changed the table, and the log has the statement only")
	}
	r.spot.remove() // TRUNCATE, for example
	if !r.tx.rows {
		r.commit(h)
	}
	return nil
}

// uncertain is the error of an event whose effect on the table is unknown.
func (r *tailer) uncertain(h *replication.EventHeader, why string) error {
	return follow.Permanent(fmt.Errorf("%w: before %s:%d: %s", follow.ErrUnsure, r.at.File, h.LogPos, why))
}

// applyRows applies the rows of one event.
func (r *tailer) applyRows(ctx context.Context, h *replication.EventHeader, event *replication.RowsEvent) error {
	if !r.layout.table.matches(event.Table) {
		return nil
	}
	if event.Type() == replication.EnumRowsEventTypeDelete {
		r.spot.remove()
		return nil
	}
	if err := r.layout.check(event.Table); err != nil {
		return follow.Permanent(err)
	}
	for i := range r.layout.ids {
		var err error
		if r.indexes[i], err = r.layout.ids[i].indexIn(event.Table); err != nil {
			return follow.Permanent(err)
		}
	}
	inserts := event.Type() == replication.EnumRowsEventTypeInsert
	for i, row := range event.Rows {
		if !inserts && i%2 == 0 {
			continue // the row before the update
		}
		if slices.Max(r.indexes) >= len(row) {
			return r.uncertain(h, "a row with too few columns")
		}
		if !inserts {
			if r.isUnchanged(event, i) {
				continue
			}
			r.spot.remove()
		}
		id, bad := r.idOf(event, i, inserts)
		if bad != "" {
			r.opts.OnBadRow(r.describeRow(bad))
			continue
		}
		if err := r.batch.Add(ctx, id); err != nil {
			return err
		}
		if r.layout.indexed {
			r.spot.take(r.texts)
		}
	}
	return nil
}

// isUnchanged reports whether an update left the ID unchanged. Row i is the one after it.
func (r *tailer) isUnchanged(event *replication.RowsEvent, i int) bool {
	for _, index := range r.indexes {
		if !slices.Contains(event.SkippedColumns[i], index) && !equalIDs(event.Rows[i-1][index], event.Rows[i][index]) {
			return false
		}
	}
	return true
}

// idOf returns the full ID of a row, or the reason why it has none. The row after an update may
// lack columns that the update has not changed: those are in the row before.
func (r *tailer) idOf(event *replication.RowsEvent, i int, inserts bool) (id, bad string) {
	signed := len(event.Table.SignednessBitmap) == 0
	for n, index := range r.indexes {
		value, missing := event.Rows[i][index], slices.Contains(event.SkippedColumns[i], index)
		if missing && !inserts {
			value, missing = event.Rows[i-1][index], slices.Contains(event.SkippedColumns[i-1], index)
		}
		if missing {
			return "", "the ID, or a part of it, is not in the log; set binlog_row_image=FULL"
		}
		if r.texts[n], bad = r.layout.ids[n].textOf(value, signed); bad != "" {
			return "", bad
		}
	}
	return r.opts.Compose(r.texts)
}

// equalIDs compares two IDs. An ID that the log omits is nil, like NULL: then it may have changed.
func equalIDs(before, after any) bool {
	if _, ok := after.([]byte); ok {
		return false
	}
	return before != nil && before == after
}

// describeRow returns a message with the position of the row.
func (r *tailer) describeRow(what string) string {
	return fmt.Sprintf("table %s, in the transaction after %s:%d: %s", r.layout.table, r.at.File, r.at.Pos, what)
}
