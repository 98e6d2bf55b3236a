package loader

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/source/follow"
)

// renew renews the follower's lease in the change log as often as it has caught up. Beside the
// position in Redis it keeps why the changes are not known, for the conditions of other instances.
func (f *follower) renew(ctx context.Context, caughtUp <-chan time.Time, lost <-chan struct{}) {
	hasCause := true // in Redis, perhaps of the earlier follower
	check := time.NewTicker(f.lease)
	defer check.Stop()
	late := "" // as logged
	for {
		select {
		case <-ctx.Done():
			return
		case <-check.C:
			cause := f.state.late(f.lease)
			if late == "" && cause != "" {
				f.log.Warn("the changes of a table are late: nothing counts as absent", "reason", cause,
					runbook.TableLags.Do("repair what reason names"))
				hasCause = f.client.HSet(ctx, f.key, causeOf(f.table), cause).Err() == nil || hasCause
			} else if late != "" && cause == "" {
				f.log.Info("the changes of a table arrive in time again")
			}
			late = cause
		case <-lost:
			f.leave(ctx)
			hasCause = true
		case at := <-caughtUp:
			if err := f.member.Renew(ctx, at); err != nil && ctx.Err() == nil {
				f.log.Debug("the change log was not notified that a table is followed", "error", err)
			} else if hasCause {
				hasCause = f.client.HDel(ctx, f.key, causeOf(f.table)).Err() != nil
			}
		}
	}
}

// leave records that the table is not followed, and why: filters answer Unknown until it is
// followed again. If Redis is unreachable, the lease expires.
func (f *follower) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	err := f.member.Leave(ctx)
	if cause := f.state.why(); err == nil && cause != "" {
		err = f.client.HSet(ctx, f.key, causeOf(f.table), cause).Err()
	}
	if err != nil && ctx.Err() == nil {
		f.log.Debug("the change log was not notified that a table is not followed", "error", err)
	}
}

// condition reports whether this or another instance follows the table. It is not ready until
// the table was followed once since the start, or waits for another table's follower: that of an
// ordergate that ends when this one is ready, as in a rolling change.
func (f *follower) condition(ctx context.Context) health.Condition {
	c := health.Condition{Name: "source " + f.name, Ready: f.changes.RequiredJoined()}
	err, own := f.changes.Err(), cmp.Or(f.state.why(), f.state.late(f.lease))
	if !errors.Is(err, changelog.ErrNotFollowed) || own == "" && !strings.HasSuffix(err.Error(), f.member.Name()) {
		return c
	}
	if cause := f.client.HGet(ctx, f.key, causeOf(f.table)).Val(); cause != "" { // of the last follower
		own = cause
	}
	c.Ready = c.Ready || strings.Contains(own, follow.ErrBusy.Error())
	c.Reason = "nothing counts as absent: " + cmp.Or(own, "no ordergate reports that it follows the table: none has begun, it was killed, or it or the database hangs")
	return c
}

// causeOf is the field with the reason why a table is not followed.
func causeOf(table string) string { return table + "#cause" }
