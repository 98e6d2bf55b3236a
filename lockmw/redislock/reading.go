package redislock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

// reading reads the stored answers of an acquire's locks again, after it has found one of them. The
// answer of several locks is theirs only if each of them has one. The call that stores them releases its
// locks one after the other, so the answer of a lock that is taken is waited for. An answer is given once
// replicas confirm that this server has it: a primary that is cut off does not know what was undone.
type reading struct {
	locker *Locker
	ctx    context.Context // the caller's, for as long as this exists
	keys   []string        // of the locks, sorted
	opts   AcquireOption
	end    time.Time // of the wait
	then   func(*Lease, error)
}

// readsAgain reports whether an error of an acquire is a stored answer that has to be read again.
func (l *Locker) readsAgain(keys []string, err error) bool {
	return isGiven(err) && (len(keys) > 1 || l.opts.Replicas > 0)
}

func (r *reading) read() {
	l := r.locker
	texts, taken, errs := make([]string, len(r.keys)), make([]bool, len(r.keys)), make([]error, len(r.keys))
	var wg sync.WaitGroup
	for i, key := range r.keys {
		wg.Go(func() { texts[i], taken[i], errs[i] = l.readFound(r.ctx, key, r.opts.stored) })
	}
	wg.Wait()
	if err := cmp.Or(errs...); err != nil {
		r.then(nil, err)
		return
	}
	wait := ""
	for i, key := range r.keys {
		switch {
		case texts[i] != "":
		case !taken[i]:
			r.then(nil, &StoredAnswer{Withheld: true})
			return
		default:
			wait = cmp.Or(wait, key)
		}
	}
	if wait != "" {
		l.take(r.ctx, wait, l.newOwner(), r.opts, r.end, r.waited)
		return
	}
	answer := &StoredAnswer{Text: texts[0]}
	if len(r.keys) > 1 {
		answer.All, answer.Text = texts, texts[slices.Index(r.keys, l.groups(r.keys)[0][0])]
	}
	r.then(nil, answer)
}

// waited goes on when a lock is free, or its answer is stored.
func (r *reading) waited(lease *Lease, err error) {
	switch {
	case lease != nil: // its call has stored none
		r.locker.releaseAsync(r.ctx, lease)
		r.then(nil, &StoredAnswer{Withheld: true})
	case isGiven(err):
		r.read()
	default:
		r.then(nil, err)
	}
}

// isGiven reports whether an error is a stored answer that is not withheld.
func isGiven(err error) bool {
	found, ok := errors.AsType[*StoredAnswer](err)
	return ok && !found.Withheld
}

// readFound reads the stored answer of one lock. The text is "" if there is none that is given; taken
// means that one may be stored yet.
func (l *Locker) readFound(ctx context.Context, key, name string) (text string, taken bool, err error) {
	c := redisbatch.NewCall(foundScript(), key).Key(StoredKey(key, name))
	confirm := "0"
	if l.opts.Replicas > 0 {
		confirm = "1"
	}
	c.Text(confirm)
	c.MayAnswerText, c.Confirm = true, true
	n, err := l.nodes[0].batcher.Do(ctx, c)
	if found, ok := errors.AsType[*StoredAnswer](asStored(err)); ok {
		return found.Text, false, nil
	}
	return "", n == 1, l.explain(key, err)
}
