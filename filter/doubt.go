package filter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Doubt says that the filter may lack orders. They were created before the doubt, or will be
// within Late. No ID in the doubt's scope is absent until the doubt is cleared.
type Doubt struct {
	Reason string // one line
	// Recovery is the action that clears the doubt if the sources may lack orders. If they are
	// [Options.Live], a reload clears every doubt.
	Recovery Recovery
	// Late is the time in which the orders may still be created; 0: they exist. Only a reload
	// that begins later clears the doubt.
	Late time.Duration

	// Orders means that the doubt is about created orders, not about the contents of the
	// sources. [Options.Covered] bounds its scope. Any other doubt removes that bound.
	Orders bool
	// Since is when the first of the orders was created at the earliest; zero: that is not
	// known.
	Since time.Time

	// Witness is the ID of an order that exists although the filter lacks it; "": there is none.
	// A doubt with one is cleared only once the filter has it.
	Witness string

	// Entry is where the doubt stands in the change log; zero: it does not, or the log has
	// yet to bring it.
	Entry Entry
}

// Entry is the position of an entry in a change log.
type Entry struct {
	Log    string // identity of the log
	Number uint64 // from 1
	Nonce  string // differs if the log has lost the entry, and reuses the number
}

// Scope is the set of IDs that a doubt is about. The zero Scope is all IDs.
type Scope struct {
	// Above excludes the decimal numbers from 0 to this; 0: none.
	Above uint64
	// Since excludes the IDs that show an earlier time, see [Options.CreatedBefore]; zero:
	// none.
	Since time.Time
}

// Recovery is the action that clears a doubt. A greater one clears the smaller ones too.
type Recovery int8

// The recoveries.
const (
	ByWaiting  Recovery = iota // a wait in which the other instances report what they have
	ByReload                   // a reload of the sources, whatever they are
	ByOperator                 // a reload after which an operator declares that the sources have every order
)

// maxDoubts is the number of doubts that the filter keeps apart, with and without an entry in
// the change log. A further one is merged with the last of its kind. The merged doubt is
// cleared with the later of the two.
const maxDoubts = 64

// openDoubts are the doubts that are not cleared. The value is replaced, not changed.
type openDoubts struct {
	open         []openDoubt // in order of arrival
	reason       string      // of the last one
	recovery     Recovery    // the greatest of them
	lastCreation time.Time   // when the last of their orders has been created
	scope        Scope       // union of the scopes
}

// openDoubt is one doubt, or several merged ones.
type openDoubt struct {
	Doubt
	first, number uint64    // numbers of its first and last doubt
	lastCreation  time.Time // when the last of its orders has been created
	scope         Scope
	own           bool // a create of this process found it, and the log may not have it yet
	unlogged      int  // how many of the merged doubts have no entry in the change log
}

// summarize returns the open doubts with their summary, nil if there are none.
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

// union returns a scope with the IDs of both.
func (s Scope) union(other Scope) Scope {
	s.Above = min(s.Above, other.Above)
	if other.Since.Before(s.Since) {
		s.Since = other.Since
	}
	return s
}

// intersect returns a scope without the IDs that either excludes.
func (s Scope) intersect(other Scope) Scope {
	return Scope{max(s.Above, other.Above), later(s.Since, other.Since)}
}

// isAll reports whether the scope excludes nothing.
func (s Scope) isAll() bool { return s.Above == 0 && s.Since.IsZero() }

// String describes the scope.
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

// isOutside reports whether an ID is certainly outside a scope.
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

// maxDigits is the length of a number that always fits into a uint64.
const maxDigits = 19

// number returns an ID that is a plain decimal number, without leading zeros.
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

// coveredScope returns the scope of the orders that the sources may lack.
func (f *Filter) coveredScope() Scope {
	if f.opts.Covered == nil || f.opts.Remote != nil { // a remote set may have lost IDs too
		return Scope{}
	}
	covered := f.opts.Covered()
	if f.opts.CreatedBefore == nil {
		covered.Since = time.Time{}
	}
	return covered
}

// Doubt makes each miss in the doubt's scope Unknown until the doubt is cleared. It applies to
// every MayContain that loads its window after the call. It never blocks.
func (f *Filter) Doubt(d Doubt) { f.addDoubt(d, false) }

