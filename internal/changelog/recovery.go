package changelog

import (
	"context"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/runbook"
)

// doubtLogEvery is the minimum interval between two log lines about doubts of one kind.
const doubtLogEvery = time.Second

// reportDoubt counts and logs a doubt, and sends it to the caller.
func (l *Log) reportDoubt(d Doubt) {
	now := time.Now()
	l.mu.Lock()
	if l.state.Doubts == nil {
		l.state.Doubts, l.doubtLogged = make(map[Kind]uint64), make(map[Kind]time.Time)
	}
	l.state.Doubts[d.Kind]++
	logs := d.Kind != Start && now.Sub(l.doubtLogged[d.Kind]) >= doubtLogEvery
	if logs {
		l.doubtLogged[d.Kind] = now
	}
	l.mu.Unlock()
	if logs {
		level := slog.LevelWarn
		if d.Kind == Gap { // of a table that is followed from now on
			level = l.troubleLevel()
		}
		l.opts.Logger.Log(context.Background(), level, "there may be orders that the change log does not have", "filter", l.filter, "kind", d.Kind, "reason", d.Reason,
			runbook.FilterNotReady.Do("nothing where a table is among the sources; otherwise run ordergate load when they have every order"))
	}
	l.opts.OnDoubt(d)
}

// resumeAtMark sets the mark that the reader begins behind. Without one it reads the log from the
// beginning, and tolerates gaps.
func (r *reader) resumeAtMark() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	at := r.log.mark
	r.logID, r.last = at.LogID, entry{seq: at.Seq, nonce: at.Nonce}
	r.lenient = at == Mark{}
	r.firstRead = r.lenient
}

// startOver reports a doubt and reads a damaged log from its beginning.
func (r *reader) startOver(found *integrityError) {
	l := r.log
	l.reportDoubt(found.doubt())
	logID := r.logID
	r.logID, r.last, r.received, r.lenient, r.missing = "", entry{}, receivedEntries{}, true, nil
	// Gaps must also be in the log that is there in the end.
	r.causes = append(slices.DeleteFunc(r.causes, func(d *integrityError) bool { return d.kind != Gap }), found)
	r.restoring, r.gapLoggedUpTo, r.clearedUpTo, r.snapshotMark, r.caughtUp, r.reported = true, 0, 0, Mark{}, false, -1
	r.restarts++
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.rescanned != nil {
		l.recent.mergeLost(logID, r.rescanned)
	}
	l.recent.dropPositions()
	r.rescanned = make(map[item]uint64)
	l.mark, l.unreadAcks, l.readAcks = Mark{}, nil, ackedEntry{}
}

// recover completes the read of a log that was damaged, or read for the first time. It reports the
// missing entries, and appends those that are known here. It also restores members, which a
// failover may have lost.
func (r *reader) recover(ctx context.Context) error {
	if r.restoring {
		if err := r.log.restoreMembers(ctx); err != nil {
			return err
		}
		r.restoring = false
	}
	if !r.lenient {
		return nil
	}
	if err := r.reportMissing(ctx); err != nil {
		return err
	}
	if r.firstRead {
		// A log that was flushed while the sources were read is as good as any other.
		r.firstRead = false
		r.log.reportDoubt(Doubt{Kind: Start, Reason: "the change log is read for the first time", Orders: true})
	}
	// The next read repeats what fails.
	if r.rescanned != nil {
		// Report each cause again: orders created while the log was replaced may have been lost
		// with the replacement.
		for ; len(r.causes) > 0; r.causes = r.causes[1:] {
			r.log.reportDoubt(r.causes[0].doubt())
			if err := r.persistGap(ctx, r.causes[0]); err != nil {
				return err
			}
		}
		if err := r.reappendLost(ctx); err != nil {
			return err
		}
		if err := r.reportMissing(ctx); err != nil {
			return err
		}
	}
	if r.rescanned != nil {
		late := r.log.recent.newestOf(r.rescanned)
		r.log.mu.Lock()
		r.log.recent.replace(r.logID, r.rescanned, late)
		r.log.mu.Unlock()
	}
	r.lenient, r.rescanned, r.snapshotMark = false, nil, Mark{} // a snapshot's entry that was not found is a gap
	r.publish(r.last.seq)
	return nil
}

// reportMissing reports the entries that a lenient reader found missing.
func (r *reader) reportMissing(ctx context.Context) error {
	missing := r.missing
	if missing == nil {
		return nil
	}
	// If the log has an entry about the gap, its readers have that doubt. An earlier gap entry does
	// not cover a gap behind it.
	if !(r.log.opts.PersistGaps && missing.kind == Gap && r.gapLoggedUpTo >= missing.seq) {
		reported := *missing
		reported.reason = missingPrefix + strconv.FormatUint(missing.seq, 10) + prefixEnd + missing.reason
		r.log.reportDoubt(reported.doubt())
		if err := r.persistGap(ctx, &reported); err != nil {
			return err
		}
	}
	r.missing = nil
	return nil
}

