package logical

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// joinHistory returns the server's timeline. It is an error if the server's history does not contain
// a checkpoint: a server that was restored, or a standby that was promoted, may lack what was passed
// on, and has other changes at the same positions. A checkpoint without a timeline is new.
func joinHistory(ctx context.Context, conn *pgconn.PgConn, at checkpoint) (timeline int32, err error) {
	now, err := pglogrepl.IdentifySystem(ctx, conn)
	switch {
	case err != nil || at.Timeline == 0:
		return now.Timeline, err
	case lsn(now.XLogPos) < at.LSN:
		return 0, follow.Permanent(fmt.Errorf("%w: it is %s, but the server's log ends at %s: it was restored, or was a standby that lacked changes", follow.ErrGone, at.LSN, lsn(now.XLogPos)))
	case now.Timeline == at.Timeline:
		return now.Timeline, nil
	}
	history, err := pglogrepl.TimelineHistory(ctx, conn, now.Timeline)
	if err != nil {
		return 0, err
	}
	if end := endOf(at.Timeline, history.Content); end < at.LSN {
		return 0, follow.Permanent(fmt.Errorf("%w: it is %s of timeline %d, which the server left at %s: it was restored, or was a standby that lacked changes", follow.ErrGone, at.LSN, at.Timeline, end))
	}
	return now.Timeline, nil
}

// endOf returns where a timeline ended in a history file; 0: it was never part of that history.
// Each line has a timeline, its end and a reason (access/transam/timeline.c).
func endOf(timeline int32, history []byte) (end lsn) {
	for line := range bytes.Lines(history) {
		fields := bytes.Fields(line)
		if len(fields) < 2 || string(fields[0]) != strconv.Itoa(int(timeline)) {
			continue
		}
		if end.UnmarshalText(fields[1]) == nil {
			return end
		}
	}
	return 0
}
