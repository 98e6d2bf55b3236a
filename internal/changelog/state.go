package changelog

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/ordergate/ordergate/internal/runbook"
)

// Phase is the state of the reader of a [Log].
type Phase string

// The phases of a log. A window opens only in Following.
const (
	Loading     Phase = "loading"     // the reader reads the log for the first time
	Following   Phase = "following"   // the last read reached the tail
	Away        Phase = "away"        // it did, but a member may have IDs that are not in the log
	Blind       Phase = "blind"       // it did, but a failover of the server would go unnoticed
	Unavailable Phase = "unavailable" // the last read failed, the next may succeed
	Broken      Phase = "broken"      // the log's keys hold something else
	Stopped     Phase = "stopped"     // Run has returned
)

// State describes a log as its reader sees it, for metrics and health.
type State struct {
	Phase    Phase
	Err      error           // the cause of Away, Blind, Unavailable, Broken and Stopped
	Position uint64          // sequence number of the last entry applied
	Tail     uint64          // sequence number of the last entry in the log at the last read; less Position is the lag
	Reads    uint64          // pages requested so far
	ReadTook time.Duration   // duration of the last read
	LastRead time.Time       // when the reader last reached the tail; zero if never
	Doubts   map[Kind]uint64 // reported so far
	Pending  int             // writes of this process without an acknowledgement
	Repaired uint64          // IDs appended again after the log had lost them
}

// State returns the present state of the log.
func (l *Log) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state
	s.Position = l.position.Load()
	s.Doubts = maps.Clone(l.state.Doubts)
	s.Pending = l.member.pendingCount()
	return s
}

// Err returns why the last read opened no window; nil: it opened one, or the reader has not reached
// the tail yet. It does not block.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.Err
}

// troubleLevel is the log level of what is usual until the tables are followed for the first time.
func (l *Log) troubleLevel() slog.Level {
	if l.RequiredJoined() || len(l.opts.Require) == 0 {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// RequiredJoined reports whether all members of [Options.Require] were there at one time since Run
// began, with valid leases.
func (l *Log) RequiredJoined() bool { return l.requiredJoined.Load() }

// LastRead returns when the reader last reached the tail; zero if never.
func (l *Log) LastRead() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.LastRead
}

// TailReached returns a channel that is closed once the reader has reached the tail. From then on
// the log's identity is known: it has every order that a source reports afterwards.
func (l *Log) TailReached() <-chan struct{} { return l.tailReached }

// Position returns the sequence number of the last entry applied, 0 before the first.
func (l *Log) Position() uint64 { return l.position.Load() }

// setPhase records how a read to the tail ended, and logs it when the phase changes. So an hour
// without Redis takes one line.
//
// It replaces the window, except in Unavailable: creators wait for the end of a window anyway. In
// other phases an expelled member may be back, with a pending order. Its creator waits for no
// window opened before.
func (l *Log) setPhase(phase Phase, err error, window *Window) {
	l.mu.Lock()
	before := l.state.Phase
	l.state.Phase, l.state.Err = phase, err
	if phase == Following || phase == Away && !errors.Is(err, ErrDuplicate) {
		if l.state.LastRead.IsZero() {
			close(l.tailReached)
		}
		l.state.LastRead = l.opts.Now()
	}
	l.mu.Unlock()
	if phase != Unavailable {
		l.window.Store(window)
	}
	if phase == before {
		return
	}
	log := l.opts.Logger.With("filter", l.filter, "position", l.position.Load())
	switch phase {
	case Broken:
		log.Error("change log is broken, nothing counts as absent", "error", err,
			runbook.FilterNotReady.Do("repair the key that error names"))
	case Unavailable:
		log.Warn("change log is unavailable, nothing counts as absent until it can be read", "error", err,
			runbook.FilterNotReady.Do("look at Redis and the way to it; ordergate tries again"))
	case Blind:
		log.Error("nothing counts as absent, and this ordergate is not ready", "error", err,
			runbook.RedisUsers.Do("give ordergate's user the right that error names"))
	case Away:
		if errors.Is(err, ErrDuplicate) {
			return // the reader logs it repeatedly
		}
		log.Log(context.Background(), l.troubleLevel(), "nothing counts as absent for now", "error", err,
			runbook.FilterNotReady.Do("start the ordergate that error names, or wait until it is expelled"))
	case Following:
		log.Info("following the change log")
	}
}
