package follow

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"
)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	// busyPause is for what another holds, who may let go of it at any moment.
	busyPause = 500 * time.Millisecond
	// steady is how long a connection must have lasted for the next to be made without
	// delay.
	stableAfter = 10 * time.Second
)

// permanent is an error that another try would meet again.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent marks an error that another try would meet again.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// ErrBusy is the error of a session that needs what another follower has.
var ErrBusy = errors.New("waiting for it")

// Retry calls session again and again, with pauses of 0.1 to 5 s, until it returns an
// error that is [Permanent] or ctx ends, and returns that error or the cause. A session
// lasts as long as its connection does. Lost is called with each error that is neither
// permanent nor [ErrBusy].
func Retry(ctx context.Context, logger *slog.Logger, onDisconnect func(error), session func(context.Context) error) error {
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
		} else {
			onDisconnect(err)
		}
		// So that those who lost the same server do not return as one.
		wait := pause/2 + rand.N(pause/2+1)
		logger.Debug("the database's changes are not followed", "error", OneLine(err), "again_in", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		pause = min(2*pause, lastPause)
	}
}

// OneLine returns an error's text without line ends: some drivers' have several.
func OneLine(err error) string {
	if err == nil {
		return ""
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
