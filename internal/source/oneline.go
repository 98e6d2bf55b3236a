package source

import "strings"

// oneLine removes line breaks from an error's text.
func oneLine(err error) error {
	if err == nil || !strings.ContainsAny(err.Error(), "\r\n") {
		return err
	}
	return &lineError{err}
}

type lineError struct{ err error }

func (e *lineError) Error() string { return strings.Join(strings.Fields(e.err.Error()), " ") }
func (e *lineError) Unwrap() error { return e.err }
