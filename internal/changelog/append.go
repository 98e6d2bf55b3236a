package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/orderid"
)

// Append adds IDs to the log in one step, as they came: each reader converts them by its own
// rules. It blocks for one round trip to Redis, and returns nil
// once Redis has acknowledged. Clients may receive the IDs after [Log.WaitForPeers]. It returns
// [ErrBadID], or [ErrUnavailable] with the cause. After an error the IDs may be in the log, and
// stay pending: see [Log.Withdraw]. Appending them again does no harm. Append works without Run.
func (l *Log) Append(ctx context.Context, ids ...string) error {
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

// Record is Append for a caller that sends the IDs to clients only after it returns nil. After an
// error nothing stays pending: the caller decides whether to try again.
func (l *Log) Record(ctx context.Context, ids ...string) error {
	items, err := l.entries(ids)
	if err != nil || len(ids) == 0 {
		return err
	}
	_, err = l.runAppend(ctx, l.append, nil, items)
	return err
}

// entries returns the log's items for IDs.
func (l *Log) entries(ids []string) ([]item, error) {
	items := make([]item, 0, len(ids))
	for _, id := range ids {
		if !orderid.HasLength(id) {
			return nil, fmt.Errorf("appending to %s: %w, this one has %d", l.keys[keyLog], ErrBadID, len(id))
		}
		items = append(items, item{"id", id})
	}
	return items, nil
}

// AppendDoubt appends a doubt, which every reader of the log receives. Its orders were created
// before the call. It returns as Append does, with the position of the entry. After an error it
// stays pending, like an ID. A doubt about orders of any age covers the writes that were pending
// before.
func (l *Log) AppendDoubt(ctx context.Context, d Doubt) (Mark, error) {
	covered := l.member.trackDoubt(d.text())
	at, err := l.recordDoubt(ctx, d)
	if err != nil {
		return Mark{}, err
	}
	l.member.ackDoubt(d.text(), covered, d.Since.IsZero())
	return at, nil
}

// RecordDoubt is to AppendDoubt what Record is to Append.
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

// ack is an appended entry and the time of Redis's reply. From validFrom on, readers of a demoted
// primary know of it too.
type ack struct {
	ackedEntry
	received, validFrom time.Time
	position            string // of a follower, see [Log.RecordedAt]
}

// merge returns the ack that is valid once both are. Acks come in any order within a lease epoch.
func (a ack) merge(b ack) ack {
	if a.leaseEpoch == b.leaseEpoch && a.seq > b.seq {
		b.ackedEntry = a.ackedEntry
	}
	b.received, b.validFrom = laterOf(a.received, b.received), laterOf(a.validFrom, b.validFrom)
	return b
}

// ackedEntry is an entry with the log and the lease epoch in which it was acknowledged.
type ackedEntry struct {
	entry
	logID, leaseEpoch string
}

func (e ackedEntry) mark() Mark { return Mark{LogID: e.logID, Seq: e.seq, Nonce: e.nonce} }

// runAppend runs a script that appends, with more keys than those of the log. The items follow its
// other arguments. They are remembered: if the log loses them, they are appended again. It blocks
// for one round trip.
func (l *Log) runAppend(ctx context.Context, by *redis.Script, args []any, items []item, keys ...string) (ack, error) {
	for _, i := range items {
		args = append(args, l.fieldOf(i), i.value)
	}
	sent := time.Now()
	nonce, cmd := l.runScript(ctx, by, append(slices.Clip(l.keys), keys...), args...)
	e := entry{nonce: nonce}
	reply, err := cmd.StringSlice()
	if err == nil {
		l.member.noteRoundTrip(time.Since(sent))
	}
	if err == nil && len(reply) != 5+len(keys) {
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
	// This comes before the check of the lease epoch. If the reader finds the log damaged, it finds
	// this entry missing too, or the entry is not acknowledged.
	isOwn := by != l.follow || len(items) > 0 // else it is the last entry of another process
	if isOwn && (l.readAcks.logID != logID || l.readAcks.leaseEpoch != leaseEpoch || l.readAcks.seq < e.seq) {
		l.addUnreadAck(ackedEntry{e, logID, leaseEpoch})
		for n, i := range items {
			l.recent.addAcked(ackedItem{i, logID, leaseEpoch, e.seq - uint64(len(items)-1-n)})
		}
	}
	l.peers.note(leaseEpoch, time.Duration(window)*time.Millisecond, l.opts.Lease)
	defer l.mu.Unlock() // acks are noted in the order in which their lease epochs are accepted
	counts, err := l.member.ackValidFrom(leaseEpoch, sent)
	if err != nil {
		return ack{}, l.appendError(err)
	}
	now := time.Now()
	a := ack{ackedEntry{e, logID, leaseEpoch}, now, laterOf(counts, now.Add(l.untilLeasesOver(age))), strings.Join(reply[5:], "")}
	l.lastAck = l.lastAck.merge(a)
	return a, nil
}

// addUnreadAck keeps an acknowledged entry until a page was checked for it. Each failover may lose
// one, and the entries of later lease epochs would not show that.
func (l *Log) addUnreadAck(e ackedEntry) {
	i := slices.IndexFunc(l.unreadAcks, func(own ackedEntry) bool { return own.logID == e.logID && own.leaseEpoch == e.leaseEpoch })
	if i < 0 {
		l.unreadAcks = append(slices.Clone(l.unreadAcks), e)
	} else if e.seq > l.unreadAcks[i].seq {
		l.unreadAcks = slices.Clone(l.unreadAcks) // the reader may hold the old slice
		l.unreadAcks[i] = e
	}
}

func (l *Log) appendError(cause error) error {
	return fmt.Errorf("appending to %s: %w: %w", l.keys[keyLog], ErrUnavailable, cause)
}

// untilLeasesOver returns the time until all leases granted by a demoted primary are over; 0 or
// less: they are. The age of the lease epoch is in milliseconds. Until then, a reader of the
// demoted primary may still open windows without the entries acknowledged here.
func (l *Log) untilLeasesOver(age int64) time.Duration {
	return l.opts.Lease + margin(l.opts.Lease) - time.Duration(age)*time.Millisecond
}

// laterOf returns the later of two times.
func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
