package changelog

import "time"

// The time limits of the protocol, which docs/freshness.pml models. After a change here
// tests/model_test.go searches the whole model.
const (
	defaultLimit = time.Second
	defaultLease = 2 * time.Second
	defaultExpel = 5 * time.Minute

	// leastPatience and leastMargin bound what patience and margin return.
	leastPatience = 200 * time.Millisecond
	leastMargin   = 60 * time.Millisecond
	// renewals is how many times a member renews its lease before that could end.
	renewals = 5
	// polls is how many reads a reader sends before a window could end.
	polls = 4
	// idleEvery is how often a log is read whose reader has no window.
	idleEvery = 100 * time.Millisecond
)

// pollEvery is how often a reader reads at least.
func pollEvery(window, lease time.Duration) time.Duration {
	if window <= 0 {
		return idleEvery
	}
	return min(window/polls, lease/renewals)
}

// margin is added by each process that waits for the end of a lease or a window: for clocks that run at
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

// LongestWait is how long [Log.Append], given so much time, and [Log.Spread] or [Log.Withdraw] after
// it take at most, until the answer to a create may be passed on. The lease is [Options.Lease], the window the
// longest of any reader. What else is appended for the same answer takes no longer than Again.
func LongestWait(appending, lease, window time.Duration) time.Duration {
	return appending + lease + margin(lease) + over(window)
}

// Again is how long it takes at most to append something more, and to have it spread: leases are over by then.
func Again(appending, window time.Duration) time.Duration { return appending + over(window) }

// over is after how long a window is certainly over that began by now; 0: there is none.
func over(window time.Duration) time.Duration {
	if window <= 0 {
		return 0
	}
	return window + margin(window)
}
