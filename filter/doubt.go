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
	Cure Cure
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
type Cure int8

// The cures.
const (
	Settling Cure = iota // time, in which others say what they know
	Reading              // reading the sources again, whatever they are
	Operator             // somebody who says that the sources have every order
)

// mostDoubts is how many are told apart: of those that the change log has or is about to have,
// and of the others. What comes then is one with the last like it, which is cleared with the
// later of the two.
const mostDoubts = 64

// doubts are those that are not cleared. They are replaced, not changed.
type doubts struct {
	open   []openDoubt // in the order in which they were told of
	reason string      // of the last
	cure   Cure        // the greatest
	over   time.Time   // when the last of their orders has been created
	scope  Scope       // has whatever one of them is about
}

// openDoubt is one of them, or several.
type openDoubt struct {
	Doubt
	first, number uint64    // how many there were with the first of it, and with the last
	over          time.Time // when the last of its orders has been created
	scope         Scope
	own           bool // it was found here, by a create, and the change log may not have it yet
	outside       int  // how many of it have no entry in the change log
}

// summary returns what there is to know of open doubts, nil if there are none.
func summary(open []openDoubt) *doubts {
	if len(open) == 0 {
		return nil
	}
	last := open[len(open)-1]
	all := &doubts{open: open, reason: last.Reason, cure: last.Cure, over: last.over, scope: last.scope}
	for _, d := range open {
		all.cure, all.over, all.scope = max(all.cure, d.Cure), later(all.over, d.over), all.scope.with(d.scope)
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
func (s Scope) with(other Scope) Scope {
	s.Above = min(s.Above, other.Above)
	if other.Since.Before(s.Since) {
		s.Since = other.Since
	}
	return s
}

// within returns a scope that leaves out whatever either leaves out.
func (s Scope) within(other Scope) Scope {
	return Scope{max(s.Above, other.Above), later(s.Since, other.Since)}
}

// zero reports whether it leaves out nothing.
func (s Scope) zero() bool { return s.Above == 0 && s.Since.IsZero() }

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
func (f *Filter) leavesOut(s *Scope, id string) bool {
	if n, ok := number(id); ok && s.Above > 0 && n <= s.Above {
		return true
	}
	if s.Since.IsZero() {
		return false
	}
	made, ok := f.opts.Made(id)
	return ok && made.Before(s.Since)
}

// mostDigits is how many a number can have that surely is a uint64.
const mostDigits = 19

// number returns what an ID is in which nothing but a number stands, as a database writes
// it: without zeros in front.
func number(id string) (n uint64, ok bool) {
	if id == "" || len(id) > mostDigits || id[0] == '0' && len(id) > 1 {
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
func (f *Filter) covered() Scope {
	if f.opts.Covered == nil || f.opts.Remote != nil { // a remote set may have lost something, too
		return Scope{}
	}
	covered := f.opts.Covered()
	if f.opts.Made == nil {
		covered.Since = time.Time{}
	}
	return covered
}

// Doubt makes negatives Unknown that the doubt is about, until it is cleared. When it
// returns this holds for every MayContain that has not loaded its window. It never blocks.
func (f *Filter) Doubt(d Doubt) { f.tellDoubt(d, false) }

// tellDoubt is Doubt, and returns the number of the doubt. Own: it is one of this process's
// creates, whose entry [Filter.entered] tells.
func (f *Filter) tellDoubt(d Doubt, own bool) (number uint64) {
	if now := time.Now(); d.Since.After(now) {
		d.Since = now // whoever told of it has another clock
	}
	if f.opts.Live {
		d.Cure = min(d.Cure, Reading)
	}
	f.mu.Lock()
	f.doubtsSeen++
	number = f.doubtsSeen
	next := openDoubt{Doubt: d, first: number, number: number, over: time.Now().Add(d.Late), scope: f.since(d.Since), own: own}
	if d.Entry == (Entry{}) {
		next.outside = 1
	}
	if d.Orders {
		next.scope = next.scope.within(f.covered())
	}
	var open []openDoubt
	if now := f.doubts.Load(); now != nil {
		open = slices.DeleteFunc(slices.Clone(now.open), next.standsFor)
	}
	if !d.Orders {
		for i := range open {
			open[i].scope = f.since(open[i].Since)
		}
	}
	last, n := 0, 0 // of those like it
	for i := range open {
		if open[i].found() == next.found() {
			last, n = i, n+1
		}
	}
	if n < mostDoubts {
		open = append(open, next)
	} else {
		open[last] = open[last].and(next)
	}
	f.doubts.Store(summary(open))
	f.mu.Unlock()
	f.noteDoubt()
	return number
}

// found reports whether it has no entry in the change log, and none of its own may come: a
// word about entries says nothing of it, nor of one that it is a part of.
func (d *openDoubt) found() bool { return d.Entry == (Entry{}) && !d.own }

// standsFor reports whether a doubt that the change log has brought is one that is known
// already. Of creates, two can be alike.
func (d *openDoubt) standsFor(other openDoubt) bool {
	if d.Entry == (Entry{}) || other.first != other.number ||
		d.Reason != other.Reason || !d.Since.Equal(other.Since) || d.Orders != other.Orders {
		return false
	}
	return d.Entry == other.Entry || other.Entry == Entry{} && !other.own
}

// entered tells the place of a doubt's entry in the change log, which may have brought it
// already.
func (f *Filter) entered(number uint64, at Entry) {
	f.revise(func(open []openDoubt) []openDoubt {
		i := slices.IndexFunc(open, func(d openDoubt) bool { return d.first <= number && number <= d.number && d.outside > 0 })
		if i < 0 {
			return open // it is cleared
		}
		d := &open[i]
		d.enter(at, 1, f.confirmed)
		if slices.ContainsFunc(open[i+1:], func(other openDoubt) bool { return other.standsFor(*d) }) {
			return slices.Delete(open, i, i+1)
		}
		return open
	})
}

// allEntered is entered for all doubts up to a number, which one entry tells of.
func (f *Filter) allEntered(number uint64, at Entry) {
	f.revise(func(open []openDoubt) []openDoubt {
		for i := range open {
			if d := &open[i]; d.number <= number && d.outside > 0 {
				d.enter(at, d.outside, f.confirmed)
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
		f.doubts.Store(summary(change(slices.Clone(now.open))))
		f.noteDoubt()
	}
}

// enter notes that so many of it are in the change log, up to an entry. The word that they
// are cleared may have been quicker: it is good up to another one.
func (d *openDoubt) enter(at Entry, n int, confirmed Entry) {
	d.outside -= n
	d.own = false
	if d.Entry.Log != at.Log || d.Entry.Number < at.Number {
		d.Entry = at
	}
	if d.within(confirmed) {
		d.Cure = min(d.Cure, Reading)
	}
}

// within reports whether all of it is in a change log, up to an entry.
func (d *openDoubt) within(upTo Entry) bool {
	return d.outside == 0 && d.Entry.Log == upTo.Log && d.Entry.Number <= upTo.Number
}

// and returns two doubts as one, which comes later.
func (d openDoubt) and(next openDoubt) openDoubt {
	next.Cure, next.over, next.Orders = max(d.Cure, next.Cure), later(d.over, next.over), d.Orders && next.Orders
	if next.Entry == (Entry{}) {
		next.Entry = d.Entry
	}
	next.first, next.outside = d.first, d.outside+next.outside
	next.scope, next.Since = d.scope.with(next.scope), Scope{Since: d.Since}.with(Scope{Since: next.Since}).Since
	return next
}

// since returns the scope of orders that were created since a time.
func (f *Filter) since(created time.Time) Scope {
	if created.IsZero() || f.opts.Made == nil {
		return Scope{}
	}
	return Scope{Since: created.Add(-f.opts.Margin)}
}

// noteDoubt has Doubted received from.
func (f *Filter) noteDoubt() {
	select {
	case f.doubted <- struct{}{}:
	default: // told already
	}
}

// Doubted is received from after a doubt; a receiver may find that it was cleared.
func (f *Filter) Doubted() <-chan struct{} { return f.doubted }

// Doubts returns what is needed to clear all doubts that there are, and their reason;
// false if there are none.
func (f *Filter) Doubts() (cure Cure, reason string, ok bool) {
	if d := f.doubts.Load(); d != nil {
		return d.cure, d.reason, true
	}
	return 0, "", false
}

// Curable returns what clears all doubts for which nobody is needed; false if there are
// none of those.
func (f *Filter) Curable() (cure Cure, ok bool) {
	if all := f.doubts.Load(); all != nil {
		for _, d := range all.open {
			if d.Cure < Operator {
				cure, ok = max(cure, d.Cure), true
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
		if d.within(upTo) || d.outside == 0 && elsewhere && d.Entry != (Entry{}) && !again {
			open[i].Cure = min(d.Cure, Reading)
		}
	}
	f.doubts.Store(summary(open))
	f.noteDoubt()
}

// DoubtsLast returns for how long no reading can clear all of the doubts that there are:
// orders that they are about may yet be created.
func (f *Filter) DoubtsLast() time.Duration {
	d := f.doubts.Load()
	if d == nil {
		return 0
	}
	return max(0, time.Until(d.over))
}

// soFar says which doubts something can clear that begins now.
type soFar struct {
	number uint64
	at     time.Time
}

func (f *Filter) doubtsSoFar() soFar {
	f.mu.Lock()
	defer f.mu.Unlock()
	return soFar{f.doubtsSeen, time.Now()}
}

// clearDoubts clears the doubts from before the moment of soFar that a cure is good for,
// and bounds the others by what the sources have told of. Whoever clears has added first
// what the doubts were about: who sees no doubt sees the IDs.
func (f *Filter) clearDoubts(before soFar, cure Cure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.doubts.Load()
	if now == nil {
		return
	}
	covered := f.covered()
	var left []openDoubt
	for _, d := range now.open {
		if d.number <= before.number && d.Cure <= cure && !d.over.After(before.at) {
			continue
		}
		if d.Orders {
			d.scope = d.scope.within(covered)
		}
		left = append(left, d)
	}
	f.doubts.Store(summary(left))
	if left == nil {
		f.log.Info("there is no doubt any more, orders count as absent again")
	}
}

// Settle clears the doubts that there are if time clears them: that which passes in
// the call of pass. It returns pass's error.
func (f *Filter) Settle(ctx context.Context, pass func(ctx context.Context) error) error {
	soFar := f.doubtsSoFar()
	if needed, ok := f.Curable(); !ok || needed != Settling {
		return nil
	}
	if err := pass(ctx); err != nil {
		return err
	}
	soFar.at = time.Now() // it is the time that has passed which clears them
	f.clearDoubts(soFar, Settling)
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
	soFar := f.doubtsSoFar()
	if err := f.Include(ctx, read); err != nil {
		return err
	}
	f.clearDoubts(soFar, Operator)
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
type certain struct {
	all   bool
	scope *Scope // what is not, nil if nothing is certain, or all
}

// certain returns what is certain now, as far as the filter was told. It is asked for
// before the bits, and used after.
func (f *Filter) certain() certain {
	s := f.status.Load()
	if s.state != StateReady && (f.opts.Remote == nil || s.final) {
		return certain{}
	}
	d := f.doubts.Load()
	if d == nil {
		return certain{all: true}
	}
	if d.scope.zero() {
		return certain{}
	}
	return certain{scope: &d.scope}
}

// of reports whether it is certain that an ID does not exist which the filter does not
// have.
func (c certain) of(f *Filter, id string) bool {
	return c.all || c.scope != nil && f.leavesOut(c.scope, id)
}
