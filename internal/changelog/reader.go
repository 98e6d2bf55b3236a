package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// errStopped is why a log in phase Stopped cannot be waited for.
var errStopped = fmt.Errorf("%w: it is not read any more", ErrUnavailable)

// Run follows the log until ctx ends, and then returns nil: first all of it, or all
// behind the mark given to [Log.Resume], then whatever is new, as soon as it is appended, and
// at least every [Options.PollEvery]. A log that is unavailable or broken
// does not end it; see [Log.State]. A member joins when it begins, and leaves when it
// ends if it owes nothing. A log is run once: it returns an error the second time.
func (l *Log) Run(ctx context.Context) error {
	if !l.running.CompareAndSwap(false, true) {
		return fmt.Errorf("following %s: it was run before", l.keys[0])
	}
	r := &reader{log: l, stated: -1}
	r.resume()
	rest := &rest{
		reader: r, news: l.listen(ctx), poll: time.NewTicker(l.opts.PollEvery), turn: time.NewTimer(0),
		pace: rate.NewLimiter(rate.Inf, burst),
	}
	defer rest.poll.Stop()
	defer rest.turn.Stop()
	for {
		asked := l.begin()
		rest.poll.Reset(l.opts.PollEvery)
		began := time.Now()
		err := r.readToTail(ctx)
		asked.end(err)
		l.mu.Lock()
		l.state.ReadTook = time.Since(began)
		l.mu.Unlock()
		if rest.wait(ctx) != nil {
			l.settle(Stopped, errStopped, nil)
			l.begin().end(errStopped)
			l.farewell(ctx)
			return nil
		}
	}
}

// farewell is the end of a member.
func (l *Log) farewell(ctx context.Context) {
	if l.member == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.Limit)
	defer cancel()
	if err := l.member.Leave(ctx); err != nil {
		l.opts.Logger.Warn("leaving the change log failed: nothing counts as absent until this ordergate is back, or is taken for gone",
			"filter", l.filter, "error", err)
	}
}

// reader is what the one goroutine in Run knows.
type reader struct {
	log   *Log
	epoch string // "" until the log is open
	era   string // of the last page
	last  entry  // applied most recently
	// starts counts how often it began anew, with a log that was not what it had been.
	starts int64
	// lenient reads a log that is known to be damaged, or was never read: what is
	// missing in it has been told of, or is told of at the end.
	lenient    bool
	first      bool            // nothing was read yet, and there was no mark
	lost       *damage         // found while lenient
	told       uint64          // up to which number the log itself tells what is missing
	word       uint64          // up to which number the log says that doubts are cleared
	found      []*damage       // why it started over, none once that has been told of again
	members    []string        // as the last page has them, if it has
	untold     string          // of the last page
	toldOf     time.Time       // when it was said last that there is a twin
	recall     bool            // members may have been forgotten
	apart      bool            // it reads before it joins
	joint      Mark            // of the snapshot that was taken, until its entry was read
	ahead      heard           // what was heard of behind that, and added
	answered   bool            // the last read was; else the next one has its time
	steady     bool            // the tail was reached, and the log is what it was
	stated     int64           // up to which entry the last page said that it was applied, -1: none did
	noted      bool            // the log has it as a reader in this era
	tried      string          // the era in which it asked to be noted last
	wide       time.Time       // a read that is sent by then opens a narrow window
	narrow     time.Duration   // the longest that others had heard of in this era before its own
	toldWindow bool            // that others have another window
	opens      bool            // the first page of this read was read by a noted reader
	has        map[item]uint64 // found while lenient, with the numbers of the last, to see which are missing; nil: nobody asks
}

