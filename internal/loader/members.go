package loader

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/order"
)

// followedPrefix precedes the name of a followed table among the members of a change log.
const followedPrefix = "source:"

// followedMembers returns the members that the change log of a filter requires: the followers of
// its tables.
func followedMembers(c *config.Config, name string) (members []string) {
	for _, s := range c.Filters[name].Sources {
		if f := c.Sources[s].Follow; f != "" && f != config.FollowNone {
			members = append(members, followedPrefix+followedAs(s, c.Sources[s], c.Filters[name].Parts))
		}
	}
	return members
}

// followedAs returns the name in Redis of a table that is followed: the source's, and a hash of what it
// is a name for. While a change of the file reaches one ordergate after the other, the followers of
// both tables stay apart. Addresses are not in it: after a failover the server has another one, and a
// place that its history lacks is gone.
func followedAs(source string, c config.Source, parts []string) string {
	database := ""
	if t, err := newTable(c, parts); err == nil { // it has been checked
		database = t.Database()
	}
	return nameInRedis(source, fmt.Appendf(nil, "%q %q %q %q %q", c.Kind, database, c.Table, c.IDColumn, partColumns(c, parts)))
}

// nameInRedis returns the name of a source, and a hash of what it is a name for.
func nameInRedis(source string, of []byte) string {
	sum := sha256.Sum256(of)
	return source + "@" + hex.EncodeToString(sum[:6])
}

// withinGraceOf returns a function that reports whether an order may be too new for a table to
// have it; nil: none is.
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

// commitDelayOf returns for how long an abandoned call may still create its order: the longest
// time of a transaction.
func commitDelayOf(c *config.Config, name string) time.Duration {
	return cmp.Or(longestOverlap(c, name), time.Minute) // without a table: the default of tables
}

// logMetrics returns the state of a change log for the metrics.
func logMetrics(u *Loader) metrics.Log {
	s := u.log.State()
	m := metrics.Log{
		Lag: s.Tail - min(s.Tail, s.Position), Reads: s.Reads, ReadTook: s.ReadTook, PendingWrites: s.Pending,
		Members: len(u.log.Members()), Repaired: s.Repaired, Doubts: make(map[string]uint64),
	}
	for _, kind := range []changelog.Kind{changelog.Failover, changelog.Crash, changelog.Lost, changelog.Running, changelog.Gap} {
		m.Doubts[string(kind)] = s.Doubts[kind]
	}
	return m
}
