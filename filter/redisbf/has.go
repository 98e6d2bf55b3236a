package redisbf

import (
	"context"
	"errors"
	"fmt"
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

// Has asks for many IDs, in as few round trips as there is room for, and sets the
// answer of each. An error leaves Unknown what it is about: the other answers are
// good. It blocks for as long as the client's timeouts let it, and until ctx ends
// if the client heeds it (redis.Options.ContextTimeoutEnabled). It does not share
// its round trips with other callers: see [Set.Ask].
func (s *Set) Has(ctx context.Context, ids []string, answers []presence.Answer) error {
	if len(ids) != len(answers) {
		return fmt.Errorf("filter %s: %d answers for %d IDs", s.opts.Key, len(answers), len(ids))
	}
	clear(answers)
	var errs []error
	fail := func(err error) {
		if len(errs) < maxErrors {
			errs = append(errs, err)
		}
	}
	for len(ids) > 0 {
		n := min(len(ids), maxLookups)
		groups, from := s.groups(ids[:n])
		s.exchange(ctx, groups)
		for _, g := range groups {
			if g.err != nil {
				fail(g.err)
			}
		}
		for i, f := range from {
			if f.group == nil {
				fail(s.refuses(ids[i]))
				continue
			}
			answers[i] = f.group.answers[f.index]
		}
		ids, answers = ids[n:], answers[n:]
		if len(errs) > 0 && ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// maxErrors is how many errors Has returns.
const maxErrors = 3

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
