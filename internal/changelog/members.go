package changelog

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/runbook"
)

// Members returns the members as of the last renewal.
func (l *Log) Members() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.members)
}

// setMembers keeps the members, in case Redis loses them.
func (l *Log) setMembers(members []string) {
	if len(members) == 0 {
		return // the page has none
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.members = members
}

// restoreMembers registers the members again that were known before the log was lost.
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

// checkDuplicate looks for another member with this instance ID. Joining has removed its
// predecessors.
func (m *Member) checkDuplicate(members []string) {
	if m == nil || len(members) == 0 {
		return // the page has none
	}
	found := slices.ContainsFunc(members, func(name string) bool {
		return name != m.name && strings.HasPrefix(name, m.instanceID+instanceSep)
	})
	m.duplicate.Store(found)
	if found {
		m.hadDuplicate.Store(true)
	}
}

func (m *Member) hasDuplicate() bool { return m != nil && m.duplicate.Load() }

// isEarlierRelease reports whether a member is of an earlier release.
func isEarlierRelease(member string) bool {
	return strings.Contains(member, instanceSep) && !strings.HasSuffix(strings.TrimSuffix(member, snapshotSuffix), waitsSuffix)
}

// logDuplicate logs a duplicate once a minute.
func (r *reader) logDuplicate(err error) {
	if now := time.Now(); now.Sub(r.duplicateLogged) >= time.Minute {
		r.duplicateLogged = now
		r.log.opts.Logger.Error("nothing counts as absent", "filter", r.log.filter, "error", err,
			runbook.FilterNotReady.Do("give one of them another redis.member"))
	}
}
