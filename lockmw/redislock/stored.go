package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

// The answer of a call can be stored beside its lock, for the calls that follow. The script
// that releases the lock stores it, and the script that acquires the lock looks for it. So
// whoever gets the lock finds no answer, and whoever finds one gets no lock. Locks with
// several holders, and locks on several servers, have no stored answers.

// StoredAnswer is the error of an Acquire that found a stored answer in place of a lock: see
// [Stored]. No lock was taken.
type StoredAnswer struct {
	Text string
	// Withheld means that the answer cannot be given: it is suspended, or not all of several
	// locks have one.
	Withheld bool
	All      []string // of several locks: the texts of all of them, in the order of their keys
}

// Error implements error. It does not quote the answer.
func (a *StoredAnswer) Error() string { return "the answer of an earlier call is stored" }

var (
	forgetScript = sync.OnceValue(func() *redis.Script { return redis.NewScript(compose([]string{"common"}, "forget_alone").Text) })
	undoScript   = composed([]string{"common"}, "undo_alone")
	foundScript  = composed([]string{"common"}, "found")
)

// errNoStore is the error of a Locker whose locks have no stored answers.
var errNoStore = errors.New("locks with several holders or servers have no stored answers")

// Stored looks for a stored answer by its name before the lock is taken, in the same script.
// If there is one, Acquire returns it as [*StoredAnswer]. A call within a lease ([Reenter])
// looks for one too: the outer call may be another kind of call.
func Stored(name string) AcquireOption { return AcquireOption{stored: name} }

// StoredSince is Stored for answers that say nothing to later callers: only one that was stored
// after this time counts. The lease's own answer replaces an older one. A caller that takes the
// lock must have begun after the call before it has passed its answer on. A call within a lease
// looks for none.
func StoredSince(name string, since time.Time) AcquireOption {
	return AcquireOption{stored: name, since: since}
}

// Undoes says that the call may undo what stored answers report. Of the calls within one lease
// ([Reenter]), none that undoes runs beside one that settles: the later one gets [ErrBusy].
func Undoes() AcquireOption { return AcquireOption{undoes: true} }

// Settles says that the call settles, of one whose answer is stored elsewhere than by the name of
// [Stored].
func Settles() AcquireOption { return AcquireOption{settles: true} }

// StoredKey returns the key of a lock's stored answer, in the lock's cluster slot.
func StoredKey(key, name string) string { return after(key, storedSuffix+":"+name) }

// marksKey returns the key of a lock's marks, in the lock's cluster slot: see lua/common.lua.
func marksKey(key string) string { return after(key, marksSuffix) }

// leastMark is how long a mark lasts at the least: see lua/together.lua.
const leastMark = 24 * time.Hour

// AllAnswers stands for the stored answers of all names.
const AllAnswers = "*"

// storing is what the release of a lease does with stored answers.
type storing struct {
	script *redisbatch.Script
	names  []string      // of the answers, or AllAnswers
	keep   time.Duration // of what is stored, or of a mark
	// Of an answer that is stored:
	text, brief string
	first       string    // the lock that has the text
	since       time.Time // of keep
}

// StoreAnswer has the release of the lease store an answer by this name, for so long. Of
// several locks, the first that a call asks for has the text, and the others have the brief:
// the next call for any of them finds the text first if it names the same locks. Call it
// once, before Release. A release that fails may be repeated: see ReleaseAgain.
func (l *Lease) StoreAnswer(name, text, brief string, keep time.Duration) {
	first := l.Key()
	if len(l.parts) > 1 {
		first = l.locker.groups(l.keys())[0][0]
	}
	script, o := l.locker.scripts.storeLong, &l.locker.opts
	outlives := keep > leastMark || o.FenceLife > 0 && (time.Since(l.since)+keep > o.FenceLife || l.hasEntry())
	switch {
	case l.meanwhile:
		script = l.locker.scripts.storeSince
	case o.FencesUnused || !outlives: // nothing marks answers beside such a lock, or a mark lasts longer
		script = l.locker.scripts.store
	}
	l.onRelease(&storing{
		script: script, names: []string{name},
		text: text, brief: brief, first: first, keep: keep, since: time.Now(),
	})
}

// SuspendAnswers withholds the stored answers by these names from all calls, and lets none act again:
// Acquire returns a [StoredAnswer] that is withheld. That holds for answers that are stored meanwhile by
// earlier calls, too, for keep, a day at the least. Release gives the answers back, unless
// ForgetAnswers or KeepSuspended was called. After Hold, and when the lease ends by itself, they stay suspended, for keep. It blocks until Redis has
// replied or ctx ends. With an error, which wraps [ErrLost] when the lock was no longer ours, some may be
// suspended.
func (l *Lease) SuspendAnswers(ctx context.Context, keep time.Duration, names ...string) error {
	k := l.locker
	keep = max(keep, leastMark)
	l.onRelease(&storing{script: k.scripts.restore, names: names, keep: keep})
	return k.eachPart(l, func(p *part) error {
		owner := k.field(p.owner)
		c := redisbatch.NewCall(k.scripts.suspend, p.key).Key(marksKey(p.key))
		c.Text(owner).Text(cmp.Or(p.entry, owner)).Number(p.fence).Number(keep.Milliseconds())
		for _, name := range names {
			c.Text(name)
		}
		c.Confirm = true
		n, err := k.nodes[0].batcher.Do(ctx, c)
		if err == nil && n == 0 {
			err = ErrLost
		}
		return err
	})
}

