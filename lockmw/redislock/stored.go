package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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

var forgetScript = redis.NewScript(compose([]string{"common"}, "forget_alone").Text)

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

// StoredKey returns the key of a lock's stored answer, in the lock's cluster slot.
func StoredKey(key, name string) string { return after(key, storedSuffix+":"+name) }

// storing is what the release of a lease does with stored answers.
type storing struct {
	script *redisbatch.Script
	names  []string // of the answers
	// Of one that is stored:
	text, brief string
	first       string // the lock that has the text
	keep        time.Duration
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
	script := l.locker.scripts.store
	if l.meanwhile {
		script = l.locker.scripts.storeSince
	}
	l.onRelease(&storing{
		script: script, names: []string{name},
		text: text, brief: brief, first: first, keep: keep, since: time.Now(),
	})
}

// SuspendAnswers withholds the stored answers by these names from all calls, and lets none act again:
// Acquire returns a [StoredAnswer] that is withheld. Release gives the answers back, unless
// ForgetAnswers was called. After Hold, and when the lease ends by itself, they stay suspended. It
// blocks until Redis has replied or ctx ends. With an error, which wraps [ErrLost] when the lock was
// no longer ours, some may be suspended.
func (l *Lease) SuspendAnswers(ctx context.Context, names ...string) error {
	k := l.locker
	l.onRelease(&storing{script: k.scripts.restore, names: names})
	return k.eachPart(l, func(p *part) error {
		c := redisbatch.NewCall(k.scripts.suspend, p.key)
		for _, name := range names {
			c.Key(StoredKey(p.key, name))
		}
		c.Number(p.fence).Text(k.field(p.owner)).Text(cmp.Or(p.entry, k.field(p.owner)))
		n, err := k.nodes[0].batcher.Do(ctx, c)
		if err == nil && n == 0 {
			err = ErrLost
		}
		return err
	})
}

// ForgetAnswers has the release of the lease delete the stored answers by these names, but not
// those of calls within the lease.
func (l *Lease) ForgetAnswers(names ...string) {
	l.onRelease(&storing{script: l.locker.scripts.forget, names: names})
}

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
	first := c.Keys() + 1
	for _, name := range s.names {
		c.Key(StoredKey(p.key, name))
	}
	owner := l.field(p.owner)
	c.Text(owner).Text(n.publish).Text(Channel(l.opts.Kind, p.key)).Text(cmp.Or(p.entry, owner))
	if s.script != l.scripts.store && s.script != l.scripts.storeSince {
		c.Number(first)
	} else {
		text := s.brief
		if p.key == s.first {
			text = s.text
		}
		left := max(time.Millisecond, s.keep-time.Since(s.since)) // a late attempt keeps it no longer
		if s.script == l.scripts.store {
			text = strconv.FormatInt(p.fence, 10) + " " + text
		}
		c.Text(text).Number(left.Milliseconds())
	}
	c.Number(p.fence)
	if s.script == l.scripts.storeSince {
		c.Number(time.Since(s.since).Microseconds() + 1) // rounded up: it ended before its client saw it
	}
	c.Repeated = 1
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
	stored := readStored(string(found))
	return &StoredAnswer{Text: stored.Text, Withheld: stored.Suspended}
}

// ofAll returns the error of an acquire of several locks that found the stored answer of one: the
// answer is theirs only if each of them has one.
func (l *Locker) ofAll(ctx context.Context, keys []string, name string, found error) error {
	one, ok := errors.AsType[*StoredAnswer](found)
	if !ok || one.Withheld || len(keys) == 1 {
		return found
	}
	texts, err := ReadStored(ctx, l.nodes[0].client, name, keys...)
	if err != nil {
		return err
	}
	all := make([]string, len(texts))
	for i, t := range texts {
		if t.Text == "" || t.Suspended {
			return &StoredAnswer{Withheld: true}
		}
		all[i] = t.Text
	}
	one.All = all
	return one
}

// StoredText is the text of a stored answer.
type StoredText struct {
	Text      string // "": none is stored
	Suspended bool   // a call that undoes it has not ended, or its outcome is unknown
}

// readStored reads what is stored of an answer, without the fence of the call that stored it.
func readStored(stored string) StoredText {
	const digits = "0123456789"
	var t StoredText
	if mark, ok := strings.CutPrefix(stored, "forgotten "); ok && mark != "" && strings.Trim(mark, digits) == "" {
		return t
	}
	if rest, ok := strings.CutPrefix(stored, "suspended "); ok {
		if part := strings.SplitN(rest, " ", 3); len(part) == 3 && part[0] != "" && strings.Trim(part[0], digits) == "" {
			stored, t.Suspended = part[2], true
		}
	}
	t.Text = stored // also if it was stored by hand
	if text := strings.TrimLeft(stored, digits); len(text) < len(stored) && strings.HasPrefix(text, " ") {
		t.Text = text[1:]
	}
	return t
}

func isStored(err error) bool {
	_, ok := errors.AsType[*StoredAnswer](err)
	return ok
}

// ReadStored returns the stored answers of locks by a name, in the order of the locks' keys.
func ReadStored(ctx context.Context, client redis.UniversalClient, name string, keys ...string) ([]StoredText, error) {
	stored, texts := make([]*redis.StringCmd, len(keys)), make([]StoredText, len(keys))
	_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			stored[i] = p.Get(ctx, StoredKey(key, name))
		}
		return nil
	})
	for i, key := range keys {
		text, err := stored[i].Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("reading the stored answer of %s: %w", key, err)
		}
		texts[i] = readStored(text)
	}
	return texts, nil
}

// ForgetStored deletes the stored answers of a lock by these names. It returns how many there
// were.
func ForgetStored(ctx context.Context, client redis.UniversalClient, key string, names ...string) (int, error) {
	keys := []string{key, FenceKey(key)}
	for _, name := range names {
		keys = append(keys, StoredKey(key, name))
	}
	n, err := forgetScript.Run(ctx, client, keys).Int()
	if err != nil {
		return 0, fmt.Errorf("forgetting the stored answer of %s: %w", key, err)
	}
	return n, nil
}