// addDoubt is Doubt, and returns the number of the doubt. Own marks a doubt of this process's
// creates: setEntry adds its entry later.
func (f *Filter) addDoubt(d Doubt, own bool) (number uint64) {
	if now := time.Now(); d.Since.After(now) {
		d.Since = now // the clock of the other instance is ahead
	}
	if f.opts.Live {
		d.Recovery = min(d.Recovery, ByReload)
	}
	f.mu.Lock()
	if slices.Contains(f.ownEntries, d.Entry) {
		f.mu.Unlock()
		return 0 // it is here since before the log had it, or was cleared by a later reading
	}
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

// isUnlogged reports whether the doubt has no entry in the change log, and will get none.
func (d *openDoubt) isUnlogged() bool { return d.Entry == (Entry{}) && !d.own }

// isSame reports whether a doubt from the change log is one that is open already, of another
// process. Two doubts of creates can look alike.
func (d *openDoubt) isSame(other openDoubt) bool {
	if d.Entry == (Entry{}) || other.first != other.number ||
		d.Reason != other.Reason || !d.Since.Equal(other.Since) || d.Orders != other.Orders {
		return false
	}
	return d.Entry == other.Entry || other.Entry == Entry{} && !other.own
}

// setEntry sets the entry of a doubt. The change log may have brought the doubt already: that one is
// dropped, since a reading that has begun between the two would not clear it.
func (f *Filter) setEntry(number uint64, at Entry) {
	f.mu.Lock()
	if len(f.ownEntries) == maxDoubts {
		f.ownEntries = slices.Delete(f.ownEntries, 0, 1)
	}
	f.ownEntries = append(f.ownEntries, at)
	f.mu.Unlock()
	f.revise(func(open []openDoubt) []openDoubt {
		open = slices.DeleteFunc(open, func(d openDoubt) bool { return d.Entry == at && d.first == d.number })
		for i := range open {
			if d := &open[i]; d.first <= number && number <= d.number && d.unlogged > 0 {
				d.setEntry(at, 1, f.confirmed)
				break
			}
		}
		return open
	})
}

// setEntries is setEntry for all doubts up to a number, which share one entry.
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

// revise replaces the open doubts, if there are any, by the result of change on a copy.
func (f *Filter) revise(change func(open []openDoubt) []openDoubt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.doubts.Load(); now != nil {
		f.doubts.Store(summarize(change(slices.Clone(now.open))))
		f.signalDoubt()
	}
}

// setEntry records that the log has n of the merged doubts, up to an entry. A confirmation may
// have come earlier than the entry.
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

// within reports whether the log has all of it, up to an entry.
func (d *openDoubt) within(upTo Entry) bool {
	return d.unlogged == 0 && d.Entry.Log == upTo.Log && d.Entry.Number <= upTo.Number
}

// merge returns two doubts as one. The second is the later one.
func (d openDoubt) merge(next openDoubt) openDoubt {
	next.Recovery, next.lastCreation, next.Orders = max(d.Recovery, next.Recovery), later(d.lastCreation, next.lastCreation), d.Orders && next.Orders
	if next.Entry == (Entry{}) {
		next.Entry = d.Entry
	}
	if next.Witness == "" {
		next.Witness = d.Witness
	}
	next.first, next.unlogged = d.first, d.unlogged+next.unlogged
	next.scope, next.Since = d.scope.union(next.scope), Scope{Since: d.Since}.union(Scope{Since: next.Since}).Since
	return next
}

// createdSince returns the scope of orders that were created since a time.
func (f *Filter) createdSince(created time.Time) Scope {
	if created.IsZero() || f.opts.CreatedBefore == nil {
		return Scope{}
	}
	return Scope{Since: created.Add(-f.opts.ClockMargin)}
}

// signalDoubt makes DoubtAdded ready to receive.
func (f *Filter) signalDoubt() {
	select {
	case f.doubtAdded <- struct{}{}:
	default: // the signal is pending
	}
}

// DoubtAdded receives a value after a doubt. The doubt may be cleared by then.
func (f *Filter) DoubtAdded() <-chan struct{} { return f.doubtAdded }

// Doubts returns the recovery that clears all open doubts, and the last reason; false: there
// are none.
func (f *Filter) Doubts() (cure Recovery, reason string, ok bool) {
	if d := f.doubts.Load(); d != nil {
		return d.recovery, d.reason, true
	}
	return 0, "", false
}

// DoubtedScope returns the IDs that the open doubts are about; false: there are no doubts.
func (f *Filter) DoubtedScope() (scope Scope, ok bool) {
	if d := f.doubts.Load(); d != nil {
		return d.scope, true
	}
	return Scope{}, false
}

// OnlyAbandoned reports whether all open doubts are about calls that were abandoned and may still
// create their orders. Each client can bring them about by leaving.
func (f *Filter) OnlyAbandoned() bool {
	all := f.doubts.Load()
	return all != nil && !slices.ContainsFunc(all.open, func(d openDoubt) bool { return !d.Orders || d.Late == 0 })
}

// Recoverable returns the recovery that clears all doubts that need no operator; false: there
// are none of those.
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

// Confirm records that the sources have every order of the doubts up to an entry. Another
// instance has declared it, after a reload that began when the log had been read up to there.
// Those doubts, and the doubts of earlier logs, then need [ByReload] at most. Again marks a
// declaration from an earlier time: it does not apply to doubts of other logs.
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

// UntilClearable returns the time until a reload can clear all open doubts: until then their
// orders may still be created.
func (f *Filter) UntilClearable() time.Duration {
	d := f.doubts.Load()
	if d == nil {
		return 0
	}
	return max(0, time.Until(d.lastCreation))
}

// doubtMark marks the doubts that an action which begins now can clear.
type doubtMark struct {
	number uint64
	at     time.Time
}

func (f *Filter) markDoubts() doubtMark {
	f.mu.Lock()
	defer f.mu.Unlock()
	return doubtMark{f.doubtsSeen, time.Now()}
}

// clearDoubts clears the doubts before the mark that a recovery is good for. It bounds the
// others by what the sources cover. The caller has added the IDs of the doubts before: a lookup
// that sees no doubt sees the IDs. A doubt whose witness the filter still lacks stays, for an
// operator: another reading of the same sources would not help.
func (f *Filter) clearDoubts(ctx context.Context, before doubtMark, cure Recovery) {
	lacks := f.lackedWitnesses(ctx)
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
			if d.Witness == "" || !lacks[d.Witness] {
				continue
			}
			d.Recovery = ByOperator
		}
		if d.Orders {
			d.scope = d.scope.intersect(covered)
		}
		left = append(left, d)
	}
	f.doubts.Store(summarize(left))
	if left == nil {
		f.log.Info("there is no doubt left, orders can be absent again")
	}
}

