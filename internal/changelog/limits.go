package changelog

import "time"

// The time limits of the protocol, which docs/freshness.pml models. After a change here
// tests/model_test.go searches the whole model.
const (
	defaultPollEvery = 100 * time.Millisecond
	defaultLimit     = time.Second
	defaultLease     = 2 * time.Second
	defaultExpel     = 5 * time.Minute

	// patience is how long an append may take before the member stops renewing its lease:
	// the append may fail, and then the member waits for the end of the lease.
	patience = 200 * time.Millisecond
	// margin is added by each process that waits for the end of a lease: for clocks that
	// run at different speeds, and for a clock that is set back a little.
	margin = 60 * time.Millisecond
	// renewals is how many times a member renews its lease before that could end.
	renewals = 5
)
