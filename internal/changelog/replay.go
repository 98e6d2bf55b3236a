package changelog

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrLost means that the log has lost entries, or was trimmed.
var ErrLost = errors.New("entries of the change log are gone")

// Replay reads the whole log once more, beside Run, to build a second set of the IDs. It calls
// each, in order, with every ID that was acknowledged before the call and is still in the log. It
// returns the first error of each; [ErrBroken] if the log differs from the one that Run knows, or
// if Run has yet to read it, as after damage; [ErrLost], after the last entry, if entries are
// missing and no later entry clears the doubt about them; or [ErrUnavailable]. It leaves doubts to
// Run.
func (l *Log) Replay(ctx context.Context, each func(id string) error) error {
	logID := l.Mark().LogID
	if logID == "" {
		return l.brokenError(errors.New("it has not been read yet"))
	}
	return l.replay(ctx, Mark{LogID: logID}, false, each)
}

// ReplayFrom is Replay behind a mark: the caller has all entries up to there. It returns ErrBroken
// if an entry behind the mark is missing.
func (l *Log) ReplayFrom(ctx context.Context, at Mark, each func(id string) error) error {
	return l.replay(ctx, at, true, each)
}

// replay reads the entries behind a mark. With whole, it ends at a missing entry.
func (l *Log) replay(ctx context.Context, at Mark, whole bool, each func(id string) error) error {
	r := &reader{log: l, logID: at.LogID, last: entry{seq: at.Seq, nonce: at.Nonce}}
	var target, missing, confirmed uint64 // missing is the last number that is, or of the doubt about it
	for first := true; first || r.last.seq < target; first = false {
		count := l.opts.PageSize + 1
		p, err := l.replayPage(ctx, r.last.seq, count)
		if err != nil {
			return err
		}
		if p.logID != r.logID {
			return l.brokenError(fmt.Errorf("it was recreated: its identity is %q, was %q", p.logID, r.logID))
		}
		if first {
			target = p.tail // the caller adds later entries to the second set by itself
		}
		full := len(p.entries) >= count
		fresh := r.skipMissing(p, full)
		if whole {
			var bad *integrityError
			if fresh, bad = p.newEntries(r.logID, r.last, full); bad != nil {
				return l.brokenError(errors.New(bad.reason))
			}
		}
		missing = max(missing, lastMissing(r.last, fresh))
		for _, e := range fresh {
			switch e.doubt.Kind {
			case Gap:
				missing = max(missing, e.seq)
			case cleared:
				confirmed = max(confirmed, e.doubt.clearsUpTo(r.logID))
			}
			if r.last = e; e.malformed != "" || e.id == "" || l.isForeign(&e) {
				continue
			}
			if err := each(e.id); err != nil {
				return err
			}
		}
	}
	if missing > confirmed {
		return fmt.Errorf("%w: %s, the last of them at %d", ErrLost, l.keys[keyLog], missing)
	}
	return nil
}

func (l *Log) replayPage(ctx context.Context, from uint64, count int) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	return l.requestPage(ctx, nil, time.Time{}, entry{seq: from}, count, "", "", "")
}
