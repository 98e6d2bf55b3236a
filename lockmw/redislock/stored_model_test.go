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

	holder  map[string]*modelLease // by lock
	answers map[string]modelAnswer // by the key of the stored answer
	leases  []*modelLease          // granted, and not released
	unsure  []*modelLease          // a release of which has failed
}

// modelAnswer is an answer, or what is in its place once it is forgotten.
type modelAnswer struct {
	text      string // "": it is forgotten
	keep      time.Duration
	fence     int64       // of the call that stored or forgot it
	suspender int64       // the fence of the last call that has suspended it; 0: none has
	by        *modelLease // the only call that has
}

// modelLease is a lease, and what its release does.
type modelLease struct {
	*Lease
	keys        []string // sorted
	name        string   // of the stored answers that it looked for; "": none
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
	case n < 45 || len(m.leases)+len(m.unsure) == 0:
		return m.acquire()
	case n < 55 && len(m.leases) > 0:
		return m.suspend(m.leases[m.random.IntN(len(m.leases))])
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

// expect returns the answer that an acquire finds, or whether it gets the locks.
func (m *storedModel) expect(keys []string, name string) (text string, stored, free bool) {
	for _, group := range m.groups(keys) {
		for _, key := range group {
			if a := m.answers[StoredKey(key, name)]; a.text != "" && name != "" && (a.suspender == 0 || a.suspender != m.lastFence(key)) {
				if !m.isGiven(keys, name) {
					return "", true, false
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

// lastFence returns the fence of a lock's holder, -1 if there is none.
func (m *storedModel) lastFence(key string) int64 {
	if l := m.holder[key]; l != nil {
		return l.parts[slices.Index(l.keys, key)].fence
	}
	return -1
}

// isGiven reports whether each lock has an answer that is not suspended.
func (m *storedModel) isGiven(keys []string, name string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool {
		a := m.answers[StoredKey(key, name)]
		return a.text == "" || a.suspender != 0
	})
}

// suspend has a call begin to undo what the stored answers report.
func (m *storedModel) suspend(l *modelLease) string {
	if l.suspends == nil {
		l.suspends = modelNames[m.random.IntN(2):]
	}
	err, lost := l.SuspendAnswers(m.t.Context(), l.suspends...), m.isLost(l)
	m.note("suspend %q of %q: %v", l.suspends, l.keys, err)
	m.eachSuspended(l, func(a *modelAnswer, p *part) {
		if m.holder[p.key] == l && a.text != "" && a.fence <= p.fence {
			if a.suspender == 0 {
				a.by = l
			} else if a.by != l {
				a.by = nil
			}
			a.suspender = p.fence
		}
	})
	if errors.Is(err, ErrLost) != lost || err != nil && !lost {
		return fmt.Sprintf("a lock of it is lost: %v; suspended: %v", lost, err)
	}
	return ""
}

// eachSuspended changes each answer that a lease has suspended, or would.
func (m *storedModel) eachSuspended(l *modelLease, change func(*modelAnswer, *part)) {
	for i := range l.parts {
		for _, name := range l.suspends {
			key := StoredKey(l.parts[i].key, name)
			a := m.answers[key]
			if change(&a, &l.parts[i]); a != (modelAnswer{}) {
				m.answers[key] = a
			}
		}
	}
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
		granted := &modelLease{Lease: lease, keys: keys, name: name}
		m.leases = append(m.leases, granted)
		for _, key := range keys {
			m.holder[key] = granted
		}
	case !errors.Is(err, ErrBusy):
		return fmt.Sprintf("a lock is taken: %v (%+v)", err, found)
	}
	return ""
}

// release ends a call: with an answer that is stored, with one that is not, or with one by which
// others are forgotten.
func (m *storedModel) release(l *modelLease) string {
	switch n := m.random.IntN(10); {
	case l.suspends != nil:
		if l.forgets = n < 5; l.forgets {
			l.ForgetAnswers(l.suspends...)
		}
	case l.name != "" && n < 6:
		m.serial++
		l.text, l.brief = fmt.Sprintf("%s of %q, %d", l.name, l.keys, m.serial), fmt.Sprintf("brief %d", m.serial)
		l.keep = time.Duration(1+m.random.IntN(2)) * time.Hour
		l.StoreAnswer(l.name, l.text, l.brief, l.keep)
	case n < 8:
		l.suspends, l.forgets = modelNames[m.random.IntN(2):], true
		l.ForgetAnswers(l.suspends...)
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
	return slices.ContainsFunc(l.keys, func(key string) bool { return m.holder[key] != l })
}

// released is what a release does that arrives.
func (m *storedModel) released(l *modelLease) {
	first := m.groups(l.keys)[0][0]
	m.eachSuspended(l, func(a *modelAnswer, p *part) {
		mark, fence := a.suspender, p.fence
		if a.text == "" {
			mark = a.fence
		}
		switch {
		case l.forgets && (mark == fence || cmp.Or(mark, a.fence) < fence):
			*a = modelAnswer{fence: fence}
		case !l.forgets && a.by == l:
			a.suspender, a.by = 0, nil
		}
	})
	for i := range l.parts {
		key, fence := l.parts[i].key, l.parts[i].fence
		if m.holder[key] == l {
			delete(m.holder, key)
		}
		if l.text == "" {
			continue
		}
		text := l.brief
		if key == first {
			text = l.text
		}
		there := m.answers[StoredKey(key, l.name)]
		if there.text == "" && there.fence <= fence || there.suspender == fence {
			m.answers[StoredKey(key, l.name)] = modelAnswer{text: text, keep: l.keep, fence: fence}
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
	fence, _ := m.client.Get(m.t.Context(), FenceKey(key)).Int64() // or there is none
	granted := fence > 0
	if m.holder[key] == nil {
		fence++
	}
	m.note("forget %q of %s", names, key)
	for _, name := range names {
		if m.answers[StoredKey(key, name)].text != "" {
			there++
		}
		if delete(m.answers, StoredKey(key, name)); granted {
			m.answers[StoredKey(key, name)] = modelAnswer{fence: fence}
		}
	}
	if n, err := ForgetStored(m.t.Context(), m.client, key, names...); err != nil || n != there {
		return fmt.Sprintf("forgot %d of %d, error %v", n, there, err)
	}
	return ""
}

// compare looks at all that Redis has.
func (m *storedModel) compare() string {
	type found struct {
		taken  *redis.IntCmd
		stored []*redis.StringCmd
		left   []*redis.DurationCmd
	}
	all, ctx := make(map[string]*found), m.t.Context()
	_, err := m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range m.keys {
			f := &found{taken: p.Exists(ctx, key)}
			for _, name := range modelNames {
				f.stored = append(f.stored, p.Get(ctx, StoredKey(key, name)))
				f.left = append(f.left, p.PTTL(ctx, StoredKey(key, name)))
			}
			all[key] = f
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return err.Error()
	}
	for _, key := range m.keys {
		if taken := all[key].taken.Val() == 1; taken != (m.holder[key] != nil) {
			return fmt.Sprintf("%s is taken: %v", key, taken)
		}
		for i, name := range modelNames {
			want, got, left := m.answers[StoredKey(key, name)], readStored(all[key].stored[i].Val()), all[key].left[i].Val()
			if got != (StoredText{want.text, want.suspender != 0}) {
				return fmt.Sprintf("beside %s, %v is stored as %s, want %+v", key, got, name, want)
			}
			if want.keep > 0 && (left > want.keep || left < want.keep-30*time.Minute) {
				return fmt.Sprintf("%v is kept for %v, want %v", got, left, want.keep)
			}
		}
	}
	name := m.pick(modelNames)
	texts, err := ReadStored(ctx, m.client, name, m.keys...)
	for i, key := range m.keys {
		if want := m.answers[StoredKey(key, name)]; err != nil || texts[i] != (StoredText{want.text, want.suspender != 0}) {
			return fmt.Sprintf("read %v, error %v, want %+v of %s", texts, err, want, key)
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
