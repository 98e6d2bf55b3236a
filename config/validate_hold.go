package config

import "time"

// longHolds returns a warning for each hold in the file that is longer than two thirds of its
// lease. Such a hold says that the backend may take so long, and a lease, which is renewed at a
// third, may have no more left when ordergate is killed. The default hold says nothing.
func (d *document) longHolds(c *Config) []Violation {
	before := len(d.violations)
	for _, name := range sortedKeys(c.Locks) {
		l, path := c.Locks[name], join("locks", name)+".on_unknown_outcome.hold"
		if hold := l.OnUnknownOutcome.Hold; d.given(path) && hold > l.Lease/3*2 {
			d.report(path, "is longer than two thirds of lease "+number(l.Lease)+": if ordergate is killed, the lock may end before the backend has. Set lease: "+
				number((hold+hold/2).Round(time.Second))+", or a shorter hold")
		}
	}
	return d.warningsSince(before)
}