// ForgetAnswers has the release of the lease delete the stored answers by these names, but not
// those of calls within the lease. Earlier calls store none for as long as keep says.
func (l *Lease) ForgetAnswers(keep time.Duration, names ...string) {
	l.onRelease(&storing{script: l.locker.scripts.forget, names: names, keep: max(keep, leastMark)})
}

// KeepSuspended has the release of the lease leave suspended what SuspendAnswers has suspended.
func (l *Lease) KeepSuspended() { l.onRelease(nil) }

func (l *Lease) onRelease(s *storing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.storing = s
}

// keys returns the sorted keys of the lease.
func (l *Lease) keys() []string {
	keys := make([]string, len(l.parts))
	for i := range l.parts {
		keys[i] = l.parts[i].key
	}
	return keys
}

// ReleaseAgain repeats a Release that failed, so that its answer is stored after all. The
// error wraps [ErrLost] once the lease has ended by itself: the answer is stored then, if
// Redis has replied. For any other error, call it again.
func (l *Lease) ReleaseAgain(ctx context.Context) error {
	err := l.locker.releaseLease(ctx, l)
	if errors.Is(err, ErrLost) {
		l.countLoss()
	}
	if err != nil {
		return fmt.Errorf("releasing lock %s: %w", l.Key(), err)
	}
	return nil
}

// EndsAt returns the time at which a lease that was given up ends by itself, at the latest.
func (l *Lease) EndsAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// stores returns what the release does with stored answers; nil: nothing.
func (l *Lease) stores() *storing {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.storing
}

// releaseStoringCall is the release of a part of a lease that also changes stored answers.
func (l *Locker) releaseStoringCall(n *node, p *part, s *storing) *redisbatch.ScriptCall {
	c := redisbatch.NewCall(s.script, p.key).Key(after(p.key, recordSuffix))
	l.kindKeys(c, p.key)
	stores := s.script == l.scripts.store || s.script == l.scripts.storeLong || s.script == l.scripts.storeSince
	if s.script == l.scripts.storeLong {
		c.Key(FenceKey(p.key))
	}
	if stores {
		c.Key(StoredKey(p.key, s.names[0]))
	} else {
		c.Key(marksKey(p.key))
	}
	owner := l.field(p.owner)
	c.Text(owner).Text(n.publish).Text(Channel(l.opts.Kind, p.key)).Text(cmp.Or(p.entry, owner))
	if !stores {
		c.Number(p.fence).Number(s.keep.Milliseconds())
		for _, name := range s.names {
			c.Text(name)
		}
	} else {
		text := s.brief
		if p.key == s.first {
			text = s.text
		}
		left := max(time.Millisecond, s.keep-time.Since(s.since)) // a late attempt keeps it no longer
		c.Text(text).Number(left.Milliseconds()).Number(p.fence)
	}
	if s.script == l.scripts.storeSince {
		c.Number(time.Since(s.since).Microseconds() + 1) // rounded up: it ended before its client saw it
	}
	c.Confirm, c.Repeated = true, 1
	return c
}

// releaseStoring releases a part and changes stored answers.
func (l *Locker) releaseStoring(ctx context.Context, p *part, s *storing) error {
	n := l.nodes[0]
	r, err := n.batcher.Do(ctx, l.releaseStoringCall(n, p, s))
	return l.releasedStoring(p, released(r), err)
}

// releasedStoring is releasedPart for a release that changed stored answers. Waiters of this
// process do not rely on the message: each of them finds the answer.
func (l *Locker) releasedStoring(p *part, r released, err error) error {
	err = l.releasedPart(p, r, err)
	if err == nil {
		l.waiters.wake(Channel(l.opts.Kind, p.key))
	}
	return err
}

// asStored returns the stored answer that an acquire found, if that is what the error says.
func asStored(err error) error {
	found, ok := errors.AsType[redisbatch.TextAnswer](err)
	if !ok {
		return nil
	}
	if found == "SUSPENDED" {
		return &StoredAnswer{Withheld: true}
	}
	text, _ := readStored(string(found))
	return &StoredAnswer{Text: text}
}

// StoredText is the text of a stored answer.
type StoredText struct {
	Text      string // "": none is stored
	Suspended bool   // a call that undoes it has not ended, or its outcome is unknown
}

// readStored returns a stored answer and its number: see lua/common.lua. One that was stored by hand has
// none.
func readStored(stored string) (text string, number int64) {
	const digits = "0123456789"
	if text = strings.TrimLeft(stored, digits); len(text) < len(stored) && strings.HasPrefix(text, " ") {
		number, _ = strconv.ParseInt(stored[:len(stored)-len(text)], 10, 64)
		return text[1:], number
	}
	return stored, 0
}

