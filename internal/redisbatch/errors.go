package redisbatch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// ErrNotReplicated says that too few replicas confirmed in time what a script wrote.
var ErrNotReplicated = errors.New("too few replicas confirmed it")

// IsAmbiguous reports whether a script may have run although its caller got this error.
// Only a call that never left this process is certain. A server that answers with an error
// may have run a part of the script before.
func IsAmbiguous(err error) bool {
	var unsent unsentError
	var text TextAnswer
	var op *net.OpError
	return !errors.As(err, &unsent) && !errors.As(err, &text) && !(errors.As(err, &op) && op.Op == "dial")
}

// TextAnswer is the error of a call with MayAnswerText whose script answered this text. It
// has done nothing; if it was sent twice, the first time may have.
type TextAnswer string

// Error implements error. It does not quote the text, which may be long and private.
func (t TextAnswer) Error() string {
	return fmt.Sprintf("the script answered a text of %d bytes", len(t))
}

// unsentError is the error of a call that did not leave this process.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// AbandonedError is the error of a call whose caller left while it was on its way.
type AbandonedError struct {
	error
	call *ScriptCall
}

// Unwrap returns the error of the caller's context.
func (e AbandonedError) Unwrap() error { return e.error }

// Refused waits for the answer, until ctx ends. It reports whether the script did nothing
// for certain. Several goroutines may call it.
func (e AbandonedError) Refused(ctx context.Context) bool {
	select {
	case <-e.call.done:
		e.call.done <- struct{}{} // for the next goroutine; the call is not used again
		_, text := errors.AsType[TextAnswer](e.call.err)
		return text || e.call.err == nil && e.call.refused()
	case <-ctx.Done():
		return false
	}
}

// asDeadline makes the timeout of a connection, whose time the deadline of a context has
// bounded, that of the context, which may not have noticed yet.
func asDeadline(ctx context.Context, err error) error {
	deadline, limited := ctx.Deadline()
	if !errors.Is(err, os.ErrDeadlineExceeded) || !limited || time.Now().Before(deadline) {
		return err
	}
	return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
}
