package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Append adds IDs to the log, in one step. It blocks for one round trip to Redis,
// and returns nil once Redis has acknowledged: a client may be told of
// them after [Log.Spread]. It returns [ErrBadID], or [ErrUnavailable] with the cause;
// the IDs may be in the log even so, and appending them again does no harm. They are
// owed then, see [Log.Withdraw]. It does not need Run.
func (l *Log) Append(ctx context.Context, ids ...string) error {
	ids = l.opts.CanonicalForms(ids)
	items, err := l.entries(ids)
	if err != nil || len(ids) == 0 {
		return err
	}
	l.member.track(ids...)
	if _, err := l.runAppend(ctx, l.append, nil, items); err != nil {
		return err
	}
	l.member.ack(ids...)
	return nil
}

// Record is Append for somebody who tells nobody of the IDs before it returns nil:
// after an error nothing is owed, and whether they are tried again is the caller's affair.
func (l *Log) Record(ctx context.Context, ids ...string) error {
	ids = l.opts.CanonicalForms(ids)
	items, err := l.entries(ids)
	if err != nil || len(ids) == 0 {
		return err
	}
	_, err = l.runAppend(ctx, l.append, nil, items)
	return err
}

// entries returns what entries say of IDs.
func (l *Log) entries(ids []string) ([]item, error) {
	items := make([]item, 0, len(ids))
	for _, id := range ids {
		if len(id) == 0 || len(id) > MaxIDBytes {
			return nil, fmt.Errorf("appending to %s: %w, this one has %d", l.keys[0], ErrBadID, len(id))
		}
		items = append(items, item{"id", id})
	}
	return items, nil
}

// Doubt appends a doubt, which everybody takes part in who follows the log: what it
// is about was created before the call. It returns as Append does, with the place of the
// entry, and like an ID it is owed after an error. One that is about orders of any age
// covers what was owed before.
func (l *Log) AppendDoubt(ctx context.Context, d Doubt) (Mark, error) {
	covered := l.member.trackDoubt(d.text())
	at, err := l.recordDoubt(ctx, d)
	if err != nil {
		return Mark{}, err
	}
	l.member.ackDoubt(d.text(), covered, d.Since.IsZero())
	return at, nil
}

// RecordDoubt is to Doubt what Record is to Append.
func (l *Log) RecordDoubt(ctx context.Context, d Doubt) error {
	_, err := l.recordDoubt(ctx, d)
	return err
}

func (l *Log) recordDoubt(ctx context.Context, d Doubt) (Mark, error) {
	if d.Kind == Running {
		d.Reason = strconv.FormatInt(l.member.serverTime(), 10) + " " + d.Reason
	}
	a, err := l.runAppend(ctx, l.append, nil, []item{{"doubt", d.text()}})
	return a.mark(), err
}

// acknowledged is an entry that was appended, when the reply came, and from when on it counts for
// those who ask a server that was replaced.
type ack struct {
	ackedEntry
	received, validFrom time.Time
}

// and returns what who waits for both has to wait for. They come in any order within an era.
func (a ack) merge(b ack) ack {
	if a.leaseEpoch == b.leaseEpoch && a.seq > b.seq {
		b.ackedEntry = a.ackedEntry
	}
	b.received, b.validFrom = laterOf(a.received, b.received), laterOf(a.validFrom, b.validFrom)
	return b
}

// ownEntry is an entry, and the log and the era in which it was acknowledged.
type ackedEntry struct {
	entry
	logID, leaseEpoch string
}

func (e ackedEntry) mark() Mark { return Mark{LogID: e.logID, Seq: e.seq, Nonce: e.nonce} }

// put runs a script that appends. The items, which follow its other arguments, are kept for a
// while: a log that loses them gets them again. It blocks for one round trip.
func (l *Log) runAppend(ctx context.Context, by *redis.Script, args []any, items []item) (ack, error) {
	for _, i := range items {
		args = append(args, i.field, i.value)
	}
	sent := time.Now()
	nonce, cmd := l.runScript(ctx, by, l.keys, args...)
	e := entry{nonce: nonce}
	reply, err := cmd.StringSlice()
	if err == nil {
		l.member.noteRoundTrip(time.Since(sent))
	}
	if err == nil && len(reply) != 5 {
		err = fmt.Errorf("unexpected reply %q", reply)
	}
	var age, window int64
	if err == nil {
		var errs [3]error
		e.seq, errs[0] = strconv.ParseUint(reply[0], 10, 64)
		age, errs[1] = strconv.ParseInt(reply[3], 10, 64)
		window, errs[2] = strconv.ParseInt(reply[4], 10, 64)
		err = errors.Join(errs[:]...)
	}
	if err != nil {
		return ack{}, l.appendError(err)
	}
	logID, leaseEpoch := reply[1], reply[2]
	l.mu.Lock()
	// Before the era is looked at: what the reader finds out about a log, it finds out
	// of this entry too, or this is not taken for acknowledged.
	if l.readAcks.logID != logID || l.readAcks.leaseEpoch != leaseEpoch || l.readAcks.seq < e.seq {
		l.addUnreadAck(ackedEntry{e, logID, leaseEpoch})
		for n, i := range items {
			l.recent.addAcked(ackedItem{i, logID, leaseEpoch, e.seq - uint64(len(items)-1-n)})
		}
	}
	l.peers.note(leaseEpoch, time.Duration(window)*time.Millisecond, l.opts.Lease)
	defer l.mu.Unlock() // calls are noted in the order in which their eras are seen
	counts, err := l.member.ackValidFrom(leaseEpoch, sent)
	if err != nil {
		return ack{}, l.appendError(err)
	}
	now := time.Now()
	a := ack{ackedEntry{e, logID, leaseEpoch}, now, laterOf(counts, now.Add(l.untilLeasesOver(age)))}
	l.lastAck = l.lastAck.merge(a)
	return a, nil
}

// noteOwn keeps an entry that was acknowledged until a page was looked through for it. Each
// failover may lose one, and there would be nothing behind those of later eras to show that.
func (l *Log) addUnreadAck(e ackedEntry) {
	i := slices.IndexFunc(l.unreadAcks, func(own ackedEntry) bool { return own.logID == e.logID && own.leaseEpoch == e.leaseEpoch })
	if i < 0 {
		l.unreadAcks = append(slices.Clone(l.unreadAcks), e)
	} else if e.seq > l.unreadAcks[i].seq {
		l.unreadAcks = slices.Clone(l.unreadAcks) // the reader may have it
		l.unreadAcks[i] = e
	}
}

func (l *Log) appendError(cause error) error {
	return fmt.Errorf("appending to %s: %w: %w", l.keys[0], ErrUnavailable, cause)
}

// unsettled returns for how long an era is not certainly settled yet whose age in
// milliseconds has just been told; 0 or less: it is. Whoever held leases at a server that
// was replaced, and has come here since or has ended, is missed there then. Before that,
// somebody who asks that server might be sure of orders that are told of here.
func (l *Log) untilLeasesOver(age int64) time.Duration {
	return l.opts.Lease + margin(l.opts.Lease) - time.Duration(age)*time.Millisecond
}

// latest returns the later of two moments.
func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
