package changelog

import (
	"errors"
	"time"
)

// Phase is what the reader of a [Log] is at.
type Phase string

// The phases of a log. Windows are opened in Following only.
const (
	Loading     Phase = "loading"     // reading what was there at the start
	Following   Phase = "following"   // the last read reached the tail
	Away        Phase = "away"        // it did, but a member may have IDs that are not there
	Blind       Phase = "blind"       // it did, but nobody would notice that the server was replaced
	Unavailable Phase = "unavailable" // the last read failed, the next may not
	Broken      Phase = "broken"      // the log's keys hold something else
	Stopped     Phase = "stopped"     // Run has returned
)

// State is a log as its reader sees it, for metrics and health.
type State struct {
	Phase    Phase
	Err      error           // why, in Away, Blind, Unavailable, Broken and Stopped
	Position uint64          // sequence number of the last entry applied
	Tail     uint64          // sequence number of the log's last entry when it was last read; less Position is the lag
	Reads    uint64          // pages asked for so far
	Waiting  int             // callers of Wait whose read has not begun
	ReadTook time.Duration   // how long the last read took
	LastRead time.Time       // when the tail was last reached; zero if never
	Doubts   map[Kind]uint64 // told of so far
	Pending  int             // appended here, and not acknowledged
	Repaired uint64          // IDs appended again since the log had lost them
}

// State returns the state of the log as of now.
func (l *Log) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state
	s.Position = l.position.Load()
	if l.nextRead != nil {
		s.Waiting = l.nextRead.waiters
	}
	s.Doubts = make(map[Kind]uint64, len(l.state.Doubts))
	for kind, n := range l.state.Doubts {
		s.Doubts[kind] = n
	}
	s.Pending = l.member.pendingCount()
	return s
}

// Err returns why no window is opened, as the reader found last; nil: one is, or the
// tail was not reached yet. It does not block.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.Err
}

// EverRequired reports whether all members that [Options.Require] names were there, and not
// away, at one time since Run began.
func (l *Log) RequiredJoined() bool { return l.requiredJoined.Load() }

// LastRead returns when the tail was last reached; zero if never.
func (l *Log) LastRead() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.LastRead
}

// Reached returns a channel that is closed once the tail has been reached: from then on
// the log is one that is known, and what a source is read for after that is not missed.
func (l *Log) TailReached() <-chan struct{} { return l.tailReached }

// Position returns the sequence number of the last entry applied, 0 before the
// first.
func (l *Log) Position() uint64 { return l.position.Load() }

// settle records how a read to the tail ended, and says so in the log when that
// changes something: a Redis that is away for an hour is worth one line.
//
// What it finds closes the window, but for a server that does not answer. Those who create wait for the
// end of a window anyway; but who comes back after it was taken for gone may owe an order that no window
// was opened for.
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
		log.Error("change log is broken, nothing counts as absent", "error", err)
	case Unavailable:
		log.Warn("change log is unavailable, nothing counts as absent until it can be read", "error", err)
	case Blind:
		log.Error("nothing counts as absent, and this ordergate is not ready", "error", err)
	case Away:
		if errors.Is(err, ErrDuplicate) {
			return // it is said again and again
		}
		log.Warn("nothing counts as absent for now", "error", err)
	case Following:
		log.Info("following the change log")
	}
}