// readToTail applies everything up to where the log ended when the first of its
// pages was read. What is appended meanwhile is for the next time: under a steady
// stream of creations this one would never end.
func (r *reader) readToTail(ctx context.Context) error {
	r.log.forgetReaders(ctx)
	w := newWindow()
	away, err := r.pages(ctx)
	phase := Following
	r.answered = err == nil
	if err == nil && !slices.Contains(r.log.opts.Require, away) {
		r.log.required.Store(true)
	}
	switch {
	case err == nil && r.untold != "" && !r.log.opts.Ephemeral:
		phase, err = Blind, fmt.Errorf("%w: %s", ErrBlind, r.untold)
	case err == nil && r.log.member.hasTwin():
		phase, err = Away, fmt.Errorf("%w, this one is %q", ErrTwin, r.log.member.place)
		r.tellTwin(err)
	case err == nil && slices.Contains(r.log.opts.Require, away):
		phase, err = Away, fmt.Errorf("%w: %s", ErrUnfollowed, away)
	case err == nil && isEarlier(away):
		phase, err = Away, fmt.Errorf("%w: %s", ErrEarlier, away)
	case err == nil && away != "":
		phase, err = Away, fmt.Errorf("%w: %s", ErrAway, away)
	case err == nil:
		r.steady = true
	case errors.Is(err, ErrBroken):
		phase = Broken
	case ctx.Err() != nil:
		return errStopped // Run ends for its own reason, not for Redis's
	default:
		phase = Unavailable
	}
	if w.lasts = r.window(w.began); phase != Following || !r.opens || w.lasts == 0 {
		w = nil
	}
	r.log.settle(phase, err, w)
	return err
}

// window returns how long one may last that a read opens which was sent at a time. One that is longer
// than what creators have heard of counts when they certainly have: who has not, and asks another server
// by now, is missed by then.
func (r *reader) window(sent time.Time) time.Duration {
	if sent.After(r.wide) {
		return r.log.opts.Window
	}
	return min(r.narrow, r.log.opts.Window)
}

// note keeps what a page says of the reader.
func (r *reader) note(p page) {
	window := r.log.opts.Window
	switch {
	case p.noted && !r.noted:
		r.noted, r.wide = true, time.Time{}
		if r.narrow < window {
			r.wide = time.Now().Add(r.log.opts.Lease + margin(r.log.opts.Lease))
		}
	case !p.noted:
		if window > 0 && p.window != window && p.window > 0 && !r.toldWindow {
			r.toldWindow = true
			r.log.opts.Logger.Warn("ordergates have different windows: creates wait for the longest",
				"filter", r.log.filter, "window", window, "longest", max(p.window, window))
		}
		r.noted = false
		if r.tried != p.era { // else it may be its own that it hears of
			r.narrow = p.window
		}
	}
}

// unreported reports whether others do not know yet that this reader has the last entry.
func (r *reader) unreported() bool {
	return r.steady && r.log.reader != "" && (!r.noted || r.stated < int64(r.heardUpTo().seq))
}

// isEarlier reports whether a member is of an earlier release.
func isEarlier(member string) bool {
	return strings.Contains(member, placeEnd) && !strings.HasSuffix(strings.TrimSuffix(member, bridging), waiting)
}

// tellTwin says once a minute that there is one: whoever looks at the log of either finds
// it there.
func (r *reader) tellTwin(err error) {
	if now := time.Now(); now.Sub(r.toldOf) >= time.Minute {
		r.toldOf = now
		r.log.opts.Logger.Error("nothing counts as absent", "filter", r.log.filter, "error", err)
	}
}

// pages reads to the tail, and returns a member that was away when its first page was
// read.
func (r *reader) pages(ctx context.Context) (string, error) {
	if m := r.log.member; m != nil {
		if err := r.readApart(ctx, m); err != nil {
			return "", err
		}
		if err := r.joined(ctx, m); err != nil {
			return "", err
		}
	}
	var away string
	var goal uint64 // the tail, and then that behind what was in the inbox
	var inbox, starts int64 = 0, -1
	for inbox > 0 || starts != r.starts || r.last.seq < goal {
		p, err := r.page(ctx)
		if err != nil {
			return "", err
		}
		if len(r.found) == 0 && !r.recall {
			r.vouch() // a log that takes long to read ends no lease: no ordergate would refuse anything meanwhile
		}
		r.members = p.members
		if starts != r.starts { // the first page, of this log
			starts, away, goal, inbox, r.opens = r.starts, p.away, p.tail, p.inbox, r.noted
			continue
		}
		if inbox > 0 { // first in, first out: whoever else takes some only helps
			inbox, goal = inbox-drained, p.tail
			if p.inbox == 0 {
				inbox = 0
			}
		}
	}
	recalled := r.recall
	if err := r.healed(ctx); err != nil {
		return "", err
	}
	if !recalled { // or those would not be among them that were called back
		r.log.know(r.members)
	}
	if m := r.log.member; m != nil { // it may have been forgotten as well
		if err := r.joined(ctx, m); err != nil {
			return "", err
		}
	}
	r.vouch()
	return away, nil
}

