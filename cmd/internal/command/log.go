package command

import (
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/internal/runbook"
)

const (
	// logQueue bounds the lines that wait for the reader of the log.
	logQueue = 1000
	// logFlush bounds how long a process that ends waits for that reader.
	logFlush = time.Second
)

// logWriter writes lines in the background, and drops what does not fit into its queue. A pipe whose
// reader has stopped then blocks no renewal of a lease, and no end of the process.
type logWriter struct {
	lines   chan []byte
	dropped atomic.Int64
	closing chan struct{}
	done    chan struct{}
}

// newLogWriter returns a writer of lines to w. It reports dropped lines to direct, which has to be a
// logger to w.
func newLogWriter(w io.Writer, direct *slog.Logger) *logWriter {
	l := &logWriter{lines: make(chan []byte, logQueue), closing: make(chan struct{}), done: make(chan struct{})}
	go l.run(w, direct)
	return l
}

func (l *logWriter) run(w io.Writer, direct *slog.Logger) {
	defer close(l.done)
	write := func(line []byte) {
		_, _ = w.Write(line) // there is no other place to report it
		if n := l.dropped.Swap(0); n > 0 {
			direct.Warn("lines of the log were dropped", "lines", n,
				runbook.Faults.Do("have the reader of the log read faster; ordergate bundle has the last 1,000 lines"))
		}
	}
	for {
		select {
		case line := <-l.lines:
			write(line)
			continue
		case <-l.closing:
		}
		for len(l.lines) > 0 {
			write(<-l.lines)
		}
		return
	}
}

// Write keeps a copy of the line for the reader. It does not block.
func (l *logWriter) Write(line []byte) (int, error) {
	select {
	case l.lines <- append([]byte(nil), line...):
	default:
		l.dropped.Add(1)
	}
	return len(line), nil
}

// Close waits until the lines are written, for at most logFlush.
func (l *logWriter) Close() {
	close(l.closing)
	timer := time.NewTimer(logFlush)
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
	}
}
