package decisionlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Streams of the process that a log may go to.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// mode of a file: those who ship logs may read it.
const mode = 0o640

// file is an output.
type file struct {
	*os.File
	path string // "": a stream
}

func openOutput(to string) (output, error) {
	if to == Stdout || to == Stderr {
		return stream(to)
	}
	path, err := filepath.Abs(to)
	if err != nil {
		return nil, err
	}
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	return &file{f, path}, nil
}

// open does not wait for the reader of a pipe.
func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, mode)
	if errors.Is(err, syscall.ENXIO) {
		return nil, fmt.Errorf("%w: start the reader of the pipe first", err)
	}
	return f, err
}

// renew implements output. A file that was renamed or removed gets a successor of its name, as those who
// rotate logs expect. If there can be none, the old one goes on.
func (f *file) renew() bool {
	if f.path == "" {
		return false
	}
	now, err := os.Stat(f.path)
	if was, failed := f.Stat(); failed == nil && err == nil && os.SameFile(was, now) {
		return false
	}
	next, err := open(f.path)
	if err != nil {
		return false
	}
	_ = f.Close()
	f.File = next
	return true
}