// readApart reads a page before this process is a member: to everybody else it would be
// away for as long as a snapshot takes, or cannot be had.
func (r *reader) readApart(ctx context.Context, m *Member) error {
	if r.log.opts.Bridge == nil || m.isJoined() {
		return nil
	}
	r.apart = true
	defer func() { r.apart = false }()
	_, err := r.page(ctx)
	return err
}

// joined makes a member of this process, if it is none.
func (r *reader) joined(ctx context.Context, m *Member) error {
	ctx, cancel := context.WithTimeout(ctx, r.log.opts.Limit)
	defer cancel()
	if err := m.enter(ctx); err != nil {
		return r.log.readError(err)
	}
	return nil
}

// vouch lets the lease be renewed as of the last page: what was acknowledged here is
// in the log that it came from. That is not sure of what was acknowledged by another server
// and is yet to be read.
func (r *reader) vouch() {
	l := r.log
	if l.member == nil {
		return
	}
	l.mu.Lock()
	own := l.own
	l.mu.Unlock()
	latest := l.member.lastEra()
	if !slices.ContainsFunc(own, func(e ownEntry) bool { return e.era != latest }) {
		l.member.vouch()
	}
}

// forget forgets what was acknowledged here and has been read: up to the last entry in the
// era of the page, which has all that was acknowledged in that, and in another one up to an
// entry that stands in the page.
func (r *reader) forget(p page) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own = slices.DeleteFunc(slices.Clone(l.own), func(e ownEntry) bool {
		there := e.epoch == p.epoch && (e.era == p.era && e.seq <= r.last.seq || p.has(e.entry))
		if there {
			l.recent.read(p.epoch, e.era, e.seq)
		}
		return there
	})
	l.recent.read(p.epoch, p.era, r.last.seq)
	l.done = ownEntry{entry{seq: r.last.seq}, p.epoch, p.era}
}

// has reports whether an entry stands in a page.
func (p page) has(e entry) bool {
	return slices.ContainsFunc(p.entries, func(other entry) bool {
		return other.seq == e.seq && other.sub == 0 && other.nonce == e.nonce
	})
}

// page reads and applies one page.
func (r *reader) page(ctx context.Context) (page, error) {
	p, fresh, err := r.fetch(ctx, r.log.opts.Bridge != nil)
	for errors.Is(err, errBegins) {
		var done bool
		if done, err = r.bridge(ctx, p); err == nil {
			p, fresh, err = r.fetch(ctx, done)
		}
	}
	if err != nil {
		return p, err
	}
	r.era, r.untold = p.era, p.untold
	r.log.member.beside(p.members)
	for _, e := range fresh {
		r.apply(e)
	}
	r.forget(p)
	r.applied(p.tail)
	return p, nil
}

func (r *reader) apply(e entry) {
	switch {
	case e.bad != "":
	case e.id == "":
		r.applyDoubt(e)
	default:
		r.log.apply(e.id)
		r.remember(item{"id", e.id}, e.seq)
	}
	r.last = e
}

