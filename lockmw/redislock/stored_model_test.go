package redislock

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// storedModel does random steps with locks and stored answers, and compares each result, and
// what Redis has afterwards, with a model of a few maps. It follows that
//
//   - a lock whose answer is stored is granted to none until the answer has ended or is
//     forgotten, so that an effect with a stored answer happens once;
//   - a call finds no answer but that of its own locks and its own name, as it was stored;
//   - a call that got no lock, or has not released it yet, has stored nothing;
//   - what a call or an operator has forgotten does not come back by an earlier call;
//   - what a call is about to undo is given to none until it is known whether it was undone.
type storedModel struct {
	t       *testing.T
	random  *rand.Rand
	client  redis.UniversalClient
	cluster bool
	grouped bool // several locks of one slot are taken by one script
	lossy   *lossyHook
	lockers []*Locker
	keys    []string // sorted
	serial  int
	trace   []string

	holder  map[string]*modelLease           // the call that was granted the lock, by lock
	parts   map[string][]*modelLease         // of the lease: that call and those within it, by lock
	answers map[string]modelAnswer           // by the key of the stored answer
	marks   map[string]map[string]*modelMark // by lock and name
	last    map[string]int64                 // the greatest number of a mark, by lock
	leases  []*modelLease                    // granted, and not released
	unsure  []*modelLease                    // a release of which has failed
}

// modelAnswer is a stored answer.
type modelAnswer struct {
	text   string
	keep   time.Duration
	number int64
}

// modelMark is what calls that undo have left beside a lock.
type modelMark struct {
	below int64
	may   []modelMay // the greatest first
}

// modelMay is what may be undone.
type modelMay struct {
	below int64
	by    *modelLease // nil: several calls
	// during means that it was stored by the call around this one, which has not ended before
	during bool
}

// mostMay is how many calls that undo have a part of a mark of their own, beside the latest. The
// model's scripts have as many: see load.
const mostMay = 1

// upto returns below which number answers may be undone.
func (m *modelMark) upto() int64 {
	if len(m.may) == 0 {
		return 0
	}
	return m.may[0].below
}

// drop removes what a call may undo, and returns its number; 0: there was none.
func (m *modelMark) drop(l *modelLease, during bool) (number int64) {
	m.may = slices.DeleteFunc(m.may, func(may modelMay) bool {
		drops := may.by == l && may.during == during
		if drops {
			number = may.below
		}
		return drops
	})
	return number
}

// add adds what a call may undo.
func (m *modelMark) add(may modelMay) {
	if m.drop(may.by, may.during); len(m.may) > mostMay {
		m.may = m.may[:mostMay]
		m.may[mostMay-1].by = nil
	}
	m.may = slices.Insert(m.may, 0, may)
}

// modelLease is a lease, and what its release does.
type modelLease struct {
	*Lease
	outer       *modelLease // the call that was granted the lock; itself, or the call around it
	keys        []string    // sorted
	name        string      // of the stored answers that it looked for; "": none
	undoes      bool        // it may undo what these report
	text, brief string
	keep        time.Duration
	suspends    []string // names
	forgets     bool     // those
}

func (m *storedModel) note(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

// step does one thing.
func (m *storedModel) step() string {
	switch n := m.random.IntN(100); {
	case n < 33 || len(m.leases)+len(m.unsure) == 0:
		return m.acquire()
	case n < 45 && len(m.leases) > 0:
		return m.enter(m.leases[m.random.IntN(len(m.leases))].outer)
	case n < 60 && len(m.leases) > 0:
		if l := m.leases[m.random.IntN(len(m.leases))]; l.undoes {
			return m.suspend(l)
		}
		return ""
	case n < 75 && len(m.leases) > 0:
		return m.release(take(m.random, &m.leases))
	case n < 85 && len(m.unsure) > 0:
		return m.releaseAgain(take(m.random, &m.unsure))
	case n < 90:
		return m.loseLock()
	case n < 95:
		return m.endAnswer()
	}
	return m.forgetByHand()
}

// take removes a random element from a list.
func take[T any](random *rand.Rand, from *[]T) T {
	i := random.IntN(len(*from))
	v := (*from)[i]
	*from = slices.Delete(*from, i, i+1)
	return v
}

func (m *storedModel) pick(from []string) string { return from[m.random.IntN(len(from))] }

var modelNames = []string{"pay", "refund"}

// groups returns the locks in the order in which they are asked for, those of one script together.
func (m *storedModel) groups(keys []string) (groups [][]string) {
	if !m.grouped {
		return slices.Collect(slices.Chunk(keys, 1))
	}
	if !m.cluster {
		return [][]string{keys}
	}
	keys = slices.SortedStableFunc(slices.Values(keys), func(a, b string) int { return cmp.Compare(slotOf(a), slotOf(b)) })
	for i, key := range keys {
		if i == 0 || slotOf(key) != slotOf(keys[i-1]) {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], key)
	}
	return groups
}

