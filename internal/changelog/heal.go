package changelog

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// sayEvery is how often a doubt of one kind is told in the log, at most.
const sayEvery = time.Second

// doubt tells of one.
func (l *Log) doubt(d Doubt) {
	now := time.Now()
	l.mu.Lock()
	if l.state.Doubts == nil {
		l.state.Doubts, l.said = make(map[Kind]uint64), make(map[Kind]time.Time)
	}
	l.state.Doubts[d.Kind]++
	says := d.Kind != Start && now.Sub(l.said[d.Kind]) >= sayEvery
	if says {
		l.said[d.Kind] = now
	}
	l.mu.Unlock()
	if says {
		l.opts.Logger.Warn("there may be orders that the change log does not have", "filter", l.filter, "kind", d.Kind, "reason", d.Reason)
	}
	l.opts.Doubt(d)
}

// resume takes the mark that the reader is to begin behind. Without one it begins
// with whatever log there is, in which there may be gaps.
func (r *reader) resume() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	at := r.log.mark
	r.epoch, r.last = at.Epoch, entry{seq: at.Seq, nonce: at.Nonce}
	r.lenient = at == Mark{}
	r.first = r.lenient
}

// startOver is for a log that is not what it was: there is a doubt, and all of it that
// is left is read again.
func (r *reader) startOver(found *damage) {
	l := r.log
	l.doubt(found.doubt())
	r.epoch, r.last, r.lenient, r.lost = "", entry{}, true, nil
	r.found, r.recall, r.told = found, true, 0
	r.starts++
	r.has = make(map[string]struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark, l.own = Mark{}, ownEntry{}
}

// healed ends the reading of a log that was damaged, or that was never read: what it
// lacks is told of, and what of that is known here is appended again. After a failover
// too, members may have been forgotten.
func (r *reader) healed(ctx context.Context) error {
	if r.recall {
		if err := r.log.callBack(ctx); err != nil {
			return err
		}
		r.recall = false
	}
	if !r.lenient {
		return nil
	}
	// The log may say so itself: who has read that is in doubt by that entry.
	if r.lost != nil && !(r.log.opts.Lasting && r.lost.kind == Gap && r.told > r.lost.seq) {
		r.log.doubt(r.lost.doubt())
		if err := r.record(ctx, r.lost); err != nil {
			return err
		}
	}
	if r.first {
		// A log that was flushed while the sources were read is as good as any.
		r.first = false
		r.log.doubt(Doubt{Kind: Start, Reason: "the change log is read for the first time", Orders: true})
	}
	// The next read tries again what fails.
	if r.has != nil {
		// Once more: what was created while the log went from one to the other may have
		// been lost with a third.
		if r.found != nil {
			r.log.doubt(r.found.doubt())
			if err := r.record(ctx, r.found); err != nil {
				return err
			}
			r.found = nil
		}
		if err := r.log.giveBack(ctx, r.has); err != nil {
			return err
		}
	}
	r.lenient, r.lost, r.has = false, nil, nil
	r.applied(r.last.seq)
	return nil
}

// record appends a gap that was found, and tells of the entry: what becomes of that becomes
// of the gap.
func (r *reader) record(ctx context.Context, found *damage) error {
	if !r.log.opts.Lasting || found.kind != Gap {
		return nil
	}
	d := found.doubt()
	e, err := r.log.short(ctx, d)
	if err != nil {
		return err
	}
	d.Entry = Mark{Epoch: e.epoch, Seq: e.seq, Nonce: e.nonce}
	r.log.doubt(d)
	return nil
}

// batch is how many IDs are appended at once.
const batch = 500

// giveBack appends what was appended or applied here lately and is in the log no more.
// Each ordergate does so; that an ID comes twice does no harm.
func (l *Log) giveBack(ctx context.Context, has map[string]struct{}) error {
	l.mu.Lock()
	ids, more := l.recent.lacking(func(id string) bool { _, ok := has[id]; return ok })
	l.mu.Unlock()
	if more {
		if _, err := l.short(ctx, Doubt{Kind: Lost, Reason: fmt.Sprintf("the change log lost more than the %d orders that are remembered", remembered), Orders: true}); err != nil {
			return err
		}
	}
	given := len(ids)
	for len(ids) > 0 {
		n := min(len(ids), batch)
		if err := l.again(ctx, ids[:n]); err != nil {
			return err
		}
		ids = ids[n:]
	}
	if given > 0 {
		l.mu.Lock()
		l.state.Repaired += uint64(given)
		l.mu.Unlock()
		l.opts.Logger.Warn("orders that the change log had lost are in it again", "filter", l.filter, "ids", given)
	}
	return nil
}

// short appends a doubt within the limit of a read.
func (l *Log) short(ctx context.Context, d Doubt) (ownEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Limit)
	defer cancel()
	e, _, err := l.put(ctx, []any{"doubt", d.text()}, nil) // nobody is told: the reader goes on after it
	return e, err
}

func (l *Log) again(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Limit)
	defer cancel()
	args, err := l.entries(ids)
	if err != nil {
		return err
	}
	_, _, err = l.put(ctx, args, nil)
	return err
}

// Replay reads the whole log once more, beside Run, and calls each with every ID
// that was appended and acknowledged before the call, in order, and is still there. It
// returns each's first error; [ErrBroken] when the log is not what it was for Run; or
// [ErrUnavailable]. It is for whoever builds a second set of the IDs. Doubts are Run's
// to tell of.
func (l *Log) Replay(ctx context.Context, each func(id string) error) error {
	return l.replay(ctx, Mark{}, each)
}

// ReplayFrom is Replay behind a mark, for whoever has everything up to there. It returns
// ErrBroken too if an entry behind the mark is missing.
func (l *Log) ReplayFrom(ctx context.Context, at Mark, each func(id string) error) error {
	return l.replay(ctx, at, each)
}

func (l *Log) replay(ctx context.Context, at Mark, each func(id string) error) error {
	r := &reader{log: l, epoch: at.Epoch, last: entry{seq: at.Seq, nonce: at.Nonce}}
	var goal uint64
	for first := true; first || r.last.seq < goal; first = false {
		count := l.opts.PageSize + 1
		p, err := l.replayed(ctx, r.last.seq, count)
		if err != nil {
			return err
		}
		if epoch := l.epoch.Load(); epoch != nil && *epoch != p.epoch {
			return l.brokenError(fmt.Errorf("it was recreated: its identity is %q, was %q", p.epoch, *epoch))
		}
		if first {
			goal = p.tail // what comes meanwhile is told to the second set by others
		}
		full := len(p.entries) >= count
		fresh := r.skip(p, full)
		if at != (Mark{}) {
			var bad *damage
			if fresh, bad = p.after(r.epoch, r.last, full); bad != nil {
				return l.brokenError(errors.New(bad.reason))
			}
		}
		for _, e := range fresh {
			if r.last = e; e.bad != "" || e.id == "" {
				continue
			}
			if err := each(e.id); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Log) replayed(ctx context.Context, from uint64, count int) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Limit)
	defer cancel()
	return l.ask(ctx, nil, time.Time{}, from, count)
}
