package source

import (
	"context"
	"io"
)

// stdinPath is the path that means the standard input.
const stdinPath = "-"

// interruptible returns a reader whose reads end when ctx does. A read of the
// standard input cannot be interrupted: it goes on, in a goroutine of its own, until
// something comes or the process ends.
func interruptible(ctx context.Context, in io.Reader) io.ReadCloser {
	out, into := io.Pipe()
	stop := context.AfterFunc(ctx, func() { into.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer stop()
		_, err := io.Copy(into, in)
		into.CloseWithError(err) // io.EOF if there was none
	}()
	return out
}
