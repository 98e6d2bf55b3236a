package logical

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// relation is the position of the ID in the rows that follow.
type relation struct {
	known   bool
	indexes []int // of the columns of a full ID
	key     bool  // these columns are part of the replica identity
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
		r.relation = r.setup.relationOf(change)
	case *pglogrepl.InsertMessage:
		return r.insert(ctx, change)
	case *pglogrepl.UpdateMessage:
		return r.update(ctx, change)
	}
	return nil
}

// relationOf finds the columns of a full ID. Columns may have swapped their names for a while: a column
// is known by its place, if none in front of it was ever dropped. Otherwise, or where the log leaves
// columns out, those in front of it have to be the table's, in its order.
func (s *setup) relationOf(change *pglogrepl.RelationMessage) relation {
	found := relation{known: true, key: s.keyed}
	inPlace := true
	for _, name := range s.columns {
		i := slices.IndexFunc(change.Columns, func(c *pglogrepl.RelationMessageColumn) bool { return c.Name == name })
		if i < 0 {
			return relation{}
		}
		found.indexes = append(found.indexes, i)
		found.key = found.key && change.Columns[i].Flags&partOfKey != 0
		inPlace = inPlace && i < len(s.all) && s.all[i] == name && s.numbers[i] == i+1
	}
	if inPlace {
		return found
	}
	left, last := s.all, slices.Max(found.indexes)
	for n, c := range change.Columns {
		switch i := slices.Index(left, c.Name); {
		case i >= 0:
			left = left[i+1:]
		case n <= last || slices.Contains(s.all, c.Name):
			return relation{}
		}
	}
	return found
}

func (r *tailer) insert(ctx context.Context, change *pglogrepl.InsertMessage) error {
	if err := r.checkRow(change.Tuple); err != nil {
		return err
	}
	return r.addID(ctx, change.Tuple, nil)
}

// update emits rows whose ID has changed, or may have: the log need not contain the old ID.
func (r *tailer) update(ctx context.Context, change *pglogrepl.UpdateMessage) error {
	if err := r.checkRow(change.NewTuple); err != nil {
		return err
	}
	old := change.OldTuple
	switch {
	case old == nil && r.relation.key:
		return nil // the server sends a key that has changed
	case old != nil && !r.relation.key && change.OldTupleType != pglogrepl.UpdateMessageTupleTypeOld:
		old = nil // it has only other columns
	case old != nil:
		if err := r.checkRow(old); err != nil {
			return err
		}
	}
	if r.isUnchanged(change.NewTuple, old) {
		return nil
	}
	return r.addID(ctx, change.NewTuple, old)
}

// isUnchanged reports whether an update left all columns of the ID unchanged. Old is nil if the log
// does not have them.
func (r *tailer) isUnchanged(row, old *pglogrepl.TupleData) bool {
	for _, i := range r.relation.indexes {
		value := row.Columns[i]
		if value.DataType == pglogrepl.TupleDataTypeToast {
			continue // the column has not changed
		}
		if old == nil || old.Columns[i].DataType != value.DataType || string(old.Columns[i].Data) != string(value.Data) {
			return false
		}
	}
	return true
}

// checkRow returns an error for a row that lacks a column of the ID.
func (r *tailer) checkRow(row *pglogrepl.TupleData) error {
	if !r.relation.known || row == nil || slices.Max(r.relation.indexes) >= len(row.Columns) {
		return follow.Permanent(fmt.Errorf("%w: behind %s: rows were written without column %s, or with others in front of it", follow.ErrUnsure, r.at.LSN, strings.Join(r.setup.columns, " or ")))
	}
	return nil
}

// addID adds the full ID of a row to the batch, or reports a bad row. Old is the row before an
// update; nil: there is none.
func (r *tailer) addID(ctx context.Context, row, old *pglogrepl.TupleData) error {
	texts, id, bad := make([]string, len(r.relation.indexes)), "", ""
	for n, i := range r.relation.indexes {
		value := row.Columns[i]
		if value.DataType == pglogrepl.TupleDataTypeToast && old != nil {
			value = old.Columns[i]
		}
		texts[n] = string(value.Data)
		if r.setup.padded[n] {
			texts[n] = strings.TrimRight(texts[n], " ")
		}
		switch value.DataType {
		case pglogrepl.TupleDataTypeText:
		case pglogrepl.TupleDataTypeNull:
			bad = "the ID is NULL"
		default:
			bad = "the ID is not in the log"
		}
	}
	if bad == "" {
		id, bad = r.opts.Compose(texts)
	}
	if bad != "" {
		r.opts.OnBadRow(fmt.Sprintf("table %s, in the transaction after %s: %s", r.setup.tableName, r.at.LSN, bad))
		return nil
	}
	return r.batch.Add(ctx, id)
}
