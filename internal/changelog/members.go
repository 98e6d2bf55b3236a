package changelog

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Members returns who was a member when the lease was renewed last.
func (l *Log) Members() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.members)
}

// know keeps who the members are, for a Redis that forgets them.
func (l *Log) setMembers(members []string) {
	if len(members) == 0 {
		return // it was not asked for
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.members = members
}

// callBack makes those members again that were known before the log was lost.
func (l *Log) restoreMembers(ctx context.Context) error {
	var args []any
	for _, name := range l.Members() {
		if name != l.member.Name() {
			args = append(args, name)
		}
	}
	if len(args) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	if _, cmd := l.runScript(ctx, l.recall, l.keys, args...); cmd.Err() != nil {
		return l.readError(cmd.Err())
	}
	return nil
}

// beside looks for another one at the place, of all members. Those before were removed
// when it joined.
func (m *Member) checkDuplicate(members []string) {
	if m == nil || len(members) == 0 {
		return // they were not asked for
	}
	twin := slices.ContainsFunc(members, func(name string) bool {
		return name != m.name && strings.HasPrefix(name, m.instanceID+instanceSep)
	})
	m.duplicate.Store(twin)
	if twin {
		m.hadDuplicate.Store(true)
	}
}

func (m *Member) hasDuplicate() bool { return m != nil && m.duplicate.Load() }

// isEarlier reports whether a member is of an earlier release.
func isEarlierRelease(member string) bool {
	return strings.Contains(member, instanceSep) && !strings.HasSuffix(strings.TrimSuffix(member, snapshotSuffix), waitsSuffix)
}

// tellTwin says once a minute that there is one: whoever looks at the log of either finds
// it there.
func (r *reader) logDuplicate(err error) {
	if now := time.Now(); now.Sub(r.duplicateLogged) >= time.Minute {
		r.duplicateLogged = now
		r.log.opts.Logger.Error("nothing counts as absent", "filter", r.log.filter, "error", err)
	}
}
