package filter

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// sharedLog is a change log in memory.
type sharedLog struct {
	mu        sync.Mutex
	ids       []string
	followers []*follower
}

func (l *sharedLog) Append(_ context.Context, ids ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, ids...)
	return nil
}

func (l *sharedLog) Record(ctx context.Context, ids ...string) error { return l.Append(ctx, ids...) }

func (l *sharedLog) AppendIncomplete(context.Context, string, time.Time) (Entry, error) {
	return Entry{}, nil
}
func (l *sharedLog) AppendAbandoned(context.Context, string, time.Time) (Entry, error) {
	return Entry{}, nil
}
func (l *sharedLog) Withdraw(context.Context) error { return nil }

// since returns the entries behind the first n.
func (l *sharedLog) since(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids[n:len(l.ids):len(l.ids)]
}

// Spread ends the windows of all that do not have the whole log.
func (l *sharedLog) Spread(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.followers {
		if w := f.window.Load(); w != nil && f.pos < len(l.ids) {
			w.over.Store(true)
		}
	}
	return nil
}

// follower applies a log to a filter, and opens a window whenever it has all of it.
type follower struct {
	log    *sharedLog
	add    func(string)
	pos    int // guarded by the log's mutex
	window atomic.Pointer[ended]
}

// ended is a window that holds until it is ended.
type ended struct{ over atomic.Bool }

func (w *ended) Holds() bool { return w != nil && !w.over.Load() }

// follow applies what the log has, all the time until ctx ends.
func (f *follower) follow(ctx context.Context) {
	for ; ctx.Err() == nil; runtime.Gosched() {
		f.log.mu.Lock()
		fresh := f.log.ids[f.pos:]
		f.log.mu.Unlock()
		for _, id := range fresh {
			f.add(id)
		}
		f.log.mu.Lock()
		f.pos += len(fresh)
		if f.pos == len(f.log.ids) && !f.window.Load().Holds() {
			f.window.Store(&ended{})
		}
		f.log.mu.Unlock()
	}
}

// hasty is a log whose Spread waits for nothing.
type hasty struct{ *sharedLog }

func (hasty) Spread(context.Context) error { return nil }

var errAway = errors.New("redis is away")

// flaky is an appender that can be switched off.
type flaky struct {
	mu    sync.Mutex
	down  bool
	tries int
	ids   []string
	// missed are the doubts that were told of; withdrawn counts calls of Withdraw, which
	// returns what cannot says.
	missed    []string
	withdrawn int
	cannot    error
	// unspread is what Spread returns; did are the calls, by name.
	unspread error
	did      []string
}

// note is called with the mutex held.
func (a *flaky) note(call string) { a.did = append(a.did, call) }

// calls returns what was called since the last time.
func (a *flaky) calls() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.did = nil }()
	return strings.Join(a.did, " ")
}

func (a *flaky) Spread(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.note("spread")
	return a.unspread
}

func (a *flaky) Append(_ context.Context, ids ...string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tries++
	a.note("append")
	if a.down {
		return errAway
	}
	a.ids = append(a.ids, ids...)
	return nil
}

func (a *flaky) Record(ctx context.Context, ids ...string) error { return a.Append(ctx, ids...) }

func (a *flaky) AppendIncomplete(_ context.Context, reason string, _ time.Time) (Entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.note("missed")
	if a.down {
		return Entry{}, errAway
	}
	a.missed = append(a.missed, reason)
	return Entry{Log: "a", Number: uint64(len(a.missed))}, nil
}

func (a *flaky) AppendAbandoned(ctx context.Context, reason string, _ time.Time) (Entry, error) {
	return a.AppendIncomplete(ctx, "abandoned: "+reason, time.Time{})
}

func (a *flaky) Withdraw(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.withdrawn++
	a.note("withdraw")
	return a.cannot
}

func (a *flaky) set(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
}

func (a *flaky) appended() ([]string, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.ids), a.tries
}

// patient is an appender whose calls take so long.
type patient struct {
	sharedLog
	append, spread, withdraw time.Duration
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *patient) Append(ctx context.Context, ids ...string) error {
	if err := sleep(ctx, l.append); err != nil {
		return err
	}
	return l.sharedLog.Append(ctx, ids...)
}

func (l *patient) Record(ctx context.Context, ids ...string) error { return l.Append(ctx, ids...) }
func (l *patient) Spread(ctx context.Context) error                { return sleep(ctx, l.spread) }
func (l *patient) Withdraw(ctx context.Context) error              { return sleep(ctx, l.withdraw) }