// view returns a stored answer as an operator sees it.
func (m *storedModel) view(key, name string) (a modelAnswer, suspended bool) {
	a = m.answers[StoredKey(key, name)]
	undone, suspended := m.undone(key, name, a.number)
	if a.text == "" || undone {
		return modelAnswer{}, false
	}
	return a, suspended
}

// undone returns whether an answer with a number is undone, and whether it may be.
func (m *storedModel) undone(key, name string, number int64) (undone, maybe bool) {
	for _, field := range []string{AllAnswers, name} {
		if mark := m.marks[key][field]; mark != nil {
			undone, maybe = undone || number < mark.below, maybe || number < mark.upto()
		}
	}
	return undone, maybe
}

// mark returns the mark of a name, or that of all.
func (m *storedModel) mark(key, name string) *modelMark {
	if m.marks[key] == nil {
		m.marks[key] = make(map[string]*modelMark)
	}
	if m.marks[key][name] == nil {
		m.marks[key][name] = new(modelMark)
	}
	return m.marks[key][name]
}

func (m *storedModel) nextMark(p *part) int64 {
	m.last[p.key] = max(m.last[p.key], p.fence) + 1
	return m.last[p.key]
}

// expect returns the answer that an acquire finds, or whether it gets the locks. The text is "" if the
// answer is withheld.
func (m *storedModel) expect(keys []string, name string) (text string, stored, free bool) {
	for _, group := range m.groups(keys) {
		for _, key := range group {
			if a, suspended := m.view(key, name); a.text != "" && name != "" && (!suspended || m.holder[key] == nil) {
				switch missing := m.missing(keys, name); {
				case suspended || slices.ContainsFunc(missing, func(key string) bool { return m.holder[key] == nil }):
					return "", true, false
				case len(missing) > 0: // it may be stored yet
					return "", false, false
				}
				return a.text, true, false
			}
		}
		for _, key := range group {
			if m.holder[key] != nil {
				return "", false, false
			}
		}
	}
	return "", false, true
}

// missing returns the locks without an answer that is given.
func (m *storedModel) missing(keys []string, name string) (missing []string) {
	for _, key := range keys {
		if a, suspended := m.view(key, name); a.text == "" || suspended {
			missing = append(missing, key)
		}
	}
	return missing
}

// suspend has a call begin to undo what the stored answers report.
func (m *storedModel) suspend(l *modelLease) string {
	if l.suspends == nil {
		l.suspends = m.someNames()
	}
	err, lost := l.SuspendAnswers(m.t.Context(), time.Hour, l.suspends...), m.isLost(l)
	m.note("suspend %q of %q: %v", l.suspends, l.keys, err)
	for i := range l.parts {
		p := &l.parts[i]
		if !m.holds(l, p.key) {
			continue
		}
		number := m.nextMark(p)
		for _, name := range l.suspends {
			m.mark(p.key, name).add(modelMay{number, l, false})
		}
	}
	if errors.Is(err, ErrLost) != lost || err != nil && !lost {
		return fmt.Sprintf("a lock of it is lost: %v; suspended: %v", lost, err)
	}
	return ""
}

