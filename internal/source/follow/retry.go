package follow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/wait"
)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	// busyPause is for a resource of another follower, who may release it at any time.
	busyPause = 500 * time.Millisecond
	// stableAfter is how long a connection must last before the pauses start anew.
	stableAfter = 10 * time.Second
)

// permanent is an error that a retry would meet again.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent marks an error that a retry would meet again.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// ErrBusy is the error of a session that needs a resource of another follower.
var ErrBusy = errors.New("waiting for it")

// Retry calls session again and again, with pauses of 0.1 to 5 s, until it returns a [Permanent]
// error or ctx ends. It returns that error or the cause. A session lasts as long as its connection.
// opts.OnBusy receives each [ErrBusy], and opts.OnDisconnect each other error that is not permanent.
func Retry(ctx context.Context, opts Options, session func(context.Context) error) error {
	pause := firstPause
	for {
		began := time.Now()
		err := session(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, ok := errors.AsType[permanent](err); ok {
			return err
		}
		if time.Since(began) > stableAfter {
			pause = firstPause
		}
		if errors.Is(err, ErrBusy) {
			pause = min(pause, busyPause)
			opts.OnBusy(err)
		} else {
			opts.OnDisconnect(err)
		}
		// Followers that lost the same server must not reconnect at the same time.
		random := pause/2 + rand.N(pause/2+1)
		opts.Logger.Debug("the database's changes are not followed", "error", OneLine(err), "again_in", random)
		if err := wait.For(ctx, random); err != nil {
			return err
		}
		pause = min(2*pause, lastPause)
	}
}

// Wrap adds the operation on a table to an error, except to the end of the context.
func Wrap(table string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("following the changes of table %s: %w", table, err)
}

// OneLine returns an error's text without line breaks, which some drivers use.
func OneLine(err error) string {
	if err == nil {
		return ""
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
