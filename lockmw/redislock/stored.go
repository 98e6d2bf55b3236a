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
type StoredAnswer struct{ Text string }

// Error implements error. It does not quote the answer.
func (a *StoredAnswer) Error() string { return "the answer of an earlier call is stored" }

var forgetScript = redis.NewScript(compose([]string{"common"}, "forget_alone").Text)

// errNoStore is the error of a Locker whose locks have no stored answers.
var errNoStore = errors.New("locks with several holders or servers have no stored answers")

// Stored looks for a stored answer by its name before the lock is taken, in the same script.
// If there is one, Acquire returns it as [*StoredAnswer]. A call within a lease ([Reenter])
// looks for one too: the outer call may be another kind of call.
func Stored(name string) AcquireOption { return AcquireOption{stored: name} }

// StoredKey returns the key of a lock's stored answer, in the lock's cluster slot.
func StoredKey(key, name string) string { return after(key, storedSuffix+":"+name) }

// storing is what the release of a lease does with stored answers.
type storing struct {
	name        string
	text, brief string
	keep        time.Duration
	since       time.Time // of keep
	forget      []string  // names; not with the above
}

// StoreAnswer has the release of the lease store an answer by this name, for so long. Of
// several locks, the first in each cluster slot has the text and the others have the brief:
// the next call for any of them finds the text first if it names the same locks. Call it
// once, before Release. A release that fails may be repeated: see ReleaseAgain.
func (l *Lease) StoreAnswer(name, text, brief string, keep time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.storing = &storing{name: name, text: text, brief: brief, keep: keep, since: time.Now()}
}

// ForgetAnswers has the release of the lease delete the stored answers by these names.
func (l *Lease) ForgetAnswers(names ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.storing = &storing{forget: names}
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
func (l *Locker) releaseStoringCall(n *node, lease *Lease, p *part, s *storing) *redisbatch.ScriptCall {
	script, names := l.scripts.store, []string{s.name}
	if s.forget != nil {
		script, names = l.scripts.forget, s.forget
	}
	c := redisbatch.NewCall(script, p.key).Key(after(p.key, recordSuffix))
	l.kindKeys(c, p.key)
	first := c.Keys() + 1
	for _, name := range names {
		c.Key(StoredKey(p.key, name))
	}
	owner := l.field(p.owner)
	c.Text(owner).Text(n.publish).Text(Channel(l.opts.Kind, p.key)).Text(cmp.Or(p.entry, owner))
	if s.forget != nil {
		c.Number(first)
	} else {
		left := max(time.Millisecond, s.keep-time.Since(s.since)) // a late attempt keeps it no longer
		c.Text(strconv.FormatInt(p.fence, 10) + " " + lease.textFor(p, s)).Number(left.Milliseconds())
	}
	c.Number(p.fence)
	c.Repeated = 1
	return c
}

// textFor returns the text that is stored beside a part: the first part in each slot has the
// whole.
func (l *Lease) textFor(p *part, s *storing) string {
	cluster := l.locker.nodes[0].cluster != nil
	for i := range l.parts {
		other := &l.parts[i]
		if other == p {
			return s.text
		}
		if !cluster || slotOf(other.key) == slotOf(p.key) {
			return s.brief
		}
	}
	return s.text
}

// releaseStoring releases a part and changes stored answers.
func (l *Locker) releaseStoring(ctx context.Context, lease *Lease, p *part, s *storing) error {
	n := l.nodes[0]
	r, err := n.batcher.Do(ctx, l.releaseStoringCall(n, lease, p, s))
	err = l.releasedPart(p, released(r), err)
	l.stored(p, err)
	return err
}

// stored acts on the release of a part that changed stored answers. Waiters of this process do
// not rely on the message: each of them finds the answer.
func (l *Locker) stored(p *part, err error) {
	if err == nil {
		l.waiters.wake(Channel(l.opts.Kind, p.key))
	}
}

// asStored returns the stored answer that an acquire found, if that is what the error says.
func asStored(err error) error {
	if text, ok := errors.AsType[redisbatch.TextAnswer](err); ok {
		return &StoredAnswer{Text: withoutFence(string(text))}
	}
	return nil
}

// withoutFence returns the text of an answer, without the fence of the call that stored it: ""
// of one that is forgotten.
func withoutFence(stored string) string {
	const digits = "0123456789"
	if mark, ok := strings.CutPrefix(stored, "forgotten "); ok && mark != "" && strings.Trim(mark, digits) == "" {
		return ""
	}
	if text := strings.TrimLeft(stored, digits); len(text) < len(stored) && strings.HasPrefix(text, " ") {
		return text[1:]
	}
	return stored // it was stored by hand
}

func isStored(err error) bool {
	_, ok := errors.AsType[*StoredAnswer](err)
	return ok
}

// ReadStored returns the stored answers of a lock by these names, in their order; "" where
// there is none.
func ReadStored(ctx context.Context, client redis.UniversalClient, key string, names ...string) ([]string, error) {
	texts := make([]string, len(names))
	for i, name := range names {
		stored, err := client.Get(ctx, StoredKey(key, name)).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("reading the stored answer of %s: %w", key, err)
		}
		texts[i] = withoutFence(stored)
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