// someNames returns what a call undoes: the answers of one name, of each, or of all.
func (m *storedModel) someNames() []string {
	return [][]string{{"pay"}, {"refund"}, modelNames, {AllAnswers}}[m.random.IntN(4)]
}

// acquire has a caller ask for one lock or several. Now and then its calls, or the replies to
// them, are lost.
func (m *storedModel) acquire() string {
	keys := []string{m.pick(m.keys)}
	for m.random.IntN(3) == 0 {
		keys = append(keys, m.pick(m.keys))
	}
	l, name := m.lockers[m.random.IntN(2)], m.pick(append(modelNames, "pay", ""))
	mode := loseNothing
	if m.random.IntN(100) == 0 {
		mode = loseCalls + m.random.IntN(2)
	}
	var options []AcquireOption
	if name != "" {
		options = append(options, Stored(name))
	}
	m.lossy.mode.Store(int32(mode))
	lease, err := l.AcquireAll(m.t.Context(), keys, options...)
	m.lossy.mode.Store(loseNothing)
	l.cleanup.Wait()
	m.note("acquire %q as %q (losses %d): %v", keys, name, mode, err)
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	text, stored, free := m.expect(keys, name)
	found, isFound := errors.AsType[*StoredAnswer](err)
	switch {
	case mode != loseNothing:
		if err == nil || isFound || errors.Is(err, ErrBusy) {
			return fmt.Sprintf("without a reply: %v", err)
		}
	case stored:
		if !isFound || found.Withheld != (text == "") || text != "" && found.Text != text {
			return fmt.Sprintf("got %v (%+v) where %q is stored", err, found, text)
		}
	case free:
		if err != nil {
			return fmt.Sprintf("the locks are free, and no answer is stored: %v (%+v)", err, found)
		}
		granted := &modelLease{Lease: lease, keys: keys, name: name, undoes: true} // also if it settles
		granted.outer = granted
		m.leases = append(m.leases, granted)
		for _, key := range keys {
			m.holder[key], m.parts[key] = granted, []*modelLease{granted}
		}
	case !errors.Is(err, ErrBusy):
		return fmt.Sprintf("a lock is taken: %v (%+v)", err, found)
	}
	return ""
}

// enter has a call within a lease ask for one of its locks.
func (m *storedModel) enter(outer *modelLease) string {
	key, l, name := m.pick(outer.keys), m.lockers[m.random.IntN(2)], m.pick(append(modelNames, ""))
	if m.holder[key] != outer {
		return "" // it would be a call like any other
	}
	options, undoes := []AcquireOption{Reenter(outer.Owner())}, false
	if name != "" {
		options = append(options, Stored(name))
	} else if undoes = m.random.IntN(3) > 0; undoes {
		options = append(options, Undoes())
	}
	lease, err := l.Acquire(m.t.Context(), key, options...)
	m.note("acquire %q as %q within %q, undoes %t: %v", key, name, outer.keys, undoes, err)
	a, suspended := m.view(key, name)
	found, isFound := errors.AsType[*StoredAnswer](err)
	excluded := slices.ContainsFunc(m.parts[key], func(p *modelLease) bool {
		return p != outer && (name != "" && (p.name == name || p.undoes) || undoes && p.name != "")
	})
	mine := slices.ContainsFunc(append(slices.Clone(m.mark(key, AllAnswers).may), m.mark(key, name).may...), func(may modelMay) bool {
		return may.by == outer && a.number < may.below // not a call beside it
	})
	switch {
	case name != "" && a.text != "" && (!suspended || !mine):
		if !isFound || found.Withheld != suspended || !suspended && found.Text != a.text {
			return fmt.Sprintf("got %v (%+v) where %q is stored, suspended: %t", err, found, a.text, suspended)
		}
	case excluded:
		if !errors.Is(err, ErrBusy) {
			return fmt.Sprintf("another call has the name, or undoes, or settles: %v (%+v)", err, found)
		}
	case err != nil:
		return fmt.Sprintf("the lease goes on: %v (%+v)", err, found)
	default:
		inner := &modelLease{Lease: lease, outer: outer, keys: []string{key}, name: name, undoes: undoes}
		m.leases, m.parts[key] = append(m.leases, inner), append(m.parts[key], inner)
	}
	return ""
}