// readMark reads a mark as lua/common.lua does: the answers with lower numbers than below are undone,
// and those with lower numbers than upto may be.
func readMark(value any) (below, upto int64) {
	text, _ := value.(string)
	if parts := strings.Fields(text); len(parts) > 1 {
		upto, _ = strconv.ParseInt(parts[0], 10, 64)
		text = parts[len(parts)-1]
	}
	below, _ = strconv.ParseInt(text, 10, 64)
	return below, upto
}

// judge returns whether marks say that the answer with a number is undone, or may be.
func judge(marks []any, number int64) (undone, maybe bool) {
	for _, value := range marks {
		below, upto := readMark(value)
		undone, maybe = undone || number < below, maybe || number < upto
	}
	return undone, maybe
}

func isStored(err error) bool {
	_, ok := errors.AsType[*StoredAnswer](err)
	return ok
}

// ReadStored returns the stored answers of locks by a name, in the order of the locks' keys.
func ReadStored(ctx context.Context, client redis.UniversalClient, name string, keys ...string) ([]StoredText, error) {
	stored, marks, texts := make([]*redis.StringCmd, len(keys)), make([]*redis.SliceCmd, len(keys)), make([]StoredText, len(keys))
	_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			stored[i], marks[i] = p.Get(ctx, StoredKey(key, name)), p.HMGet(ctx, marksKey(key), AllAnswers, name)
		}
		return nil
	})
	for i, key := range keys {
		text, err := stored[i].Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err == nil {
			err = marks[i].Err()
		}
		if err != nil {
			return nil, fmt.Errorf("reading the stored answer of %s: %w", key, err)
		}
		var number int64
		texts[i].Text, number = readStored(text)
		undone, maybe := judge(marks[i].Val(), number)
		if texts[i].Suspended = maybe; undone {
			texts[i] = StoredText{}
		}
	}
	return texts, nil
}

// UndoneSince reports whether a call after the one with these fences, one for each lock, has undone what
// that one did under any of the locks, or may have, and so has forgotten the stored answers by this name or
// suspended them. Without a name, only what undoes all names counts.
func UndoneSince(ctx context.Context, client redis.UniversalClient, fences []int64, name string, keys ...string) (bool, error) {
	marks := make([]*redis.SliceCmd, len(keys))
	_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			marks[i] = p.HMGet(ctx, marksKey(key), AllAnswers, cmp.Or(name, AllAnswers))
		}
		return nil
	})
	for i, key := range keys {
		if err := marks[i].Err(); err != nil {
			return false, fmt.Errorf("reading whether %s was undone: %w", key, err)
		}
		if undone, maybe := judge(marks[i].Val(), fences[i]); undone || maybe {
			return true, nil
		}
	}
	return false, nil
}

// GreatestMarks returns the greatest number of a mark beside each lock: an answer with this number counts.
func GreatestMarks(ctx context.Context, client redis.UniversalClient, keys ...string) ([]int64, error) {
	numbers, found := make([]int64, len(keys)), make([]*redis.StringCmd, len(keys))
	_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			found[i] = p.HGet(ctx, marksKey(key), "")
		}
		return nil
	})
	for i, key := range keys {
		var err error
		if numbers[i], err = found[i].Int64(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("reading the marks of %s: %w", key, err)
		}
	}
	return numbers, nil
}

// ForgetStored deletes the stored answers of a lock by these names. It returns how many there
// were.
func ForgetStored(ctx context.Context, client redis.UniversalClient, key string, names ...string) (int, error) {
	keys, args := []string{key, FenceKey(key), marksKey(key)}, []any{time.Hour.Milliseconds()}
	for _, name := range names {
		keys, args = append(keys, StoredKey(key, name)), append(args, name)
	}
	n, err := forgetScript().Run(ctx, client, keys, args...).Int()
	if err != nil {
		return 0, fmt.Errorf("forgetting the stored answer of %s: %w", key, err)
	}
	return n, nil
}

// UndoStep is what a call without the lock does to stored answers that it undoes.
type UndoStep string

// The steps. The first comes before what the call does, and one of the others behind that.
const (
	UndoBegins UndoStep = "suspend"
	UndoDone   UndoStep = "forget"
	UndoFailed UndoStep = "restore"
	UndoLeft   UndoStep = "keep" // the outcome is unknown: the answers stay suspended
)

// MarkUndone marks the stored answers of a lock by these names, for a call without the lock, which has one
// name in all its steps. Replicas confirm it as they do a grant.
func (l *Locker) MarkUndone(ctx context.Context, step UndoStep, call, key string, keep time.Duration, names ...string) error {
	c := redisbatch.NewCall(undoScript(), key).Key(FenceKey(key)).Key(marksKey(key)).Key(marksKey(key) + ":" + call)
	c.Text(string(step)).Text(call).Number(max(keep, leastMark).Milliseconds())
	for _, name := range names {
		c.Text(name)
	}
	c.Confirm = true
	if _, err := l.nodes[0].batcher.Do(ctx, c); err != nil {
		return fmt.Errorf("marking the stored answers of %s: %w", key, err)
	}
	return nil
}