// persistGap appends a gap, and reports it with its entry. The doubt then lasts as long as that
// entry.
func (r *reader) persistGap(ctx context.Context, found *integrityError) error {
	if !r.log.opts.PersistGaps || found.kind != Gap {
		return nil
	}
	d := found.doubt()
	e, err := r.log.appendDoubtInTime(ctx, d)
	if err != nil {
		return err
	}
	d.Entry = e.mark()
	r.log.reportDoubt(d)
	return nil
}

// reappendBatch is how many items are appended at once.
const reappendBatch = 500

// reappendLost appends the items that were appended or applied here lately and are missing from the
// log: IDs, and doubts that time does not clear.
//
// All members do so at the same time. Each begins with its own share, and after each batch reads
// the entries of the others. What is left is the share of members that are slow or gone. Each
// member then appends small random parts of it. An item that comes twice does no harm.
func (r *reader) reappendLost(ctx context.Context) error {
	l := r.log
	l.mu.Lock()
	items, more := l.recent.missing(r.logID, r.rescanned, r.clearedUpTo)
	dropped := l.recent.dropped
	l.mu.Unlock()
	if more {
		if _, err := l.appendDoubtInTime(ctx, Doubt{Kind: Lost, Reason: "the change log lost more orders than this ordergate can append again", Orders: true}); err != nil {
			return err
		}
		l.mu.Lock()
		if l.recent.dropped == dropped { // else another item was dropped since
			l.recent.dropped = ackedItem{}
		}
		l.mu.Unlock()
	}
	reappended, restarts, from := 0, r.restarts, r.last.seq
	for len(items) > 0 {
		next := l.nextShare(items)
		if err := l.reappend(ctx, next); err != nil {
			return err
		}
		for _, i := range next {
			if i.field == "id" {
				reappended++
			}
		}
		if err := r.catchUp(ctx); err != nil {
			return err
		}
		if r.restarts != restarts { // the log lost entries once more
			return r.recover(ctx)
		}
		items = slices.DeleteFunc(items, func(i item) bool {
			seq := r.rescanned[i]
			return seq > from || i.field == "id" && seq > 0
		})
	}
	if reappended > 0 {
		l.mu.Lock()
		l.state.Repaired += uint64(reappended)
		l.mu.Unlock()
		l.opts.Logger.Warn("orders that the change log had lost are in it again", "filter", l.filter, "ids", reappended,
			runbook.FilterNotReady.Do("nothing: no order is missing now"))
	}
	return nil
}

// catchUp reads to the present tail.
func (r *reader) catchUp(ctx context.Context) error {
	var target uint64
	for restarts := int64(-1); restarts != r.restarts || r.last.seq < target; {
		p, err := r.nextPage(ctx)
		if err != nil {
			return err
		}
		if restarts != r.restarts {
			restarts, target = r.restarts, p.tail
		}
	}
	return nil
}

// nextShare returns the missing items to append next: at least one, and [reappendBatch] at most.
func (l *Log) nextShare(items []item) []item {
	members := slices.DeleteFunc(l.Members(), func(name string) bool { return !strings.Contains(name, instanceSep) })
	slices.Sort(members)
	me, of := slices.Index(members, l.member.Name()), max(len(members), 1)
	var ours []item
	for _, i := range items {
		sum := fnv.New32a()
		sum.Write([]byte(i.value)) // never fails
		if int(sum.Sum32()%uint32(of)) == me {
			ours = append(ours, i)
		}
	}
	if len(ours) == 0 {
		ours = slices.Clone(items)
		rand.Shuffle(len(ours), func(i, j int) { ours[i], ours[j] = ours[j], ours[i] })
		ours = ours[:(len(ours)-1)/of+1]
	}
	return ours[:min(len(ours), reappendBatch)]
}

// appendDoubtInTime appends a doubt within the timeout of a read.
func (l *Log) appendDoubtInTime(ctx context.Context, d Doubt) (ackedEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	a, err := l.runAppend(ctx, l.append, nil, []item{{"doubt", d.text()}}) // it needs no wait for peers: the reader continues after it
	return a.ackedEntry, err
}

func (l *Log) reappend(ctx context.Context, items []item) error {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	var args []any // the items are remembered already
	for _, i := range items {
		args = append(args, l.fieldOf(i), i.value)
	}
	_, err := l.runAppend(ctx, l.append, args, nil)
	return err
}