// WaitForPeers clears the open doubts if they need only time: the time of the call of pass. It
// returns pass's error.
func (f *Filter) WaitForPeers(ctx context.Context, pass func(ctx context.Context) error) error {
	soFar := f.markDoubts()
	if needed, ok := f.Recoverable(); !ok || needed != ByWaiting {
		return nil
	}
	if err := pass(ctx); err != nil {
		return err
	}
	soFar.at = time.Now() // the time has passed by now
	f.clearDoubts(ctx, soFar, ByWaiting)
	return nil
}

// CatchUp clears the open doubts by a read that begins now. It reads the new part of the
// sources, which must have every order that was created before the call. It adds the IDs here
// and to the remote set. It returns read's first error. A doubt that arrives during the call
// stays.
func (f *Filter) CatchUp(ctx context.Context, read func(ctx context.Context, add func(id string) error) error) error {
	if _, _, ok := f.Doubts(); !ok {
		return nil
	}
	return f.Reload(ctx, read)
}

// Reload reads sources while the filter keeps answering, and clears all doubts from before the
// call. It adds the IDs here and to the remote set. It returns read's first error.
func (f *Filter) Reload(ctx context.Context, read func(ctx context.Context, add func(id string) error) error) error {
	soFar := f.markDoubts()
	if err := f.Include(ctx, read); err != nil {
		return err
	}
	f.clearDoubts(ctx, soFar, ByOperator)
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

// remoteBatch is the number of IDs in one call of Remote.Add.
const remoteBatch = 500

// certainty is the scope of certain misses, as of a time before the bits were read.
type certainty struct {
	all   bool
	scope *Scope // the uncertain IDs; nil: nothing is certain, or everything
}

// certainty returns the present certainty. Callers get it before they read the bits, and use it
// after.
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

// isCertain reports whether an ID that the filter lacks certainly does not exist.
func (c certainty) isCertain(f *Filter, id string) bool {
	return c.all || c.scope != nil && f.isOutside(c.scope, id)
}