// holds reports whether a call has a lock.
func (m *storedModel) holds(l *modelLease, key string) bool {
	return m.holder[key] == l.outer && slices.Contains(m.parts[key], l)
}

// leave has a call give a lock up.
func (m *storedModel) leave(l *modelLease, key string) {
	m.parts[key] = slices.DeleteFunc(m.parts[key], func(p *modelLease) bool { return p == l })
	if len(m.parts[key]) == 0 {
		delete(m.holder, key)
	}
}

// release ends a call: with an answer that is stored, with one that is not, or with one by which
// others are forgotten.
func (m *storedModel) release(l *modelLease) string {
	switch n := m.random.IntN(10); {
	case l.suspends != nil && n < 3:
		l.forgets = true
		l.ForgetAnswers(time.Hour, l.suspends...)
	case l.suspends != nil && n < 4:
		l.suspends = nil
		l.KeepSuspended()
	case l.suspends != nil:
	case l.name != "" && n < 6:
		m.serial++
		l.text, l.brief = fmt.Sprintf("%s of %q, %d", l.name, l.keys, m.serial), fmt.Sprintf("brief %d", m.serial)
		l.keep = []time.Duration{time.Hour, 72 * time.Hour}[m.random.IntN(2)]
		l.StoreAnswer(l.name, l.text, l.brief, l.keep)
	case n < 8 && l.undoes:
		l.suspends, l.forgets = m.someNames(), true
		l.ForgetAnswers(time.Hour, l.suspends...)
	}
	mode := max(loseNothing, m.random.IntN(8)-5)
	m.lossy.mode.Store(int32(mode))
	err := l.Release(m.t.Context())
	m.lossy.mode.Store(loseNothing)
	m.note("release %q, stores %q, suspends %q, forgets: %t (losses %d): %v", l.keys, l.text, l.suspends, l.forgets, mode, err)
	lost := m.isLost(l)
	if mode != loseCalls {
		m.released(l)
	}
	stores := l.text != "" || l.suspends != nil
	switch {
	case lost && !stores: // it may have been noticed before, or not
	case mode != loseNothing:
		if err == nil || errors.Is(err, ErrLost) {
			return fmt.Sprintf("without a reply: %v", err)
		}
		if stores {
			m.unsure = append(m.unsure, l)
		}
	case errors.Is(err, ErrLost) != lost || err != nil && !lost:
		return fmt.Sprintf("a lock of it is lost: %v; released: %v", lost, err)
	}
	return ""
}

func (m *storedModel) releaseAgain(l *modelLease) string {
	lost, err := m.isLost(l), l.ReleaseAgain(m.t.Context())
	m.note("release %q again, stores %q, suspends %q, forgets: %t: %v", l.keys, l.text, l.suspends, l.forgets, err)
	m.released(l)
	if errors.Is(err, ErrLost) != lost || err != nil && !lost {
		return fmt.Sprintf("a lock of it is lost: %v; released again: %v", lost, err)
	}
	return ""
}

// isLost reports whether a lease has lost one of its locks.
func (m *storedModel) isLost(l *modelLease) bool {
	return slices.ContainsFunc(l.keys, func(key string) bool { return !m.holds(l, key) })
}

// released is what a release does that arrives.
func (m *storedModel) released(l *modelLease) {
	first := m.groups(l.keys)[0][0]
	for i := range l.parts {
		p := &l.parts[i]
		holds := m.holds(l, p.key)
		for _, name := range l.suspends {
			mark := m.mark(p.key, name)
			mine := mark.drop(l, false)
			if !l.forgets {
				mark.drop(l, true)
				continue
			}
			if mine == 0 {
				mine = p.fence + 1
			}
			mark.below = max(mark.below, mine)
			mark.may = slices.DeleteFunc(mark.may, func(may modelMay) bool { return may.below <= mark.below })
		}
		if l.text != "" {
			m.stored(l, p, first)
		}
		if holds {
			m.leave(l, p.key)
		}
	}
}

