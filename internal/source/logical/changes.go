package logical

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/ordergate/ordergate/internal/orderid"
	"github.com/ordergate/ordergate/internal/source/follow"
)

// relation is the position of the ID in the rows that follow.
type relation struct {
	known bool
	index int
	key   bool // the column is part of the replica identity
}

// partOfKey is the flag of a key column (PostgreSQL, "Logical Replication Message Formats").
const partOfKey = 1

// apply applies one message.
func (r *tailer) apply(ctx context.Context, m message) error {
	if m.keepalive != nil {
		return r.applyKeepalive(m.keepalive)
	}
	switch change := m.change.(type) {
	case *pglogrepl.BeginMessage:
		r.inTx = true
	case *pglogrepl.CommitMessage:
		r.inTx = false
		r.at.LSN = max(r.at.LSN, lsn(change.TransactionEndLSN))
		r.batch.Commit()
	case *pglogrepl.RelationMessage:
		r.relation = relation{}
		for i, c := range change.Columns {
			if c.Name == r.setup.column {
				r.relation = relation{known: true, index: i, key: r.setup.keyed && c.Flags&partOfKey != 0}
			}
		}
	case *pglogrepl.InsertMessage:
		return r.insert(ctx, change)
	case *pglogrepl.UpdateMessage:
		return r.update(ctx, change)
	}
	return nil
}

func (r *tailer) insert(ctx context.Context, change *pglogrepl.InsertMessage) error {
	value, err := r.idOf(change.Tuple)
	if err != nil {
		return err
	}
	return r.addID(ctx, value)
}

// update emits rows whose ID has changed, or may have: the log need not contain the old ID.
func (r *tailer) update(ctx context.Context, change *pglogrepl.UpdateMessage) error {
	value, err := r.idOf(change.NewTuple)
	if err != nil {
		return err
	}
	if value.DataType == pglogrepl.TupleDataTypeToast {
		return nil // the ID has not changed
	}
	switch {
	case change.OldTuple == nil && r.relation.key:
		return nil // the server sends a key that has changed
	case change.OldTuple != nil && (r.relation.key || change.OldTupleType == pglogrepl.UpdateMessageTupleTypeOld):
		old, err := r.idOf(change.OldTuple)
		if err != nil {
			return err
		}
		if old.DataType == value.DataType && string(old.Data) == string(value.Data) {
			return nil
		}
	}
	return r.addID(ctx, value)
}

// idOf returns the ID column of a row.
func (r *tailer) idOf(row *pglogrepl.TupleData) (*pglogrepl.TupleDataColumn, error) {
	if !r.relation.known || row == nil || r.relation.index >= len(row.Columns) {
		return nil, follow.Permanent(fmt.Errorf("%w: behind %s: rows were written without column %s", follow.ErrUnsure, r.at.LSN, r.setup.column))
	}
	return row.Columns[r.relation.index], nil
}

// addID adds an ID to the batch, or reports a bad row.
func (r *tailer) addID(ctx context.Context, value *pglogrepl.TupleDataColumn) error {
	bad := ""
	id := string(value.Data)
	if r.setup.padded {
		id = strings.TrimRight(id, " ")
	}
	switch value.DataType {
	case pglogrepl.TupleDataTypeText:
		bad = orderid.Check(id)
	case pglogrepl.TupleDataTypeNull:
		bad = "the ID is NULL"
	default:
		bad = "the ID is not in the log"
	}
	if bad != "" {
		r.opts.OnBadRow(fmt.Sprintf("table %s, in the transaction after %s: %s", r.setup.tableName, r.at.LSN, bad))
		return nil
	}
	return r.batch.Add(ctx, id)
}
