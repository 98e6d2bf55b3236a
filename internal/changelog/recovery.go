package changelog

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sayEvery is how often a doubt of one kind is told in the log, at most.
const doubtLogEvery = time.Second

// doubt tells of one.
func (l *Log) reportDoubt(d Doubt) {
	now := time.Now()
	l.mu.Lock()
	if l.state.Doubts == nil {
		l.state.Doubts, l.doubtLogged = make(map[Kind]uint64), make(map[Kind]time.Time)
	}
	l.state.Doubts[d.Kind]++
	says := d.Kind != Start && now.Sub(l.doubtLogged[d.Kind]) >= doubtLogEvery
	if says {
		l.doubtLogged[d.Kind] = now
	}
	l.mu.Unlock()
	if says {
		l.opts.Logger.Warn("there may be orders that the change log does not have", "filter", l.filter, "kind", d.Kind, "reason", d.Reason)
	}
	l.opts.OnDoubt(d)
}

// resume takes the mark that the reader is to begin behind. Without one it begins
// with whatever log there is, in which there may be gaps.
func (r *reader) resumeAtMark() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	at := r.log.mark
	r.logID, r.last = at.LogID, entry{seq: at.Seq, nonce: at.Nonce}
	r.lenient = at == Mark{}
	r.firstRead = r.lenient
}

// startOver is for a log that is not what it was: there is a doubt, and all of it that
// is left is read again.
func (r *reader) startOver(found *integrityError) {
	l := r.log
	l.reportDoubt(found.doubt())
	logID := r.logID
	r.logID, r.last, r.received, r.lenient, r.missing = "", entry{}, receivedEntries{}, true, nil
	// A gap that was told of has to be told in the log, too, that is there in the end.
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

// healed ends the reading of a log that was damaged, or that was never read: what it
// lacks is told of, and what of that is known here is appended again. After a failover
// too, members may have been forgotten.
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
		// A log that was flushed while the sources were read is as good as any.
		r.firstRead = false
		r.log.reportDoubt(Doubt{Kind: Start, Reason: "the change log is read for the first time", Orders: true})
	}
	// The next read tries again what fails.
	if r.rescanned != nil {
		// Once more: what was created while the log went from one to the other may have
		// been lost with a third.
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
	r.lenient, r.rescanned, r.snapshotMark = false, nil, Mark{} // if that is missing, there is a gap
	r.publish(r.last.seq)
	return nil
}

// doubtLost tells of what a lenient reader found missing.
func (r *reader) reportMissing(ctx context.Context) error {
	lost := r.missing
	if lost == nil {
		return nil
	}
	// The log may say so itself: who has read that is in doubt by that entry. An earlier gap
	// says nothing of one that was made since, behind it.
	if !(r.log.opts.PersistGaps && lost.kind == Gap && r.gapLoggedUpTo >= lost.seq) {
		told := *lost
		told.reason = missingPrefix + strconv.FormatUint(lost.seq, 10) + prefixEnd + lost.reason
		r.log.reportDoubt(told.doubt())
		if err := r.persistGap(ctx, &told); err != nil {
			return err
		}
	}
	r.missing = nil
	return nil
}

// record appends a gap that was found, and tells of the entry: what becomes of that becomes
// of the gap.
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

// batch is how many items are appended at once.
const reappendBatch = 500

// giveBack appends what was appended or applied here lately and is in the log no more: IDs,
// and doubts that time does not clear.
// All members do so at the same time. So each begins with its own share, and after each
// batch reads what the others have appended meanwhile. What is left then is the share of
// members that are slow, or gone: it is given back in small parts, drawn at random, since
// several may be at it. An item that comes twice does no harm.
func (r *reader) reappendLost(ctx context.Context) error {
	l := r.log
	l.mu.Lock()
	items, more := l.recent.missing(r.logID, r.rescanned, r.clearedUpTo)
	left := l.recent.dropped
	l.mu.Unlock()
	if more {
		if _, err := l.appendDoubtInTime(ctx, Doubt{Kind: Lost, Reason: "the change log lost more orders than are remembered", Orders: true}); err != nil {
			return err
		}
		l.mu.Lock()
		if l.recent.dropped == left { // else another one has come since
			l.recent.dropped = ackedItem{}
		}
		l.mu.Unlock()
	}
	given, starts, from := 0, r.restarts, r.last.seq
	for len(items) > 0 {
		next := l.nextShare(items)
		if err := l.reappend(ctx, next); err != nil {
			return err
		}
		for _, i := range next {
			if i.field == "id" {
				given++
			}
		}
		if err := r.catchUp(ctx); err != nil {
			return err
		}
		if r.restarts != starts { // it was lost once more
			return r.recover(ctx)
		}
		items = slices.DeleteFunc(items, func(i item) bool {
			seq := r.rescanned[i]
			return seq > from || i.field == "id" && seq > 0
		})
	}
	if given > 0 {
		l.mu.Lock()
		l.state.Repaired += uint64(given)
		l.mu.Unlock()
		l.opts.Logger.Warn("orders that the change log had lost are in it again", "filter", l.filter, "ids", given)
	}
	return nil
}

// readOn reads to where the log ends now.
func (r *reader) catchUp(ctx context.Context) error {
	var goal uint64
	for starts := int64(-1); starts != r.restarts || r.last.seq < goal; {
		p, err := r.nextPage(ctx)
		if err != nil {
			return err
		}
		if starts != r.restarts {
			starts, goal = r.restarts, p.tail
		}
	}
	return nil
}

// share returns which of the items that the log lacks are to be given back next, one at
// least and [batch] at most.
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

// short appends a doubt within the limit of a read.
func (l *Log) appendDoubtInTime(ctx context.Context, d Doubt) (ackedEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	a, err := l.runAppend(ctx, l.append, nil, []item{{"doubt", d.text()}}) // nobody is told: the reader goes on after it
	return a.ackedEntry, err
}

func (l *Log) reappend(ctx context.Context, items []item) error {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	var args []any // they are remembered already
	for _, i := range items {
		args = append(args, i.field, i.value)
	}
	_, err := l.runAppend(ctx, l.append, args, nil)
	return err
}
