package changelog

import "time"

// The time limits of the protocol, which docs/freshness.pml models. After a change here
// tests/model_test.go searches the whole model.
const (
	defaultPollEvery = 100 * time.Millisecond
	defaultLimit     = time.Second
	defaultLease     = 2 * time.Second
	defaultExpel     = 5 * time.Minute

	// leastPatience and leastMargin bound what patience and margin return.
	leastPatience = 200 * time.Millisecond
	leastMargin   = 60 * time.Millisecond
	// renewals is how many times a member renews its lease before that could end.
	renewals = 5
)

// margin is added by each process that waits for the end of a lease: for clocks that run at
// different speeds (chrony slews one by 8.3 % at most), and for one that is set back by less
// than passed since a script noted it.
func margin(lease time.Duration) time.Duration { return max(leastMargin, lease/10) }

// patience is how long an append may take before the member stops renewing its lease: the
// append may fail, and then the member waits for the end of the lease. Where Redis is far
// away, it is several times what an append takes: a member that stopped at each would have
// nothing be absent anywhere.
func patience(roundTrip, lease time.Duration) time.Duration {
	return max(min(4*roundTrip, lease/2), min(leastPatience, lease))
}

// LongestWait is how long [Log.Append], given so much time, and [Log.Withdraw] after it take at
// most, until the answer to a create may be passed on. The lease is [Options.Lease].
func LongestWait(appending, lease time.Duration) time.Duration {
	return appending + lease + margin(lease)
}
