package source

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lines splits a stream into lines, in constant memory.
type lines struct {
	buf    *bufio.Reader
	number int64 // of the last line, from 1
	bytes  int64 // read so far
	cut    bool  // the last line has no end
}

// next returns the next line without its end, valid until the following call. It returns the
// beginning of a line that is longer than the buffer. That is enough for the first column, or to
// see that it is longer than any ID. The error is io.EOF at the end.
func (l *lines) next() ([]byte, error) {
	line, err := l.buf.ReadSlice('\n')
	l.bytes += int64(len(line))
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		// The following reads overwrite the buffer.
		line = bytes.Clone(line)
		err := l.skip()
		if l.cut = errors.Is(err, io.EOF); err != nil && !l.cut {
			return nil, cause(err)
		}
	case errors.Is(err, io.EOF):
		if len(line) == 0 {
			return nil, io.EOF
		}
		l.cut = true
	case err != nil:
		return nil, cause(err)
	}
	l.number++
	line = bytes.TrimSuffix(line, []byte("\n"))
	line = bytes.TrimSuffix(line, []byte("\r"))
	if l.number == 1 {
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	return line, nil
}

// skip reads the rest of a long line.
func (l *lines) skip() error {
	for {
		part, err := l.buf.ReadSlice('\n')
		l.bytes += int64(len(part))
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}