// remember keeps what an entry says, for a log that loses it.
func (r *reader) remember(i item, seq uint64) {
	if r.has != nil {
		r.has[i] = seq
		return
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.recent.add(i, seq)
}

func (r *reader) applyDoubt(e entry) {
	if e.doubt.Kind == cleared {
		if n := e.doubt.clears(r.epoch); n > 0 {
			r.word = max(r.word, n)
			r.remember(item{clearedField, e.text}, e.seq)
			// Read once more, it was said before the present doubts of other logs.
			r.log.opts.Cleared(Mark{Epoch: r.epoch, Seq: n}, len(r.found) > 0)
		}
		return
	}
	e.doubt.Entry = Mark{Epoch: r.epoch, Seq: e.seq, Nonce: e.nonce}
	r.log.doubt(e.doubt)
	if !e.doubt.Kind.orders() {
		r.remember(item{"doubt", e.text}, e.seq)
	}
	r.recall = r.recall || e.doubt.Kind == Term
	if e.doubt.Kind == Gap {
		// What is behind it is another gap: it may name the numbers of another log.
		r.told = max(r.told, min(e.doubt.missing(), e.seq-1))
	}
}

// fetch reads the page that follows the last entry, and returns what is new in it.
// After damage that is the first page of the log that there is. If a log that begins later
// can be bridged, the error is errBegins.
func (r *reader) fetch(ctx context.Context, bridge bool) (p page, fresh []entry, err error) {
	l, m := r.log, r.log.member
	if r.apart {
		m = nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.Limit)
	defer cancel()
	for {
		own := l.asking()
		count := l.opts.PageSize + 1 // one more for the entry that we have
		in := ""                     // else nobody need wait for it
		if r.steady {
			in, r.stated, r.tried = r.era, int64(r.heardUpTo().seq), r.era
		}
		ahead := r.ahead.behind(r.last)
		p, err = l.ask(ctx, m, time.Now(), r.last, count, l.reader, in, ahead.ends)
		if err != nil {
			return p, nil, err
		}
		full := len(p.entries) >= count
		if p.from > r.last.seq {
			p.entries = ahead.before(r.last, p.entries)
		}
		r.note(p)
		own = l.looked(own, p)
		if r.epoch == "" {
			r.epoch, r.lenient = p.epoch, true
		}
		fresh, bad := p.after(r.epoch, r.last, full)
		lost := p.lostOwn(own, full)
		if bad == nil {
			bad = r.joins(p.tail, fresh)
		}
		switch {
		case lost != nil: // it is to be given back, even to a log that is read for the first time
			if bad == nil || bridge && p.begins(r.last) {
				bad = lost
			}
		case bad == nil:
			return p, fresh, nil
		case bridge && p.epoch == r.epoch && p.begins(r.last):
			return p, nil, errBegins
		case r.lenient && bad.kind == Gap && r.joint.Seq <= p.tail && p.epoch == r.epoch: // else what was read is not what there is
			r.lost = bad
			fresh = r.skip(p, full)
			r.lost.seq = max(bad.seq, lastMissing(r.last, fresh))
			return p, fresh, nil
		}
		other := p.epoch != r.epoch
		if r.startOver(bad); other {
			l.mu.Lock()
			l.recent.renumbered()
			l.mu.Unlock()
		}
	}
}

// skip returns what is new in a page of a damaged log. What it lacks is passed over.
func (r *reader) skip(p page, full bool) []entry {
	fresh := behind(p.entries, r.last)
	if !full && (len(fresh) == 0 || fresh[len(fresh)-1].seq < p.tail) {
		fresh = append(fresh, entry{seq: p.tail, bad: "missing"})
	}
	return fresh
}

// lastMissing returns the number of the last entry that should be among others and is not.
func lastMissing(last entry, fresh []entry) (seq uint64) {
	for _, e := range fresh {
		switch {
		case e.bad != "":
			seq = e.seq
		case e.seq != last.seq+1:
			seq = e.seq - 1
		}
		last = e
	}
	return seq
}

// lostOwn looks for the newest entries that were appended here and acknowledged before the
// page was asked for. A log without one has lost it, and perhaps others' too. One that another
// server acknowledged has to be seen: what was read may have another entry in its place.
func (p page) lostOwn(all []ownEntry, full bool) *damage {
	end := p.tail
	if full {
		end = p.entries[len(p.entries)-1].seq
	}
	for _, own := range all {
		switch {
		case own.epoch != p.epoch:
			return gap("it was recreated: its identity is %q, was %q when entry %d was acknowledged", p.epoch, own.epoch, own.seq)
		case p.tail < own.seq:
			return back("it lost entry %d, which was acknowledged, and ends at %d", own.seq, p.tail)
		case own.seq <= end && !p.has(own.entry) && (own.era != p.era || own.seq >= p.first()):
			return back("entry %d is not the one that was acknowledged", own.seq)
		}
	}
	return nil
}

// applied publishes how far the reader is.
func (r *reader) applied(tail uint64) {
	l := r.log
	l.position.Store(r.last.seq)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Tail = tail
	if !r.lenient && r.joint == (Mark{}) { // else it is not sure yet that there is all up to there
		l.mark = Mark{Epoch: r.epoch, Seq: r.last.seq, Nonce: r.last.nonce}
	}
}

// asking counts a page, and returns the newest entries of our own, which must be in its
// log from now on.
func (l *Log) asking() []ownEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Reads++
	return l.own
}

// looked returns which entries of our own a page is to be looked through for: those from
// before it was asked for, and those that were acknowledged meanwhile in another era than
// its own. A server that was replaced may have done that while the page was on its way.
func (l *Log) looked(before []ownEntry, p page) (own []ownEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Tail = p.tail
	for _, e := range l.own {
		if e.era != p.era {
			own = append(own, e)
		}
	}
	for _, e := range before {
		if e.era == p.era {
			own = append(own, e)
		}
	}
	return own
}
