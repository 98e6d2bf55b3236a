package filter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Doubt says that there may be orders which the filter should have and has not; all
// were created before it is told of, or are within Late. None of the IDs that it is about
// is absent until it is cleared.
type Doubt struct {
	Reason string // one line
	// Cure is what clears it, of a filter whose sources do not tell of each order as soon
	// as it exists. Those that do clear every doubt by being read again.
	Recovery Recovery
	// Late is for how long orders that it is about may yet be created: a reading clears it
	// that begins after that. 0: they have been.
	Late time.Duration

	// Orders says that it is about orders that were created, not about what the sources
	// have told: [Options.Covered] bounds it. Any other doubt voids that.
	Orders bool
	// Since is when the first of the orders was created at the earliest; zero: that is not
	// known.
	Since time.Time

	// Entry is where the doubt stands in the change log; zero: it does not, or the log has
	// yet to bring it.
	Entry Entry
}

// Entry is a place in a change log.
type Entry struct {
	Log    string // which of those that there were
	Number uint64 // from 1
}

// Scope is what IDs a doubt is about. The zero Scope has all.
type Scope struct {
	// Above leaves out the IDs that are decimal numbers from 0 to this; 0: none.
	Above uint64
	// Since leaves out the IDs that tell an earlier time, see [Options.Made]; zero: none.
	Since time.Time
}

// Cure is what clears a doubt. The greater one clears the smaller ones, too.
type Recovery int8

// The cures.
const (
	ByWaiting  Recovery = iota // time, in which others say what they know
	ByReload                   // reading the sources again, whatever they are
	ByOperator                 // somebody who says that the sources have every order
)

// mostDoubts is how many are told apart: of those that the change log has or is about to have,
// and of the others. What comes then is one with the last like it, which is cleared with the
// later of the two.
const maxDoubts = 64

// doubts are those that are not cleared. They are replaced, not changed.
type openDoubts struct {
	open         []openDoubt // in the order in which they were told of
	reason       string      // of the last
	recovery     Recovery    // the greatest
	lastCreation time.Time   // when the last of their orders has been created
	scope        Scope       // has whatever one of them is about
}

// openDoubt is one of them, or several.
type openDoubt struct {
	Doubt
	first, number uint64    // how many there were with the first of it, and with the last
	lastCreation  time.Time // when the last of its orders has been created
	scope         Scope
	own           bool // it was found here, by a create, and the change log may not have it yet
	unlogged      int  // how many of it have no entry in the change log
}

