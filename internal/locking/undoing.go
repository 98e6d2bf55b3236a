package locking

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// undoing is what a call that is only observed does to the stored answers of enforced calls. It has
// another lock than they have, or none, and may undo what they report all the same. So it leaves a mark as
// they do, before it is forwarded, and the mark goes only if the undo has certainly failed. Its methods do
// nothing for nil, that of a call that is enforced.
type undoing struct {
	unit  *Unit
	call  string   // names it in its marks; "": it has not begun, and is not forwarded
	keys  []string // of the enforced lock
	keep  time.Duration
	names []string
	step  redislock.UndoStep // at its end
}

func (g GateLocker) undoing(request gate.LockRequest) *undoing {
	if !g.unit.use.Observe || g.unit.use.isOfKeys() {
		return nil
	}
	u := &undoing{unit: g.unit, step: redislock.UndoFailed, keys: g.keys(request.IDs)}
	for i, key := range u.keys {
		u.keys[i] = strings.TrimSuffix(key, config.ObservedSuffix)
	}
	return u
}

// Undone implements gate.Locker.
func (g GateLocker) Undone(ctx context.Context, ids []string, name string, fences []int64) (bool, error) {
	return redislock.UndoneSince(ctx, g.unit.set.opts.Redis, fences, name, g.keys(ids)...)
}

// Marked implements gate.Locker.
func (g GateLocker) Marked(ctx context.Context, ids []string) ([]int64, error) {
	return redislock.GreatestMarks(ctx, g.unit.set.opts.Redis, g.keys(ids)...)
}

// begin suspends the stored answers. The call goes on without that if Redis does not answer, and its end
// makes up for it.
func (u *undoing) begin(ctx context.Context, keep time.Duration, names []string) {
	if u == nil {
		return
	}
	u.call, u.keep, u.names = uuid.NewString(), keep, names
	u.mark(ctx, redislock.UndoBegins)
}

// ends says what end does.
func (u *undoing) ends(step redislock.UndoStep) {
	if u != nil {
		u.step = step
	}
}

// end changes the stored answers. An error does not keep the call from its end: they stay suspended.
func (u *undoing) end(ctx context.Context) {
	if u != nil && u.call != "" {
		u.mark(ctx, u.step)
	}
}

func (u *undoing) mark(ctx context.Context, step redislock.UndoStep) {
	if err := u.markEach(ctx, step); err != nil {
		u.unit.log.Warn("what a call that is only observed undoes is not marked: the stored answer of the settlement may be given on, or stay suspended", "error", err,
			runbook.AnswersNotStored.Do("look at Redis and the way to it"))
	}
}

func (u *undoing) markEach(ctx context.Context, step redislock.UndoStep) error {
	locker, err := u.unit.enter()
	if err != nil {
		return err
	}
	defer u.unit.leave()
	for _, key := range u.keys {
		if err := locker.MarkUndone(ctx, step, u.call, key, u.keep, u.names...); err != nil {
			return err
		}
	}
	return nil
}

// unlocked is the lease of an observed call that undoes and got no lock: it has its marks.
type unlocked struct{ undoes *undoing }

// Fences implements gate.Lease.
func (l *unlocked) Fences() []int64 { return make([]int64, len(l.undoes.keys)) }

// Owner implements gate.Lease.
func (l *unlocked) Owner() string { return "" }

// NotifyLost implements gate.Lease.
func (l *unlocked) NotifyLost(func()) {}

// Ended implements gate.Lease.
func (l *unlocked) Ended() bool { return false }

// Release implements gate.Lease.
func (l *unlocked) Release(then func(error)) {
	l.undoes.unit.set.lateEnds.run(func(ctx context.Context) {
		l.undoes.end(ctx)
		then(nil)
	})
}

// Hold implements gate.Lease.
func (l *unlocked) Hold(string) {
	l.undoes.ends(redislock.UndoLeft)
	l.Release(func(error) {})
}

// StoreAnswer implements gate.Lease.
func (l *unlocked) StoreAnswer(string, string, string, time.Duration) {}

// ForgetAnswers implements gate.Lease.
func (l *unlocked) ForgetAnswers(time.Duration, ...string) { l.undoes.ends(redislock.UndoDone) }

// SuspendAnswers implements gate.Lease.
func (l *unlocked) SuspendAnswers(ctx context.Context, keep time.Duration, names ...string) error {
	l.undoes.begin(ctx, keep, names)
	return nil
}

// KeepSuspended implements gate.Lease.
func (l *unlocked) KeepSuspended() { l.undoes.ends(redislock.UndoLeft) }
