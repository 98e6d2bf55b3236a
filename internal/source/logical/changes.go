package logical

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// relation is where the IDs are in the rows that follow.
type relation struct {
	known bool
	index int
	key   bool // the column is part of the replica identity
}

// partOfKey is the flag of such a column (PostgreSQL, "Logical Replication Message
// Formats").
const partOfKey = 1

// apply deals with one message.
func (r *run) apply(ctx context.Context, m message) error {
	if m.alive != nil {
		return r.answered(m.alive)
	}
	switch change := m.change.(type) {
	case *pglogrepl.BeginMessage:
		r.within = true
	case *pglogrepl.CommitMessage:
		r.within = false
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

func (r *run) insert(ctx context.Context, change *pglogrepl.InsertMessage) error {
	value, err := r.value(change.Tuple)
	if err != nil {
		return err
	}
	return r.add(ctx, value)
}

// update tells rows whose ID has changed, or may have: the log need not have the old
// one.
func (r *run) update(ctx context.Context, change *pglogrepl.UpdateMessage) error {
	value, err := r.value(change.NewTuple)
	if err != nil {
		return err
	}
	if value.DataType == pglogrepl.TupleDataTypeToast {
		return nil // it has not changed
	}
	switch {
	case change.OldTuple == nil && r.relation.key:
		return nil // an old key is sent if it has changed
	case change.OldTuple != nil && (r.relation.key || change.OldTupleType == pglogrepl.UpdateMessageTupleTypeOld):
		old, err := r.value(change.OldTuple)
		if err != nil {
			return err
		}
		if old.DataType == value.DataType && string(old.Data) == string(value.Data) {
			return nil
		}
	}
	return r.add(ctx, value)
}

// value returns the ID of a row.
func (r *run) value(row *pglogrepl.TupleData) (*pglogrepl.TupleDataColumn, error) {
	if !r.relation.known || row == nil || r.relation.index >= len(row.Columns) {
		return nil, follow.Permanent(fmt.Errorf("%w: behind %s: rows were written without column %s", follow.ErrUnsure, r.at.LSN, r.setup.column))
	}
	return row.Columns[r.relation.index], nil
}

// add takes an ID, or tells that it is none.
func (r *run) add(ctx context.Context, value *pglogrepl.TupleDataColumn) error {
	bad := ""
	id := string(value.Data)
	if r.setup.padded {
		id = strings.TrimRight(id, " ")
	}
	switch value.DataType {
	case pglogrepl.TupleDataTypeText:
		bad = follow.Check(id)
	case pglogrepl.TupleDataTypeNull:
		bad = "the ID is NULL"
	default:
		bad = "the ID is not in the log"
	}
	if bad != "" {
		r.opts.Bad(fmt.Sprintf("table %s, in the transaction after %s: %s", r.setup.table, r.at.LSN, bad))
		return nil
	}
	return r.batch.Add(ctx, id)
}
