package changelog

import "time"

// The time limits of the protocol. docs/freshness.pml models them: a change here has the
// whole model searched again, see tests/model_test.go.
const (
	defaultPollEvery = 100 * time.Millisecond
	defaultLimit     = time.Second
	defaultLease     = 2 * time.Second
	defaultExpel     = 5 * time.Minute

	// patience is how long an append may take until its lease is renewed no more: it may
	// fail, and then the end of the lease is waited for.
	patience = 200 * time.Millisecond
	// margin is added to a lease by who waits for its end: for clocks that run at
	// different speeds, and for one that is set back by less than anybody notices.
	margin = 60 * time.Millisecond
	// renewals is how many times in a lease it is renewed.
	renewals = 5
)
