//go:build unix

package decisionlog

import (
	"os"
	"syscall"
)

// stream returns an output for a stream of the process, by a descriptor of its own: Go ends the process
// when its standard output has no reader.
func stream(name string) (output, error) {
	of := syscall.Stdout
	if name == Stderr {
		of = syscall.Stderr
	}
	fd, err := syscall.Dup(of)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fd)
	return &file{File: os.NewFile(uintptr(fd), name)}, nil
}
