package loader

import (
	"cmp"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/order"
)

// followedPrefix stands before the name of a source that is followed, among the members
// of a change log.
const followedPrefix = "source:"

// followedMembers returns the members that the change log of a filter must have: those who
// follow its tables.
func followedMembers(c *config.Config, name string) (members []string) {
	for _, s := range c.Filters[name].Sources {
		if f := c.Sources[s].Follow; f != "" && f != config.FollowNone {
			members = append(members, followedPrefix+s)
		}
	}
	return members
}

// withinGraceOf returns what tells IDs of orders that may be too new for a table to have told
// of; nil where there are none.
func withinGraceOf(c *config.Config, name string, formats []order.Format, now func() time.Time) func(id string) bool {
	var grace time.Duration
	for _, s := range c.Filters[name].Sources {
		grace = max(grace, c.Sources[s].Grace)
	}
	if grace == 0 {
		return nil
	}
	return func(id string) bool {
		for i := range formats {
			if at, ok := formats[i].Time(id); ok && now().Sub(at) < grace {
				return true
			}
		}
		return false
	}
}

// commitDelayOf returns for how long an order may yet be created by a call that nobody waits
// for any more: as long as the transactions that create orders may take.
func commitDelayOf(c *config.Config, name string) time.Duration {
	return cmp.Or(longestOverlap(c, name), time.Minute) // without a table: what a table's default is
}

// logMetrics shows a change log to the metrics.
func logMetrics(u *Loader) metrics.Log {
	s := u.log.State()
	m := metrics.Log{
		Lag: s.Tail - min(s.Tail, s.Position), Reads: s.Reads, ReadTook: s.ReadTook, Owed: s.Pending,
		Members: len(u.log.Members()), Repaired: s.Repaired, Doubts: make(map[string]uint64),
	}
	for _, kind := range []changelog.Kind{changelog.Failover, changelog.Crash, changelog.Lost, changelog.Running, changelog.Gap} {
		m.Doubts[string(kind)] = s.Doubts[kind]
	}
	return m
}
