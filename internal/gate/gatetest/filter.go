package gatetest

import (
	"context"
	"time"

	"github.com/ordergate/ordergate/internal/presence"
)

// Filter is a gate.Filter. Its fields must not change during a call. It writes "query 42",
// "learn 42", "caught up", "incomplete: reason" and "abandoned: reason".
type Filter struct {
	Journal *Journal // nil: none
	Answers map[string]presence.Answer
	Others  presence.Answer // about IDs that Answers lacks

	NotInMemory bool   // Query has the answers, and MayContain has none
	Fault       string // the ID at which MayContain panics; "": none
	OnQuery     func(ctx context.Context, id string) presence.Answer
	OnLearn     func(id string) // called by Learn; nil: nothing is
	Learning    chan struct{}   // Learn waits until it is closed; nil: Learn does not wait
	Tables      bool            // Followed
	Late        bool            // CaughtUp returns false, although the filter is followed
}

// MayContain implements gate.Filter.
func (f *Filter) MayContain(id string) presence.Answer {
	switch {
	case f.Fault != "" && id == f.Fault:
		panic("a fault in the filter")
	case f.NotInMemory:
		return presence.NotInMemory
	}
	return f.answer(id)
}

func (f *Filter) answer(id string) presence.Answer {
	if a, ok := f.Answers[id]; ok {
		return a
	}
	return f.Others
}

// Query implements gate.Filter.
func (f *Filter) Query(ctx context.Context, id string) presence.Answer {
	f.Journal.Add("query ", id)
	switch {
	case f.OnQuery != nil:
		return f.OnQuery(ctx, id)
	case ctx.Err() != nil:
		return presence.Unknown
	}
	return f.answer(id)
}

// Learn implements gate.Filter.
func (f *Filter) Learn(ctx context.Context, id string) error {
	f.Journal.Add("learn ", id)
	if f.OnLearn != nil {
		f.OnLearn(id)
	}
	if f.Learning == nil {
		return nil
	}
	select {
	case <-f.Learning:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Followed implements gate.Filter.
func (f *Filter) Followed() bool { return f.Tables }

// CaughtUp implements gate.Filter. It writes "caught up".
func (f *Filter) CaughtUp(context.Context) bool {
	f.Journal.Add("caught up")
	return !f.Late
}

// MarkIncomplete implements gate.Filter.
func (f *Filter) MarkIncomplete(_ context.Context, reason string, _ time.Time) error {
	f.Journal.Add("incomplete: ", reason)
	return nil
}

// Abandoned implements gate.Filter.
func (f *Filter) Abandoned(_ context.Context, reason string, _ time.Time) error {
	f.Journal.Add("abandoned: ", reason)
	return nil
}