// summary returns what there is to know of open doubts, nil if there are none.
func summarize(open []openDoubt) *openDoubts {
	if len(open) == 0 {
		return nil
	}
	last := open[len(open)-1]
	all := &openDoubts{open: open, reason: last.Reason, recovery: last.Recovery, lastCreation: last.lastCreation, scope: last.scope}
	for _, d := range open {
		all.recovery, all.lastCreation, all.scope = max(all.recovery, d.Recovery), later(all.lastCreation, d.lastCreation), all.scope.union(d.scope)
	}
	return all
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// with returns a scope that has whatever either has.
func (s Scope) union(other Scope) Scope {
	s.Above = min(s.Above, other.Above)
	if other.Since.Before(s.Since) {
		s.Since = other.Since
	}
	return s
}

// within returns a scope that leaves out whatever either leaves out.
func (s Scope) intersect(other Scope) Scope {
	return Scope{max(s.Above, other.Above), later(s.Since, other.Since)}
}

// zero reports whether it leaves out nothing.
func (s Scope) isAll() bool { return s.Above == 0 && s.Since.IsZero() }

// String says what it has.
func (s Scope) String() string {
	var parts []string
	if s.Above > 0 {
		parts = append(parts, fmt.Sprintf("above %d", s.Above))
	}
	if !s.Since.IsZero() {
		parts = append(parts, "from "+s.Since.UTC().Format(time.RFC3339)+" on")
	}
	if parts == nil {
		return "all IDs"
	}
	return "IDs " + strings.Join(parts, " and ")
}

// leavesOut reports whether a doubt of the scope is certainly not about an ID.
func (f *Filter) isOutside(s *Scope, id string) bool {
	if n, ok := number(id); ok && s.Above > 0 && n <= s.Above {
		return true
	}
	if s.Since.IsZero() {
		return false
	}
	made, ok := f.opts.CreatedBefore(id)
	return ok && made.Before(s.Since)
}

// mostDigits is how many a number can have that surely is a uint64.
const maxDigits = 19

// number returns what an ID is in which nothing but a number stands, as a database writes
// it: without zeros in front.
func number(id string) (n uint64, ok bool) {
	if id == "" || len(id) > maxDigits || id[0] == '0' && len(id) > 1 {
		return 0, false
	}
	for i := range len(id) {
		if id[i] < '0' || id[i] > '9' {
			return 0, false
		}
		n = 10*n + uint64(id[i]-'0')
	}
	return n, true
}

// covered returns what the sources have told of, as far as that is sure now.
func (f *Filter) coveredScope() Scope {
	if f.opts.Covered == nil || f.opts.Remote != nil { // a remote set may have lost something, too
		return Scope{}
	}
	covered := f.opts.Covered()
	if f.opts.CreatedBefore == nil {
		covered.Since = time.Time{}
	}
	return covered
}

// Doubt makes negatives Unknown that the doubt is about, until it is cleared. When it
// returns this holds for every MayContain that has not loaded its window. It never blocks.
func (f *Filter) Doubt(d Doubt) { f.addDoubt(d, false) }

// tellDoubt is Doubt, and returns the number of the doubt. Own: it is one of this process's
// creates, whose entry [Filter.entered] tells.
func (f *Filter) addDoubt(d Doubt, own bool) (number uint64) {
	if now := time.Now(); d.Since.After(now) {
		d.Since = now // whoever told of it has another clock
	}
	if f.opts.Live {
		d.Recovery = min(d.Recovery, ByReload)
	}
	f.mu.Lock()
	f.doubtsSeen++
	number = f.doubtsSeen
	next := openDoubt{Doubt: d, first: number, number: number, lastCreation: time.Now().Add(d.Late), scope: f.createdSince(d.Since), own: own}
	if d.Entry == (Entry{}) {
		next.unlogged = 1
	}
	if d.Orders {
		next.scope = next.scope.intersect(f.coveredScope())
	}
	var open []openDoubt
	if now := f.doubts.Load(); now != nil {
		open = slices.DeleteFunc(slices.Clone(now.open), next.isSame)
	}
	if !d.Orders {
		for i := range open {
			open[i].scope = f.createdSince(open[i].Since)
		}
	}
	last, n := 0, 0 // of those like it
	for i := range open {
		if open[i].isUnlogged() == next.isUnlogged() {
			last, n = i, n+1
		}
	}
	if n < maxDoubts {
		open = append(open, next)
	} else {
		open[last] = open[last].merge(next)
	}
	f.doubts.Store(summarize(open))
	f.mu.Unlock()
	f.signalDoubt()
	return number
}

// found reports whether it has no entry in the change log, and none of its own may come: a
// word about entries says nothing of it, nor of one that it is a part of.
func (d *openDoubt) isUnlogged() bool { return d.Entry == (Entry{}) && !d.own }

// standsFor reports whether a doubt that the change log has brought is one that is known
// already. Of creates, two can be alike.
func (d *openDoubt) isSame(other openDoubt) bool {
	if d.Entry == (Entry{}) || other.first != other.number ||
		d.Reason != other.Reason || !d.Since.Equal(other.Since) || d.Orders != other.Orders {
		return false
	}
	return d.Entry == other.Entry || other.Entry == Entry{} && !other.own
}

// entered tells the place of a doubt's entry in the change log, which may have brought it
// already.
func (f *Filter) setEntry(number uint64, at Entry) {
	f.revise(func(open []openDoubt) []openDoubt {
		i := slices.IndexFunc(open, func(d openDoubt) bool { return d.first <= number && number <= d.number && d.unlogged > 0 })
		if i < 0 {
			return open // it is cleared
		}
		d := &open[i]
		d.setEntry(at, 1, f.confirmed)
		if slices.ContainsFunc(open[i+1:], func(other openDoubt) bool { return other.isSame(*d) }) {
			return slices.Delete(open, i, i+1)
		}
		return open
	})
}

// allEntered is entered for all doubts up to a number, which one entry tells of.
func (f *Filter) setEntries(number uint64, at Entry) {
	f.revise(func(open []openDoubt) []openDoubt {
		for i := range open {
			if d := &open[i]; d.number <= number && d.unlogged > 0 {
				d.setEntry(at, d.unlogged, f.confirmed)
			}
		}
		return open
	})
}

// revise replaces the doubts that are not cleared, if there are any, by what change makes of
// a copy.
func (f *Filter) revise(change func(open []openDoubt) []openDoubt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.doubts.Load(); now != nil {
		f.doubts.Store(summarize(change(slices.Clone(now.open))))
		f.signalDoubt()
	}
}

// enter notes that so many of it are in the change log, up to an entry. The word that they
// are cleared may have been quicker: it is good up to another one.
func (d *openDoubt) setEntry(at Entry, n int, confirmed Entry) {
	d.unlogged -= n
	d.own = false
	if d.Entry.Log != at.Log || d.Entry.Number < at.Number {
		d.Entry = at
	}
	if d.within(confirmed) {
		d.Recovery = min(d.Recovery, ByReload)
	}
}

// within reports whether all of it is in a change log, up to an entry.
func (d *openDoubt) within(upTo Entry) bool {
	return d.unlogged == 0 && d.Entry.Log == upTo.Log && d.Entry.Number <= upTo.Number
}

// and returns two doubts as one, which comes later.
func (d openDoubt) merge(next openDoubt) openDoubt {
	next.Recovery, next.lastCreation, next.Orders = max(d.Recovery, next.Recovery), later(d.lastCreation, next.lastCreation), d.Orders && next.Orders
	if next.Entry == (Entry{}) {
		next.Entry = d.Entry
	}
	next.first, next.unlogged = d.first, d.unlogged+next.unlogged
	next.scope, next.Since = d.scope.union(next.scope), Scope{Since: d.Since}.union(Scope{Since: next.Since}).Since
	return next
}

// since returns the scope of orders that were created since a time.
func (f *Filter) createdSince(created time.Time) Scope {
	if created.IsZero() || f.opts.CreatedBefore == nil {
		return Scope{}
	}
	return Scope{Since: created.Add(-f.opts.ClockMargin)}
}

// noteDoubt has Doubted received from.
func (f *Filter) signalDoubt() {
	select {
	case f.doubtAdded <- struct{}{}:
	default: // told already
	}
}

// Doubted is received from after a doubt; a receiver may find that it was cleared.
func (f *Filter) DoubtAdded() <-chan struct{} { return f.doubtAdded }

// Doubts returns what is needed to clear all doubts that there are, and their reason;
// false if there are none.
func (f *Filter) Doubts() (cure Recovery, reason string, ok bool) {
	if d := f.doubts.Load(); d != nil {
		return d.recovery, d.reason, true
	}
	return 0, "", false
}

// Curable returns what clears all doubts for which nobody is needed; false if there are
// none of those.
func (f *Filter) Recoverable() (cure Recovery, ok bool) {
	if all := f.doubts.Load(); all != nil {
		for _, d := range all.open {
			if d.Recovery < ByOperator {
				cure, ok = max(cure, d.Recovery), true
			}
		}
	}
	return cure, ok
}

// Confirm says that the sources have every order that the doubts up to an entry are about:
// somebody who knows has said so, of sources that were read when the log had been read up
// to there. Those doubts, and any of an earlier log, need no more than [Reading] from now on.
// Again: the word is of an earlier time, and there may be doubts of other logs since.
func (f *Filter) Confirm(upTo Entry, again bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.confirmed = upTo
	now := f.doubts.Load()
	if now == nil {
		return
	}
	open := slices.Clone(now.open)
	for i, d := range open {
		elsewhere := d.Entry.Log != upTo.Log
		if d.within(upTo) || d.unlogged == 0 && elsewhere && d.Entry != (Entry{}) && !again {
			open[i].Recovery = min(d.Recovery, ByReload)
		}
	}
	f.doubts.Store(summarize(open))
	f.signalDoubt()
}

// DoubtsLast returns for how long no reading can clear all of the doubts that there are:
// orders that they are about may yet be created.
func (f *Filter) UntilClearable() time.Duration {
	d := f.doubts.Load()
	if d == nil {
		return 0
	}
	return max(0, time.Until(d.lastCreation))
}

// soFar says which doubts something can clear that begins now.
type doubtMark struct {
	number uint64
	at     time.Time
}

func (f *Filter) markDoubts() doubtMark {
	f.mu.Lock()
	defer f.mu.Unlock()
	return doubtMark{f.doubtsSeen, time.Now()}
}

// clearDoubts clears the doubts from before the moment of soFar that a cure is good for,
// and bounds the others by what the sources have told of. Whoever clears has added first
// what the doubts were about: who sees no doubt sees the IDs.
func (f *Filter) clearDoubts(before doubtMark, cure Recovery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.doubts.Load()
	if now == nil {
		return
	}
	covered := f.coveredScope()
	var left []openDoubt
	for _, d := range now.open {
		if d.number <= before.number && d.Recovery <= cure && !d.lastCreation.After(before.at) {
			continue
		}
		if d.Orders {
			d.scope = d.scope.intersect(covered)
		}
		left = append(left, d)
	}
	f.doubts.Store(summarize(left))
	if left == nil {
		f.log.Info("there is no doubt any more, orders count as absent again")
	}
}

// Settle clears the doubts that there are if time clears them: that which passes in
// the call of pass. It returns pass's error.
func (f *Filter) WaitForPeers(ctx context.Context, pass func(ctx context.Context) error) error {
	soFar := f.markDoubts()
	if needed, ok := f.Recoverable(); !ok || needed != ByWaiting {
		return nil
	}
	if err := pass(ctx); err != nil {
		return err
	}
	soFar.at = time.Now() // it is the time that has passed which clears them
	f.clearDoubts(soFar, ByWaiting)
	return nil
}

// CatchUp clears the doubts that there are by a reading that begins now: of the part of
// the sources that is new, which has to have every order that was created before the
// call. What it adds is added here, and to the remote set. It returns read's first
// error. A doubt that comes meanwhile stays.
func (f *Filter) CatchUp(ctx context.Context, read func(ctx context.Context, add func(id string) error) error) error {
	if _, _, ok := f.Doubts(); !ok {
		return nil
	}
	return f.Reload(ctx, read)
}

// Reload reads sources while the filter goes on as it is, and clears all doubts from
// before the call. What read adds is added here, and to the remote set. It returns
// read's first error.
func (f *Filter) Reload(ctx context.Context, read func(ctx context.Context, add func(id string) error) error) error {
	soFar := f.markDoubts()
	if err := f.Include(ctx, read); err != nil {
		return err
	}
	f.clearDoubts(soFar, ByOperator)
	return nil
}

// Include is Reload without clearing any doubt.
func (f *Filter) Include(ctx context.Context, read func(ctx context.Context, add func(id string) error) error) error {
	batch := make([]string, 0, remoteBatch)
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := f.opts.Remote.Add(ctx, batch...)
		batch = batch[:0]
		return err
	}
	err := read(ctx, func(id string) error {
		f.Add(id)
		if f.opts.Remote == nil {
			return nil
		}
		if batch = append(batch, strings.Clone(id)); len(batch) < remoteBatch {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return fmt.Errorf("filter %s: reading again: %w", f.name, err)
	}
	return nil
}

// remoteBatch is how many IDs are added to a remote set at once.
const remoteBatch = 500

// certain is what was certain before a look at the bits.
type certainty struct {
	all   bool
	scope *Scope // what is not, nil if nothing is certain, or all
}

// certain returns what is certain now, as far as the filter was told. It is asked for
// before the bits, and used after.
func (f *Filter) certainty() certainty {
	s := f.status.Load()
	if s.state != StateReady && (f.opts.Remote == nil || s.permanent) {
		return certainty{}
	}
	d := f.doubts.Load()
	if d == nil {
		return certainty{all: true}
	}
	if d.scope.isAll() {
		return certainty{}
	}
	return certainty{scope: &d.scope}
}

// of reports whether it is certain that an ID does not exist which the filter does not
// have.
func (c certainty) isCertain(f *Filter, id string) bool {
	return c.all || c.scope != nil && f.isOutside(c.scope, id)
}