// stored is what a release stores that arrives.
func (m *storedModel) stored(l *modelLease, p *part, first string) {
	number, text := p.fence, l.brief
	if m.holds(l, p.key) {
		number = max(number, m.last[p.key])
	}
	if p.key == first {
		text = l.text
	}
	there, suspended := m.view(p.key, l.name)
	gone, mine := m.undone(p.key, l.name, number)
	if !gone && (there.text == "" || suspended && !mine) {
		m.answers[StoredKey(p.key, l.name)] = modelAnswer{text, l.keep, number}
		for _, name := range []string{AllAnswers, l.name} {
			mark := m.mark(p.key, name)
			for _, may := range slices.Clone(mark.may) {
				if by := may.by; by != nil && !may.during && by != l && by != by.outer && m.holds(by, p.key) {
					mark.add(modelMay{m.nextMark(p), by, true})
				}
			}
		}
	}
}

// loseLock takes a lock from its holder.
func (m *storedModel) loseLock() string {
	key := m.pick(m.keys)
	m.note("%s is lost", key)
	delete(m.holder, key)
	return errorText(m.client.Del(m.t.Context(), key).Err())
}

// endAnswer has the time of a stored answer be over.
func (m *storedModel) endAnswer() string {
	stored := StoredKey(m.pick(m.keys), m.pick(modelNames))
	m.note("%s ends", stored)
	delete(m.answers, stored)
	return errorText(m.client.PExpire(m.t.Context(), stored, 0).Err())
}

func (m *storedModel) forgetByHand() string {
	key, names, there := m.pick(m.keys), modelNames[m.random.IntN(2):], 0
	number, _ := m.client.Get(m.t.Context(), FenceKey(key)).Int64() // or there is none
	granted := number > 0
	if m.holder[key] == nil {
		number = max(number, m.last[key]) + 1
	}
	m.note("forget %q of %s", names, key)
	for _, name := range names {
		if a, _ := m.view(key, name); a.text != "" {
			there++
		}
		if delete(m.answers, StoredKey(key, name)); granted {
			*m.mark(key, name) = modelMark{below: number}
			m.last[key] = max(m.last[key], number)
		}
	}
	if n, err := ForgetStored(m.t.Context(), m.client, key, names...); err != nil || n != there {
		return fmt.Sprintf("forgot %d of %d, error %v", n, there, err)
	}
	return ""
}

// compare looks at all that Redis has.
func (m *storedModel) compare() string {
	taken, left, ctx := make(map[string]*redis.IntCmd), make(map[string]*redis.DurationCmd), m.t.Context()
	marked := make(map[string]*redis.DurationCmd)
	_, err := m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range m.keys {
			taken[key], marked[key] = p.Exists(ctx, key), p.PTTL(ctx, marksKey(key))
			for _, name := range modelNames {
				left[StoredKey(key, name)] = p.PTTL(ctx, StoredKey(key, name))
			}
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	for _, name := range modelNames {
		texts, err := ReadStored(ctx, m.client, name, m.keys...)
		if err != nil {
			return err.Error()
		}
		for i, key := range m.keys {
			want, suspended := m.view(key, name)
			if texts[i] != (StoredText{want.text, suspended}) {
				return fmt.Sprintf("beside %s, %v is stored as %s, want %+v, suspended: %t", key, texts[i], name, want, suspended)
			}
			if left := left[StoredKey(key, name)].Val(); want.text != "" && (left > want.keep || left < want.keep-30*time.Minute) {
				return fmt.Sprintf("%v is kept for %v, want %v", texts[i], left, want.keep)
			} else if marked := marked[key].Val(); left > leastMark && marked < left {
				return fmt.Sprintf("%v is kept for %v, and the marks for %v", texts[i], left, marked)
			}
		}
	}
	for _, key := range m.keys {
		if is := taken[key].Val() == 1; is != (m.holder[key] != nil) {
			return fmt.Sprintf("%s is taken: %v", key, is)
		}
	}
	return ""
}

func errorText(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}
