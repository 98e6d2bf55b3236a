package changelog

import (
	"context"
	"slices"
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
