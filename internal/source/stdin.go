package source

import (
	"context"
	"io"
)

// stdinPath is the path of the standard input.
const stdinPath = "-"

// interruptible returns a reader whose reads end with ctx. A read of the standard input cannot be
// interrupted. It continues in its own goroutine until input arrives or the process ends.
func interruptible(ctx context.Context, in io.Reader) io.ReadCloser {
	out, into := io.Pipe()
	stop := context.AfterFunc(ctx, func() { into.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer stop()
		_, err := io.Copy(into, in)
		into.CloseWithError(err) // io.EOF if err is nil
	}()
	return out
}
