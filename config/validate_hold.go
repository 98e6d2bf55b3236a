package config

import "time"

// lockTimes returns a warning for each hold in the file that is longer than two thirds of its lease,
// and for each keep_fence: 0s. Such a hold says that the backend may take so long, and a lease, which
// is renewed at a third, may have no more left when ordergate is killed. The default hold says nothing.
func (d *document) lockTimes(c *Config) []Violation {
	before := len(d.violations)
	check := func(path string, hold, lease time.Duration) {
		if d.given(path) && hold > lease/3*2 {
			d.report(path, "is longer than two thirds of lease "+number(lease)+": if ordergate is killed, the lock may end before the backend has. Set lease: "+
				number((hold+hold/2).Round(time.Second))+", or a shorter hold")
		}
	}
	for _, name := range sortedKeys(c.Locks) {
		l := c.Locks[name]
		check(join("locks", name)+".on_unknown_outcome.hold", l.OnUnknownOutcome.Hold, l.Lease)
		if at := join("locks", name) + ".keep_fence"; d.given(at) && l.KeepFence == 0 {
			d.report(at, "keeps 104 bytes in Redis for ever for each order that a client settles, also for made-up ones while the filter is unknown. Only Java's getFencedLock and getSemaphore need it: else remove it")
		}
	}
	for i := range c.Rules {
		if o, at := c.Rules[i].ByKey(); o != nil {
			check(join(rulePath(i), at)+".hold", o.Hold, o.Lease)
		}
	}
	return d.warningsSince(before)
}
