package changelog

import (
	"context"
	"slices"
)

// mostLasting is how many doubts are kept for a log that loses them. What comes then is
// one with the oldest.
const mostLasting = 64

// lasts reports whether a doubt of the kind stays until somebody clears it, where there is
// no live source.
func (k Kind) lasts() bool { return k == Lost || k == Gap || k == Running }

// rememberDoubt keeps a doubt that lasts, from its entry: a log that loses that gets it
// once more. Nobody else may know of it, and whoever starts finds it in the log only.
func (l *Log) rememberDoubt(d Doubt) {
	if !l.opts.Lasting || !d.Kind.lasts() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lasts = slices.DeleteFunc(l.lasts, func(known Doubt) bool { return known.Entry.Nonce == d.Entry.Nonce })
	if l.lasts = append(l.lasts, d); len(l.lasts) > mostLasting {
		both := l.lasts[0].and(l.lasts[1])
		l.lasts = append([]Doubt{both}, l.lasts[2:]...)
	}
}

// and returns a doubt about whatever either is about, with the place of the later.
func (d Doubt) and(later Doubt) Doubt {
	if d.Kind == Running {
		later.Kind = Running
	}
	later.Orders = later.Orders && d.Orders
	if d.Since.Before(later.Since) { // also if it is zero
		later.Since = d.Since
	}
	return later
}

// cleared passes it on that the doubts up to an entry of the log are cleared.
func (r *reader) cleared(upTo uint64) {
	again := r.found != nil // it was said before the present doubts
	l := r.log
	l.mu.Lock()
	l.lasts = slices.DeleteFunc(l.lasts, func(d Doubt) bool {
		if d.Entry.Epoch != r.epoch {
			return !again
		}
		return d.Entry.Seq <= upTo
	})
	l.mu.Unlock()
	l.opts.Cleared(Mark{Epoch: r.epoch, Seq: upTo}, again)
}

// giveBackDoubts appends the doubts that a log has lost which was read again, as one.
func (r *reader) giveBackDoubts(ctx context.Context) error {
	l, starts := r.log, r.starts
	if r.has == nil || len(r.lostDoubts()) == 0 { // healed by giveBack, or whole
		return nil
	}
	if err := r.readOn(ctx); err != nil { // to what was appended meanwhile
		return err
	}
	if r.starts != starts { // it was lost once more
		return r.healed(ctx)
	}
	lost := r.lostDoubts()
	if len(lost) == 0 {
		return nil
	}
	all := lost[0]
	for _, d := range lost[1:] {
		all = all.and(d)
	}
	if all.Kind == Gap {
		all.Kind = Lost // nobody takes it for a gap in this log
	}
	if _, err := l.short(ctx, l.dated(all)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lasts = slices.DeleteFunc(l.lasts, func(d Doubt) bool { return slices.Contains(lost, d) })
	return nil
}

func (r *reader) lostDoubts() []Doubt {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	inLog := func(d Doubt) bool { return r.inLog(doubtMark + d.Entry.Nonce) }
	return slices.DeleteFunc(slices.Clone(r.log.lasts), inLog)
}
