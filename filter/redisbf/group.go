package redisbf

import (
	"unicode/utf8"

	"github.com/ordergate/ordergate/internal/presence"
)

const (
	// maxLookups is how many IDs one pipeline asks for. It bounds how long the
	// last of them waits for the first.
	maxLookups = 512
	// maxIDs is how many IDs one command asks for, some 1,000 bits: so long the
	// server does nothing else.
	maxIDs = 64
)

// position is where the answer of an ID will be.
type position struct {
	group *group
	index int
}

// refuses returns why an ID can neither be added nor asked for, or nil.
func (s *Set) refuses(id string) error {
	if s.opts.Kind == Redisson && !utf8.ValidString(id) {
		return errNotText
	}
	return nil
}

// groups sorts IDs by shard. One that is refused is in no group.
func (s *Set) groups(ids []string) ([]*group, []position) {
	var groups []*group
	open := make(map[int]*group) // by shard, with room
	places := make([]position, len(ids))
	for i, id := range ids {
		if s.refuses(id) != nil {
			continue
		}
		shard := s.hash.shard(id)
		g := open[shard]
		if g == nil {
			g = &group{shard: shard}
			groups = append(groups, g)
			open[shard] = g
		}
		places[i] = position{g, len(g.ids)}
		g.ids = append(g.ids, id)
		if len(g.ids) == s.kind.most() {
			delete(open, shard)
		}
	}
	for _, g := range groups {
		g.answers = make([]presence.Answer, len(g.ids))
	}
	return groups, places
}
