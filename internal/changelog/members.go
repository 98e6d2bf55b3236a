package changelog

import (
	"context"
	"maps"
	"slices"
	"strconv"
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

// Peer is an instance, or a followed table, that takes part in a log.
type Peer struct {
	Name   string        // without what differs after each start
	Member bool          // it may append
	Left   time.Duration // of its lease by the server's clock; below 0: it is away
	Window time.Duration // the longest time for which it refuses by what it has read; 0: it does not
}

// Peers reads from Redis who takes part in the log, in the order of their names. It blocks for one round
// trip.
func (l *Log) Peers(ctx context.Context) ([]Peer, error) {
	pipe := l.client.Pipeline()
	clock := pipe.Time(ctx)
	members := pipe.ZRangeWithScores(ctx, l.keys[keyMembers], 0, -1)
	readers := pipe.ZRange(ctx, l.keys[keyReaders], 0, -1)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, l.readError(err)
	}
	peers := make(map[string]Peer)
	for _, m := range members.Val() {
		name, _ := m.Member.(string)
		left := time.UnixMilli(int64(m.Score)).Sub(clock.Val())
		peers[name] = Peer{Name: withoutNonce(name), Member: true, Left: left}
	}
	for _, r := range readers.Val() {
		i := strings.LastIndexByte(r, '/') // an instance's name may have a path
		if i < 0 {
			continue
		}
		name := r[:i]
		ms, _ := strconv.ParseInt(r[i+1:], 10, 64)
		p := peers[name]
		p.Name, p.Window = withoutNonce(name), time.Duration(ms)*time.Millisecond
		peers[name] = p
	}
	return slices.SortedFunc(maps.Values(peers), func(a, b Peer) int { return strings.Compare(a.Name, b.Name) }), nil
}

// withoutNonce returns the instance ID in the name of a member.
func withoutNonce(name string) string {
	instance, _, _ := strings.Cut(name, instanceSep)
	return instance
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
