package logical

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/source/follow"
)

// slot is a row of pg_replication_slots, without the columns that the server's version lacks.
type slot struct {
	Plugin    string `json:"plugin"`
	Type      string `json:"slot_type"`
	Database  string `json:"database"`
	Active    bool   `json:"active"`
	PID       int    `json:"active_pid"`
	Confirmed lsn    `json:"confirmed_flush_lsn"`
	Status    string `json:"wal_status"`
	Invalid   string `json:"invalidation_reason"`
	Conflict  bool   `json:"conflicting"`
}

// isLost reports whether the server has dropped changes that the slot needs.
func (s slot) isLost() bool { return s.Status == "lost" || s.Invalid != "" || s.Conflict }

// beginSlot returns the slot as it is, so that nothing is skipped. It creates a slot that is missing
// or was lost.
func (f *Follower) beginSlot(ctx context.Context, conn *pgx.Conn) (s slot, err error) {
	s, ok, err := f.readSlot(ctx, conn)
	if err != nil || ok && !s.isLost() {
		return s, err
	}
	if ok {
		if err := f.dropSlot(ctx, conn); err != nil {
			return s, err
		}
	}
	f.log.Info("creating the replication slot: this waits for all transactions under way, prepared ones too", "slot", f.opts.Slot)
	var at string
	err = conn.QueryRow(ctx, "SELECT lsn::text FROM pg_create_logical_replication_slot($1, 'pgoutput')", f.opts.Slot).Scan(&at)
	if err != nil {
		return s, f.explainSlot("creating", err)
	}
	s = slot{}
	return s, s.Confirmed.UnmarshalText([]byte(at))
}

// dropSlot drops the slot, if it exists.
func (f *Follower) dropSlot(ctx context.Context, conn *pgx.Conn) error {
	if _, ok, err := f.readSlot(ctx, conn); err != nil || !ok {
		return err
	}
	f.log.Warn("dropping the replication slot, which is of no use", "slot", f.opts.Slot,
		runbook.PostgreSQL.Do("nothing: ordergate creates another, and reads the table again"))
	if _, err := conn.Exec(ctx, "SELECT pg_drop_replication_slot($1)", f.opts.Slot); err != nil {
		return f.explainSlot("dropping", err)
	}
	return nil
}

// checkSlot returns the slot. It is an error if the slot lacks changes after a position.
func (f *Follower) checkSlot(ctx context.Context, conn *pgx.Conn, at lsn) (slot, error) {
	s, ok, err := f.readSlot(ctx, conn)
	switch {
	case err != nil:
		return s, err
	case !ok:
		return s, follow.Permanent(fmt.Errorf("%w: there is no replication slot %s", follow.ErrGone, f.opts.Slot))
	case s.isLost():
		return s, follow.Permanent(fmt.Errorf("%w: replication slot %s has lost it (max_slot_wal_keep_size?)", follow.ErrGone, f.opts.Slot))
	case s.Confirmed > at:
		return s, follow.Permanent(fmt.Errorf("%w: it is %s, but replication slot %s has moved on to %s", follow.ErrGone, at, f.opts.Slot, s.Confirmed))
	}
	return s, nil
}

// readSlot returns the slot, if it exists and this follower may use it now.
func (f *Follower) readSlot(ctx context.Context, conn *pgx.Conn) (s slot, ok bool, err error) {
	var database string
	err = conn.QueryRow(ctx, "SELECT to_jsonb(s), current_database() FROM pg_replication_slots s WHERE slot_name = $1", f.opts.Slot).Scan(&s, &database)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s, false, nil
	case err != nil:
		return s, false, explain(err)
	case s.Plugin != "pgoutput" || s.Type != "logical" || s.Database != database:
		return s, false, follow.Permanent(fmt.Errorf("replication slot %s is not ours: it is %s, of plugin %q and database %q; choose another name",
			f.opts.Slot, s.Type, s.Plugin, s.Database))
	case s.Active && !s.isLost():
		return s, false, fmt.Errorf("replication slot %s is in use by process %d; %w", f.opts.Slot, s.PID, follow.ErrBusy)
	}
	return s, true, nil
}

// explainSlot adds a remedy to a refusal.
func (f *Follower) explainSlot(doing string, err error) error {
	e := serverError(err)
	switch {
	case e == nil:
	case e.Code == insufficientPrivilege:
		return f.needsReplication(e)
	case e.Code == configurationLimit, e.Code == notInPrerequisiteState:
		return follow.Permanent(fmt.Errorf("%s replication slot %s: %s", doing, f.opts.Slot, e.Message))
	}
	return fmt.Errorf("%s replication slot %s: %w", doing, f.opts.Slot, explain(err))
}
