package bundle

import (
	"bytes"
	"sync"
)

const (
	// maxLines bounds a [Log], maxLine a line of it, in bytes.
	maxLines = 1000
	maxLine  = 16 << 10
)

// Log keeps the last 1,000 lines that were written to it. The zero value is empty. It is safe for
// concurrent use.
type Log struct {
	mu    sync.Mutex
	lines [maxLines][]byte
	next  int // total number of lines so far
}

// Write keeps a line. It never fails.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := &l.lines[l.next%maxLines]
	*at = append((*at)[:0], line[:min(len(line), maxLine)]...)
	if !bytes.HasSuffix(*at, []byte("\n")) {
		*at = append(*at, '\n')
	}
	l.next++
	return len(line), nil
}

// Text returns the lines, the oldest first.
func (l *Log) Text() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b bytes.Buffer
	for i := max(0, l.next-maxLines); i < l.next; i++ {
		b.Write(l.lines[i%maxLines])
	}
	return b.Bytes()
}
