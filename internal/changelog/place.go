package changelog

import "context"

// Move moves the place of a table's follower, a field of a hash, from the one that the follower
// stored last. "" stands for no place.
type Move struct {
	Hash, Field string
	From, To    string
	Doubt       *Doubt // appended after the IDs; nil: none
}

// RecordAt is [Log.Record] for the follower of a table. In the same step it moves the follower's
// place. So a server that has a place has all IDs before it. If another place than move.From is
// stored, it returns an error and appends nothing.
func (m *Member) RecordAt(ctx context.Context, move Move, ids ...string) error {
	items, err := m.log.entries(ids)
	if err != nil {
		return err
	}
	if move.Doubt != nil {
		items = append(items, item{"doubt", move.Doubt.text()})
	}
	a, err := m.log.runAppend(ctx, m.log.follow, []any{move.Field, "move", move.From, move.To}, items, move.Hash)
	if err == nil {
		m.notePlace(a.leaseEpoch)
	}
	return err
}

// RecordedAt returns the place that RecordAt has stored, "" if there is nothing. All entries that
// the log has by then count as acknowledged here: [Log.WaitForPeers] waits for those of earlier
// followers too.
func (m *Member) RecordedAt(ctx context.Context, hash, field string) (string, error) {
	a, err := m.log.runAppend(ctx, m.log.follow, []any{field, "read", "", ""}, nil, hash)
	if err == nil {
		m.notePlace(a.leaseEpoch)
	}
	return a.position, err
}

func (m *Member) notePlace(leaseEpoch string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.placeEpoch = leaseEpoch
}

// IsPlaceKnown reports whether a present server has the follower's place. After a restart or a
// failover of Redis it may have an earlier one, and lack entries: the lease is not renewed until the
// follower has moved its place, or has read it.
func (m *Member) IsPlaceKnown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.placeEpoch == "" || m.placeEpoch == m.lastReply.leaseEpoch
}
