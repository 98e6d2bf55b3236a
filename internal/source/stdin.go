package source

import (
	"context"
	"io"
	"os"
)

// stdinPath is the path of the standard input.
const stdinPath = "-"

// interruptible returns a reader of what feed writes, whose reads end with ctx. A read of the standard
// input cannot be interrupted, nor can the opening of a pipe. feed continues in its own goroutine
// until input arrives or the process ends.
func interruptible(ctx context.Context, feed func(into io.Writer) error) io.ReadCloser {
	out, into := io.Pipe()
	stop := context.AfterFunc(ctx, func() { into.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer stop()
		into.CloseWithError(feed(into)) // io.EOF if it is nil
	}()
	return out
}

// copyStdin copies the standard input.
func (f *File) copyStdin(into io.Writer) error {
	_, err := io.Copy(into, f.opts.Stdin)
	return err
}

// copyStream copies a pipe or a device.
func (f *File) copyStream(into io.Writer) error {
	file, err := os.Open(f.path)
	if err != nil {
		return cause(err)
	}
	defer file.Close()
	_, err = io.Copy(into, file)
	return err
}
