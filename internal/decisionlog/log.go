// Package decisionlog writes one line of JSON for each decision. It never makes a decision wait: what
// cannot be written in time is dropped and counted.
//
// Start with [Open]. [Log.Select] returns what a gate logs to. A goroutine of the log writes.
package decisionlog

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/runbook"
)

const (
	// capacity of each ring, in bytes: more than a second of 10,000 lines a second. Up to twice as much is
	// in use, with what is being written.
	capacity = 4 << 20
	// retryAfter is the pause after a failed write.
	retryAfter = time.Second
	// closeTime bounds the time for what is left at the end.
	closeTime = time.Second
)

// Kind is a kind of lines. Each has a ring of its own, so that no flood of the one drops the other.
type Kind int8

// The kinds.
const (
	Acted  Kind = iota // of calls on which the backend may have acted; they are written first
	Others             // of refusals and lookups
	kinds
)

// Kinds is the number of kinds, for tables indexed by one.
const Kinds = int(kinds)

// String returns the name that the metrics use.
func (k Kind) String() string { return [...]string{"acted", "others"}[k] }

// Log is a decision log. It is safe for concurrent use.
type Log struct {
	out     output
	secret  *keyed // nil: orders are not hashed
	opts    Options
	dropped [Kinds]atomic.Uint64
	failing *recurring.Problem

	mu    sync.Mutex    // held to copy a line, or to take all of them
	rings [Kinds][]byte // lines that wait to be written
	wake  chan struct{} // has an element if there is something to write
	end   chan struct{} // closed by Close
	done  chan struct{} // closed when nothing more is written
}

// output is a file that may fail and then work again.
type output interface {
	io.Writer
	// renew follows the file to its name, which may mean another one by now. It reports whether it does.
	renew() bool
	io.Closer
}

// Open opens the log and begins to write. The error is about the file.
func Open(opts Options, log *slog.Logger) (*Log, error) {
	out, err := openOutput(opts.To)
	if err != nil {
		return nil, fmt.Errorf("opening the decision log: %w", err)
	}
	return start(out, opts, log), nil
}

func start(out output, opts Options, log *slog.Logger) *Log {
	l := &Log{
		out: out, opts: opts, wake: make(chan struct{}, 1), end: make(chan struct{}), done: make(chan struct{}),
		failing: recurring.New(log, slog.LevelWarn, "the decision log cannot be written", "the decision log is written again",
			runbook.DecisionsNotLogged.Do("make room on its disk, or repair what error names; what does not fit into memory is dropped")),
	}
	if opts.IDs == Hashed {
		l.secret = newKeyed(opts.Secret)
	}
	go l.run()
	return l
}

// Dropped returns how many lines of a kind were dropped.
func (l *Log) Dropped(k Kind) uint64 { return l.dropped[k].Load() }

// add copies a line into its ring, or drops it.
func (l *Log) add(k Kind, line []byte) {
	l.mu.Lock()
	fits := len(l.rings[k])+len(line) <= capacity
	if fits {
		l.rings[k] = append(l.rings[k], line...)
	}
	l.mu.Unlock()
	if !fits {
		l.dropped[k].Add(1)
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take returns the lines of a ring, and gives it an empty memory.
func (l *Log) take(k Kind, empty []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.rings[k]
	l.rings[k] = empty[:0]
	return lines
}

// run writes until Close.
func (l *Log) run() {
	defer close(l.done)
	var w writer
	for ending := false; ; {
		wake := l.wake
		var again <-chan time.Time
		if !w.write(l) {
			wake, again = nil, time.After(retryAfter)
		}
		if ending {
			w.drop(l)
			return
		}
		select {
		case <-wake:
		case <-again:
		case <-l.end:
			ending = true
		}
	}
}

// writer has what was taken from the rings.
type writer struct {
	pending [Kinds][]byte // not written yet
	memory  [Kinds][]byte // of pending
	torn    bool          // the file ends within a line
	renewed time.Time
}

// renewEvery is the time between two looks at the file's name.
const renewEvery = time.Second

// write writes all lines, and reports whether it has. The rest is for the next call.
func (w *writer) write(l *Log) bool {
	if now := time.Now(); now.Sub(w.renewed) >= renewEvery {
		w.renewed = now
		if l.out.renew() {
			w.skipTorn(l)
		}
	}
	for k := range kinds {
		if len(w.pending[k]) == 0 {
			w.memory[k] = l.take(k, w.memory[k])
			w.pending[k] = w.memory[k]
		}
		for len(w.pending[k]) > 0 {
			n, err := l.out.Write(w.pending[k])
			if n > 0 {
				w.torn = w.pending[k][n-1] != '\n'
				w.pending[k] = w.pending[k][n:]
			}
			if err != nil {
				l.failing.Note("to", l.opts.To, "error", err)
				return false
			}
		}
	}
	return true
}

// drop counts what was not written.
func (w *writer) drop(l *Log) {
	for k, lines := range w.pending {
		l.dropped[k].Add(uint64(bytes.Count(lines, []byte("\n"))))
	}
}

// skipTorn drops the rest of a line whose begin is in another file.
func (w *writer) skipTorn(l *Log) {
	for k := range w.pending {
		if !w.torn || len(w.pending[k]) == 0 {
			continue
		}
		end := bytes.IndexByte(w.pending[k], '\n') + 1
		w.pending[k] = w.pending[k][end:]
		w.torn = false
		l.dropped[k].Add(1)
	}
}

// Close writes what is left, for a second at most, and closes the file. No decision may follow.
func (l *Log) Close() {
	if l == nil {
		return
	}
	close(l.end)
	select {
	case <-l.done:
		_ = l.out.Close()
	case <-time.After(closeTime): // a write hangs, and ends with the process
	}
	l.failing.Drop()
}
