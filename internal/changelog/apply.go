package changelog

import (
	"context"
	"errors"
	"slices"
)

// nextPage reads and applies one page.
func (r *reader) nextPage(ctx context.Context) (page, error) {
	p, fresh, err := r.fetchPage(ctx, r.log.opts.LoadSnapshot != nil)
	for errors.Is(err, errTrimmed) {
		var loaded bool
		if loaded, err = r.loadSnapshot(ctx, p); err == nil {
			p, fresh, err = r.fetchPage(ctx, loaded)
		}
	}
	if err != nil {
		return p, err
	}
	r.leaseEpoch, r.blindReason = p.leaseEpoch, p.blindReason
	r.log.member.checkDuplicate(p.members)
	for _, e := range fresh {
		r.apply(e)
	}
	r.dropReadAcks(p)
	r.publish(p.tail)
	return p, nil
}

func (r *reader) apply(e entry) {
	switch {
	case e.malformed != "":
	case e.id == "":
		r.applyDoubt(e)
	case r.log.isForeign(&e):
		r.report(e, r.log.foreignDoubt(&e))
	default:
		if reason := r.log.opts.Check(e.id); e.inbox && reason != "" {
			r.report(e, Doubt{Kind: Lost, Orders: true, Reason: "the inbox had no order ID by any rule: " + reason})
		}
		r.log.apply(e.id)
		r.remember(item{"id", e.id}, e.seq)
	}
	r.last = e
}

// report reports the doubt that an entry without a usable ID is. Its order may be any.
func (r *reader) report(e entry, d Doubt) {
	d.Entry = Mark{LogID: r.logID, Seq: e.seq, Nonce: e.nonce}
	r.log.reportDoubt(d)
}

func (r *reader) applyDoubt(e entry) {
	if e.doubt.Kind == cleared {
		if n := e.doubt.clearsUpTo(r.logID); n > 0 {
			r.clearedUpTo = max(r.clearedUpTo, n)
			r.remember(item{clearedField, e.text}, e.seq)
			// On a second read, the entry is older than the present doubts of other logs.
			r.log.opts.OnCleared(Mark{LogID: r.logID, Seq: n}, len(r.causes) > 0)
		}
		return
	}
	e.doubt.Entry = Mark{LogID: r.logID, Seq: e.seq, Nonce: e.nonce}
	r.log.reportDoubt(e.doubt)
	if !e.doubt.Kind.isAboutOrders() {
		r.remember(item{"doubt", e.text}, e.seq)
	}
	r.restoring = r.restoring || e.doubt.Kind == Failover
	if e.doubt.Kind == Gap {
		// Missing entries behind it are another gap. Its number may be one of another log.
		r.gapLoggedUpTo = max(r.gapLoggedUpTo, min(e.doubt.missingUpTo(), e.seq-1))
	}
}

// remember keeps an item in case the log loses it.
func (r *reader) remember(i item, seq uint64) {
	if r.rescanned != nil {
		r.rescanned[i] = seq
		return
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.recent.add(i, seq)
}

// publish stores the reader's position.
func (r *reader) publish(tail uint64) {
	l := r.log
	l.position.Store(r.last.seq)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Tail = tail
	if !r.lenient && r.snapshotMark == (Mark{}) { // else entries before it may be missing
		l.mark = Mark{LogID: r.logID, Seq: r.last.seq, Nonce: r.last.nonce}
	}
}

// dropReadAcks drops the acknowledged entries that have been read. A page proves all entries up to
// the last in its own lease epoch. In another lease epoch it proves the entries that it contains.
func (r *reader) dropReadAcks(p page) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unreadAcks = slices.DeleteFunc(slices.Clone(l.unreadAcks), func(e ackedEntry) bool {
		there := e.logID == p.logID && (e.leaseEpoch == p.leaseEpoch && e.seq <= r.last.seq || p.has(e.entry))
		if there {
			l.recent.markRead(p.logID, e.leaseEpoch, e.seq)
		}
		return there
	})
	l.recent.markRead(p.logID, p.leaseEpoch, r.last.seq)
	l.readAcks = ackedEntry{entry{seq: r.last.seq}, p.logID, p.leaseEpoch}
}
